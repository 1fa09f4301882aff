"""Tasks that a program delegates."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    BlockingTaskManager,
    ChildWatched,
    Delegation,
    Ended,
    Event,
    Policy,
    Rule,
    RunLimits,
    Runtime,
    SandboxSettings,
    ScriptedProvider,
    TaskManager,
    UsageError,
    pick_sandbox,
)
from agent_runtime.run import task_manager
from tests.agent_runtime.delegation.scripts import DONE, Children, block
from tests.waiting import eventually

ASKS = Policy(rules=(Rule(decision="ask", tool="execute", reason="commands need a person"),))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "a.txt").write_text("one\n")
    (root / "b.txt").write_text("first\n")
    (root / ".gitignore").write_text("*.log\n")
    for name in ("committed.log", "other.log"):
        (root / name).write_text("1\n")
    return root


def agent_in(project: Path, *, policy: Policy | None = None) -> Agent:
    sandbox = pick_sandbox("auto", SandboxSettings())
    return Agent(provider=ScriptedProvider([]), work_dir=project, sandbox=sandbox, policy=policy or Policy())


async def test_a_program_delegates_answers_collects_and_cancels(project: Path) -> None:
    children = Children(
        ALPHA=[
            block(
                'execute("main", "echo 2 > lib/a.txt; echo 3 > c.txt; tee *.log < c.txt", check=True)',
                completion="Alpha.",
            )
        ],
        BETA=[block('print(list_files())\nexecute("main", "sleep 100", timeout=100)')],
    )
    manager, told = TaskManager(Delegation(provider=children, at_once=2)), list[Event]()
    async with AsyncRuntime(agent_in(project, policy=ASKS), listeners=[told.append]) as runtime:
        alpha = await manager.start_task("ALPHA", runtime, extra=["committed.log"])
        beta = await manager.start_task("BETA", runtime, files=["lib"], task_timeout=60)
        with pytest.raises(UsageError, match="2 tasks are under way"):
            await manager.start_task("GAMMA", runtime)
        assert (await manager.wait(alpha)).state == "waiting"
        assert (await manager.wait(beta)).pending is not None
        manager.answer(alpha, approve=True)
        status = await manager.wait(alpha)
        assert (status.state, str(status.outcome), status.usage.requests) == ("finished", "Alpha.", 1)
        assert status.changes == ("created: c.txt", "modified: committed.log", "modified: lib/a.txt")
        assert [each.task for each in told if isinstance(each, ChildWatched) and isinstance(each.event, Ended)] == [
            alpha
        ]
        (project / "lib" / "a.txt").write_text("mine\n")
        with pytest.raises(UsageError, match=r"lib/a\.txt: changed in the workspace"):
            await manager.collect(alpha)
        assert await manager.collect(alpha, skip_conflicts=True) == ["c.txt", "committed.log"]
        assert await manager.collect_file(runtime, alpha, "lib", "theirs") == ["theirs/a.txt"]
        await manager.cancel(beta)
        assert manager.status(beta).state == "stopped"
        assert not runtime.session.events
        await manager.close()
    assert (project / "lib" / "a.txt").read_text() == "mine\n"
    assert (project / "theirs" / "a.txt").read_text() == "2\n"
    assert (project / "c.txt").read_text() == "3\n"
    with pytest.raises(UsageError, match="There is no task 't1'"):
        manager.status(alpha)


async def test_tasks_started_at_the_same_time_share_the_remaining_limits(project: Path) -> None:
    children = Children(ALPHA=[DONE], BETA=[DONE])
    manager, told = TaskManager(Delegation(provider=children, share=0.5)), list[Event]()
    policy = Policy(limits=RunLimits(max_tokens=80_000))
    async with AsyncRuntime(agent_in(project, policy=policy), listeners=[told.append]) as runtime:
        tasks = await asyncio.gather(*(manager.start_task(name, runtime) for name in ("ALPHA", "BETA")))
        limits = [manager._tasks[task].children._children[task].limits.max_tokens for task in tasks]
        await manager.close()
    assert sorted(each or 0 for each in limits) == [20_000, 40_000]


async def test_a_task_whose_files_are_still_copied_ends_with_its_manager(project: Path, tmp_path: Path) -> None:
    with (project / "huge").open("wb") as file:
        file.truncate(10**9)
    copies = tmp_path / "copies"
    copies.mkdir()
    manager = TaskManager(Delegation(provider=Children(ALPHA=[DONE]), copies=copies))
    async with AsyncRuntime(agent_in(project)) as runtime:
        starting = asyncio.create_task(manager.start_task("ALPHA", runtime))
        await eventually(lambda: [*copies.glob("*/workspace/huge")])
        await manager.close()
        assert not [*copies.iterdir()]
        with pytest.raises(UsageError, match="the run that delegates the task has ended"):
            await starting
    assert not [*copies.iterdir()]


def test_without_an_event_loop(project: Path) -> None:
    children = Children(ALPHA=[block('write_file("b.txt")', "second\n", completion="Alpha.")], BETA=[DONE])
    manager = BlockingTaskManager(Delegation(provider=children))
    with Runtime(agent_in(project), quiet=True) as runtime:
        alpha = manager.start_task("ALPHA", runtime)
        assert manager.wait(alpha).state == "finished"
        assert manager.collect(alpha) == ["b.txt"]
        with pytest.raises(UsageError, match="max_depth is 1"):
            manager.start_task("BETA", runtime, parent_depth=1)
        with pytest.raises(UsageError, match="no persona 'critic'"):
            manager.start_task("BETA", runtime, persona="critic")
        manager.close()
    assert (project / "b.txt").read_text() == "second\n"


async def test_a_step_that_takes_too_long_ends_its_task(project: Path) -> None:
    children = Children(ALPHA=[block('execute("main", "sleep 100", timeout=100)')])
    manager = TaskManager(Delegation(provider=children))
    async with AsyncRuntime(agent_in(project)) as runtime:
        task = await manager.start_task("ALPHA", runtime, step_timeout=0.5)
        status = await manager.wait(task)
        assert (status.state, str(status.outcome)) == (
            "stopped",
            "The task was stopped: step 1 took longer than 0.5 seconds.",
        )
        await manager.close()


async def test_a_step_that_waits_for_an_answer_does_not_take_too_long(project: Path) -> None:
    children = Children(ALPHA=[block('execute("main", "true", check=True)', completion="Alpha.")])
    manager = TaskManager(Delegation(provider=children))
    async with AsyncRuntime(agent_in(project, policy=ASKS)) as runtime:
        task = await manager.start_task("ALPHA", runtime, step_timeout=60)
        assert (await manager.wait(task)).state == "waiting"
        child = manager._tasks[task].children._children[task]
        assert child.timer is not None
        assert child.timer.cancelled()
        manager.answer(task, approve=True)
        assert (await manager.wait(task)).state == "finished"
        await manager.close()


async def test_wait_returns_for_a_task_whose_end_cannot_be_recorded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_a_full_disk(_caller: object, _task: str, event: Event) -> None:
        if isinstance(event, Ended):
            raise OSError("the disk is full")

    monkeypatch.setattr(task_manager._Caller, "handle_child_event", on_a_full_disk)
    manager = TaskManager(Delegation(provider=Children(ALPHA=[DONE])))
    async with AsyncRuntime(agent_in(project)) as runtime:
        task = await manager.start_task("ALPHA", runtime)
        async with asyncio.timeout(30):
            assert (await manager.wait(task)).state == "finished"
        work = manager._tasks[task].children._children[task].supervisor
        assert work is not None
        assert isinstance(work.exception(), OSError)
        await manager.close()
