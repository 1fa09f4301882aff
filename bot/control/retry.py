"""Repeat an earlier job as a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from bot.domain.commands import Bare, Explain, Fix, Plan, Review
from bot.domain.job import Job
from bot.intake.asking import job_id

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
