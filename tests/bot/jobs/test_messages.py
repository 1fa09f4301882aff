"""People's messages to an agent at work: each is delivered once, or is known to have come too late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_runtime import Agent, AsyncRuntime, MessageInjected, ScriptedProvider, pick_sandbox
from agent_runtime.sandbox.protocol import SandboxSettings
from bot.jobs.agent_run import Messages
from bot.queue.records import Signal

DONE = "```completion\nDone.\n```\n"


def runtime_of(path: Path, messages: Messages, replies: Sequence[str] = (DONE,), *, kept: bool = False) -> AsyncRuntime:
    sandbox = pick_sandbox("auto", SandboxSettings())
    agent = Agent(provider=ScriptedProvider(list(replies)), work_dir=path, sandbox=sandbox)
    session = "file" if kept else "memory"
    return AsyncRuntime(agent, session, session_dir=path.parent if kept else None, listeners=[messages.note])


def said(id_: str, text: str = "mind the minus") -> Signal:
    return Signal(kind="message", text=text, by="mona", id=id_)


def injected(runtime: AsyncRuntime) -> list[str]:
    return [event.id for event in runtime.session.events if isinstance(event, MessageInjected)]


async def test_a_message_that_repeats_an_earlier_one_is_delivered_too(tmp_path: Path) -> None:
    messages = Messages()
    messages.deliver(said("m1"))
    async with runtime_of(tmp_path, messages) as runtime:
        messages.go_to(runtime)
        messages.deliver(said("m2"))
        await runtime.run("Listen")
        assert injected(runtime) == ["m1", "m2"]
    assert messages.untold == ()


async def test_a_message_that_repeats_an_earlier_one_and_comes_too_late_is_reported(tmp_path: Path) -> None:
    messages = Messages()
    messages.deliver(said("m1"))
    async with runtime_of(tmp_path, messages) as runtime:
        messages.go_to(runtime)
        await runtime.run("Listen")
        messages.go_to(None)
        messages.deliver(said("m2"))
    assert [signal.id for signal in messages.untold] == ["m2"]


async def test_the_next_process_delivers_only_what_the_session_does_not_have(tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    for heard in (["m1"], ["m1", "m2"]):
        messages = Messages()
        for id_ in heard:
            messages.deliver(said(id_))
        async with runtime_of(work_dir, messages, kept=True) as runtime:
            messages.go_to(runtime)
            await runtime.run("Listen")
            assert injected(runtime) == heard
