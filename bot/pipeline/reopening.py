"""The files of a job that goes on: as they were left here, or made again from what another machine has saved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bot.jobs.assignment import Assignment
from bot.jobs.context import Case
from bot.jobs.setup import Readied
from bot.reporting.reporter import Account
from bot.workspace import Tree


@asynccontextmanager
async def reopened(case: Case, account: Account, begun: Assignment, *, keep: Callable[[], bool]) -> AsyncIterator[Tree]:
    """The files as an earlier attempt, or an earlier leg, left them.

    Args:
        case: the job.
        account: what is told of it.
        begun: what it may do, and where.
        keep: asked as the body ends: whether the files stay.

    Raises:
        WorkspaceGoneError: they are not there any more.
        ChangeError: what was saved does not fit.
    """
    handover, job_id = case.house.handover, case.job.id
    saved = handover.saved.pop(job_id, None) if handover is not None else None
    if saved is None:
        async with case.house.workspaces.reopen(job_id, keep=keep) as tree:
            yield tree
        return
    async with case.house.workspaces.open(job_id, begun.here.repo.id, begun.source, keep=keep) as tree:
        # Files that git ignores were not saved; what of them set-up makes, it makes again.
        await set_up(case, account, begun, tree)
        await tree.put_back(saved.work)
        yield tree


async def set_up(case: Case, account: Account, begun: Assignment, tree: Tree) -> Readied:
    """Have the repository's set-up run, where a job may execute anything."""
    if not begun.grant.executes:
        return Readied()
    return await case.house.setup.run(
        tree,
        begun.asked,
        job_id=case.job.id,
        repo_id=begun.here.repo.id,
        tell=account.tell,
        start_in=case.house.conventions.working_directory,
    )
