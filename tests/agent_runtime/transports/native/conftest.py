"""Fixtures: a workspace, a recording model, and runtimes that share a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import Agent, AsyncRuntime, FileSession, Policy, Sandbox
from agent_runtime.providers.scripted import ScriptedReply
from tests.agent_runtime.transports.native.parts import Model

Start = Callable[..., AsyncRuntime]


@pytest.fixture
def start(place: Path, tmp_path: Path, sandbox: Sandbox) -> Start:
    """Create a runtime like a later process: the same session, everything else new."""

    def make(
        *replies: str | ScriptedReply,
        policy: Policy | None = None,
        chat: bool = False,
        transport: str | None = "tools",
        sees: bool = False,
    ) -> AsyncRuntime:
        agent = Agent(
            provider=Model(replies, chunk_chars=5, sees_images=sees),
            work_dir=place,
            sandbox=sandbox,
            policy=policy or Policy(),
            chat=chat,
            transport=transport,  # type: ignore[arg-type] # one of the two names
        )
        return AsyncRuntime(agent, FileSession("a run", session_dir=tmp_path / "sessions"), state_key=b"k" * 32)

    return make
