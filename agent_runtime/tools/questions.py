"""The tool that asks the person the agent works for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from agent_runtime.core.calls import ToolResult
from agent_runtime.core.errors import ToolError

Ask = Callable[[str], Awaitable[str]]
"""Puts one question to the user and gives the answer; however long that takes, and in whichever process it ends."""

_MAX_CHARS = 4_000


class QuestionTools:
    """`ask_user`."""

    value_types: ClassVar[dict[str, str]] = {"ask_user": "str"}
    labels: ClassVar[dict[str, str]] = {"ask_user": "Asking: {question}"}
    stub_types: ClassVar[str] = ""

    def __init__(self, ask: Ask) -> None:
        """Put questions by way of `ask`."""
        self._ask = ask

    async def ask_user(self, question: str) -> ToolResult:
        """Ask the user what only they can decide, and wait for the answer.

        Raises:
            ToolError: the question is empty, or too long to be read.
        """
        asked = question.strip()
        if not asked:
            raise ToolError("ask_user: question is empty; say what the user should decide", kind="ValueError")
        if len(asked) > _MAX_CHARS:
            raise ToolError(
                f"ask_user: question has {len(asked):,} characters, and {_MAX_CHARS:,} is the most",
                kind="ValueError",
            )
        answer = await self._ask(asked)
        return ToolResult(value=answer, text=f"[ask_user] {answer or '(an empty answer)'}")
