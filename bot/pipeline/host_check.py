"""The result of a finished run: checked by the host where it must be, and kept."""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from dataclasses import replace

from agent_runtime import CommandRunner, Outcome
from bot.domain.commands import Fix
from bot.engine.job_record import RunResult
from bot.gate.network import narrowed
from bot.jobs.assignment import Assignment
from bot.jobs.context import JobContext
from bot.jobs.run_logs import keep_log
from bot.publishing.rerun import Rerun, is_other, reproduced
from bot.publishing.text import one_line
from bot.publishing.view import Activity
from bot.reporting.reporter import StatusReporter
from bot.workspace import Tree
from bot.workspace.change import Change

log = logging.getLogger(__name__)

RERUN_SECONDS = 600.0
_CACHES = frozenset({".pytest_cache/", ".mypy_cache/", ".ruff_cache/"})


def is_to_be_proven(context: JobContext, begun: Assignment) -> bool:
    """Whether a change is published only when the failed command passes after it: a fix that failed checks began."""
    return context.job.origin.kind == "ci" and isinstance(begun.command, Fix) and begun.grant.executes


async def prove(context: JobContext, reporter: StatusReporter, begun: Assignment, tree: Tree, change: Change) -> bool:
    """Run the failed command on the files as the agent left them, whatever it says of them, and keep what it came to.

    Nothing of the agent's terminals is there: no variables, no programs in the background, no home.

    Raises:
        SandboxError: the sandbox cannot be started.
    """
    beside = tuple(each for each in await tree.unpublished(change) if each not in _CACHES)
    progress, tell = reporter.progress, reporter.tell
    shown = reproduced(progress.checks, progress.edits, progress.failing)
    if shown is None:
        reporter.progress = replace(progress, rerun=Rerun(beside=beside))
        return True
    # On a line of its own: without the directory nothing of the command is run, whatever it is made of.
    place = f"cd {shlex.quote(shown.directory)}\n" if shown.directory else ""
    doing = Activity(label=f"proof: {one_line(shown.command, 200)}", state="doing")
    tell(doing)
    async with CommandRunner(
        context.services.setup.sandbox,
        tree.path,
        network=narrowed(context.services.network, begun.asked.config.network).network,
        start_in=context.services.conventions.working_directory,
        told=lambda connection: log.info("proof: network: %s", connection),
    ) as runner:
        end = await runner.run(f"{place}{shown.command}", seconds=RERUN_SECONDS)
    tell(replace(doing, state="done" if end.ok else "failed"))
    log.info(
        "proof: exit code %s after %.1f s; it wrote:\n%s",
        end.exit_code,
        end.seconds,
        end.output,
    )
    check = replace(shown, exit_code=end.exit_code, seconds=end.seconds, ended=time.time(), declared=True, by_host=True)
    rerun = Rerun(
        command=shown.command,
        before=shown.exit_code or 0,
        after=end.exit_code,
        seconds=end.seconds,
        other=is_other(shown, progress.failing),
        passed_there=any(each.passed and each.command == shown.command for each in progress.checks),
        beside=beside,
    )
    reporter.progress = replace(reporter.progress, rerun=rerun, checks=(*reporter.progress.checks, check))
    return True


async def keep(context: JobContext, reporter: StatusReporter, outcome: Outcome, change: Change) -> None:
    """Keep what a run came to before any of it is published; its session is needed no more."""
    work = RunResult(outcome=outcome, progress=reporter.progress, base_sha=change.base_sha, tree_sha=change.tree_sha)
    await context.services.work.keep(context.job.id, context.record, work, change)
    await keep_log(context.services, context.job)
    await asyncio.to_thread(context.services.forget_session, context.job)
