"""What GitHub tells of: nobody asks for it, nobody is answered, and it only ever narrows what the bot may do."""

from __future__ import annotations

import logging
import time
from typing import assert_never

from bot.gate.standing import LabelGrant
from bot.intake.commands import Assigned, Closed, Departed, Happening, Labelled, Pushed
from bot.jobs import waiting
from bot.jobs.again import fix_for
from bot.jobs.case import Case, Ending, Reply
from bot.jobs.configuration import on_default_branch
from bot.jobs.job import JobState
from bot.jobs.queue import Signal, Stored
from bot.jobs.steering import stop_all
from bot.publishing.text import code

log = logging.getLogger(__name__)

_RAISING = frozenset({"ask", "auto"})
"""Levels that a label may raise a run to, and so are bound to a commit."""


async def happen(case: Case, command: Happening) -> Ending:
    """Take in what happened."""
    match command:
        case Labelled(label=label, bound_to=bound_to):
            await _labelled(case, label, bound_to)
        case Assigned(assignee_id=assignee_id):
            if assignee_id == (await case.github.me()).id:
                await case.queue.enqueue(fix_for(case.job, "assignment"))
        case Pushed(head_sha=head_sha):
            return await _pushed(case, head_sha)
        case Closed(how=how):
            await stop_all(case, await _jobs(case), f"The thread was {how}.")
        case Departed(repo_ids=repo_ids):
            await _departed(case, repo_ids)
        case other:
            assert_never(other)
    return Ending(state=JobState.DONE)


async def _labelled(case: Case, label: str, bound_to: str) -> None:
    """Keep who set a permission label on what; the repository's own start label asks for a fix."""
    job = case.job
    labels = (await on_default_branch(case.github, job.repo.full_name)).labels
    if labels.start is not None and label.casefold() == labels.start.casefold():
        await case.queue.enqueue(fix_for(job, "label"))
    if labels.level_of(label) is None:
        return
    await case.ledger.keep_label(
        LabelGrant(
            repo_id=job.repo.id,
            number=job.thread.number,
            name=label,
            labeller=job.actor,
            bound_to=bound_to,
            at=time.time(),
        )
    )


async def _pushed(case: Case, head_sha: str) -> Ending:
    """What was asked and allowed for the commit before is void; the bot's own commits void nothing."""
    job = case.job
    if job.actor.id == (await case.github.me()).id:
        return Ending(state=JobState.DONE)
    for each in await _jobs(case):
        asked = await waiting.asked(case.of(each.job)) if each.state is JobState.WAITING else None
        if asked is not None and asked.bound_to != head_sha:
            why = f"The pull request moved to {head_sha[:10]}, so what this waited for is void."
            await case.queue.signal(each.job.id, Signal(kind="stop", text=why, by=job.actor.login, id=job.id))
            await case.queue.wake(each.job.id)
    kept = await case.ledger.labels(job.repo.id, job.thread.number)
    if not kept:
        return Ending(state=JobState.DONE)
    config = await on_default_branch(case.github, job.repo.full_name)
    gone = [each.name for each in kept if each.bound_to != head_sha and config.labels.level_of(each.name) in _RAISING]
    await case.void(gone)
    if not gone or not await case.ledger.may_tell(job.repo.id, job.thread.number, "label-void"):
        return Ending(state=JobState.DONE)
    names = ", ".join(map(code, gone))
    text = (
        f"I took {names} off: it was set for another commit than {head_sha[:10]}. Look at what was pushed, and set it "
        "again."
    )
    return Ending(state=JobState.DONE, view=Reply(text=text))


async def _departed(case: Case, repo_ids: tuple[int, ...]) -> None:
    """GitHub takes nothing from us there any more: what waits ends in silence, what runs is stopped."""
    if case.job.installation is None:
        return
    why = "The App was taken off this repository, or suspended."
    for each in await case.queue.live_of(case.job.installation, repo_ids):
        if await case.queue.end(each.job.id, JobState.STOPPED, why):
            await case.house.workspaces.discard(each.job.id)
        else:
            await case.queue.signal(each.job.id, Signal(kind="stop", text=why, by="GitHub", id=case.job.id))


async def _jobs(case: Case) -> tuple[Stored, ...]:
    return await case.queue.of_thread(case.job.repo.id, case.job.thread.number)
