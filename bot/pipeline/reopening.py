"""The files of a job: opened anew, as they were left, or made again from what another machine has stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from bot.engine.job_record import JobRecords
from bot.jobs.assignment import Assignment
from bot.jobs.context import JobContext
from bot.jobs.setup import SetupResult
from bot.reporting.reporter import StatusReporter
from bot.workspace import Left, Tree


@asynccontextmanager
async def opened_anew(context: JobContext, begun: Assignment, *, keep: Callable[[], bool]) -> AsyncIterator[Tree]:
    """The files of the commit.

    Args:
        context: the job.
        begun: what it may do, and where.
        keep: asked as the body ends: whether the files stay.
    """
    repo_id = begun.here.repo.id
    workspaces, current = context.services.workspaces, partial(is_current, context.queue)
    async with workspaces.open(context.job.id, repo_id, begun.source, keep=keep, current=current) as tree:
        yield tree


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
        StorageError: they may be stored, but the store cannot be reached.
        ChangeError: what was saved does not fit.
    """
    handover, job_id = context.services.handover, context.job.id
    saved = handover.saved if handover is not None else {}
    if job_id not in saved:
        generation = (await context.record.read()).generation or ""
        left = Left(generation=generation, repo_id=begun.here.repo.id, source=begun.source)
        current = partial(is_current, context.queue)
        async with context.services.workspaces.reopen(job_id, left, keep=keep, current=current) as tree:
            yield tree
        return
    async with opened_anew(context, begun, keep=keep) as tree:
        # Files that git ignores were not saved; what of them set-up makes, it makes again.
        await set_up(context, reporter, begun, tree)
        await tree.put_back(saved[job_id].work)
        # An attempt that could not put it back leaves it to the next one.
        del saved[job_id]
        yield tree


async def record_generation(context: JobContext, tree: Tree) -> None:
    """Before anything writes to the files: from now on only these are the job's, wherever older ones are."""
    await context.record.update(lambda record: replace(record, generation=tree.generation))


async def is_current(records: JobRecords, job_id: str, generation: str) -> bool:
    """Whether a job's files are still those of a generation; see `Current`."""
    return (await records.record(job_id)).generation == generation


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
