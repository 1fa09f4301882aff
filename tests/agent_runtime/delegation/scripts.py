"""Scripted models for agents that delegate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from typing_extensions import override

from agent_runtime import ScriptedProvider
from agent_runtime.providers.protocol import Chunk, Request, ToolCalling
from agent_runtime.providers.scripted import ScriptedReply

DONE = "```completion\nDone.\n```\n"


def block(code: str, *payloads: str, completion: str = "") -> str:
    """Return a reply with a control block, its payloads, and a completion."""
    contents = "".join(f"```\n{text}```\n" for text in payloads)
    return f"```codepilot\n{code}\n```\n{contents}" + (f"```completion\n{completion}\n```\n" if completion else "")


class Children(ScriptedProvider):
    """Scripted provider that answers each child run with the replies of its task."""

    def __init__(self, *, preferred: bool = False, **scripts: Sequence[str | ScriptedReply]) -> None:
        super().__init__([])
        self._preferred = preferred
        self.requests: list[Request] = []
        self._scripts = {name: ScriptedProvider(replies) for name, replies in scripts.items()}

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        return "preferred" if self._preferred else "supported"

    @override
    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        goal = request.messages[0].text
        return next(script for name, script in self._scripts.items() if name in goal).reply(request)
