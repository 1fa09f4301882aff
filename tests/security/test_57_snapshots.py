"""Threat 57: a saved step that a byte of was altered, or that is of another run, is refused before it is loaded."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    InMemorySession,
    Paused,
    Policy,
    ResumeError,
    Rule,
    SandboxSettings,
    ScriptedProvider,
    Started,
    Status,
    pick_sandbox,
)
from agent_runtime.core.errors import ResumeCode
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.interpreter.source import InterpreterState
from agent_runtime.run.checkpoint import digest_log, seal, unseal
from tests.codes import coded

KEY = b"a key of sixteen bytes or more"
REPLY = '```codepilot\nkept = "kept"\nexecute("main", "echo run >> runs.txt")\n```\n'
DONE = "```completion\nDone.\n```\n"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., AsyncRuntime]:
    """Create a runtime on a session that asks before each command."""
    sandbox = pick_sandbox("auto", SandboxSettings())

    def make(session: InMemorySession, *replies: str, key: bytes = KEY) -> AsyncRuntime:
        policy = Policy(rules=(Rule(decision="ask", tool="execute"),))
        (tmp_path / "work").mkdir(exist_ok=True)
        agent = Agent(
            provider=ScriptedProvider(replies), work_dir=tmp_path / "work", sandbox=sandbox, policy=policy, chat=False
        )
        return AsyncRuntime(agent, session, state_key=key)

    return make


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[InterpreterState]:
    """All states given to an interpreter for resumption."""
    seen: list[InterpreterState] = []
    resume = Interpreter.resume

    async def watched(interpreter: Interpreter, state: InterpreterState, **rest: object) -> None:
        seen.append(state)
        await resume(interpreter, state, **rest)  # type: ignore[arg-type] # passed on as they came

    monkeypatch.setattr(Interpreter, "resume", watched)
    return seen


async def _paused(start: Callable[..., AsyncRuntime], name: str) -> tuple[InMemorySession, int, Paused]:
    """Return a session with a waiting run, the pause's location, and the pause."""
    session = InMemorySession(name)
    async with start(session, REPLY) as runtime:
        assert (await runtime.run("Count")).status is Status.PAUSED
    return next((session, at, event) for at, event in enumerate(session.events) if isinstance(event, Paused))


def _altered(paused: Paused, at: float) -> Paused:
    """Return the pause with one byte changed, at the fraction `at`."""
    state = json.loads(paused.state)
    sealed = bytearray(base64.urlsafe_b64decode(state["sealed"]))
    sealed[int(at * (len(sealed) - 1))] ^= 1
    state["sealed"] = base64.urlsafe_b64encode(sealed).decode()
    return dataclasses.replace(paused, state=json.dumps(state, separators=(",", ":")))


@pytest.mark.parametrize("at", [0.0, 0.1, 0.5, 0.9, 1.0])
async def test_one_byte_of_it_is_enough(
    start: Callable[..., AsyncRuntime], loads: list[InterpreterState], at: float, tmp_path: Path
) -> None:
    session, place, paused = await _paused(start, "altered")
    session._events[place] = _altered(paused, at)
    async with start(session) as later:
        with pytest.raises(ResumeError, check=coded(ResumeCode.ALTERED)):
            await later.resume(approve=True)
    assert loads == []
    assert not (tmp_path / "work" / "runs.txt").exists()


async def test_one_of_another_run_is_refused_though_its_signature_is_right(
    start: Callable[..., AsyncRuntime], loads: list[InterpreterState], tmp_path: Path
) -> None:
    session, place, _ = await _paused(start, "one")
    _, _, theirs = await _paused(start, "another")
    session._events[place] = theirs
    async with start(session) as later:
        with pytest.raises(ResumeError, check=coded(ResumeCode.MOVED)):
            await later.resume(approve=True)
    assert loads == []
    assert not (tmp_path / "work" / "runs.txt").exists()


@pytest.mark.parametrize("part", ["session_id", "run_id", "log"])
async def test_each_of_session_run_and_log_is_bound(start: Callable[..., AsyncRuntime], part: str) -> None:
    session, place, paused = await _paused(start, "bound")
    run = next(event.run_id for event in session.events if isinstance(event, Started))
    log = digest_log([*session.events[:place], *session.events[place + 1 :]])
    where = {"session_id": "bound", "run_id": run, "log": log}
    saved = unseal(paused, KEY, **where)
    assert unseal(seal(saved, KEY), KEY, **where) == saved
    with pytest.raises(ResumeError, check=coded(ResumeCode.MOVED)):
        unseal(seal(saved, KEY), KEY, **where | {part: "another"})


async def test_another_installation_s_key_is_no_key(
    start: Callable[..., AsyncRuntime], loads: list[InterpreterState]
) -> None:
    session, _, _ = await _paused(start, "foreign")
    async with start(session, key=b"another key of sixteen bytes") as later:
        with pytest.raises(ResumeError, check=coded(ResumeCode.ALTERED)):
            await later.resume(approve=True)
    assert loads == []


async def test_the_positive_control_is_gone_on_with(
    start: Callable[..., AsyncRuntime], loads: list[InterpreterState], tmp_path: Path
) -> None:
    session, _, _ = await _paused(start, "whole")
    async with start(session, DONE) as later:
        assert (await later.resume(approve=True)).status is Status.FINISHED
    assert len(loads) == 1
    assert (tmp_path / "work" / "runs.txt").read_text() == "run\n"
