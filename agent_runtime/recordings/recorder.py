"""Recording everything that a replay of an agent's runs needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar, get_args

from agent_runtime.agent.agent import Agent
from agent_runtime.core.clock_and_random import ClockAndRandom
from agent_runtime.core.events import Event, Recorded
from agent_runtime.index.building import has_sources
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.recording import RecordingProvider
from agent_runtime.providers.tape import DIGITS, EVENT, HISTORY, TIME
from agent_runtime.run.hooks import HookSystem
from agent_runtime.sessions.codec import encode
from agent_runtime.sessions.protocol import Session
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Manifest

T = TypeVar("T")


class Followed(Protocol):
    """What of a runtime a recorder follows; `AsyncRuntime` and `Runtime` are such."""

    @property
    def session(self) -> Session:
        """The log of the conversation."""
        ...

    @property
    def hooks(self) -> HookSystem:
        """Who is told what happens."""
        ...


class Recorder:
    """Records what an agent's model is asked and answers, and the events of its session.

    Example:
        ```python
        recorder = Recorder(agent, Path("run.jsonl"))
        async with AsyncRuntime(recorder.agent) as runtime:
            recorder.follow(runtime)
            await runtime.run("Make the tests pass")
        ```

    The file holds the conversation, and with it whatever the agent read; its owner alone may read it.

    Attributes:
        agent: the same agent, with a provider that records; use it in place of the one given.
    """

    def __init__(self, agent: Agent, path: Path | str, *, secrets: Sequence[str] = ()) -> None:
        """Begin a recording.

        Args:
            agent: who works.
            path: the file to make; no file is ever written over.
            secrets: texts that must not reach the file, should the conversation hold them.

        Raises:
            SettingsError: the file exists, or cannot be made.
        """
        # Who works, and where: what `replaying.agent_of` makes an agent from again.
        workspace = Workspace(agent.work_dir, seen_as=agent.sandbox.seen_as(agent.work_dir))
        try:
            digest = Manifest.of(workspace).digest
            indexed = has_sources(workspace) if agent.indexed is None else agent.indexed
        finally:
            workspace.close()
        # Whose model delegated tasks have and where their copies lie is the replay's.
        delegation = agent.delegation
        bounds = delegation and asdict(replace(delegation, provider=None, copies=None))
        self._provider = RecordingProvider(
            agent.provider,
            path,
            about={
                "agent": {
                    "name": agent.name,
                    "role": agent.role,
                    "instructions": agent.instructions,
                    "tools": None if agent.tools is None else list(agent.tools),
                    "memory": asdict(agent.memory),
                    "chat": agent.chat,
                    "unsafe_mode": agent.unsafe_mode,
                    "repository_instructions": dict(agent.repository_instructions),
                    "max_output_chars": dict(agent.max_output_chars),
                    "policy": asdict(agent.policy),
                    "indexed": indexed,
                    **({"skills": dict(agent.skills)} if agent.skills else {}),
                    **({"start_in": agent.start_in} if agent.start_in else {}),
                    **({"transport": agent.transport} if agent.transport else {}),
                    **({"delegation": bounds} if bounds else {}),
                },
                "sandbox": agent.sandbox.level,
                "work_dir": agent.sandbox.seen_as(agent.work_dir),
                "workspace": digest,
            },
            secrets=secrets,
        )
        if delegation is not None and delegation.provider is not None:  # child runs are recorded as well
            delegation = replace(delegation, provider=self._provider.beside(delegation.provider))
        around = agent.clock_and_random
        self.agent = replace(
            agent,
            provider=self._provider,
            delegation=delegation,
            indexed=indexed,
            clock_and_random=ClockAndRandom(
                now=lambda: self._noted(TIME, around.now(), datetime.isoformat),
                token=lambda size: self._noted(DIGITS, around.token(size), str),
                sleep=around.sleep,
            ),
        )

    def follow(self, runtime: Followed) -> None:
        """Write down what the session holds, and from now on whatever it is added.

        A recording that begins in the middle of a conversation can be compared, but not replayed.
        """
        history = runtime.session.events
        self._provider.note(HISTORY, len(history))
        for event in history:
            self._note(event)
        runtime.hooks.add(self._note)

    def recorded(self, provider: Provider) -> Provider:
        """Another model that the runtime is to `use`, so that its exchanges are recorded, too."""
        return self._provider.beside(provider)

    def _noted(self, kind: str, value: T, told: Callable[[T], str]) -> T:
        self._provider.note(kind, told(value))
        return value

    def _note(self, event: Event) -> None:
        if isinstance(event, get_args(Recorded)):
            self._provider.note(EVENT, json.loads(encode(event)))
