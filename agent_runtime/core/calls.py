"""The values that a model, control code and tools exchange."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from typing_extensions import TypeAliasType

from agent_runtime.core.images import Image

Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | tuple[Plain, ...] | dict[str, Plain] | None")
"""The only data that crosses between the control block and the tools."""


TransportName = Literal["blocks", "tools"]
"""How a model asks for calls: in a control block of its reply, or by its service's own tool calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A call as a model asks for it through its service's own tool calls.

    Attributes:
        id: names the call in its answer; unique in its reply.
        name: the tool's name, as the model wrote it.
        arguments: the JSON text of the arguments, as the model wrote it; it may be no JSON.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """The answer to a `ToolRequest`.

    Attributes:
        id: of the request.
        text: the result, or why there is none.
        ok: False when the call was refused or failed.
        images: pictures beside the text; only for a provider that sees.
    """

    id: str
    text: str
    ok: bool = True
    images: tuple[Image, ...] = ()


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
        images: pictures for a model that accepts them, beside the text; only the transport `tools` shows them.
    """

    value: Plain
    text: str
    lines: ListedLines | None = None
    images: tuple[Image, ...] = ()


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


def with_requests(text: str, requests: Sequence[ToolRequest]) -> str:
    """A reply as one text: what it says, then each call on a line of its own."""
    calls = (f"[call] {each.name}({each.arguments})" for each in requests)
    return "\n".join([*filter(None, [text]), *calls])


def with_answers(text: str, answers: Sequence[ToolAnswer]) -> str:
    """What answers a reply as one text: the answers in their order, then the rest."""
    return "\n\n".join(filter(None, [*(each.text for each in answers), text]))
