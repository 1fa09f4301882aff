"""One more job out of an earlier one."""

from __future__ import annotations

from dataclasses import replace

from bot.intake.asking import job_id
from bot.intake.commands import Fix, Plan
from bot.jobs.job import Job


def again(old: Job, *, asked_by: Job) -> Job:
    """The work of `old` once more: for whoever asks now, with the thread's words as they are now."""
    has_words = asked_by.origin.kind != "button"
    origin = asked_by.origin if old.is_unasked else replace(old.origin, at=asked_by.origin.at or old.origin.at)
    return replace(
        old,
        id=job_id("again", old.repo.id, asked_by.id),
        delivery_id=f"{asked_by.delivery_id}.again",
        thread=asked_by.thread if has_words else old.thread,
        actor=asked_by.actor,
        others=(),
        trigger=asked_by.trigger if has_words else old.trigger,
        origin=origin,
        head_sha="",
    )


def carried_out(planned: Job, command: Plan, plan: str) -> Job:
    """The job that carries out an approved plan, for whoever asked for the plan."""
    return replace(
        planned,
        id=job_id("plan", planned.repo.id, planned.id),
        delivery_id=f"{planned.delivery_id}.plan",
        # A model may write what UTF-8 cannot hold, and so no queue.
        command=Fix(goal=command.goal, options=command.options, plan=plan.encode("utf-8", "replace").decode()),
        head_sha="",
    )


def started_by_label(labelled: Job) -> Job:
    """The fix that a repository's own start label asks for."""
    return replace(
        labelled,
        id=job_id("label", labelled.repo.id, labelled.id),
        delivery_id=f"{labelled.delivery_id}.label",
        command=Fix(),
        origin=replace(labelled.origin, kind="label"),
    )
