"""The values that control code and tools exchange."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import TypeAliasType

Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | tuple[Plain, ...] | dict[str, Plain] | None")
"""The only data that crosses between the control block and the tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answers: a value for the code that called it, a text for the model that reads.

    Attributes:
        value: what the call evaluates to in the control block.
        text: what the model is shown when the code throws the value away.
    """

    value: Plain
    text: str
