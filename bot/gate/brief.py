"""What the agent is told: the goal from who may ask, and the thread's words as quotes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime import Quote, Task
from bot.gate.sanitise import clean, clean_line
from bot.intake.commands import Fix
from bot.jobs.job import Job

_TITLE_CHARS = 500
_BODY_CHARS = 20_000
_COMMENT_CHARS = 4_000
_FIRST_COMMENTS = 5
_LAST_COMMENTS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadComment:
    """One comment of the thread, as GitHub has it now.

    Attributes:
        id: GitHub's numeric id; later comments have higher ones.
        author: login of who wrote it.
        body: its Markdown.
        edited_after_command: whether it was edited after the command was given; such a one is left out.
    """

    id: int
    author: str
    body: str
    edited_after_command: bool = False


def task_for(job: Job, *, comments: Sequence[ThreadComment] = ()) -> Task:
    """The task of a job: its goal in the asker's own words, everything else quoted and cleaned.

    Comments made after the command and the command itself are not quoted.

    Args:
        job: a job whose command needs the agent.
        comments: the thread's comments, oldest first.

    Raises:
        ValueError: the command needs no agent, which is a bug of the caller.
    """
    if not isinstance(job.command, Fix):
        raise ValueError(f"the command {job.command.verb} needs no agent")  # noqa: TRY004 - the value is wrong, not a type
    goal = job.command.goal or _default_goal(job)
    return Task(goal=goal, quotes=(_description(job), *_discussion(job, comments)))


def _default_goal(job: Job) -> str:
    return f"Fix the problem described in this {_kind(job)}."


def _kind(job: Job) -> str:
    return "issue" if job.thread.kind == "issue" else "pull request"


def _description(job: Job) -> Quote:
    title = clean_line(job.thread.title, limit=_TITLE_CHARS)
    body = clean(job.thread.body, limit=_BODY_CHARS)
    return Quote(
        source=f"{_kind(job)} #{job.thread.number} by @{job.thread.author}", text=f"{title}\n\n{body}".rstrip()
    )


def _discussion(job: Job, comments: Sequence[ThreadComment]) -> list[Quote]:
    before = [comment for comment in comments if comment.id < job.comment_id]
    kept = [comment for comment in before if not comment.edited_after_command]
    quotes = [
        Quote(source=f"comment by @{comment.author}", text=clean(comment.body, limit=_COMMENT_CHARS))
        for comment in kept
    ]
    notes = []
    if (too_many := len(quotes) - _FIRST_COMMENTS - _LAST_COMMENTS) > 0:
        quotes[_FIRST_COMMENTS : _FIRST_COMMENTS + too_many] = []
        notes.append(f"{too_many} from the middle of the discussion")
    if edited := len(before) - len(kept):
        notes.append(f"{edited} edited after the command was given")
    if notes:
        quotes.append(Quote(source="comments left out", text="; ".join(notes)))
    return quotes
