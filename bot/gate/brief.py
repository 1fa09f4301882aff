"""What the agent is told: the goal from who may ask, and the thread's words as quotes, within one budget. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar, get_args

from agent_runtime import Quote, Task
from bot.gate.budget import Part, fitted
from bot.gate.goals import goal_for
from bot.gate.sanitise import clean, clean_code, clean_line
from bot.intake.commands import Command, Work
from bot.jobs.job import Job, Lines, OriginKind

BUDGET = 60_000
"""Characters of all quotes together: about 15,000 tokens."""

_TITLE_CHARS = 500
_BODY_CHARS = 20_000
_COMMENT_CHARS = 4_000
_HUNK_CHARS = 3_000
_CHECK_CHARS = 4_000
_FILE_CHARS = 8_000
_NAME_CHARS = 200
_FRAME_CHARS = 100
_MOST_CHECKS, _MOST_REMARKS = 20, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadComment:
    """One comment of the thread, as GitHub has it now.

    Attributes:
        id: GitHub's numeric id; later comments have higher ones.
        author: login of who wrote it.
        body: its Markdown.
        created_at: ISO 8601, UTC; may be empty where it is not known.
        updated_at: the same; another than `created_at` when it was edited.
        ours: whether the bot wrote it.
    """

    id: int
    author: str
    body: str
    created_at: str = ""
    updated_at: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineComment:
    """One comment on lines of a pull request.

    Attributes:
        comment: who says what, when.
        root: the first comment of its thread.
        path: the file.
        line: the last line that it is about, or None when it is about the file, or outdated.
        hunk: the part of the diff that ends there; shown with the first comment of a thread.
    """

    comment: ThreadComment
    root: int
    path: str
    line: int | None = None
    hunk: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The words above a review, and what it came to, e.g. `CHANGES_REQUESTED`; `comment.created_at` is when."""

    comment: ThreadComment
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a failing check says about lines of a file."""

    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingCheck:
    """A check that went wrong.

    Attributes:
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        summary: what it says about it, Markdown or a log; may be empty.
    """

    name: str
    conclusion: str
    summary: str = ""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedFile:
    """A file, or some lines of it, that the thread links to, e.g. `src/a.py lines 3-9`."""

    place: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What there is to read about a job, raw; all of it is cleaned and quoted.

    Attributes:
        comments: of the thread, oldest first.
        line_comments: of the pull request, oldest first.
        verdicts: of its reviews, oldest first.
        diff: of the pull request, from the merge base to the head.
        checks: that fail on its head.
        files: that the thread links to.
        workflow: for a job that red CI started: the name of the workflow that failed.
        approved_plan: a plan of the agent's that a person has approved.
        earlier: what the agent's last run in the thread came to, for a command that goes on from there.
        language: what the agent is to answer in, from the configuration.
    """

    comments: tuple[ThreadComment, ...] = ()
    line_comments: tuple[LineComment, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    diff: str = ""
    checks: tuple[FailingCheck, ...] = ()
    files: tuple[LinkedFile, ...] = ()
    workflow: str = ""
    approved_plan: str = ""
    earlier: str = ""
    language: str = ""


T = TypeVar("T")


def task_for(job: Job, command: Command | None = None, material: Material | None = None) -> Task:
    """The task of a job: its goal in the asker's own words and ours, everything else quoted and cleaned.

    What was written after the command, or edited after it, is not quoted, and neither is the command itself.

    Args:
        job: whose task it is.
        command: what is to be done, when it is another thing than `job.command`, e.g. what a bare text means.
        material: what there is to read beside the description that the delivery brought.

    Raises:
        ValueError: the command needs no agent, which is a bug of the caller.
    """
    command, material = command or job.command, material or Material()
    if not isinstance(command, get_args(Work)):
        raise ValueError(f"the command {command.verb} needs no agent")  # noqa: TRY004 - the value is wrong, not a type
    goal = goal_for(
        job,
        command,
        workflow=material.workflow,
        approved_plan=bool(material.approved_plan),
        language=clean_line(material.language, limit=40),
    )
    left_out: Counter[str] = Counter()
    quotes, notes = fitted(_parts(job, material, left_out), BUDGET)
    notes += [f"{what}: {number}" for what, number in left_out.items()]
    if notes:
        quotes.append(Quote(source="left out of this task", text="; ".join(notes)))
    return Task(goal=goal, quotes=tuple(quotes))


def _parts(job: Job, material: Material, left_out: Counter[str]) -> list[Part]:
    """All kinds of quotes, those that matter most first; the shares add up to the budget."""

    def before(items: Sequence[T], comment_of: Callable[[T], ThreadComment], kind: OriginKind) -> list[T]:
        return _before(job, items, comment_of, kind, left_out)

    comments = before(material.comments, lambda each: each, "comment")
    verdicts = before(material.verdicts, lambda each: each.comment, "review")
    line_comments = before(material.line_comments, lambda each: each.comment, "review_comment")
    lines, described = job.origin.lines, job.thread.title or job.thread.body
    kinds: tuple[tuple[str, int, Iterable[Quote]], ...] = (
        ("commented lines", 4_000, [_lines(lines)] if lines else []),
        ("plan", 8_000, _own("the plan that a maintainer approved", material.approved_plan)),
        ("earlier report", 3_000, _own("your last report in this thread", material.earlier)),
        ("description", 9_000, [_description(job)] if described else []),
        ("failing checks", 8_000, map(_check, material.checks[:_MOST_CHECKS])),
        ("diff", 14_000, [_diff(material.diff)] if material.diff.strip() else []),
        ("comments from the middle of the threads about lines", 5_000, _threads(line_comments)),
        ("reviews from the middle", 2_000, map(_verdict, verdicts)),
        ("comments from the middle of the discussion", 5_000, map(_comment, comments)),
        ("linked files", 2_000, map(_file, material.files)),
    )
    return [Part(what=what, share=share, quotes=tuple(quotes)) for what, share, quotes in kinds]


def _before(
    job: Job,
    items: Sequence[T],
    comment_of: Callable[[T], ThreadComment],
    kind: OriginKind,
    left_out: Counter[str],
) -> list[T]:
    """Those that stood before the command as they stand now; `kind` is what the command is when it is one of them."""
    kept = []
    for item in items:
        comment = comment_of(item)
        if kind == job.origin.kind and comment.id == job.origin.id:
            continue
        if _is_later(comment, job, kind):
            if not comment.ours:  # as the answer to this very command is
                left_out["comments made after the command"] += 1
        elif _is_edited_later(comment, job):
            left_out["comments edited after the command was given"] += 1
        else:
            kept.append(item)
    # Only what may find room is cleaned at all: cleaning takes a while where it meets malice.
    sizes = [min(len(comment_of(item).body), _COMMENT_CHARS) + _FRAME_CHARS for item in kept]
    first = bisect_right(list(accumulate(sizes)), BUDGET // 3)
    last = bisect_right(list(accumulate(reversed(sizes))), BUDGET - BUDGET // 3)
    if (too_many := len(kept) - first - last) > 0:
        left_out["comments from the middle of long threads"] += too_many
        kept[first : first + too_many] = []
    return kept


def _is_later(comment: ThreadComment, job: Job, kind: OriginKind) -> bool:
    # Within one kind ids grow with time; and times tell no order within a second.
    if kind == job.origin.kind:
        return comment.id > job.origin.id
    return bool(job.origin.at) and comment.created_at >= job.origin.at


def _is_edited_later(comment: ThreadComment, job: Job) -> bool:
    return bool(job.origin.at) and comment.updated_at != comment.created_at and comment.updated_at >= job.origin.at


def _name(text: str) -> str:
    return clean_line(text, limit=_NAME_CHARS)


def _lines(lines: Lines) -> Quote:
    hunk = clean_code(lines.hunk, limit=_HUNK_CHARS)
    side = "after the change" if lines.side == "RIGHT" else "before the change"
    place = f"{_name(lines.path)}{_numbers(lines.start_line, lines.line)}, {side}, at commit {lines.commit_sha[:10]}"
    return Quote(source="the lines that the request is about", text=f"{place}\n\n{hunk}")


def _numbers(first: int | None, last: int | None) -> str:
    if last is None:
        return ""
    return f" line {last}" if first in {None, last} else f" lines {first}-{last}"


def _own(source: str, text: str) -> list[Quote]:
    return [Quote(source=source, text=clean(text, limit=_BODY_CHARS))] if text.strip() else []


def _description(job: Job) -> Quote:
    kind = "issue" if job.thread.kind == "issue" else "pull request"
    title = clean_line(job.thread.title, limit=_TITLE_CHARS)
    body = clean(job.thread.body, limit=_BODY_CHARS)
    return Quote(
        source=f"{kind} #{job.thread.number} by @{_name(job.thread.author)}", text=f"{title}\n\n{body}".rstrip()
    )


def _check(check: FailingCheck) -> Quote:
    said = [
        f"{_name(each.path)}:{each.line}: {clean_code(each.message, limit=_NAME_CHARS * 5)}"
        for each in check.remarks[:_MOST_REMARKS]
    ]
    text = "\n".join(filter(None, [clean_code(check.summary, limit=_CHECK_CHARS), *said]))
    return Quote(
        source=f"failing check {_name(check.name)}: {_name(check.conclusion)}", text=text or "(it says nothing)"
    )


def _diff(diff: str) -> Quote:
    return Quote(source="the pull request's diff", text=clean_code(diff, limit=BUDGET))


def _threads(comments: Sequence[LineComment]) -> list[Quote]:
    """Comment by comment, thread by thread, in the order in which the threads began; code once a thread."""
    threads: dict[int, list[LineComment]] = {}
    for each in comments:
        threads.setdefault(each.root, []).append(each)
    return [_line_comment(each, first=each is thread[0]) for thread in threads.values() for each in thread]


def _line_comment(each: LineComment, *, first: bool) -> Quote:
    place = f"{_name(each.path)}{_numbers(None, each.line)}"
    said = clean(each.comment.body, limit=_COMMENT_CHARS)
    hunk = clean_code(each.hunk, limit=_HUNK_CHARS) if first else ""
    return Quote(source=f"{_author(each.comment)} on {place}", text=f"{hunk}\n\n{said}" if hunk else said)


def _verdict(each: Verdict) -> Quote:
    source = f"review by @{_name(each.comment.author)}: {_name(each.state)}"
    return Quote(source=source, text=clean(each.comment.body, limit=_COMMENT_CHARS))


def _comment(comment: ThreadComment) -> Quote:
    return Quote(source=_author(comment), text=clean(comment.body, limit=_COMMENT_CHARS))


def _author(comment: ThreadComment) -> str:
    return "an earlier comment of yours" if comment.ours else f"comment by @{_name(comment.author)}"


def _file(file: LinkedFile) -> Quote:
    return Quote(source=f"linked file {_name(file.place)}", text=clean_code(file.text, limit=_FILE_CHARS))
