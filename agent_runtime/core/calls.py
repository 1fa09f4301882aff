"""The values that control code and tools exchange."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import TypeAliasType

Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | tuple[Plain, ...] | dict[str, Plain] | None")
"""The only data that crosses between the control block and the tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLines:
    """The lines of a file, from 1, that a text lists: one a line, below a line of its own.

    Attributes:
        path: the file, as the call named it.
        first: the first of them.
        last: the last of them, or of those that the call asked for.
    """

    path: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answers: a value for the code that called it, a text for the model that reads.

    Attributes:
        value: what the call evaluates to in the control block.
        text: what the model is shown when the code throws the value away.
        lines: those that the text lists, for the result of a read.
    """

    value: Plain
    text: str
    lines: ListedLines | None = None


class CallTool(Protocol):
    """Answers one tool call of a step."""

    def __call__(
        self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool
    ) -> Awaitable[Plain]:
        """Run the tool.

        Args:
            tool: its name.
            args: positional arguments, plain data.
            kwargs: keyword arguments, plain data.
            shown: whether the caller throws the value away, so that the result must be shown.

        Raises:
            ToolError: told to the caller, which may go on.
            Suspend: not now: the step is suspended at this call.
        """
        ...
