"""A control block frozen in the middle of a tool call, as a value that outlives its process. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from agent_runtime.core.calls import Plain
from agent_runtime.core.errors import ResumeCode, ResumeError
from agent_runtime.interpreter.source import Span

_T = TypeVar("_T")


class Suspended(Exception):  # noqa: N818 - not an error: the third way in which a block leaves the interpreter
    """A block waits at a tool call; the interpreter's worker is gone.

    Attributes:
        state: what `Interpreter.resume` goes on from.
    """

    def __init__(self, state: InterpreterState) -> None:
        super().__init__("the control block waits at a tool call")
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterState:
    """All that a control block in the middle of a tool call needs to go on, in any process that has the same tools.

    Nothing in it is proof of where it comes from: who keeps it where others can write must sign it, and check the
    signature before `Interpreter.resume`.

    Attributes:
        version: of the interpreter that took the snapshot; no other reads it.
        snapshot: the worker's memory at the call, opaque.
        blocks: how many blocks the worker has started.
        calls: tool calls answered before the one that waits.
        suspensions: questions answered before the one that waits.
        printed_chars: characters that the block has printed.
        discarded: the spans of the calls whose value is thrown away, by the name of the block they stand in.
        bound: every name that a block has bound.
    """

    version: str
    snapshot: bytes
    blocks: int
    calls: int
    suspensions: int
    printed_chars: int
    discarded: Mapping[str, frozenset[Span]]
    bound: frozenset[str]

    def to_plain(self) -> dict[str, Plain]:
        """The same as data for JSON; equal states give equal text."""
        return {
            "version": self.version,
            "snapshot": base64.b64encode(self.snapshot).decode("ascii"),
            "blocks": self.blocks,
            "calls": self.calls,
            "suspensions": self.suspensions,
            "printed_chars": self.printed_chars,
            "discarded": {name: [list(span) for span in sorted(spans)] for name, spans in self.discarded.items()},
            "bound": [*sorted(self.bound)],
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Plain]) -> Self:
        """Read what `to_plain` gave.

        Raises:
            ResumeError: it is anything else.
        """
        try:
            return cls(
                version=_of(data["version"], str),
                snapshot=base64.b64decode(_of(data["snapshot"], str), validate=True),
                blocks=_of(data["blocks"], int),
                calls=_of(data["calls"], int),
                suspensions=_of(data["suspensions"], int),
                printed_chars=_of(data["printed_chars"], int),
                discarded={
                    name: frozenset(_span(span) for span in _of(spans, list))
                    for name, spans in _of(data["discarded"], dict).items()
                },
                bound=frozenset(_of(name, str) for name in _of(data["bound"], list)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResumeError(ResumeCode.DAMAGED, error=f"{type(error).__name__}: {error}") from error


def _span(value: object) -> Span:
    start, end = _of(value, list)
    return _of(start, int), _of(end, int)


def _of(value: object, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value
