"""Parse a model's reply with a control block, as its text arrives: prose, control block, payloads, completion. Pure.

`ReplyParser` reads the text; `parse` reads a whole one. `plan_payloads` and `expected_writes` read the code of a
control block without running it: how many payloads it takes, and for which files. The errors below describe a reply
that breaks the protocol, in full for the model and in short (`unreadable`) for people.

Where the protocol leaves a choice, this is what was chosen:

* A nested fence is a fence line with an info string, of the same character as the block around it and at least as
  long. Other fence lines cannot be taken for the end of that block, so they are plain content: this is what lets a
  longer fence, or tildes, hold unbalanced fences. Nothing nests in a control block: its first bare fence ends it.
* An unclosed payload is whole only if a check of its language says so: Python, JSON, TOML, told by the file's suffix or
  the info string. There is no check for other languages, for a blank payload and for much Python or TOML
  (`source.is_readable`), so these are `truncated`.
* An unclosed payload, or display block, inside which a `codepilot` or `completion` fence begins is `ambiguous`.
* An unclosed control block that does not parse, or that takes payloads, is `truncated`.
* No block may follow the completion (`completion_first`, a second completion too); prose may, and stays prose.
* A reply cut for length while no block is open is accepted, as the protocol says; who asked knows the stop reason. A
  fence line that the cut leaves without its line end counts as open: a bare one may have been the start of a nested
  fence, and a file would lose its end. Only a control block may end like that, since its code must parse.
* Prose between and after the blocks below a control block is kept in `Reply.prose`, but is not live text.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import PurePosixPath

from agent_runtime.core.errors import FormatCode, FormatError
from agent_runtime.core.events import Streamed
from agent_runtime.core.text import MAX_REPLY_CHARS, FenceLine, FenceScanner, Token
from agent_runtime.interpreter.source import CodeError, is_readable, parse_code
from agent_runtime.workspace.edits import contents_taken

WRITE = "write_file"
_CONTROL = "codepilot"
_COMPLETION = "completion"

_CHECKS: dict[str, Callable[[str], object]] = {
    "python": parse_code,
    "py": parse_code,
    "pyi": parse_code,
    "json": json.loads,
    "toml": tomllib.loads,  # its time grows with the square of a key's parts
}

_MOST_FENCES = 5_000
"""Fence lines of one reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One accepted reply.

    Attributes:
        control: the code to run, verbatim, or None.
        payloads: what the writes in the control block take, in order.
        completion: the text for the user, without blank lines around it, or None.
        prose: all other text, display blocks with their fences included, without blank lines around it.
        exact_payloads: the number of payloads that the control block takes; it equals `len(payloads)`. None when the
            code does not tell: the run then checks as calls are made (`BlockStep` raises for those that remain).
        writers: names that the control block binds and that write when used in a later step; pass all those of a run
            to the next parser.
    """

    control: str | None
    payloads: tuple[Payload, ...]
    completion: str | None
    prose: str
    exact_payloads: int | None = 0
    writers: frozenset[str] = frozenset()


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


class Block(StrEnum):
    """What a fenced block is."""

    CONTROL = "codepilot"
    PAYLOAD = "payload"
    DISPLAY = "display"
    COMPLETION = "completion"


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
        self._chars = self._fences = 0
        self._undecided: FenceLine | None = None
        self._fault: FormatError | None = None
        self._open: _Open | None = None
        self._control: _Open | None = None
        self._completion: _Open | None = None
        self._plan = PayloadPlan(slots=(), writers=frozenset())
        self._payloads: list[Payload] = []
        self._prose: list[str] = []
        self._sink = self._prose
        self._is_live = True

    @property
    def acts(self) -> bool:
        """Whether a control block has begun."""
        return self._control is not None

    def feed(self, chunk: str) -> list[Streamed]:
        """Take the next chunk and return what it brings.

        Raises:
            RuntimeError: the reply was already flushed or finished.
        """
        if self._flushed:
            raise RuntimeError("this reply has ended; use a new ReplyParser for the next one")
        self._chars += len(chunk)
        if self._chars > MAX_REPLY_CHARS and self._fault is None:
            self._fault = too_large(f"{MAX_REPLY_CHARS:,} characters")
        return [] if self._fault is not None else self._take(self._scanner.feed(chunk))

    def flush(self) -> list[Streamed]:
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
            raise cut_fence(self._undecided.line)
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
            raise empty_reply()
        if self._plan.slots is not None and len(self._payloads) < len(self._plan.slots):
            raise missing_payloads(len(self._payloads), self._plan.slots, stop_reason=stop_reason)
        return reply

    def _take(self, tokens: list[Token]) -> list[Streamed]:
        events: list[Streamed] = []
        for token in tokens:
            if self._fault is not None:
                break
            if isinstance(token, str):
                self._text(token, events)
                continue
            self._fences += 1
            if self._fences > _MOST_FENCES:
                self._fault = too_large(f"{_MOST_FENCES:,} fence lines")
            elif self._open is None:
                self._begin(token, events)
            elif self._open.is_closed_by(token):
                self._close(self._open, token, events)
            else:
                self._text(token.text, events)
        return events

    def _text(self, text: str, events: list[Streamed]) -> None:
        self._sink.append(text)
        if self._is_live:
            events.append(Streamed(text=text, completion=self._open is not None and self._open is self._completion))

    def _begin(self, fence: FenceLine, events: list[Streamed]) -> None:
        """Open the block that a fence line outside all blocks begins."""
        if fence.language in (_CONTROL, _COMPLETION):
            block = Block(fence.language)
        else:
            block = Block.DISPLAY if self._plan.slots == () else Block.PAYLOAD
        self._fault = self._refusal(block, fence)
        if self._fault is not None:
            return
        self._open = opened = _Open(block=block, fence=fence, lengths=[fence.length])
        self._sink, self._is_live = opened.parts, block in {Block.COMPLETION, Block.DISPLAY}
        if block is Block.CONTROL:
            self._control = opened
        elif block is Block.COMPLETION:
            self._completion = opened
        elif block is Block.DISPLAY:
            self._sink = self._prose
            self._text(fence.text, events)

    def _refusal(self, block: Block, fence: FenceLine) -> FormatError | None:
        """Why a block may not stand here, or None."""
        if self._completion is not None:
            return block_after_completion(fence.language, fence.line, self._completion.fence.line)
        if block is Block.CONTROL and self._control is not None:
            return second_control(fence.line, self._control.fence.line)
        if block is not Block.PAYLOAD or self._plan.slots is None:
            return None
        number = len(self._payloads) + 1
        slot = self._next_slot()
        if slot is None:
            return too_many_payloads(fence.line, self._plan.slots)
        if fence.filename is not None and slot.path is not None and not same_file(fence.filename, slot.path):
            return wrong_file(fence.line, fence.filename, number, slot)
        return None

    def _next_slot(self) -> Slot | None:
        """The write that takes the payload being read, where the code tells."""
        slots = self._plan.slots or ()
        return slots[len(self._payloads)] if len(self._payloads) < len(slots) else None

    def _close(self, opened: _Open, fence: FenceLine, events: list[Streamed]) -> None:
        """End a block at its closing fence."""
        if opened.block is Block.DISPLAY:
            self._text(fence.text, events)
        if opened.block is Block.CONTROL:
            try:
                self._read_plan(opened)
            except CodeError as error:
                self._fault = invalid_control(opened.fence.line, "".join(opened.parts), error)
                return
        self._settle(opened)

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
        self._is_live = self._control is None

    def _end(self, opened: _Open, stop_reason: str) -> None:
        """Judge a block that the end of the text left open."""
        line = opened.fence.line
        if stop_reason == "length":
            raise cut_block(opened.block, line)
        if opened.block is Block.CONTROL:
            try:
                self._read_plan(opened)
            except CodeError as error:
                raise unclosed_control(line, f"its code does not parse ({error.reason})") from None
            if self._plan.slots != ():
                raise unclosed_control(line, "it writes files, but no payload can follow inside it")
        elif opened.block is not Block.COMPLETION and opened.swallowed is not None:
            raise unclosed_block(opened.block, line, opened.swallowed.language, opened.swallowed.line)
        elif opened.block is Block.PAYLOAD and not self._is_whole(opened):
            raise unclosed_payload(line)
        self._settle(opened)

    def _is_whole(self, payload: _Open) -> bool:
        """Whether an unclosed payload passes the check of its language."""
        slot = self._next_slot()
        names = [payload.fence.filename, slot.path if slot else None]
        languages = [PurePosixPath(name).suffix[1:].lower() for name in names if name] + [payload.fence.language]
        check = next((_CHECKS[language] for language in languages if language in _CHECKS), None)
        text = "".join(payload.parts)
        if check is None or not text.strip() or not (check is json.loads or is_readable(text)):
            return False
        try:
            check(text)
        except (CodeError, ValueError, RecursionError):  # The last is how json and tomllib refuse deep nesting.
            return False
        return True


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
        if self.swallowed is None and fence.language in (_CONTROL, _COMPLETION):
            self.swallowed = fence
        if fence.char != self.fence.char or fence.length < self.lengths[-1]:
            return False
        if not fence.info:
            self.lengths.pop()
        elif self.block is not Block.CONTROL:
            self.lengths.append(fence.length)
        return not self.lengths


def _trimmed(parts: list[str]) -> str:
    """Text without the blank lines around it; the indentation of its first line stays."""
    lines = "".join(parts).rstrip().split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(lines[first:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One payload that a call takes.

    Attributes:
        path: the file that the call names, or None when it is not a literal.
        line: 1-based line of the call in the control block.
    """

    path: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadPlan:
    """What a control block does with payloads.

    Attributes:
        slots: the payloads in the order in which the calls take them, or None when only the run can tell.
        writers: names that the block binds and that write when they are used later: its own functions and aliases.
    """

    slots: tuple[Slot, ...] | None
    writers: frozenset[str]


_PARAMETERS = ("path", "start_line", "end_line", "after_line", "mode", "edits", "version", "force", "payload", "hunks")
_STRAIGHT = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.withitem)
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_HARMLESS = frozenset({WRITE, "print", "len", "str", "repr", "find", "list_files"})
"""Calls between two writes that change no file, and no line number that the second refers to."""
_MAY_STOP = (ast.Raise, ast.Assert, ast.Return)
_NOT_ALWAYS_ONCE = (
    ast.IfExp,
    ast.BoolOp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def plan_payloads(tree: ast.Module, known_writers: frozenset[str] = frozenset()) -> PayloadPlan:
    """Say which payloads a control block takes.

    The answer is definite where every write is a direct call in straight-line code at module level (`with` bodies
    included) whose `mode` and `edits` are literals. It is not where a write is in a loop, a condition, a function,
    a comprehension, a lambda or a `try`, where `write_file` is used other than called or is rebound, and where a
    name that may write is mentioned.

    Args:
        tree: the parsed block.
        known_writers: the `writers` of the earlier blocks of the run, whose names live on.
    """
    writers = {WRITE, *known_writers}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if writers.isdisjoint(used.union(_bound_names(tree))):
        return PayloadPlan(slots=(), writers=frozenset())
    return PayloadPlan(slots=_slots(tree, known_writers), writers=_new_writers(tree, known_writers))


def same_file(one: str, other: str) -> bool:
    """Whether two paths name the same file, `./` and doubled slashes aside."""
    return _normal(one) == _normal(other)


def _normal(path: str) -> str:
    absolute = "/" if path.startswith("/") else ""
    return absolute + str(PurePosixPath(path.lstrip("/")))


def expected_writes(code: str) -> tuple[ExpectedWrite, ...]:
    """The writes of a block in the order in which they are made; none where only the run can tell."""
    if WRITE not in code:
        return ()
    try:
        tree = parse_code(code)
    except CodeError:
        return ()
    if plan_payloads(tree).slots is None:
        return ()
    writes: list[ExpectedWrite] = []
    certain = True
    for node in _statements(tree.body):
        calls = _direct_writes(node)
        if any(_position(call) < _end(before) for before, call in pairwise(calls)):
            return ()  # one within the other
        certain = certain and (not writes or _is_harmless(node))
        for call in calls:
            write = _expected(call, certain=certain)
            certain = write.certain and (bool(writes) or _is_harmless(node))
            writes.append(write)
    return tuple(writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWrite:
    """One call of `write_file` in straight-line code.

    Attributes:
        line: where it is in the block, from 1.
        call: how it is written.
        payloads: how many it takes from the reply.
        arguments: by name, as far as they are literals, those that are None left out.
        certain: whether it follows the first write of the block with nothing between that could change a file or end
            the block, and all its arguments are literals.
    """

    line: int
    call: str
    payloads: int
    arguments: dict[str, object]
    certain: bool


def _slots(tree: ast.Module, known_writers: frozenset[str]) -> tuple[Slot, ...] | None:
    if any(name in known_writers or name == WRITE for name in _bound_names(tree)):
        return None
    slots: list[Slot] = []
    for node in _statements(tree.body):
        uses = [use for use in _uses(node) if use[0].id == WRITE or use[0].id in known_writers]
        if not uses:
            continue
        calls = _direct_writes(node)
        if not isinstance(node, _STRAIGHT) or any(maybe for _, maybe in uses) or len(calls) != len(uses):
            return None
        for call in calls:
            count = _payload_count(call)
            if count is None:
                return None
            slots += [Slot(path=_literal_text(_arguments(call).get("path")), line=call.lineno)] * count
    return tuple(slots)


def _expected(call: ast.Call, *, certain: bool) -> ExpectedWrite:
    given = _arguments(call)
    arguments: dict[str, object] = {}
    for name, node in given.items():
        try:
            arguments[name] = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            certain = False
    return ExpectedWrite(
        line=call.lineno,
        call=ast.unparse(call),
        payloads=_payload_count(call) or 0,
        arguments={name: value for name, value in arguments.items() if value is not None},
        certain=certain,
    )


def _is_harmless(node: ast.AST) -> bool:
    parts = list(ast.walk(node))
    calls = [part.func for part in parts if isinstance(part, ast.Call)]
    return not any(isinstance(part, _MAY_STOP) for part in parts) and all(
        isinstance(func, ast.Name) and func.id in _HARMLESS for func in calls
    )


def _direct_writes(node: ast.AST) -> list[ast.Call]:
    """The direct writes in one statement, in the order in which they are made: a call is made where its text ends."""
    calls = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == WRITE
    ]
    return sorted(calls, key=_end)


def _position(call: ast.Call) -> tuple[int, int]:
    return call.lineno, call.col_offset


def _end(call: ast.Call) -> tuple[int, int]:
    return call.end_lineno or 0, call.end_col_offset or 0


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """The statements in order, `with` opened up."""
    pending = list(body)[::-1]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.With):
            yield from node.items
            pending += node.body[::-1]
        else:
            yield node


def _uses(node: ast.AST) -> Iterator[tuple[ast.Name, bool]]:
    """Every name in a node, and whether it stands where it may be reached not at all or more than once."""
    pending = [(node, False)]
    while pending:
        part, maybe = pending.pop()
        if isinstance(part, ast.Name):
            yield part, maybe
        chained = isinstance(part, ast.Compare) and len(part.ops) > 1
        maybe = maybe or chained or isinstance(part, _NOT_ALWAYS_ONCE)
        pending += [(child, maybe) for child in ast.iter_child_nodes(part)]


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Names that the block defines or imports (an assigned name is a use that is not a call)."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITION):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    """The arguments of a `write_file` call by name, as they are written."""
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return dict(zip(_PARAMETERS, call.args, strict=False)) | named


def _payload_count(call: ast.Call) -> int | None:
    """The payloads one call takes, or None when its arguments do not tell."""
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return None
    arguments = _arguments(call)
    mode = _literal_text(arguments["mode"]) if "mode" in arguments else "w"
    if _is_given(arguments.get("payload")):
        hunks = arguments.get("hunks")
        return _items(hunks) if _is_given(hunks) else 0
    try:
        return None if mode is None else contents_taken(mode, _items(arguments.get("edits")))
    except ValueError:
        return None  # The tool refuses the call itself, in words of its own.


def _is_given(node: ast.expr | None) -> bool:
    return node is not None and not (isinstance(node, ast.Constant) and node.value is None)


def _items(node: ast.expr | None) -> int | None:
    """How many items a list has as it is written; None where that does not tell."""
    if not isinstance(node, ast.List | ast.Tuple) or any(isinstance(item, ast.Starred) for item in node.elts):
        return None
    return len(node.elts)


def _literal_text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _new_writers(tree: ast.Module, known_writers: frozenset[str]) -> frozenset[str]:
    """Functions and aliases of the block that reach a write, directly or through each other."""
    mentioned_by = defaultdict[str, list[_Binding]](list)
    for binding in _bindings(tree):
        for name in binding.mentioned if binding.runs_later else binding.kept:
            mentioned_by[name].append(binding)
    writers = {*known_writers, WRITE}
    pending = list(writers)
    while pending:
        for binding in mentioned_by.pop(pending.pop(), ()):
            pending += binding.names - writers
            writers |= binding.names
            binding.names.clear()
    return frozenset(writers - known_writers - {WRITE})


@dataclass(slots=True, eq=False)
class _Binding:
    """Names that are bound to a piece of code.

    Attributes:
        names: the names.
        around: the binding whose code this one is in.
        runs_later: whether the code, or a lambda in it, runs when the names are used.
        mentioned: the names in the code.
        kept: those of them whose values live on in the code's own value: all but those merely called on the spot.
    """

    names: set[str]
    around: _Binding | None
    runs_later: bool
    mentioned: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)


def _bindings(tree: ast.Module) -> list[_Binding]:
    """List the definitions and assignments of the code. Each node is looked at once, however deep they are nested."""
    found: list[_Binding] = []
    called = {part.func for part in ast.walk(tree) if isinstance(part, ast.Call)}
    pending: list[tuple[ast.AST, _Binding | None]] = [(tree, None)]
    while pending:
        node, around = pending.pop()
        within: ast.AST | None = None  # the child that is the code of a binding
        inner = around
        if isinstance(node, ast.Name) and around is not None:
            around.mentioned.add(node.id)
            if node not in called:
                around.kept.add(node.id)
        elif isinstance(node, ast.Lambda) and around is not None:
            around.runs_later = True
        elif isinstance(node, _DEFINITION):
            around = inner = _Binding({node.name}, around, runs_later=True)
            found.append(inner)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {name.id for target in targets for name, _ in _uses(target)}
            within, inner = node.value, _Binding(names, around, runs_later=False)
            found.append(inner)
        pending += [(child, inner if child is within else around) for child in ast.iter_child_nodes(node)]
    for binding in reversed(found):  # a binding stands behind the one around it
        if (outer := binding.around) is not None:
            outer.mentioned |= binding.mentioned
            outer.kept |= binding.kept
            outer.runs_later = outer.runs_later or binding.runs_later
    return found


_NOTHING_RAN = "Nothing in this reply was run."
_SHORTER = "Send a shorter reply: split the work over several steps, or write a large file in parts (mode='a')."
_LONGER_FENCE = "If the content itself shows fences, open its block with a longer fence (````) or with ~~~."


def empty_reply() -> FormatError:
    """No text at all."""
    return FormatError(
        "empty",
        "The reply was empty. Act with a ```codepilot block, or finish with a ```completion block.",
    )


def too_large(limit: str) -> FormatError:
    """The reply has more than is read of one."""
    return FormatError(
        "truncated", f"The reply has more than {limit}, the most that is read. {_NOTHING_RAN} {_SHORTER}"
    )


def cut_block(block: str, line: int) -> FormatError:
    """The length limit was reached in the middle of a block."""
    return FormatError(
        "truncated",
        f"The reply reached the length limit inside the {block} block that line {line} opens. {_NOTHING_RAN} "
        f"{_SHORTER}",
    )


def cut_fence(line: int) -> FormatError:
    """The length limit was reached in a fence line, so that nobody can tell what it was to be."""
    return FormatError(
        "truncated",
        f"The reply reached the length limit in the middle of the fence on line {line}. {_NOTHING_RAN} {_SHORTER}",
    )


def unclosed_control(line: int, why: str) -> FormatError:
    """The text ended inside a control block that is not complete as it stands."""
    return FormatError(
        "truncated",
        f"The reply ended inside the codepilot block that line {line} opens, and {why}. {_NOTHING_RAN} "
        "Send the whole reply again and close the block with a bare ``` line before anything else.",
    )


def unclosed_payload(line: int) -> FormatError:
    """The text ended inside a payload that cannot be shown to be whole."""
    return FormatError(
        "truncated",
        f"The reply ended inside the payload that line {line} opens, so its content may be incomplete. {_NOTHING_RAN} "
        f"Send the whole reply again and close the payload with a bare fence line. {_LONGER_FENCE}",
    )


def unclosed_block(block: str, line: int, word: str, at: int) -> FormatError:
    """A block was never closed, and a protocol block begins inside it."""
    return FormatError(
        "ambiguous",
        f"The {block} block that line {line} opens is never closed, so the ```{word} on line {at} counts as its "
        f"content. {_NOTHING_RAN} Close the {block} block with a bare fence line before line {at}. {_LONGER_FENCE}",
    )


def second_control(line: int, first: int) -> FormatError:
    """Two control blocks."""
    return FormatError(
        "multiple_control",
        f"Line {line} opens a second codepilot block; line {first} opened the first. {_NOTHING_RAN} "
        "Send one codepilot block with all the code of this step, or leave the second for the next step.",
    )


def block_after_completion(word: str, line: int, completion: int) -> FormatError:
    """A block follows the completion."""
    return FormatError(
        "completion_first",
        f"Line {line} opens a block (```{word}) after the completion block of line {completion}. {_NOTHING_RAN} "
        "The completion block comes once and last: move it below every other block, or leave it out.",
    )


def invalid_control(opened: int, code: str, error: CodeError) -> FormatError:
    """The control code does not parse."""
    lines = code.split("\n")
    shown = ""
    place = f"the codepilot block that line {opened} opens"
    if error.line is not None and 1 <= error.line <= len(lines):
        place = f"line {error.line} of {place}"
        shown = f":\n    {lines[error.line - 1].strip()[:200]}\n"
    fence = next((number for number, line in enumerate(lines, 1) if line.lstrip(" ").startswith(("```", "~~~"))), None)
    advice = (
        "Correct it and send the whole reply again. A line that is only ``` closes the block, also inside a string: "
        "if the code needs such a line, open the block with ````codepilot and close it with ````."
        if fence is None
        else f"Line {opened + fence} is a fence line inside the block: the codepilot block must be closed with a bare "
        "``` line before the next block opens."
    )
    return FormatError(
        "control_syntax",
        f"Python syntax error in {place}: {error.reason}{shown or '. '}{_NOTHING_RAN} {advice}",
    )


def too_many_payloads(line: int, slots: tuple[Slot, ...]) -> FormatError:
    """More payloads than the calls take."""
    return FormatError(
        "payload_count",
        f"{_wanted(slots)}, and line {line} opens one more. {_NOTHING_RAN} Below a codepilot block that writes, every "
        f"fence but completion is a payload: leave out the others, or show them above it. {_LONGER_FENCE}",
    )


def missing_payloads(found: int, slots: tuple[Slot, ...], *, stop_reason: str) -> FormatError:
    """Fewer payloads than the calls take."""
    slot = slots[found]
    name = f" of {slot.path!r}" if slot.path is not None else ""
    cut = "The reply reached the length limit before all payloads were sent. " if stop_reason == "length" else ""
    return FormatError(
        "payload_count",
        f"{cut}{_wanted(slots)}, but the reply has {found}: the write{name} on line {slot.line} of the block lacks "
        f"one. {_NOTHING_RAN} Put one fenced block for each write below the codepilot block, in the order of calls.",
    )


def wrong_file(line: int, filename: str, number: int, slot: Slot) -> FormatError:
    """A payload names another file than its call."""
    return FormatError(
        "filename_mismatch",
        f"Payload {number} on line {line} says filename={filename}, but the call that takes it (line {slot.line} of "
        f"the codepilot block) writes {slot.path!r}. {_NOTHING_RAN} "
        "Put the payloads in the order of the calls, or leave filename= out.",
    )


def _wanted(slots: tuple[Slot, ...]) -> str:
    return f"The codepilot block takes {len(slots)} payload{'' if len(slots) == 1 else 's'}"


_BROKEN: dict[FormatCode, str] = {
    "truncated": "was cut off",
    "payload_count": "held more or fewer payloads than its calls need",
    "multiple_control": "held several control blocks",
    "completion_first": "ended the task before it acted",
    "control_syntax": "held a control block that is not valid Python",
    "ambiguous": "could be read in two ways",
    "filename_mismatch": "named other files than its calls",
    "empty": "neither acted nor ended the task",
}


def unreadable(code: FormatCode, count: int) -> str:
    """What a person is told; the model was told how to write it instead."""
    return (
        f"{count} replies of the model in a row did not have the expected form; the last one {_BROKEN[code]}. "
        "Try again, or choose another `model`."
    )
