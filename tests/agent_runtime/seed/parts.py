"""What the tests of the seed are made of: replies, a model that remembers what it was asked, watchers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml
from typing_extensions import override

from agent_runtime import Chunk, EventType, HookSystem, Request, ScriptedProvider, Session


def reply(control: str = "", *contents: str, say: str = "", done: str = "") -> str:
    """A model's reply: words, a control block, the contents that it writes, a completion; whatever is not empty."""
    parts = [say]
    if control:
        parts.append(f"```codepilot\n{control}\n```")
    parts += [f"```text\n{content}\n```" for content in contents]
    if done:
        parts.append(f"```completion\n{done}\n```")
    return "\n".join(part for part in parts if part) + "\n"


class Model(ScriptedProvider):
    """The scripted model, which keeps every request."""

    def __init__(self, replies: Sequence[str]) -> None:
        super().__init__(replies, chunk_chars=7)
        self.requests: list[Request] = []

    @override
    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        return super().reply(request)

    @property
    def read(self) -> list[str]:
        """The newest message of each request, without the status."""
        return [request.messages[-1].text for request in self.requests]


class Watched(Protocol):
    """A runtime of either kind."""

    @property
    def hooks(self) -> HookSystem: ...
    @property
    def session(self) -> Session: ...


def watch(runtime: Watched, *kinds: EventType) -> list[tuple[EventType, dict[str, Any]]]:
    """Every event of these kinds, or of all, with its arguments, as they come."""
    seen: list[tuple[EventType, dict[str, Any]]] = []

    def keep(kind: EventType) -> None:
        runtime.hooks.register(kind, lambda **arguments: seen.append((kind, arguments)))

    for kind in kinds or EventType:
        keep(kind)
    return seen


def files_in(place: Path) -> list[str]:
    """The names of what lies in a directory."""
    return sorted(path.name for path in place.iterdir())


def text_of(path: Path) -> str:
    """What a file holds."""
    return path.read_text(encoding="utf-8")


def write_agent_file(folder: Path, *replies: str, **sections: object) -> Path:
    """An `agent.yaml` with a scripted model, its script and its workspace; `sections` are added to it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "workspace").mkdir(exist_ok=True)
    (folder / "script.yaml").write_text(yaml.safe_dump([{"reply": text} for text in replies]), encoding="utf-8")
    agent: dict[str, object] = {
        "name": "Code Pilot",
        "role": "an engineer.",
        "model": {"provider": "scripted", "script": "script.yaml"},
        "runtime": {"work_dir": "workspace"},
    }
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump({"agent": agent | sections}), encoding="utf-8")
    return path
