"""Interface of a transport: how a model asks for calls, sends contents and finishes.

A `Transport` belongs to a runtime. For each segment of a run it opens a `TransportLeg`, which reads every reply with a
`ReplyReader` and gives its `ReplyStep`: the calls to make. What these print and return is collected by `StepOutput`,
in order and within the bound of a step.
"""

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
_MAX_NAMED = 30
"""Results that are named although nothing of them is shown; further ones are counted."""
_NAME_CHARS = 200


class Transport(Protocol):
    """How the model of one runtime asks for calls, sends contents and finishes."""

    def guide(self, tools: str, *, chat: bool) -> str:
        """The part of the system prompt that says how to reply and which tools there are.

        Args:
            tools: their declarations.
            chat: whether a reply that neither acts nor finishes is an answer.
        """

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:
        """The tools as they are declared to the service; none where the guide declares them.

        Raises:
            SettingsError: one of them cannot be declared to a service.
        """

    def words(self, reply: str) -> str:
        """What a reply that was to be plain text says, without calls and marks that are in it anyway."""

    def adapt(self, tool: Tool) -> Tool:
        """A built-in tool as the model calls it."""

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> TransportLeg:
        """Begin a leg of a run; no program is started yet.

        Args:
            tools: what the model may call.
            limits: bounds of the run.
            enclose: given a program that runs what the model wrote, the one to start in its place, in a sandbox.
        """

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Make sure that `ReplyStep.resume` can go on from what a `StepSuspended` brought.

        Raises:
            ResumeError: it cannot, e.g. because another version suspended the step.
        """

    def reset(self) -> None:
        """Forget what is kept of earlier runs."""


class TransportLeg(Protocol):
    """Reads the replies of one leg of a run."""

    @property
    def no_action(self) -> str:
        """The message to the model about a reply that neither acts nor finishes."""

    @property
    def no_output(self) -> str:
        """The message to the model about a step that showed nothing."""

    @property
    def prose_finishes(self) -> bool:
        """Whether a reply of prose alone finishes a task; in conversation it is an answer while nothing was done."""

    def unfit(self, problems: str, left: int) -> str:
        """The message to the model about a completion that does not match the task's output schema.

        Args:
            problems: what is wrong with it, one line each.
            left: how many more completions are looked at after this.
        """

    def unreadable(self, code: FormatCode, count: int) -> str:
        """What a person is told when so many replies in a row were not understood.

        Args:
            code: what is wrong with the last one.
            count: how many.
        """

    def recall(self, replies: Sequence[Replied]) -> Sequence[ReplyStep | None]:
        """Read the run's earlier replies again, for what later ones refer to; None for one that was not understood."""

    def reader(self) -> ReplyReader:
        """Begin to read the next reply."""

    def read(self, text: str, stop: StopReason, requests: Sequence[ToolRequest] = ()) -> ReplyStep:
        """Read a whole reply at once.

        Raises:
            FormatError: as for `ReplyReader.finish`.
        """

    def state(self) -> dict[str, Plain]:
        """Where the present step stands, to be gone on with by `ReplyStep.resume`."""

    async def close(self) -> None:
        """Give back what running its steps took; idempotent."""


class ReplyReader(Protocol):
    """Reads one reply as it arrives."""

    @property
    def requests(self) -> tuple[ToolRequest, ...]:
        """The calls that it asks for by the service's own tool calls, as far as it has come."""

    def feed(self, chunk: TextChunk | CallChunk) -> Sequence[Streamed]:
        """Take the next chunk; gives the text that people are shown at once.

        The completion of a reply that makes calls is not among it: the calls have yet to prove it.
        """

    def flush(self) -> Sequence[Streamed]:
        """The reply is over; gives the text that was held back."""

    def finish(self, stop: StopReason) -> ReplyStep:
        """Judge the whole reply.

        Raises:
            FormatError: it does not follow the protocol; nothing of it may run.
        """


class ReplyStep(Protocol):
    """What one accepted reply asks for."""

    @property
    def acts(self) -> bool:
        """Whether it asks for calls."""

    @property
    def contents(self) -> tuple[str, ...]:
        """What it brings for its calls: their contents, or all that they are asked with."""

    @property
    def answers(self) -> tuple[ToolAnswer, ...]:
        """The answers to the reply's requests, as far as it has run."""

    @property
    def completion(self) -> str | None:
        """The text for the user, if the task is finished."""

    @property
    def prose(self) -> str:
        """All other text."""

    async def run(self, call: CallTool, output: StepOutput) -> None:
        """Make its calls.

        Raises:
            FormatError: it does not fit the tools; nothing ran.
            Interrupt: it failed; the text is the next message, behind its answers.
            StepSuspended: a call waits for a person.
            SandboxError: the machine failed, not the model.
        """

    async def resume(
        self, state: Mapping[str, Any], calls: Mapping[str, Any], call: CallTool, output: StepOutput
    ) -> None:
        """Go on at the call that waited, then like `run`.

        Args:
            state: what `TransportLeg.state` gave when the step was paused.
            calls: what `StepSuspended` brought then.
            call: answers its calls, the one that waited first.
            output: takes what it shows.
        """

    def end(self, *, ok: bool) -> str:
        """End it, and tell what the model should know beside its results; empty for nothing.

        Args:
            ok: whether it ran to its end without an error.
        """


@cache
def read_guide(name: str) -> str:
    """Return a guide of this package: the text that tells a model how to reply."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


class StepSuspended(Exception):  # noqa: N818 - not an error: the step goes on once somebody has answered
    """A step waits at a call.

    Attributes:
        calls: where its calls stand, for `ReplyStep.resume`.
    """

    def __init__(self, calls: dict[str, Plain]) -> None:
        super().__init__("the step waits at a tool call")
        self.calls = calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The output of a part of a step."""

    text: str
    images: tuple[Image, ...] = ()


class StepOutput:
    """Collects the results and prints of a step for the model; past the bound, it tells how much is missing.

    The note names the call, and for a listing of a file the missing lines, so that the model can request just these in
    its next step.
    """

    def __init__(self, max_chars: int) -> None:
        self._max = max_chars
        self._used = 0
        self._dropped = 0
        self._missing = 0
        self._parts: list[tuple[str, bool]] = []
        self._images: tuple[Image, ...] = ()

    def take(self) -> Shown:
        """Take out the output since the last time; it still counts for the bound."""
        shown = Shown(text=self.text(), images=self._images)
        self._parts, self._images = [], ()
        self._dropped = self._missing = 0
        return shown

    def to_plain(self) -> dict[str, Plain]:
        """Return the output so far as plain data, for a run that pauses."""
        parts: list[Plain] = [[text, printed] for text, printed in self._parts]
        counts: dict[str, Plain] = {"used": self._used, "dropped": self._dropped, "missing": self._missing}
        return {"parts": parts, **counts, "images": [asdict(image) for image in self._images]}

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Continue from the data of `to_plain`."""
        self._parts = [(text, printed) for text, printed in plain["parts"]]
        self._used, self._dropped, self._missing = plain["used"], plain["dropped"], plain["missing"]
        self._images = tuple(Image(**image) for image in plain["images"])

    def add_print(self, text: str) -> None:
        """Add what the control block printed."""
        text = replace_binary(text)
        kept = text[: max(0, self._max - self._used)]
        self._used += len(kept)
        self._dropped += len(text) - len(kept)
        if kept:
            self._parts.append((kept, True))

    def add_result(
        self,
        text: str,
        *,
        call: str = "",
        lines: ListedLines | None = None,
        most: int | None = None,
        images: tuple[Image, ...] = (),
    ) -> None:
        """Add the result of a call, set apart from its neighbours.

        Args:
            text: as the model reads it.
            call: the call in a few words.
            lines: those of a file that the text lists, if it does.
            most: characters of it that are shown at most; None for no bound but the step's.
            images: pictures beside it.
        """
        self._images += images
        text = replace_binary(text)
        room, why = max(0, self._max - self._used), f"a step shows {self._max:,} characters"
        if most is not None and most < room:
            room, why = most, f"of such a result {most:,} characters are shown"
        if len(text) <= room:
            shown = text
        elif lines is not None:
            shown = _first_lines(text, room, lines, why)
        else:
            least = min(_MIN_EXCERPT_CHARS, self._max, most or _MIN_EXCERPT_CHARS)
            shown = _head_and_tail(text, room, call, why) if room >= least else ""
        self._used += len(shown)
        if not shown:
            self._missing += 1
            what = _span(lines, lines.first) if lines is not None else f"{call or 'a result'}, {len(text):,} characters"
            shown = f"[not shown, since {why}: {what}]" if self._missing <= _MAX_NAMED else ""
        if shown:
            self._parts.append((shown, False))

    def text(self) -> str:
        """Return the output as the model reads it: runs of prints and results, a blank line between them."""
        blocks: list[str] = []
        previous = False
        for text, printed in self._parts:
            if blocks and printed and previous:
                blocks[-1] += text
            else:
                blocks.append(text)
            previous = printed
        if self._missing > _MAX_NAMED:
            blocks.append(f"[{self._missing - _MAX_NAMED} more results are not shown]")
        if self._dropped:
            blocks.append(f"[{self._dropped:,} more characters were printed in this step and are left out; print less]")
        return "\n\n".join(block.rstrip("\n") for block in blocks)


def _first_lines(text: str, room: int, lines: ListedLines, why: str) -> str:
    """Return a listing up to the last line that fits whole; empty where none does."""
    end = text.rfind("\n", 0, room + 1)
    count = text.count("\n", 0, end) if end > 0 else 0
    if not count:
        return ""
    shown, rest = text[:end], _span(lines, lines.first + count) if lines.first + count <= lines.last else "an outline"
    return f"{shown}\n[not shown, since {why}: {rest}]"


def _head_and_tail(text: str, room: int, call: str, why: str) -> str:
    """Return the beginning and the end of a text, in whole lines where it has lines."""
    head, tail = text[: room // 2], text[len(text) - room // 2 :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    missing = len(text) - len(head) - len(tail)
    of = f" of {call}" if call else ""
    return f"{head.rstrip()}\n[{missing:,} characters left out{of}, since {why}]\n{tail}"


def _span(lines: ListedLines, first: int) -> str:
    name = repr(lines.path)
    return f"lines {first}-{lines.last} of {name if len(name) <= _NAME_CHARS else f'{name[:_NAME_CHARS]}…'}"
