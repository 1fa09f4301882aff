"""The host's proof of a change that makes failed checks pass, and the stored result of a finished run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Network, Outcome, Policy, SandboxSettings, Status, pick_sandbox
from bot.domain.commands import Explain, Fix, Work
from bot.domain.errors import StorageError
from bot.domain.job import Job, Origin
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.jobs.admission import Assignment
from bot.jobs.agent_run import choose_rerun, prove, store_result
from bot.jobs.context import JobContext
from bot.jobs.setup import RepoSettings
from bot.jobs.state import RunState
from bot.permissions.levels import Conventions, Grant
from bot.permissions.repo_config import RepoConfig
from bot.publishing.checks import Check, Edits, Rerun
from bot.publishing.status_view import Progress
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.changes import BASE, a_change, a_file
from tests.job_contexts import answering, context_of, snapshot

CHANGE = a_change(a_file())
CI = Origin(kind="ci", id=501)


def _assignment(command: Work, tools: tuple[str, ...] = ("execute",)) -> Assignment:
    return Assignment(
        command=command,
        snapshot=snapshot(),
        grant=Grant(policy=Policy(), publish="pull_branch", bound_to_sha=BASE, tools=tools),
        settings=RepoSettings(config=RepoConfig(), base_sha=BASE),
        source=Source(url="/origin", token="", ref="refs/heads/main", sha=BASE),
    )


def _context(job: Job | None = None, **services: object) -> JobContext:
    common = SimpleNamespace(bounds=SimpleNamespace(network=Network()), conventions=Conventions(), **services)
    return context_of(InMemoryEngine(), job or a_job(), services=common)


@pytest.mark.parametrize(
    ("origin", "command", "tools", "proven"),
    [
        (CI, Fix(), ("execute",), True),
        (Origin(kind="comment", id=9), Fix(), ("execute",), False),
        (CI, Explain(), ("execute",), False),
        (CI, Fix(), ("read_file",), False),
    ],
    ids=["a fix of red CI", "asked by a person", "only explained", "nothing may run"],
)
def test_only_a_fix_that_failed_checks_began_is_proven(
    origin: Origin, command: Work, tools: tuple[str, ...], *, proven: bool
) -> None:
    rerun = choose_rerun(_context(replace(a_job(), origin=origin)), _assignment(command, tools))
    assert rerun is (prove if proven else None)


async def _proven(tree: Path, *checks: Check, ignored: tuple[str, ...] = (), sandbox: object = None) -> RunState:

    async def list_unpublished(_: object) -> tuple[str, ...]:
        return ignored

    async def commit_in_repository(_: object) -> None: ...

    place = SimpleNamespace(
        path=tree, list_unpublished=list_unpublished, commit_in_repository=commit_in_repository, readable={}
    )
    context = _context(setup=SimpleNamespace(sandbox=sandbox))
    context.state.progress = Progress(checks=checks, edits=Edits(first=50.0, last=60.0))
    assert await prove(context, _assignment(Fix()), cast("Tree", place), CHANGE)
    return context.state


@pytest.mark.parametrize(
    "check",
    [
        Check(command="pytest -q", exit_code=0, seconds=1, ended=10.0),
        Check(command="pytest -q", exit_code=1, seconds=1, ended=70.0),
        Check(command="pytest -q", exit_code=None, seconds=1, ended=10.0),
        Check(command="pytest -q", exit_code=127, seconds=1, ended=10.0),
    ],
    ids=["passed", "failed only after the change", "did not end", "not found"],
)
async def test_what_was_never_seen_to_fail_before_the_change_is_not_run_and_proves_nothing(
    tmp_path: Path, check: Check
) -> None:
    state = await _proven(tmp_path, check, ignored=("build/", ".pytest_cache/"))
    assert state.progress.rerun == Rerun(ignored_files=("build/",))
    assert state.progress.checks == (check,)
    assert state.progress.activities == ()


@pytest.mark.parametrize(
    ("command", "directory", "after"),
    [
        ("grep -q fixed app.py", "", 0),
        ("grep -q broken app.py", "", 1),
        ("grep -q fixed it.py", "a b/c", 0),
        ("false || grep -q fixed app.py", "gone", 1),
        ("true; grep -q fixed app.py", "gone", 1),
    ],
    ids=["passes", "fails", "in its directory", "or elsewhere", "and then elsewhere"],
)
async def test_the_command_that_failed_is_run_once_more_where_it_was_run(
    tmp_path: Path, command: str, directory: str, after: int
) -> None:
    (tmp_path / "app.py").write_text("fixed\n")
    (tmp_path / "a b" / "c").mkdir(parents=True)
    (tmp_path / "a b" / "c" / "it.py").write_text("fixed\n")
    seen = Check(command=command, exit_code=2, seconds=1, ended=10.0, directory=directory)
    state = await _proven(tmp_path, seen, sandbox=pick_sandbox("bubblewrap", SandboxSettings()))
    rerun = state.progress.rerun
    assert rerun is not None
    assert (rerun.before, rerun.after, rerun.is_proven) == (2, after, after == 0)
    first, again = state.progress.checks
    assert (first, again.by_host, again.exit_code) == (seen, True, after)
    assert [each.state for each in state.progress.activities] == ["done" if after == 0 else "failed"]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_session_is_dropped_only_when_what_the_run_came_to_is_kept(*, is_stored: bool) -> None:
    dropped: list[str] = []
    results: list[Any] = []

    async def store(job_id: str, _: object, work: object, change: object) -> None:
        if not is_stored:
            raise StorageError("file:///kept", "the disk is full", "Make room.")
        results.append((job_id, work, change))

    context = _context(
        store_log=answering(None), work=SimpleNamespace(save=store), forget_session=lambda job: dropped.append(job.id)
    )
    outcome = Outcome(status=Status.FINISHED, summary="Fixed.")
    context.state.progress = Progress(steps=3)
    with nullcontext() if is_stored else pytest.raises(StorageError):
        await store_result(context, outcome, CHANGE)
    assert dropped == (["j1"] if is_stored else [])
    assert [(job_id, work.outcome, work.tree_sha, work.progress.steps) for job_id, work, _ in results] == (
        [("j1", outcome, CHANGE.tree_sha, 3)] if is_stored else []
    )
