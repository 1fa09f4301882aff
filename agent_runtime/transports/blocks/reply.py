"""Parse a model's reply: chunks of text to prose, control block, payloads and completion. Pure, incremental.

Where the protocol leaves a choice, this is what was chosen:

* A nested fence is a fence line with an info string, of the same character as the block around it and at least as
  long. Other fence lines cannot be taken for the end of that block, so they are plain content: this is what lets a
  longer fence, or tildes, hold unbalanced fences. Nothing nests in a control block: its first bare fence ends it.
* An unclosed payload is whole only if a check of its language says so: Python, JSON, TOML, told by the file's suffix or
  the info string. There is no check for other languages and none for a blank payload, so these are `truncated`.
* An unclosed payload, or display block, inside which a `codepilot` or `completion` fence begins is `ambiguous`.
* An unclosed control block that does not parse, or that takes payloads, is `truncated`.
* No block may follow the completion (`completion_first`, a second completion too); prose may, and stays prose.
* A reply cut for length while no block is open is accepted, as the protocol says; who asked knows the stop reason. A
  fence line that the cut leaves without its line end counts as open: a bare one may have been the start of a nested
  fence, and a file would lose its end. Only a control block may end like that, since its code must parse.
* Prose between and after the blocks below a control block is kept in `Reply.prose`, but is not live text.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

from agent_runtime.core.errors import FormatError
from agent_runtime.core.fences import FenceLine, FenceScanner, Token
from agent_runtime.interpreter.source import CodeError, parse_code
from agent_runtime.transports.blocks import format_errors as faults
from agent_runtime.transports.blocks.payload_plan import PayloadPlan, Slot, plan_payloads, same_file

_CONTROL = "codepilot"
_COMPLETION = "completion"
_CHECKS: dict[str, Callable[[str], object]] = {
    "python": parse_code,
    "py": parse_code,
    "pyi": parse_code,
    "json": json.loads,
    "toml": tomllib.loads,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The content of one file or edit.

    Attributes:
        text: the content to the byte, LF line ends; it ends with the newlines that stood before the closing fence.
        filename: the file that the payload says it is for, or None.
        info: the whole info string of its fence.
        line: 1-based line of the reply on which its fence opens.
    """

    text: str
    filename: str | None
    info: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One accepted reply.

    Attributes:
        control: the code to run, verbatim, or None.
        payloads: what the writes in the control block take, in order.
        completion: the text for the user, without blank lines around it, or None.
        prose: all other text, display blocks with their fences included, without blank lines around it.
        exact_payloads: the number of payloads that the control block takes; it equals `len(payloads)`. None when the
            code does not tell: the run then checks as calls are made (`reply_faults.left_over` for what remains).
        writers: names that the control block binds and that write when used in a later step; pass all those of a run
            to the next parser.
    """

    control: str | None
    payloads: tuple[Payload, ...]
    completion: str | None
    prose: str
    exact_payloads: int | None = 0
    writers: frozenset[str] = frozenset()


class Block(StrEnum):
    """What a fenced block is."""

    CONTROL = "codepilot"
    PAYLOAD = "payload"
    DISPLAY = "display"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProseText:
    """Some more prose or display text, to be shown at once."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionText:
    """Some more of the completion, to be shown at once; void if the step fails."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOpened:
    """A block begins.

    Attributes:
        block: what it is.
        info: its info string.
        filename: the value of ``filename=`` in it, or None.
        line: 1-based line of its opening fence.
    """

    block: Block
    info: str
    filename: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockClosed:
    """The block that was opened last has its closing fence; one that the end of the text leaves open never says so."""

    block: Block


ReplyEvent = ProseText | CompletionText | BlockOpened | BlockClosed
"""Live news of a reply. Texts that follow each other add up; the sum does not depend on the chunks."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """The block being read.

    Attributes:
        lengths: the fence lengths of the block and of the fences nested in it, innermost last.
        swallowed: the first fence line inside that would open a protocol block outside.
    """

    block: Block
    fence: FenceLine
    parts: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    swallowed: FenceLine | None = None

    def is_closed_by(self, fence: FenceLine) -> bool:
        """Take note of a fence line inside the block; True if it ends the block."""
        if self.swallowed is None and fence.word in (_CONTROL, _COMPLETION):
            self.swallowed = fence
        if fence.char != self.fence.char or fence.length < self.lengths[-1]:
            return False
        if not fence.info:
            self.lengths.pop()
        elif self.block is not Block.CONTROL:
            self.lengths.append(fence.length)
        return not self.lengths


class ReplyParser:
    """Reads one reply, in chunks of any size.

    Call `feed` for each chunk, `flush` for the last live text, and `finish` for the value. Once the reply has broken a
    rule the rest of it is passed over, and `finish` raises.

    Args:
        known_writers: the `writers` of the earlier replies of the run.
        payloads: whether writes take payloads; if not, every fence below the control block is display text.
    """

    def __init__(self, *, known_writers: frozenset[str] = frozenset(), payloads: bool = True) -> None:
        self._known_writers = known_writers
        self._takes_payloads = payloads
        self._scanner = FenceScanner()
        self._flushed = False
        self._undecided: FenceLine | None = None
        self._fault: FormatError | None = None
        self._open: _Open | None = None
        self._control: _Open | None = None
        self._completion: _Open | None = None
        self._plan = PayloadPlan(slots=(), writers=frozenset())
        self._payloads: list[Payload] = []
        self._prose: list[str] = []
        self._sink = self._prose
        self._live: type[ProseText | CompletionText] | None = ProseText

    @property
    def acts(self) -> bool:
        """Whether a control block has begun."""
        return self._control is not None

    def feed(self, chunk: str) -> list[ReplyEvent]:
        """Take the next chunk and return what it brings.

        Raises:
            RuntimeError: the reply was already flushed or finished.
        """
        if self._flushed:
            raise RuntimeError("this reply has ended; use a new ReplyParser for the next one")
        return self._take(self._scanner.feed(chunk))

    def flush(self) -> list[ReplyEvent]:
        """Say that the text is over, and return the events of what was held back; `finish` does it unasked."""
        if self._flushed:
            return []
        self._flushed = True
        if self._fault is not None:
            return []
        last = self._open
        tokens = self._scanner.close()
        events = self._take(tokens)
        ends_control = last is not None and last.block is Block.CONTROL and self._fault is None
        for token in tokens:
            if isinstance(token, FenceLine) and not ends_control:
                self._undecided = token
        return events

    def finish(self, stop_reason: str = "stop") -> Reply:
        """Judge the whole reply.

        Args:
            stop_reason: "stop", or "length" when the model was cut off by a token limit.

        Raises:
            FormatError: the reply does not follow the protocol; nothing of it may run.
            ValueError: no such stop reason.
        """
        if stop_reason not in ("stop", "length"):
            raise ValueError(f"stop_reason {stop_reason!r}: must be 'stop' or 'length'")
        self.flush()
        if stop_reason == "length" and self._undecided is not None:
            raise faults.cut_in_fence(self._undecided.line)
        if self._fault is not None:
            raise self._fault
        if self._open is not None:
            self._end(self._open, stop_reason)
        reply = Reply(
            control=None if self._control is None else "".join(self._control.parts),
            payloads=tuple(self._payloads),
            completion=None if self._completion is None else _trimmed(self._completion.parts),
            prose=_trimmed(self._prose),
            exact_payloads=None if self._plan.slots is None else len(self._plan.slots),
            writers=self._plan.writers,
        )
        if reply.control is None and reply.completion is None and not reply.prose:
            raise faults.empty()
        if self._plan.slots is not None and len(self._payloads) < len(self._plan.slots):
            raise faults.missing_payloads(len(self._payloads), self._plan.slots, stop_reason=stop_reason)
        return reply

    def _take(self, tokens: list[Token]) -> list[ReplyEvent]:
        events: list[ReplyEvent] = []
        for token in tokens:
            if self._fault is not None:
                break
            if isinstance(token, str):
                self._text(token, events)
            elif self._open is None:
                self._begin(token, events)
            elif self._open.is_closed_by(token):
                self._close(self._open, token, events)
            else:
                self._text(token.text, events)
        return events

    def _text(self, text: str, events: list[ReplyEvent]) -> None:
        self._sink.append(text)
        if self._live is not None:
            events.append(self._live(text=text))

    def _begin(self, fence: FenceLine, events: list[ReplyEvent]) -> None:
        """Open the block that a fence line outside all blocks begins."""
        if fence.word in (_CONTROL, _COMPLETION):
            block = Block(fence.word)
        else:
            block = Block.DISPLAY if self._plan.slots == () else Block.PAYLOAD
        self._fault = self._refusal(block, fence)
        if self._fault is not None:
            return
        self._open = opened = _Open(block=block, fence=fence, lengths=[fence.length])
        events.append(BlockOpened(block=block, info=fence.info, filename=fence.filename, line=fence.line))
        self._sink, self._live = opened.parts, None
        if block is Block.CONTROL:
            self._control = opened
        elif block is Block.COMPLETION:
            self._completion, self._live = opened, CompletionText
        elif block is Block.DISPLAY:
            self._sink, self._live = self._prose, ProseText
            self._text(fence.text, events)

    def _refusal(self, block: Block, fence: FenceLine) -> FormatError | None:
        """Why a block may not stand here, or None."""
        if self._completion is not None:
            return faults.after_completion(fence.word, fence.line, self._completion.fence.line)
        if block is Block.CONTROL and self._control is not None:
            return faults.second_control(fence.line, self._control.fence.line)
        if block is not Block.PAYLOAD or self._plan.slots is None:
            return None
        number = len(self._payloads) + 1
        slot = self._next_slot()
        if slot is None:
            return faults.too_many_payloads(fence.line, self._plan.slots)
        if fence.filename is not None and slot.path is not None and not same_file(fence.filename, slot.path):
            return faults.wrong_file(fence.line, fence.filename, number, slot)
        return None

    def _next_slot(self) -> Slot | None:
        """The write that takes the payload being read, where the code tells."""
        slots = self._plan.slots or ()
        return slots[len(self._payloads)] if len(self._payloads) < len(slots) else None

    def _close(self, opened: _Open, fence: FenceLine, events: list[ReplyEvent]) -> None:
        """End a block at its closing fence."""
        if opened.block is Block.DISPLAY:
            self._text(fence.text, events)
        if opened.block is Block.CONTROL:
            try:
                self._read_plan(opened)
            except CodeError as error:
                self._fault = faults.bad_control(opened.fence.line, "".join(opened.parts), error)
                return
        self._settle(opened)
        events.append(BlockClosed(block=opened.block))

    def _read_plan(self, control: _Open) -> None:
        tree = parse_code("".join(control.parts))
        if self._takes_payloads:
            self._plan = plan_payloads(tree, self._known_writers)

    def _settle(self, opened: _Open) -> None:
        """Keep a whole block and go back to prose."""
        if opened.block is Block.PAYLOAD:
            fence = opened.fence
            text = "".join(opened.parts)
            self._payloads.append(Payload(text=text, filename=fence.filename, info=fence.info, line=fence.line))
        self._open = None
        self._sink = self._prose
        self._live = ProseText if self._control is None else None

    def _end(self, opened: _Open, stop_reason: str) -> None:
        """Judge a block that the end of the text left open."""
        line = opened.fence.line
        if stop_reason == "length":
            raise faults.cut_off(opened.block, line)
        if opened.block is Block.CONTROL:
            try:
                self._read_plan(opened)
            except CodeError as error:
                raise faults.unclosed_control(line, f"its code does not parse ({error.reason})") from None
            if self._plan.slots != ():
                raise faults.unclosed_control(line, "it writes files, but no payload can follow inside it")
        elif opened.block is not Block.COMPLETION and opened.swallowed is not None:
            raise faults.swallowed(opened.block, line, opened.swallowed.word, opened.swallowed.line)
        elif opened.block is Block.PAYLOAD and not self._is_whole(opened):
            raise faults.unclosed_payload(line)
        self._settle(opened)

    def _is_whole(self, payload: _Open) -> bool:
        """Whether an unclosed payload passes the check of its language."""
        slot = self._next_slot()
        names = [payload.fence.filename, slot.path if slot else None]
        languages = [PurePosixPath(name).suffix[1:].lower() for name in names if name] + [payload.fence.word]
        check = next((_CHECKS[language] for language in languages if language in _CHECKS), None)
        text = "".join(payload.parts)
        if check is None or not text.strip():
            return False
        try:
            check(text)
        except (CodeError, ValueError, RecursionError):  # The last is how json and tomllib refuse deep nesting.
            return False
        return True


def parse(text: str, stop_reason: str = "stop", *, known_writers: frozenset[str] = frozenset()) -> Reply:
    """Read a whole reply at once.

    Args:
        text: the reply.
        stop_reason: "stop", or "length" when the model was cut off by a token limit.
        known_writers: the `writers` of the earlier replies of the run.

    Raises:
        FormatError: the reply does not follow the protocol; nothing of it may run.
        ValueError: no such stop reason.
    """
    parser = ReplyParser(known_writers=known_writers)
    parser.feed(text)
    return parser.finish(stop_reason)


def _trimmed(parts: list[str]) -> str:
    """Text without the blank lines around it; the indentation of its first line stays."""
    lines = "".join(parts).rstrip().split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(lines[first:])
