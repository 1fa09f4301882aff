"""A job's files: as they were left, or made again from what an earlier workflow run has stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Policy
from bot.domain.commands import Fix
from bot.git.errors import ChangeError, CloneError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import Left
from bot.jobs.admission import Assignment
from bot.jobs.agent_run import is_current, record_generation, reopened, set_up
from bot.jobs.context import JobContext
from bot.jobs.setup import RepoSettings, SetupResult
from bot.jobs.status import StatusReporter
from bot.permissions.levels import Conventions, Grant
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import context_of, snapshot

BASE = "a" * 40
SOURCE = Source(url="/origin", token="", ref="refs/heads/main", sha=BASE)
REPORTER = cast("StatusReporter", SimpleNamespace(tell=lambda _activity: None))


@dataclass(slots=True)
class _Files:
    """Workspaces and their trees, which note in order what is done to them; `broken` names what fails once."""

    done: list[str] = field(default_factory=list)
    broken: dict[str, Exception] = field(default_factory=dict)
    generation: str = "fresh"

    def _do(self, what: str) -> None:
        if (error := self.broken.pop(what, None)) is not None:
            raise error
        self.done.append(what)

    @asynccontextmanager
    async def open(self, *_: object, **__: object) -> AsyncIterator[Any]:
        self._do("open")
        yield self

    @asynccontextmanager
    async def reopen(self, _: str, left: Left, **__: object) -> AsyncIterator[Any]:
        self._do(f"reopen {left.generation} at {left.source.sha[:1]}")
        yield self

    async def put_back(self, work: str) -> None:
        self._do(f"put back {work}")

    async def run(self, *_: object, **__: object) -> SetupResult:
        self._do("set up")
        return SetupResult(facts=("It is set up.",))


def _assignment(*, executes: bool = True) -> Assignment:
    tools = ("execute",) if executes else ("read_file",)
    return Assignment(
        command=Fix(),
        here=snapshot(),
        grant=Grant(policy=Policy(), publish="new_branch", bound_to_sha=BASE, tools=tools),
        asked=RepoSettings(config=RepoConfig(), base_sha=BASE),
        source=SOURCE,
    )


async def _context(files: _Files, *, saved: str = "") -> JobContext:
    engine, job = InMemoryEngine(), a_job()
    await engine.accept(job)
    handover = SimpleNamespace(saved={job.id: SimpleNamespace(work=saved)} if saved else {})
    services = SimpleNamespace(workspaces=files, setup=files, handover=handover, conventions=Conventions())
    return context_of(engine, job, services=services)


async def _reopen(context: JobContext) -> None:
    async with reopened(context, REPORTER, _assignment(), keep=lambda: True):
        pass


async def test_files_are_reopened_as_the_last_attempt_to_write_to_them_left_them() -> None:
    files = _Files()
    context = await _context(files)
    await record_generation(context, cast("Tree", SimpleNamespace(generation="seventh")))
    await _reopen(context)
    assert files.done == ["reopen seventh at a"]


async def test_what_another_workflow_run_stored_is_put_back_after_set_up() -> None:
    files = _Files()
    await _reopen(await _context(files, saved="the work"))
    assert files.done == ["open", "set up", "put back the work"]


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        ("open", CloneError("It cannot be fetched.", "Try again.")),
        ("set up", ChangeError("It cannot be started.", "Try again.")),
        ("put back the work", ChangeError("It does not fit.", "Try again.")),
    ],
)
async def test_what_was_stored_is_still_there_for_the_next_attempt_when_one_could_not_put_it_back(
    fails: str, error: Exception
) -> None:
    files = _Files(broken={fails: error})
    context = await _context(files, saved="the work")
    with pytest.raises(type(error)):
        await _reopen(context)
    files.done.clear()
    await _reopen(context)
    assert files.done == ["open", "set up", "put back the work"]


async def test_what_was_put_back_once_is_not_put_over_what_the_job_did_since() -> None:
    files = _Files()
    context = await _context(files, saved="the work")
    async with reopened(context, REPORTER, _assignment(), keep=lambda: True) as tree:
        await record_generation(context, tree)
    await _reopen(context)
    assert files.done[3:] == ["reopen fresh at a"]


async def test_files_of_an_earlier_generation_are_not_the_jobs_any_more() -> None:
    context = await _context(_Files())
    await record_generation(context, cast("Tree", SimpleNamespace(generation="first")))
    assert await is_current(context.queue, context.job.id, "first")
    await record_generation(context, cast("Tree", SimpleNamespace(generation="second")))
    assert not await is_current(context.queue, context.job.id, "first")


async def test_only_a_job_that_may_execute_anything_is_set_up() -> None:
    files = _Files()
    context = await _context(files)
    tree = cast("Tree", files)
    assert await set_up(context, REPORTER, _assignment(executes=False), tree) == SetupResult()
    assert files.done == []
    assert (await set_up(context, REPORTER, _assignment(), tree)).facts
