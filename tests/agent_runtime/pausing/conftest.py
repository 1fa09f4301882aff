"""A workspace, a sandbox, and runtimes on them that share a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    FileSession,
    Policy,
    Rule,
    RunLimits,
    Sandbox,
    ScriptedProvider,
    Session,
)
from agent_runtime.providers.scripted import ScriptedReply
from tests.agent_runtime.pausing.parts import ASKS, KEY


@pytest.fixture
def start(place: Path, tmp_path: Path, sandbox: Sandbox) -> Callable[..., AsyncRuntime]:
    """Makes a runtime as a process that comes later would: the same session, everything else new."""

    def make(
        *replies: str | ScriptedReply,
        rules: tuple[Rule, ...] = ASKS,
        session: Session | None = None,
        limits: RunLimits | None = None,
        key: bytes = KEY,
        scrub: Callable[[str], str] | None = None,
        resumable: bool = False,
    ) -> AsyncRuntime:
        policy = Policy(rules=rules, limits=limits or RunLimits())
        provider = ScriptedProvider(replies)
        agent = Agent(provider=provider, work_dir=place, sandbox=sandbox, policy=policy, chat=False, scrub=scrub)
        session = session or FileSession("a run", session_dir=tmp_path / "sessions")
        return AsyncRuntime(agent, session, state_key=key, resumable=resumable)

    return make
