"""The files of a job that goes on: as they were left here, or made again from what another machine has saved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bot.jobs.assignment import Assignment
from bot.jobs.context import JobContext
from bot.jobs.setup import SetupResult
from bot.reporting.reporter import StatusReporter
from bot.workspace import Tree


@asynccontextmanager
async def reopened(
    context: JobContext, reporter: StatusReporter, begun: Assignment, *, keep: Callable[[], bool]
) -> AsyncIterator[Tree]:
    """The files as an earlier attempt, or an earlier leg, left them.

    Args:
        context: the job.
        reporter: reports it.
        begun: what it may do, and where.
        keep: asked as the body ends: whether the files stay.

    Raises:
        WorkspaceGoneError: they are not there any more.
        ChangeError: what was saved does not fit.
    """
    handover, job_id = context.services.handover, context.job.id
    saved = handover.saved.pop(job_id, None) if handover is not None else None
    if saved is None:
        async with context.services.workspaces.reopen(job_id, keep=keep) as tree:
            yield tree
        return
    async with context.services.workspaces.open(job_id, begun.here.repo.id, begun.source, keep=keep) as tree:
        # Files that git ignores were not saved; what of them set-up makes, it makes again.
        await set_up(context, reporter, begun, tree)
        await tree.put_back(saved.work)
        yield tree


async def set_up(context: JobContext, reporter: StatusReporter, begun: Assignment, tree: Tree) -> SetupResult:
    """Have the repository's set-up run, where a job may execute anything."""
    if not begun.grant.executes:
        return SetupResult()
    return await context.services.setup.run(
        tree,
        begun.asked,
        repo_id=begun.here.repo.id,
        tell=reporter.tell,
        start_in=context.services.conventions.working_directory,
    )
