"""§22: the names, arguments and defaults that users of the first CodePilot know; and a runtime that wears well."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from typing_extensions import override

import agent_runtime
from agent_runtime import (
    AsyncRuntime,
    BaseSession,
    DatabaseSession,
    EventType,
    FileSession,
    HookSystem,
    InMemorySession,
    Outcome,
    Runtime,
    Session,
    Status,
    UsageError,
    create_session,
)
from tests.agent_runtime.seed.parts import Model, reply, write_agent_file
from tests.waiting import eventually, until

NAMES = [
    "Runtime",
    "AsyncRuntime",
    "AgentFile",
    "InMemorySession",
    "FileSession",
    "DatabaseSession",
    "BaseSession",
    "create_session",
    "EventType",
    "HookSystem",
    "on_stream",
    "on_tool_call",
    "on_tool_result",
    "on_ask_user",
    "on_finish",
    "on_permission_request",
    "on_user_message_queued",
    "on_user_message_injected",
]
EVENTS = [
    "START",
    "STEP",
    "STREAM",
    "TOOL_CALL",
    "TOOL_RESULT",
    "ASK_USER",
    "PERMISSION_REQUEST",
    "SECURITY_ERROR",
    "RUNTIME_ERROR",
    "FINISH",
    "MAX_STEPS",
    "USER_MESSAGE_QUEUED",
    "USER_MESSAGE_INJECTED",
    "SESSION_RESET",
]


def parameters(func: Callable[..., object]) -> dict[str, object]:
    found = inspect.signature(func).parameters.values()
    return {each.name: each.default for each in found if each.name != "self"}


def test_the_names_are_there() -> None:
    assert {*NAMES} <= {*dir(agent_runtime)}
    assert {*EVENTS} <= {kind.name for kind in EventType}
    assert all(EventType[name] == name.lower() for name in EVENTS)


DOCUMENT = (Path(__file__).parent / "api_surface.txt").read_text(encoding="utf-8")
"""What CodePilot 0.9.1's document says about `Runtime` and `AsyncRuntime`, word for word."""


def documented_methods() -> dict[str, ast.arguments]:
    """The parameters of each method in the document's list."""
    listed = re.sub(r"\s+#.*", "", DOCUMENT[DOCUMENT.index("Full API Surface") :])
    calls = re.findall(r"^(?:Runtime|runtime\.(\w+))\(((?:[^()]|\n)*)\)(?: ->.*)?\n *$", listed, re.MULTILINE)
    declared = [ast.parse(f"def {name or '__init__'}({arguments}): ...").body[0] for name, arguments in calls]
    return {each.name: each.args for each in declared if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("kind", [Runtime, AsyncRuntime])
def test_each_method_has_the_documented_parameters_in_order_and_is_as_async(kind: type[object]) -> None:
    methods = documented_methods()
    assert methods.keys() == {"__init__", "run", "send_message", "reset", "abort", "register_tool"}
    awaited = set(re.findall(r"await runtime\.(\w+)\(", DOCUMENT)) if kind is AsyncRuntime else set()
    for name, arguments in methods.items():
        signature = inspect.signature(getattr(kind, name))
        given = [each for each in signature.parameters.values() if each.name != "self"]
        plain = [each for each in given if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert [each.name for each in plain] == [each.arg for each in arguments.args], name
        defaults = [ast.literal_eval(default) for default in arguments.defaults]
        assert [each.default for each in plain][len(plain) - len(defaults) :] == defaults, name
        added = [each for each in given if each not in plain]
        assert all(each.kind is inspect.Parameter.KEYWORD_ONLY and each.default != each.empty for each in added), name
        is_async = inspect.iscoroutinefunction(getattr(kind, name)) or "Coroutine" in signature.return_annotation
        assert is_async is (name in awaited), name


@pytest.mark.parametrize("kind", [Runtime, AsyncRuntime])
def test_a_runtime_takes_the_documented_arguments_by_name_and_by_position(
    tmp_path: Path, kind: type[Runtime | AsyncRuntime]
) -> None:
    path, url = str(write_agent_file(tmp_path, reply(done="."))), f"sqlite:///{tmp_path / 'sessions.db'}"
    by_name = kind(agent_file=path, session="file", session_id="one", session_dir=tmp_path / "sessions")
    by_position = kind(path, "db", "two", None, True, url)  # noqa: FBT003 - documented that way
    assert isinstance(by_name.session, FileSession)
    assert isinstance(by_position.session, DatabaseSession)
    for runtime in (by_name, by_position):
        if isinstance(runtime, Runtime):
            runtime.close()
        else:
            asyncio.run(runtime.close())


async def test_messages_session_hooks_and_registry_are_there_to_look_at(
    start: Callable[..., tuple[AsyncRuntime, Model]],
) -> None:
    runtime, _ = start(reply(done="Done."))
    await runtime.run("Do it")
    assert [set(message) for message in runtime.messages] == [{"role", "content"}] * 2
    assert isinstance(runtime.session, InMemorySession)
    assert isinstance(runtime.session, BaseSession)
    assert isinstance(runtime.hooks, HookSystem)
    assert "execute" in runtime.registry.names


def test_the_tools_take_the_documented_arguments(start_sync: Callable[..., tuple[Runtime, Model]]) -> None:
    runtime, _ = start_sync(reply(done="."))
    declared = runtime.registry.declarations
    for head in (
        "def read_file(path: Texts, start_line: int = 1, end_line: int = None",
        "def execute(session_id: str, command: str, timeout: float",
        "def read_output(session_id: str, timeout: float = 5, check: bool = False)",
        "def send_input(session_id: str, text: str, timeout: float = 5)",
        "def terminate_terminal(session_id: str)",
        "def ask_user(question: str)",
        "def list_archived_context()",
        "def reveal_context(position: int)",
    ):
        assert head in declared
    for name, words in {
        "write_file": "path start_line end_line after_line mode edits",
        "find": "pattern scope target include max_results",
        "archive_context": "position summary task",
        "execute": "session_id command timeout new_terminal shell",
    }.items():
        assert set(words.split()) <= {*runtime.registry.get(name).signature.parameters}


async def test_semantic_search_takes_the_documented_arguments(
    start: Callable[..., tuple[AsyncRuntime, Model]],
) -> None:
    runtime, _ = start(reply(done="."), indexed=True)
    found = runtime.registry.get("semantic_search").signature.parameters
    assert {name: each.default for name, each in found.items()} == {
        "query": inspect.Parameter.empty,
        "mode": "search",
        "depth": 2,
        "top_k": 5,
    }


@pytest.mark.parametrize(
    ("made", "given"),
    [
        (InMemorySession, {"session_id": "default"}),
        (FileSession, {"session_dir": None}),
        (DatabaseSession, {}),
        (create_session, {"backend": "memory", "session_id": "default", "agent_name": "agent", "session_dir": None}),
    ],
)
def test_sessions_take_the_documented_arguments(made: Callable[..., object], given: dict[str, object]) -> None:
    assert given.items() <= parameters(made).items()


@pytest.mark.parametrize("name", ["load", "save", "reset", "exists", "metadata", "list_sessions", "path", "session_id"])
def test_a_file_session_has_the_documented_members(tmp_path: Path, name: str) -> None:
    assert hasattr(FileSession("s", "agent", tmp_path), name)


async def test_a_session_of_ones_own_will_do(start: Callable[..., tuple[AsyncRuntime, Model]]) -> None:
    class Counting(InMemorySession):
        commits = 0

        @override
        async def commit(self) -> None:
            self.commits += 1

    session: Session = Counting("mine")
    runtime, _ = start(reply("print(1)"), reply(done="Done."), using={"session": session})
    assert (await runtime.run("Do it")).status is Status.FINISHED
    assert runtime.session is session
    assert isinstance(session, Counting)
    assert session.commits >= 2


@pytest.mark.slow
def test_the_twelfth_run_is_as_good_as_the_first(start_sync: Callable[..., tuple[Runtime, Model]]) -> None:
    runs = 12
    blocks = ['execute("main", "echo on")' if number % 5 == 0 else "list_files()" for number in range(runs)]
    replies = [reply(block, done=f"Done {number}.") for number, block in enumerate(blocks)]
    runtime, _ = start_sync(*replies)
    for number in range(3):
        assert str(runtime.run(f"Task {number}")) == f"Done {number}."
    early = count_held_before()
    for number in range(3, runs):
        assert str(runtime.run(f"Task {number}")) == f"Done {number}."

    def list_growth() -> dict[str, int]:
        late = count_held()
        return {each: late[each] - early[each] for each in early if late[each] > early[each]}

    with suppress(AssertionError):
        until(lambda: not list_growth())  # the last run's ends may take a moment to close
    assert list_growth() == {}


def test_a_closed_runtime_gives_everything_back(described: Callable[..., tuple[object, Model]]) -> None:
    before = count_held_before()
    for _ in range(3):
        agent, _model = described(reply('execute("main", "sleep 600 &")', done="Done."))
        with Runtime(agent, quiet=True) as runtime:  # type: ignore[arg-type]
            runtime.run("Sleep")
        runtime.close()

    def everything_is_back() -> bool:
        after = count_held()
        return all(after[each] <= before[each] for each in before)

    until(everything_is_back)  # the threads of the loop's own pool are told to end, and not waited for


async def test_a_closed_runtime_says_so_to_whoever_waits_or_comes_later(
    start: Callable[..., tuple[AsyncRuntime, Model]], place: Path
) -> None:
    runtime, _ = start(reply('execute("main", "touch asleep; sleep 600")'), reply(done="Never."))
    running = [asyncio.create_task(runtime.run("Sleep")), asyncio.create_task(runtime.run("Wait"))]
    await eventually((place / "asleep").exists)
    await asyncio.wait_for(runtime.close(), timeout=10)
    stopped, waited = await asyncio.gather(*running, return_exceptions=True)
    assert isinstance(stopped, Outcome)
    assert stopped.status is Status.STOPPED
    assert isinstance(waited, UsageError)
    with pytest.raises(UsageError, match="is closed"):
        await runtime.run("Too late")
    await runtime.close()


async def test_a_closed_runtime_has_let_go_of_its_session(
    start: Callable[..., tuple[AsyncRuntime, Model]], place: Path, tmp_path: Path
) -> None:
    using = {"session": "file", "session_dir": tmp_path / "sessions"}
    runtime, _ = start(reply('execute("main", "touch asleep; sleep 600")'), using=using)
    running = asyncio.create_task(runtime.run("Sleep"))
    await eventually((place / "asleep").exists)
    await runtime.close()
    assert (await running).status is Status.STOPPED
    again, _ = start(reply(done="Free."), using=using)
    assert not again.unfinished
    assert str(await again.run("Go on")) == "Free."


def test_the_blocking_runtime_is_closed_for_good(start_sync: Callable[..., tuple[Runtime, Model]]) -> None:
    runtime, _ = start_sync(reply(done="Done."))
    runtime.run("Do it")
    runtime.close()
    with pytest.raises(UsageError, match="is closed"):
        runtime.run("Too late")
    runtime.close()


def count_held_before() -> dict[str, int]:
    """Count as `count_held` does, and keep what other tests left out of later collections."""
    gc.collect()
    gc.freeze()  # once: a later freeze would keep the cycles of a run that is still closing
    return count_held()


def count_held() -> dict[str, int]:
    """Threads, open files and child processes of this process."""
    gc.collect()
    processes = 0
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread of an earlier test that ends just now
            processes += len((task / "children").read_text().split())
    # A pool starts threads up to its bound as it needs them: the first one counts, of the loop's own pool none.
    pooled = [re.fullmatch(r"asyncio_\d+|ThreadPoolExecutor-\d+_[1-9]\d*", each.name) for each in threading.enumerate()]
    return {
        "threads": pooled.count(None),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "processes": processes,
    }
