"""Repeat an earlier job as a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, assert_never

from bot.domain.commands import Bare, Explain, Fix, Help, Malformed, Plan, Review, Talk, Unknown
from bot.domain.grammar import help_text
from bot.domain.job import Job
from bot.events.delivery import job_id
from bot.jobs.admission import resume_base
from bot.jobs.context import JobContext, ThreadSnapshot
from bot.jobs.repo_settings import lately_on_default_branch
from bot.publishing.markdown import code
from bot.publishing.render import is_marked

_OF_RED_CI = {
    "fix": "Find out why checks fail here, and fix the cause, not the checks. What failed is quoted.",
    "explain": "Why do checks fail here, and what has to change in which lines? What failed is quoted.",
}


def retry_id(asked_by: Job) -> str:
    """The id of the one job that a command to repeat another one begins."""
    return job_id("again", asked_by.repo.id, asked_by.id)


def retry_of(old: Job, *, asked_by: Job, opened: bool = False) -> Job:
    """The work of `old` once more: for the person who asks now, with the thread's words as they are now.

    Args:
        old: what is to be done again.
        asked_by: the command that asks for it.
        opened: whether `old` has opened a pull request: the retry continues in it, even if `--new` was given.
    """
    command = old.command
    if opened and isinstance(command, Fix | Bare | Plan):
        command = replace(command, options=replace(command.options, new=False))
    if old.origin.kind == "ci" and isinstance(command, Fix | Explain):  # what it is about was said by its origin alone
        command = replace(command, goal=_OF_RED_CI[command.verb])
    has_words = asked_by.origin.kind != "button"
    origin = asked_by.origin if old.is_unasked else replace(old.origin, at=asked_by.origin.at or old.origin.at)
    return replace(
        old,
        id=retry_id(asked_by),
        delivery_id=f"{asked_by.delivery_id}.again",
        thread=asked_by.thread if has_words else old.thread,
        actor=asked_by.actor,
        others=(),
        trigger=asked_by.trigger if has_words else old.trigger,
        origin=origin,
        command=command,
        head_sha="",
    )


def carried_out(planned: Job, command: Plan, plan: str) -> Job:
    """The job that carries out an approved plan, for the person who asked for the plan."""
    return replace(
        planned,
        id=job_id("plan", planned.repo.id, planned.id),
        delivery_id=f"{planned.delivery_id}.plan",
        # A model may write what UTF-8 cannot hold, and so no queue.
        command=Fix(goal=command.goal, options=command.options, plan=plan.encode("utf-8", "replace").decode()),
        head_sha="",
    )


def review_of_push(pushed: Job) -> Job:
    """The review of what was pushed; another job when a branch is set back to a commit that was pushed before."""
    return replace(
        pushed,
        id=job_id("push", pushed.repo.id, pushed.id),
        delivery_id=f"{pushed.delivery_id}.review",
        command=Review(on="push"),
    )


def fix_for(happened: Job, kind: Literal["label", "assignment"]) -> Job:
    """The fix that somebody asked for by what they did, without a command."""
    return replace(
        happened,
        id=job_id(kind, happened.repo.id, happened.id),
        delivery_id=f"{happened.delivery_id}.{kind}",
        command=Fix(),
        origin=replace(happened.origin, kind=kind),
    )


# ---- Answers to commands that need no agent and concern no job. Pure.


def answer_to(command: Talk, *, trigger: str, recipes: str = "") -> str:
    """What the bot says to what needs no agent and concerns no job.

    Args:
        command: what was said.
        trigger: the word that it began with.
        recipes: what the help says of the repository's recipes.
    """
    more = f"{code(f'{trigger} help')} lists all commands."
    match command:
        case Unknown(word=word, nearest=nearest):
            hint = f" Did you mean {code(f'{trigger} {nearest}')}?" if nearest else ""
            return f"There is no command {code(word)}.{hint} {more}"
        case Malformed(reason=reason):
            return f"{reason} {more}"
        case Help():
            return "\n\n".join(filter(None, (help_text(trigger=trigger), recipes)))
        case other:
            assert_never(other)


# ---- Automatic reviews: where they are enabled, and of which commits.


async def early_skip_reason(context: JobContext) -> str:
    """Why the job is a review that neither the repository nor the operator wants; empty for any other job."""
    command = context.job.command
    if not is_unasked_review(context.job) or not isinstance(command, Review) or command.on is None:
        return ""
    config = await lately_on_default_branch(context)
    wanted = config.reviews(command.on, context.services.bounds.review_on)
    return "" if wanted else f"`review_on` in `{config.path}` does not list `{command.on}`."


def is_unasked_review(job: Job) -> bool:
    """Whether a job is a review that nobody gave a command for."""
    return isinstance(job.command, Review) and job.command.on is not None and job.is_unasked


async def review_skip_reason(context: JobContext, here: ThreadSnapshot) -> str:
    """Why a pull request is not to be reviewed now; empty when it is, or when its review is under way."""
    if await resume_base(context) is not None:
        return ""
    pull, head = here.snapshot.pull, here.thread.head_sha
    if pull is not None and pull.draft:
        return "It is a draft again."
    if not context.services.comes_back and context.job.head_sha != head:
        return "It has a newer commit; that push has its own run."
    me = (await context.github.accounts.me()).id
    reviews = await here.reader.reviews(here.repo.full_name, context.job.thread.number)
    done = any(each.author_id == me and each.commit_sha == head and is_marked(each.body) for each in reviews)
    return "This commit has already been reviewed." if done else ""
