"""§10: every event with its keyword arguments, every decorator, handlers that fail, handlers in place of defaults."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import agent_runtime
from agent_runtime import (
    Agent,
    AsyncRuntime,
    Chunk,
    EventType,
    HookSystem,
    Policy,
    ReplyStart,
    Request,
    Rule,
    RunLimits,
    Runtime,
    Status,
    TextChunk,
    ToolReturned,
    on_ask_user,
    on_permission_request,
    on_tool_call,
)
from tests.agent_runtime.seed.parts import Model, reply, watch, write_agent_file
from tests.source_files import ROOT

Start = Callable[..., tuple[AsyncRuntime, Model]]


class Restarting(Model):
    """Breaks its first attempt at each reply off, as a provider does whose connection drops."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        yield ReplyStart(attempt=1)
        yield TextChunk(text="This never")
        async for chunk in super().reply(request):
            yield ReplyStart(attempt=2) if isinstance(chunk, ReplyStart) else chunk


async def test_each_event_comes_with_its_arguments_and_in_order(start: Start) -> None:
    runtime, _ = start(
        reply('execute("main", "echo hi")', say="Greeting."),
        reply('write_file("no.txt")', "no"),
        reply("print(1 // 0)", done="Too early."),
        reply('ask_user("Which colour?")'),
        reply('execute("main", "true")', done="All done."),
        policy=Policy(
            rules=(
                Rule(decision="deny", tool="write_file", reason="read only"),
                Rule(decision="ask", tool="execute", commands=("true",)),
            )
        ),
    )
    seen = watch(runtime)
    on_ask_user(runtime)(lambda **_: "Green")
    on_permission_request(runtime, add=True)(lambda **_: True)
    runtime.send_message("Be quick")
    outcome = await runtime.run("Do everything")
    await runtime.reset()
    assert outcome.status is Status.FINISHED
    of: dict[EventType, list[dict[str, Any]]] = {kind: [] for kind in EventType}
    for kind, arguments in seen:
        of[kind].append(arguments)
    assert of[EventType.USER_MESSAGE_QUEUED] == of[EventType.USER_MESSAGE_INJECTED] == [{"message": "Be quick"}]
    assert of[EventType.START] == [{"task": "Do everything"}]
    assert of[EventType.STEP] == [{"step": step, "max_steps": 30} for step in range(1, 6)]
    assert of[EventType.STREAM][0]["text"].strip() == "Greeting."
    call = of[EventType.TOOL_CALL][0]
    assert call == {
        "tool": "execute",
        "args": {"session_id": "main", "command": "echo hi"},
        "label": "Running `echo hi`",
        "number": 1,
    }
    result = of[EventType.TOOL_RESULT][0]
    assert result.keys() == {"tool", "result", "args", "ok", "value", "seconds", "number"}
    assert (result["tool"], result["ok"], result["value"]["output"]) == ("execute", True, "hi\n")
    assert "$ echo hi\nhi\n" in result["result"]
    [security] = of[EventType.SECURITY_ERROR]
    assert "read only" in security["error"]
    assert any("ZeroDivisionError" in each["error"] for each in of[EventType.RUNTIME_ERROR])
    assert of[EventType.COMPLETION_WITHDRAWN] == [{"step": 3}]
    [question] = of[EventType.ASK_USER]
    assert question["question"] == "Which colour?"
    [permission] = of[EventType.PERMISSION_REQUEST]
    assert permission["tool"] == "execute"
    assert "true" in permission["description"]
    assert permission["pending"].args["command"] == "true"
    assert of[EventType.FINISH] == [{"summary": "All done."}]
    assert of[EventType.END] == [{"outcome": outcome}]
    assert of[EventType.SESSION_RESET] == [{}]
    assert {kind: each[0].keys() for kind, each in of.items() if each}.items() <= documented().items()
    kinds = [kind for kind, _ in seen]
    order = [EventType.USER_MESSAGE_QUEUED, EventType.START, EventType.STEP, EventType.TOOL_CALL, EventType.TOOL_RESULT]
    assert sorted(order, key=kinds.index) == order
    assert kinds[-3:] == [EventType.FINISH, EventType.END, EventType.SESSION_RESET]


def documented() -> dict[EventType, set[str]]:
    """Each event's arguments as the guide's table has them."""
    table = (ROOT / "docs" / "guide" / "hooks.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| `")]
    return {EventType[row[0].strip(" `")]: {*row[2].replace("`", "").replace(",", "").split()} for row in rows}


async def test_the_rest_of_the_events_max_steps_paused_progress_and_a_restarted_stream(
    start: Start, described: Callable[..., tuple[Agent, Model]]
) -> None:
    limits = RunLimits(max_steps=1)
    ended, _ = start(reply("print(1)"), policy=Policy(limits=limits))
    seen = watch(ended, EventType.MAX_STEPS, EventType.FINISH)
    await ended.run("Never end")
    assert seen == [(EventType.MAX_STEPS, {})]

    paused, _ = start(reply('ask_user("Which?")'))
    seen = watch(paused, EventType.PAUSED, EventType.END)
    outcome = await paused.run("Ask")
    assert seen == [(EventType.PAUSED, {"pending": outcome.pending})]

    def count(upto: int) -> Generator[str, None, int]:
        """Count."""
        for number in range(upto):
            yield f"at {number}"
        return upto

    counting, model = start(reply("print(count(2) + 1)"), reply(done="Counted."))
    counting.register_tool("count", count)
    seen = watch(counting, EventType.TOOL_PROGRESS)
    await counting.run("Count")
    assert [arguments for _, arguments in seen] == [
        {"tool": "count", "text": f"at {number}", "number": 1} for number in range(2)
    ]
    assert "3" in model.read[1]

    agent = replace(described()[0], provider=Restarting([reply(say="Second try.", done="Done.")]))
    async with AsyncRuntime(agent, stream=True) as restarted:
        seen = watch(restarted, EventType.STREAM, EventType.STREAM_RESET)
        assert str(await restarted.run("Try")) == "Done."
    kinds = [kind for kind, _ in seen]
    assert seen[kinds.index(EventType.STREAM_RESET)][1] == {"attempt": 2}
    after = "".join(arguments["text"] for _, arguments in seen[kinds.index(EventType.STREAM_RESET) + 1 :])
    assert "Second try." in after
    assert "never" not in after


def test_every_kind_has_its_decorator_and_the_handler_stays_what_it_was(start_sync: Callable[..., Any]) -> None:
    runtime, _ = start_sync(reply(done="."))
    for kind in EventType:
        decorate = getattr(agent_runtime, f"on_{kind}")

        def handler(**_: object) -> None: ...

        assert decorate(runtime)(handler) is handler
        assert handler in runtime.hooks.handlers(kind)
        assert decorate.__doc__


def test_a_decorator_replaces_the_default_and_earlier_handlers_unless_it_adds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []
    with Runtime(write_agent_file(tmp_path, reply('execute("main", "echo hi")', say="Looking.", done="Done."))) as r:
        on_tool_call(r)(lambda **_: calls.append("replaced"))

        @on_tool_call(r)
        def second(tool: str, **_: object) -> None:
            calls.append(f"second {tool}")

        @on_tool_call(r, add=True)
        def third(tool: str, **_: object) -> None:
            calls.append(f"third {tool}")

        r.run("Greet")
    assert calls == ["second execute", "third execute"]
    out = capsys.readouterr().out
    assert "Running" not in out
    assert "Looking." in out


def test_the_same_decorators_add_as_in_the_original(start_sync: Callable[..., Any]) -> None:
    runtime, _ = start_sync(reply(done="."))
    added: set[str] = set()
    for kind in EventType:
        decorate = getattr(agent_runtime, f"on_{kind}")
        first = decorate(runtime)(lambda **_: None)
        decorate(runtime)(lambda **_: None)
        added |= {kind} if first in runtime.hooks.handlers(kind) else set()
    assert added == {"ask_user", "user_message_queued", "user_message_injected"}


def test_clear_removes_handlers_and_the_printing_default_and_a_terminal_is_still_asked() -> None:
    hooks = HookSystem()
    for kind in (EventType.STREAM, EventType.PERMISSION_REQUEST):
        hooks.register(kind, print, default=True)
        hooks.register(kind, len, by_arguments=True)
    hooks.clear(EventType.STREAM)
    hooks.clear("permission_request")
    assert hooks.handlers(EventType.STREAM) == hooks.argument_handlers() == ()
    assert hooks.handlers(EventType.PERMISSION_REQUEST) == (print,)
    hooks.register("permission_request", len)
    assert hooks.argument_handlers() == (), "it needs a preview again"
    with pytest.raises(ValueError, match="streams"):
        hooks.clear("streams")


@pytest.mark.parametrize(
    ("answers", "combined"),
    [([], None), ([None], None), ([True, None], True), ([False, True], False), (["no", True], False), ([1], False)],
)
def test_a_permission_request_by_hand_gets_the_strictest_answer(answers: list[object], combined: object) -> None:
    hooks = HookSystem()
    for answer in answers:
        hooks.register("permission_request", lambda _answer=answer, **_: _answer)
    assert hooks.emit("permission_request", tool="deploy", description="Deploy") is combined
    hooks.register("permission_request", lambda: True)
    assert hooks.emit("permission_request", tool="deploy", description="Deploy") is False, "one failed"


@pytest.mark.parametrize("error", [RuntimeError("the handler's own trouble"), SystemExit("the handler's own trouble")])
async def test_a_handler_that_raises_is_reported_and_breaks_nothing(
    start: Start, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    runtime, _ = start(reply('execute("main", "echo hi")', say="Looking."), reply(done="Done."))

    def broken(**_: object) -> None:
        raise error

    errors: list[str] = []
    after: list[EventType] = []
    for kind in EventType:
        runtime.hooks.register(kind, broken)
        runtime.hooks.register(kind, lambda _kind=kind, **_: after.append(_kind))
    runtime.hooks.register("runtime_error", lambda error, **_: errors.append(error))
    assert (await runtime.run("Do it")).status is Status.FINISHED
    assert {EventType.START, EventType.STEP, EventType.TOOL_CALL, EventType.TOOL_RESULT, EventType.FINISH} <= {*after}
    assert any("broken" in error and "the handler's own trouble" in error for error in errors)
    assert "a handler failed on tool_call" in caplog.text


def test_a_handler_that_wants_to_leave_the_program_does_not_hang_it(
    start_sync: Callable[..., tuple[Runtime, Model]],
) -> None:
    runtime, _ = start_sync(reply(done="Done."), reply(done="Done again."))
    runtime.hooks.register("finish", lambda **_: sys.exit(0))
    assert str(runtime.run("Do it")) == "Done."
    assert str(runtime.run("Do it again")) == "Done again."


async def test_a_handler_that_takes_fewer_arguments_than_there_are_is_reported_as_well(start: Start) -> None:
    runtime, _ = start(reply("print(1)"), reply(done="Done."))
    runtime.hooks.register("step", lambda step: None)
    errors: list[str] = []
    runtime.hooks.register("runtime_error", lambda error, **_: errors.append(error))
    assert (await runtime.run("Do it")).status is Status.FINISHED
    assert len(errors) == 2
    assert "max_steps" in errors[0]


@pytest.mark.parametrize(
    ("control", "kinds"),
    [
        ('read_file("../../etc/passwd")', ["security_error"]),
        ('list_files("*", "../..")', ["security_error"]),
        ('read_file(".git/config")', ["security_error"]),
        ("import subprocess", ["security_error"]),
        ("import os\nos.system('id')", ["security_error"]),
        ("import os\nprint(os.environ['KEY'])", ["security_error"]),
        ("print(().__class__.__bases__)", ["security_error"]),
        ("print(print.__self__)", ["security_error"]),
        ("open('/etc/passwd')", ["security_error"]),
        ("try:\n    read_file('../x')\nexcept PermissionError:\n    1 // 0", ["security_error", "runtime_error"]),
        ("1 // 0", ["runtime_error"]),
        ('read_file("missing.txt")', ["runtime_error"]),
        ("x = (", []),
        ("read_file(1)", []),
    ],
)
async def test_an_escape_attempt_is_a_security_error_and_a_syntax_error_is_none(
    start: Start, control: str, kinds: list[str]
) -> None:
    runtime, model = start(reply(control), reply(done="Done."))
    seen = watch(runtime, EventType.SECURITY_ERROR, EventType.RUNTIME_ERROR)
    assert (await runtime.run("Try")).status is Status.FINISHED
    assert [kind for kind, _ in seen] == kinds
    assert len(model.requests) == 2, "the model is told"


async def test_handlers_are_registered_and_called_by_hand_by_name_or_kind(start: Start) -> None:
    runtime, _ = start()
    said: list[str] = []
    runtime.hooks.register(EventType.FINISH, lambda summary, **_: said.append(summary))
    runtime.hooks.register("finish", lambda **_: "an answer")
    assert runtime.hooks.emit(EventType.FINISH, summary="By hand") == "an answer"
    assert said == ["By hand"]
    with pytest.raises(ValueError, match="finished"):
        runtime.hooks.register("finished", print)

    async def late(**_: object) -> None: ...

    with pytest.raises(ValueError, match="cannot be async"):
        runtime.hooks.register(EventType.FINISH, late)


async def test_listeners_are_told_the_same_as_values(start: Start) -> None:
    told: list[object] = []
    runtime, _ = start(reply('execute("main", "echo hi")', done="Done."), using={"listeners": [told.append]})
    await runtime.run("Greet")
    [returned] = [event for event in told if isinstance(event, ToolReturned)]
    assert returned.label == "Running `echo hi`"
