"""Pygent's tasks: agents of their own in workspaces of their own, within limits of number, depth and time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_runtime.compat.pygent import (
    Agent,
    Persona,
    Runtime,
    TaskManager,
    Tools,
    register_task_tools,
)
from agent_runtime.compat.pygent import (
    tasks as tasks_module,
)
from agent_runtime.core.errors import SettingsError, ToolError, UsageError
from agent_runtime.core.events import Event
from agent_runtime.core.values import Status
from tests.agent_runtime.compat.pygent_models import ScriptedModel, calls

STOP = calls(("stop", {}))


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime(workspace=tmp_path / "work") as made:
        yield made


def manager_of(
    *replies: object, max_tasks: int = 3, on_event: Callable[[str, Event], None] | None = None
) -> TaskManager:
    """A manager whose agents all have a model that gives these replies."""
    return TaskManager(
        lambda persona: Agent(None, ScriptedModel(*replies), persona=persona), max_tasks, on_event=on_event
    )


def test_a_task_works_in_a_workspace_of_its_own_and_its_files_are_collected(rt: Runtime, tmp_path: Path) -> None:
    rt.write_file("data/in.txt", "hello\n")
    events: list[tuple[str, str]] = []
    work = calls(("bash", {"cmd": "mkdir out; cat data/in.txt > out/foo.txt; ls"}))
    tm = manager_of(work, STOP, on_event=lambda task, event: events.append((task, type(event).__name__)))

    task = tm.start_task("run", rt, files=["data"])
    tm.tasks[task].join()

    assert tm.status(task) == "finished"
    result = tm.result(task)
    assert (result.usage.requests, result.changes) == (2, ("created: out/foo.txt",))
    assert "+hello" in result.diff
    assert (task, "StepStarted") in events
    assert not (rt.base_dir / "out").exists()
    assert tm.collect_file(rt, task, "out/foo.txt") == "Retrieved out/foo.txt"
    assert tm.collect_file(rt, task, "out", "copy") == "Retrieved copy"
    assert (rt.base_dir / "copy" / "foo.txt").read_text() == "hello\n"
    assert tm.collect_file(rt, task, "out/foo.txt", "data") == "Retrieved data"
    assert (rt.base_dir / "data" / "foo.txt").read_text() == "hello\n"
    assert tm.collect_file(rt, task, "none") == "file none not found"
    for path, dest in (("../x", "x"), ("out", "../x")):
        with pytest.raises(ToolError):
            tm.collect_file(rt, task, path, dest)
    workspace = tm.tasks[task].agent.runtime.base_dir
    tm.close()
    assert not workspace.exists()
    assert not [*tmp_path.glob("agent_*")]


def test_tasks_are_limited_in_number_and_depth_and_can_be_cancelled(rt: Runtime) -> None:
    release = threading.Event()
    tm = manager_of(lambda: release.wait(20) and STOP, max_tasks=1)
    task = tm.start_task("run", rt)
    assert tm.status(task) == "running"

    with pytest.raises(RuntimeError, match="max 1 tasks reached"):
        tm.start_task("run", rt)
    with pytest.raises(RuntimeError, match="nested delegation is not allowed"):
        tm.start_task("run", rt, parent_depth=1)
    with pytest.raises(RuntimeError, match="nested delegation is not allowed"):
        tm.start_task("run", tm.tasks[task].agent.runtime)
    tm.cancel(task)

    assert tm.status(task).startswith("stopped: ")
    release.set()
    again = tm.start_task("run", rt)
    tm.tasks[again].join()
    assert tm.status(again) == "finished"
    assert tm.status("none") == "Task none not found"
    assert tm.collect_file(rt, "none", "x") == "Task none not found"
    with pytest.raises(UsageError, match="There is no task 'none'"):
        tm.cancel("none")
    tm.close()


def test_a_task_ends_at_its_time_or_with_an_error(rt: Runtime) -> None:
    release = threading.Event()
    tm = manager_of(lambda: release.wait(20) and STOP)
    late = [tm.start_task("run", rt, task_timeout=0.5), tm.start_task("run", rt, step_timeout=0.1, task_timeout=9)]
    broken = TaskManager(lambda: Agent(None, ScriptedModel(5)))
    wrong = broken.start_task("run", rt)
    for manager, task in ((tm, late[0]), (tm, late[1]), (broken, wrong)):
        manager.tasks[task].thread.join()

    assert [tm.status(each) for each in late] == ["timeout after 0.5s", "timeout after 9s"]
    assert tm.result(late[1]).state == Status.TIMEOUT
    assert broken.status(wrong).startswith("error: Unsupported message type")
    release.set()
    tm.close()
    broken.close()


def test_personas_take_turns_or_are_named(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYGENT_TASK_PERSONAS", "one:two")
    tm = manager_of(STOP, max_tasks=9)
    wanted = [None, None, None, "two", "other", Persona("Ada", "a tester.")]
    tasks = [tm.start_task("run", rt, persona=each) for each in wanted]
    for each in tasks:
        tm.tasks[each].join()

    assert [tm.tasks[each].agent.persona.name for each in tasks] == ["one", "two", "one", "two", "other", "Ada"]
    assert tm.tasks[tasks[5]].agent.history[0]["content"].startswith("You are Ada. a tester.")
    tm.close()
    monkeypatch.setenv("PYGENT_TASK_PERSONAS_JSON", '[{"name": "env", "description": "desc"}]')
    assert TaskManager().personas == [Persona("env", "desc")]
    monkeypatch.setenv("PYGENT_TASK_PERSONAS_JSON", "{")
    with pytest.raises(SettingsError, match="PYGENT_TASK_PERSONAS_JSON must be a list"):
        TaskManager()
    monkeypatch.setenv("PYGENT_TASK_PERSONAS_JSON", "")
    monkeypatch.setenv("PYGENT_MAX_TASKS", "7")
    assert TaskManager().max_tasks == 7


def test_a_factory_is_given_the_persona_only_if_it_takes_one(rt: Runtime) -> None:
    def make_agent(model: ScriptedModel) -> Agent:
        return Agent(None, model)

    for factory in (
        partial(make_agent, model=ScriptedModel(STOP)),
        lambda *, model=STOP: make_agent(ScriptedModel(model)),
    ):
        tm = TaskManager(factory, personas=[Persona("Ada")])
        task = tm.start_task("run", rt)
        tm.tasks[task].join()
        assert (tm.status(task), tm.tasks[task].agent.persona.name) == ("finished", "Ada")
        tm.close()


def test_a_task_that_begins_while_others_are_counted_does_no_harm(rt: Runtime) -> None:
    class Meanwhile:
        """A task that ends; another thread adds one right then."""

        @property
        def status(self) -> str:
            tm.tasks.setdefault("other", SimpleNamespace(status="running"))  # type: ignore[arg-type] # as much as counts
            return "finished"

    tm = manager_of(STOP)
    tm.tasks["first"] = Meanwhile()  # type: ignore[assignment] # the same
    task = tm.start_task("run", rt)
    del tm.tasks["first"], tm.tasks["other"]
    tm.tasks[task].join()
    assert tm.status(task) == "finished"
    tm.close()


def test_a_task_has_its_parents_kind_of_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tm = manager_of(STOP)
    with Runtime(workspace=tmp_path / "work", use_docker=False) as parent:
        monkeypatch.setenv("PYGENT_USE_DOCKER", "1")
        task = tm.start_task("run", parent)
        assert tm.tasks[task].agent.runtime.sandbox_kind == parent.sandbox_kind == "bubblewrap"
    tm.close()


def test_files_that_do_not_exist_or_lie_elsewhere_begin_no_task(rt: Runtime) -> None:
    tm = manager_of(STOP)
    for name, error in (("none", FileNotFoundError), ("../home", ToolError)):
        with pytest.raises(error):
            tm.start_task("run", rt, files=[name])
    assert not tm.tasks
    tm.close()


def test_an_agent_delegates_by_tools_and_its_tasks_cannot(rt: Runtime) -> None:
    tools = Tools()
    child = ScriptedModel(calls(("delegate_task", {"prompt": "more"})), STOP)
    tm = TaskManager(lambda persona: Agent(None, child, persona=persona, tools=tools))
    register_task_tools(tools, tm)
    register_task_tools(tools, tm)
    started = calls(("delegate_persona_task", {"prompt": "go", "persona": "tester"}), ("list_personas", {}))
    agent = Agent(rt, ScriptedModel(started, STOP), tools=tools)

    agent.run_until_stop("Delegate it")
    answers = [each["content"] for each in agent.history if isinstance(each, dict) and each["role"] == "tool"]
    task = answers[0].removeprefix("started ")
    tm.tasks[task].join()

    assert json.loads(answers[1]) == [{"name": "Pygent", "description": "a sandboxed coding assistant."}]
    nested = [each["content"] for each in tm.tasks[task].agent.history[1:] if isinstance(each, dict)]
    assert "error: delegation not allowed in sub-tasks" in nested
    assert len(tm.tasks) == 1
    call = SimpleNamespace(function=SimpleNamespace(name="task_status", arguments=json.dumps({"task_id": task})))
    assert tools.execute_tool(call, rt) == "finished"
    tm.close()


class Stubborn:
    """An agent of another class, which ends neither in its time nor when it is told to."""

    def __init__(self, released: threading.Event) -> None:
        self.released = released
        self.runtime: Runtime | None = None
        self.persona: Persona | None = None

    def run_until_stop(self, _prompt: str, **_limits: object) -> None:
        self.released.wait(60)


def test_an_agent_of_another_class_that_does_not_end_holds_up_nobody(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "_GRACE_SECONDS", 0.1)
    released = threading.Event()
    tm = TaskManager(lambda: Stubborn(released))
    late, stopped = tm.start_task("run", rt, task_timeout=0.1), tm.start_task("run", rt)
    tm.tasks[late].join()
    assert tm.status(late) == "timeout after 0.1s"
    workspace = tm.tasks[stopped].agent.runtime.base_dir
    tm.close()
    assert not released.is_set()
    assert not workspace.exists()
    released.set()


def test_initial_files_of_all_workspaces_are_no_change_of_a_task(
    rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seed.txt").write_text("seed")
    monkeypatch.setenv("PYGENT_INIT_FILES", str(tmp_path / "seed.txt"))
    tm = manager_of(STOP)
    task = tm.start_task("run", rt)
    tm.tasks[task].join()
    assert tm.result(task).changes == ()
    tm.close()
