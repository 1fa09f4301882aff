"""§18: any callable is a tool; its docstring tells the model how to use it, its result is shown of itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from agent_runtime import AsyncRuntime, EventType, Runtime, SettingsError, Status, ToolError
from tests.agent_runtime.seed.parts import Model, reply, watch

Start = Callable[..., tuple[AsyncRuntime, Model]]


def web_search(query: str, limit: int = 3) -> list[str]:
    """Search the web for current information and give the best answers."""
    return [f"{query} {number}" for number in range(limit)]


async def test_the_model_is_told_its_signature_and_docstring(start: Start) -> None:
    runtime, model = start(reply(done="."))
    runtime.register_tool("web_search", web_search)
    await runtime.run("Search")
    assert "def web_search(query: str, limit: int = 3) -> list[str]:" in model.requests[0].system
    assert "Search the web for current information" in model.requests[0].system


async def test_its_result_is_shown_without_further_ado_and_is_a_value(start: Start) -> None:
    runtime, model = start(
        reply('web_search("SQLAlchemy", limit=2)'), reply('print(web_search("x")[0].upper())'), reply(done="Found.")
    )
    runtime.register_tool("web_search", web_search)
    await runtime.run("Search")
    assert "SQLAlchemy 1" in model.read[1]
    assert model.read[2] == "X 0"


async def test_a_tool_may_be_async_or_give_nothing(start: Start) -> None:
    sent: list[str] = []

    async def send_chat(channel: str, message: str) -> None:
        """Send a message."""
        await asyncio.sleep(0)
        sent.append(f"{channel}: {message}")

    runtime, model = start(reply('send_chat("deployments", "done")'), reply(done="Sent."))
    runtime.register_tool("send_chat", send_chat)
    await runtime.run("Tell them")
    assert sent == ["deployments: done"]
    assert "[send_chat] done" in model.read[1]


async def test_what_it_raises_is_told_to_the_model_and_breaks_nothing(start: Start) -> None:
    def broken() -> str:
        """Fail."""
        raise LookupError("no such record")

    def refusing() -> str:
        """Refuse."""
        raise ToolError("not on a Sunday", kind="PermissionError")

    def leaving() -> None:
        """Leave the program."""
        sys.exit(3)

    runtime, model = start(
        reply("broken()"),
        reply("leaving()"),
        reply("try:\n    refusing()\nexcept PermissionError as error:\n    print('caught', error)"),
        reply(done="Understood."),
    )
    runtime.register_tool("broken", broken)
    runtime.register_tool("leaving", leaving)
    runtime.register_tool("refusing", refusing)
    assert (await runtime.run("Try")).status is Status.FINISHED
    assert "broken: LookupError: no such record" in model.read[1]
    assert "leaving: SystemExit: 3" in model.read[2]
    assert "caught not on a Sunday" in model.read[3]


@pytest.mark.parametrize("call", ["web_search()", 'web_search("x", limit="many")', 'web_search("x", most=2)'])
async def test_wrong_arguments_are_told_before_it_is_called(start: Start, call: str) -> None:
    calls: list[str] = []

    def web_search(query: str, limit: int = 3) -> None:
        """Search."""
        calls.append(f"{query} {limit}")

    runtime, model = start(reply(call), reply(done="Understood."))
    runtime.register_tool("web_search", web_search)
    assert (await runtime.run("Search")).status is Status.FINISHED
    assert calls == []
    assert "web_search" in model.read[1]


async def test_a_taken_name_needs_replace_and_then_the_built_in_is_replaced(start: Start) -> None:
    ran: list[str] = []

    def safe_execute(session_id: str, command: str, timeout: int = 10) -> str:
        """Run a shell command, restricted to reading."""
        if any(word in command for word in ("rm ", ">")):
            raise ToolError(f"blocked: {command!r}", kind="PermissionError")
        ran.append(f"{session_id}: {command} ({timeout})")
        return "as if it ran"

    runtime, model = start(reply('execute("main", "ls")'), reply('execute("main", "rm -rf /")'), reply(done="Safe."))
    with pytest.raises(SettingsError, match="replace=True"):
        runtime.register_tool("execute", safe_execute)
    runtime.register_tool("execute", safe_execute, replace=True)
    seen = watch(runtime, EventType.TOOL_CALL)
    await runtime.run("Look")
    assert ran == ["main: ls (10)"]
    assert "as if it ran" in model.read[1]
    assert "blocked: 'rm -rf /'" in model.read[2]
    assert "restricted to reading" in model.requests[0].system
    assert "Run a bash command" not in model.requests[0].system
    assert [arguments["tool"] for _, arguments in seen] == ["execute", "execute"]


def test_the_blocking_runtime_takes_tools_and_shows_them(start_sync: Callable[..., tuple[Runtime, Model]]) -> None:
    runtime, model = start_sync(reply('print(web_search("x", 1))'), reply(done="Found."))
    runtime.register_tool("web_search", web_search)
    assert "web_search" in runtime.registry
    assert "web_search" in runtime.registry.names
    runtime.run("Search")
    assert "x 0" in model.read[1]
    runtime.register_tool("web_search", lambda query: "another", replace=True)


def test_the_documented_tools_of_the_original_are_told_what_to_do_instead(
    start_sync: Callable[..., tuple[Runtime, Model]],
) -> None:
    runtime, model = start_sync(reply('web_search("x")'), reply('execute("main", "touch made")'), reply(done="."))
    errors: list[str] = []
    runtime.hooks.register("runtime_error", lambda error, **_: errors.append(error))

    def web_search(query: str) -> None:
        """Search."""
        runtime._async._append_execution(f"[web_search] {query}")

    def safe_execute(session_id: str, command: str, timeout: int = 10, new_terminal: bool = False) -> object:  # noqa: FBT001, FBT002 - the document's
        """Run a command."""
        return runtime._async._terminal_manager.execute(session_id, command, timeout, new_terminal)

    runtime.register_tool("web_search", web_search)
    runtime.register_tool("execute", safe_execute, True)  # noqa: FBT003 - as documented
    runtime.run("Search")
    assert "return the text from the tool" in errors[0]
    assert "execute = runtime.registry.get('execute').func" in errors[1]
    assert "return the text from the tool" in model.read[1]
