"""Interfaces of a transport, which parses replies into `ReplyStep`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from agent_runtime.core.errors import FormatCode
from agent_runtime.core.events import Replied, Streamed
from agent_runtime.core.text import replace_binary
from agent_runtime.core.values import CallTool, Image, ListedLines, Plain, ToolAnswer, ToolRequest
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import CallChunk, StopReason, TextChunk, ToolSchema
from agent_runtime.tools.tool import Registry, Tool

_MIN_EXCERPT_CHARS = 400
_MAX_NOTES = 30
"""Further omitted results are only counted."""
_NAME_CHARS = 200


class Transport(Protocol):
    """Syntax in which a model requests calls, sends contents and finishes."""

    def guide(self, tools: str, *, chat: bool) -> str:
        """Return the system prompt section about replies and `tools`; with `chat`, prose alone is an answer."""

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:
        """Return the tool schemas for the model service; empty if the guide declares the tools."""

    def plain_text(self, reply: str) -> str: ...

    def adapt(self, tool: Tool) -> Tool:
        """Return a built-in tool as the model calls it."""

    def open(
        self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None
    ) -> TransportSession:
        """Open a session for a segment of a run, without starting a program.

        `enclose` maps a program that runs model code to one that runs it in a sandbox.
        """

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Raise ResumeError if `ReplyStep.resume` cannot continue from `calls`."""

    def reset(self) -> None: ...


class TransportSession(Protocol):
    @property
    def no_action(self) -> str:
        """Message to the model after a reply that neither acts nor finishes."""

    @property
    def no_output(self) -> str:
        """Message to the model after a step without output."""

    @property
    def prose_finishes(self) -> bool:
        """Whether a reply of prose alone finishes a task."""

    def mismatch_message(self, problems: str, attempts_left: int) -> str:
        """Return the message to the model about a completion that does not match the output schema."""

    def failure_message(self, code: FormatCode, count: int) -> str: ...

    def parse_history(self, replies: Sequence[Replied]) -> Sequence[ReplyStep | None]:
        """Parse earlier replies, to which later ones refer; None for an unreadable one."""

    def new_reader(self) -> ReplyReader: ...

    def read(self, text: str, stop: StopReason, requests: Sequence[ToolRequest] = ()) -> ReplyStep: ...

    def state(self) -> dict[str, Plain]:
        """Return the state of the current step for `ReplyStep.resume`."""

    async def close(self) -> None: ...


class ReplyReader(Protocol):
    @property
    def requests(self) -> tuple[ToolRequest, ...]: ...

    def feed(self, chunk: TextChunk | CallChunk) -> Sequence[Streamed]:
        """Parse a chunk and return text to show at once; a completion waits for the calls."""

    def flush(self) -> Sequence[Streamed]: ...

    def finish(self, stop: StopReason) -> ReplyStep:
        """Validate the whole reply.

        Raises:
            FormatError: none of it may run.
        """


class ReplyStep(Protocol):
    """The actions of one valid reply."""

    @property
    def has_calls(self) -> bool: ...

    @property
    def contents(self) -> tuple[str, ...]: ...

    @property
    def answers(self) -> tuple[ToolAnswer, ...]:
        """Answers to the native tool calls that have run."""

    @property
    def completion(self) -> str | None: ...

    @property
    def prose(self) -> str: ...

    async def run(self, call: CallTool, output: StepOutput) -> None:
        """Run its calls.

        Raises:
            FormatError: nothing ran.
            Interrupt: the text follows its answers as the next message.
            StepSuspended: a call waits for a person.
        """

    async def resume(
        self, state: Mapping[str, Any], calls: Mapping[str, Any], call: CallTool, output: StepOutput
    ) -> None:
        """Continue at the suspended call; it is repeated first."""

    def end(self, *, ok: bool) -> str:
        """Return a note for the model; `ok` is whether all calls ran."""


@cache
def read_guide(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


class StepSuspended(Exception):  # noqa: N818 - not an error: the step goes on once somebody has answered
    """A step waits at a call; `calls` is the state for `ReplyStep.resume`."""

    def __init__(self, calls: dict[str, Plain]) -> None:
        super().__init__("the step waits at a tool call")
        self.calls = calls


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPart:
    text: str
    images: tuple[Image, ...] = ()


class StepOutput:
    """Output of a step for the model, within a limit. Notes name omitted calls and file lines."""

    def __init__(self, max_chars: int) -> None:
        self._max = max_chars
        self._used = 0
        self._dropped = 0
        self._missing = 0
        self._parts: list[tuple[str, bool]] = []
        self._images: tuple[Image, ...] = ()

    def drain(self) -> OutputPart:
        """Return and clear the output; it still counts."""
        part = OutputPart(text=self.text(), images=self._images)
        self._parts, self._images = [], ()
        self._dropped = self._missing = 0
        return part

    def to_plain(self) -> dict[str, Plain]:
        parts: list[Plain] = [[text, printed] for text, printed in self._parts]
        counts: dict[str, Plain] = {"used": self._used, "dropped": self._dropped, "missing": self._missing}
        return {"parts": parts, **counts, "images": [asdict(image) for image in self._images]}

    def restore(self, plain: Mapping[str, Any]) -> None:
        self._parts = [(text, printed) for text, printed in plain["parts"]]
        self._used, self._dropped, self._missing = plain["used"], plain["dropped"], plain["missing"]
        self._images = tuple(Image(**image) for image in plain["images"])

    def add_print(self, text: str) -> None:
        text = replace_binary(text)
        excerpt = text[: max(0, self._max - self._used)]
        self._used += len(excerpt)
        self._dropped += len(text) - len(excerpt)
        if excerpt:
            self._parts.append((excerpt, True))

    def add_result(
        self,
        text: str,
        *,
        call: str = "",
        lines: ListedLines | None = None,
        max_chars: int | None = None,
        images: tuple[Image, ...] = (),
    ) -> None:
        """Add the result of a call as a separate block; `lines` are the file lines that the text lists."""
        self._images += images
        text = replace_binary(text)
        room, reason = max(0, self._max - self._used), f"a step shows {self._max:,} characters"
        if max_chars is not None and max_chars < room:
            room, reason = max_chars, f"of such a result {max_chars:,} characters are shown"
        if len(text) <= room:
            excerpt = text
        elif lines is not None:
            excerpt = _first_lines(text, room, lines, reason)
        else:
            minimum = min(_MIN_EXCERPT_CHARS, self._max, max_chars or _MIN_EXCERPT_CHARS)
            excerpt = _head_and_tail(text, room, call, reason) if room >= minimum else ""
        self._used += len(excerpt)
        if not excerpt:
            self._missing += 1
            rest = _span(lines, lines.first) if lines is not None else f"{call or 'a result'}, {len(text):,} characters"
            excerpt = f"[not shown, since {reason}: {rest}]" if self._missing <= _MAX_NOTES else ""
        if excerpt:
            self._parts.append((excerpt, False))

    def text(self) -> str:
        blocks: list[str] = []
        previous = False
        for text, printed in self._parts:
            if blocks and printed and previous:
                blocks[-1] += text
            else:
                blocks.append(text)
            previous = printed
        if self._missing > _MAX_NOTES:
            blocks.append(f"[{self._missing - _MAX_NOTES} more results are not shown]")
        if self._dropped:
            blocks.append(f"[{self._dropped:,} more characters were printed in this step and are left out; print less]")
        return "\n\n".join(block.rstrip("\n") for block in blocks)


def _first_lines(text: str, room: int, lines: ListedLines, reason: str) -> str:
    end = text.rfind("\n", 0, room + 1)
    count = text.count("\n", 0, end) if end > 0 else 0
    if not count:
        return ""
    rest = _span(lines, lines.first + count) if lines.first + count <= lines.last else "an outline"
    return f"{text[:end]}\n[not shown, since {reason}: {rest}]"


def _head_and_tail(text: str, room: int, call: str, reason: str) -> str:
    head, tail = text[: room // 2], text[len(text) - room // 2 :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    missing = len(text) - len(head) - len(tail)
    of = f" of {call}" if call else ""
    return f"{head.rstrip()}\n[{missing:,} characters left out{of}, since {reason}]\n{tail}"


def _span(lines: ListedLines, first: int) -> str:
    name = repr(lines.path)
    return f"lines {first}-{lines.last} of {name if len(name) <= _NAME_CHARS else f'{name[:_NAME_CHARS]}…'}"
