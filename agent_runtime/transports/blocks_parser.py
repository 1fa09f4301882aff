"""Incremental parser of replies with a control block. Pure.

`ReplyParser` parses text; `plan_payloads` and `expected_writes` analyse control code without running it.
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

from agent_runtime.core.errors import FormatError
from agent_runtime.core.events import Streamed
from agent_runtime.core.text import MAX_REPLY_CHARS, FenceLine, FenceScanner, Token
from agent_runtime.interpreter.source import CodeError, is_readable, parse_code
from agent_runtime.workspace.edits import payload_count

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

_MAX_FENCES = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    control: str | None
    """Code to run."""
    payloads: tuple[Payload, ...]
    """Contents of the writes, in order."""
    completion: str | None
    """Text for the user, stripped of blank lines."""
    prose: str
    """All other text, with display blocks, stripped of blank lines."""
    exact_payloads: int | None = 0
    """Number of payloads that the control block takes; None if only the run can tell."""
    writers: frozenset[str] = frozenset()
    """Names bound by the control block that write when used later; pass those of a run to the next parser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    text: str
    """Exact content with LF line ends, up to the closing fence."""
    filename: str | None
    """The file name in the fence."""
    info: str = ""
    """The fence's info string."""
    line: int = 0
    """1-based line of the opening fence."""


def parse(text: str, stop_reason: str = "stop", *, known_writers: frozenset[str] = frozenset()) -> Reply:
    """Parse a whole reply; `known_writers` are the `writers` of earlier replies."""
    parser = ReplyParser(known_writers=known_writers)
    parser.feed(text)
    return parser.finish(stop_reason)


class Block(StrEnum):
    """Kind of a fenced block."""

    CONTROL = "codepilot"
    PAYLOAD = "payload"
    DISPLAY = "display"
    COMPLETION = "completion"


# Choices where the protocol leaves room:
# * A nested fence has an info string, the same character and at least the length of the block's. Others are content: a
#   longer fence, or tildes, can contain unbalanced fences. In a control block, the first bare fence ends it.
# * An unclosed payload is accepted only if its language (Python, JSON or TOML) shows that it is complete.
# * An unclosed payload or display block that contains a `codepilot` or `completion` fence is `ambiguous`.
# * An unclosed control block that does not parse, or that takes payloads, is `truncated`.
# * Only prose may follow the completion.
# * A reply cut for length outside blocks is accepted, unless it ends in a fence line without line end: a bare one may
#   be the start of a nested fence. A control block may end like that, since its code must parse.
# * Prose below a control block is in `Reply.prose`, but is not live text.
class ReplyParser:
    """Incremental parser of one reply. After a fault the rest is ignored, and `finish` raises.

    Without `payloads`, fences below the control block are display blocks.
    """

    def __init__(self, *, known_writers: frozenset[str] = frozenset(), payloads: bool = True) -> None:
        self._known_writers = known_writers
        self._takes_payloads = payloads
        self._scanner = FenceScanner()
        self._flushed = False
        self._chars = self._fences = 0
        self._undecided: FenceLine | None = None
        self._fault: FormatError | None = None
        self._open: _OpenBlock | None = None
        self._control: _OpenBlock | None = None
        self._completion: _OpenBlock | None = None
        self._plan = PayloadPlan(slots=(), writers=frozenset())
        self._payloads: list[Payload] = []
        self._prose: list[str] = []
        self._sink = self._prose
        self._is_live = True

    @property
    def has_control(self) -> bool:
        return self._control is not None

    def feed(self, chunk: str) -> list[Streamed]:
        """Parse a chunk and return its live text."""
        if self._flushed:
            raise RuntimeError("this reply has ended; use a new ReplyParser for the next one")
        self._chars += len(chunk)
        if self._chars > MAX_REPLY_CHARS and self._fault is None:
            self._fault = too_large(f"{MAX_REPLY_CHARS:,} characters")
        return [] if self._fault is not None else self._process(self._scanner.feed(chunk))

    def flush(self) -> list[Streamed]:
        """End the text and return the remaining live text."""
        if self._flushed:
            return []
        self._flushed = True
        if self._fault is not None:
            return []
        last = self._open
        tokens = self._scanner.close()
        events = self._process(tokens)
        ends_control = last is not None and last.block is Block.CONTROL and self._fault is None
        for token in tokens:
            if isinstance(token, FenceLine) and not ends_control:
                self._undecided = token
        return events

    def finish(self, stop_reason: str = "stop") -> Reply:
        """Validate the whole reply; see `parse`."""
        if stop_reason not in ("stop", "length"):
            raise ValueError(f"stop_reason {stop_reason!r}: must be 'stop' or 'length'")
        self.flush()
        if stop_reason == "length" and self._undecided is not None:
            raise cut_fence(self._undecided.line)
        if self._fault is not None:
            raise self._fault
        if self._open is not None:
            self._validate_open(self._open, stop_reason)
        reply = Reply(
            control=None if self._control is None else self._control.text,
            payloads=tuple(self._payloads),
            completion=None if self._completion is None else _strip_blank_lines(self._completion.text),
            prose=_strip_blank_lines("".join(self._prose)),
            exact_payloads=None if self._plan.slots is None else len(self._plan.slots),
            writers=self._plan.writers,
        )
        if reply.control is None and reply.completion is None and not reply.prose:
            raise empty_reply()
        if self._plan.slots is not None and len(self._payloads) < len(self._plan.slots):
            raise missing_payloads(len(self._payloads), self._plan.slots, stop_reason=stop_reason)
        return reply

    def _process(self, tokens: list[Token]) -> list[Streamed]:
        events: list[Streamed] = []
        for token in tokens:
            if self._fault is not None:
                break
            if isinstance(token, str):
                self._add_text(token, events)
                continue
            self._fences += 1
            if self._fences > _MAX_FENCES:
                self._fault = too_large(f"{_MAX_FENCES:,} fence lines")
            elif self._open is None:
                self._open_block(token, events)
            elif self._open.is_closed_by(token):
                self._close_block(self._open, token, events)
            else:
                self._add_text(token.text, events)
        return events

    def _add_text(self, text: str, events: list[Streamed]) -> None:
        self._sink.append(text)
        if self._is_live:
            events.append(Streamed(text=text, completion=self._open is not None and self._open is self._completion))

    def _open_block(self, fence: FenceLine, events: list[Streamed]) -> None:
        if fence.language in (_CONTROL, _COMPLETION):
            block = Block(fence.language)
        else:
            block = Block.DISPLAY if self._plan.slots == () else Block.PAYLOAD
        self._fault = self._find_fault(block, fence)
        if self._fault is not None:
            return
        self._open = opened = _OpenBlock(block=block, fence=fence, lengths=[fence.length])
        self._sink, self._is_live = opened.parts, block in {Block.COMPLETION, Block.DISPLAY}
        if block is Block.CONTROL:
            self._control = opened
        elif block is Block.COMPLETION:
            self._completion = opened
        elif block is Block.DISPLAY:
            self._sink = self._prose
            self._add_text(fence.text, events)

    def _find_fault(self, block: Block, fence: FenceLine) -> FormatError | None:
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
        slots = self._plan.slots or ()
        return slots[len(self._payloads)] if len(self._payloads) < len(slots) else None

    def _close_block(self, opened: _OpenBlock, fence: FenceLine, events: list[Streamed]) -> None:
        if opened.block is Block.DISPLAY:
            self._add_text(fence.text, events)
        if opened.block is Block.CONTROL:
            try:
                self._read_plan(opened)
            except CodeError as error:
                self._fault = invalid_control(opened.fence.line, opened.text, error)
                return
        self._finish_block(opened)

    def _read_plan(self, control: _OpenBlock) -> None:
        tree = parse_code(control.text)
        if self._takes_payloads:
            self._plan = plan_payloads(tree, self._known_writers)

    def _finish_block(self, opened: _OpenBlock) -> None:
        if opened.block is Block.PAYLOAD:
            fence = opened.fence
            self._payloads.append(Payload(text=opened.text, filename=fence.filename, info=fence.info, line=fence.line))
        self._open = None
        self._sink = self._prose
        self._is_live = self._control is None

    def _validate_open(self, opened: _OpenBlock, stop_reason: str) -> None:
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
        elif opened.block is not Block.COMPLETION and opened.inner is not None:
            raise unclosed_block(opened.block, line, opened.inner.language, opened.inner.line)
        elif opened.block is Block.PAYLOAD and not self._is_complete(opened):
            raise unclosed_payload(line)
        self._finish_block(opened)

    def _is_complete(self, payload: _OpenBlock) -> bool:
        slot = self._next_slot()
        names = [payload.fence.filename, slot.path if slot else None]
        languages = [PurePosixPath(name).suffix[1:].lower() for name in names if name] + [payload.fence.language]
        check = next((_CHECKS[language] for language in languages if language in _CHECKS), None)
        text = payload.text
        if check is None or not text.strip() or not (check is json.loads or is_readable(text)):
            return False
        try:
            check(text)
        except (CodeError, ValueError, RecursionError):  # The last is how json and tomllib refuse deep nesting.
            return False
        return True


@dataclass(slots=True, kw_only=True)
class _OpenBlock:
    block: Block
    fence: FenceLine
    parts: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Fence lengths of the block and of nested fences, innermost last."""
    inner: FenceLine | None = None
    """The first nested fence of a protocol block."""

    @property
    def text(self) -> str:
        """The content, without the indentation of the opening fence if all its lines share that.

        https://spec.commonmark.org/0.31.2/#example-131
        """
        text, fence = "".join(self.parts), self.fence.text
        indent = fence[: len(fence) - len(fence.lstrip(" "))]
        lines = text.split("\n")
        if not indent or any(line.strip() and not line.startswith(indent) for line in lines):
            return text
        return "\n".join(line.removeprefix(indent) for line in lines)

    def is_closed_by(self, fence: FenceLine) -> bool:
        """Register a fence line in the block and return whether it ends the block."""
        if self.inner is None and fence.language in (_CONTROL, _COMPLETION):
            self.inner = fence
        if fence.char != self.fence.char or fence.length < self.lengths[-1]:
            return False
        if not fence.info:
            self.lengths.pop()
        elif self.block is not Block.CONTROL:
            self.lengths.append(fence.length)
        return not self.lengths


def _strip_blank_lines(text: str) -> str:
    """Strip blank lines, but not the indentation of the first line."""
    lines = text.rstrip().split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(lines[first:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One payload of a call; `path` is None unless a literal."""

    path: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadPlan:
    """A control block's use of payloads; `slots` is None if only the run can tell."""

    slots: tuple[Slot, ...] | None
    writers: frozenset[str]


_PARAMETERS = ("path", "start_line", "end_line", "after_line", "mode", "edits", "version", "force", "payload", "hunks")
_STRAIGHT_LINE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.withitem)
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_HARMLESS = frozenset({WRITE, "print", "len", "str", "repr", "find", "list_files"})
"""Calls that change no file and no line number between two writes."""
_ABORTING = (ast.Raise, ast.Assert, ast.Return)
_CONDITIONAL = (
    ast.IfExp,
    ast.BoolOp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def plan_payloads(tree: ast.Module, known_writers: frozenset[str] = frozenset()) -> PayloadPlan:
    """Return the payloads that a control block takes, if every write is a direct call in straight-line code."""
    writers = {WRITE, *known_writers}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if writers.isdisjoint(used.union(_bound_names(tree))):
        return PayloadPlan(slots=(), writers=frozenset())
    return PayloadPlan(slots=_find_slots(tree, known_writers), writers=_new_writers(tree, known_writers))


def same_file(first: str, second: str) -> bool:
    """Return whether two paths are equal after normalisation."""
    return _normalise(first) == _normalise(second)


def _normalise(path: str) -> str:
    absolute = "/" if path.startswith("/") else ""
    return absolute + str(PurePosixPath(path.lstrip("/")))


def expected_writes(code: str) -> tuple[ExpectedWrite, ...]:
    """Return the writes of a block in order; none if only the run can tell."""
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
        if any((call.lineno, call.col_offset) < _end_position(before) for before, call in pairwise(calls)):
            return ()  # one within the other
        certain = certain and (not writes or _is_harmless(node))
        for call in calls:
            write = _expected_write(call, certain=certain)
            certain = write.certain and (bool(writes) or _is_harmless(node))
            writes.append(write)
    return tuple(writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWrite:
    """One `write_file` call in straight-line code."""

    line: int
    """1-based line in the block."""
    call: str
    """Source code."""
    payloads: int
    """Number of payloads it takes."""
    arguments: dict[str, object]
    """Literal arguments other than None."""
    certain: bool
    """Whether all arguments are literals and no code since the first write can change a file or end the block."""


def _find_slots(tree: ast.Module, known_writers: frozenset[str]) -> tuple[Slot, ...] | None:
    if any(name in known_writers or name == WRITE for name in _bound_names(tree)):
        return None
    slots: list[Slot] = []
    for node in _statements(tree.body):
        uses = [use for use in _walk_names(node) if use[0].id == WRITE or use[0].id in known_writers]
        if not uses:
            continue
        calls = _direct_writes(node)
        if not isinstance(node, _STRAIGHT_LINE) or any(maybe for _, maybe in uses) or len(calls) != len(uses):
            return None
        for call in calls:
            count = _payload_count(call)
            if count is None:
                return None
            slots += [Slot(path=_literal_text(_arguments(call).get("path")), line=call.lineno)] * count
    return tuple(slots)


def _expected_write(call: ast.Call, *, certain: bool) -> ExpectedWrite:
    nodes = _arguments(call)
    arguments: dict[str, object] = {}
    for name, node in nodes.items():
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
    return not any(isinstance(part, _ABORTING) for part in parts) and all(
        isinstance(func, ast.Name) and func.id in _HARMLESS for func in calls
    )


def _direct_writes(node: ast.AST) -> list[ast.Call]:
    calls = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == WRITE
    ]
    return sorted(calls, key=_end_position)


def _end_position(call: ast.Call) -> tuple[int, int]:
    return call.end_lineno or 0, call.end_col_offset or 0


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    pending = list(body)[::-1]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.With):
            yield from node.items
            pending += node.body[::-1]
        else:
            yield node


def _walk_names(node: ast.AST) -> Iterator[tuple[ast.Name, bool]]:
    """Yield each name, and True if its evaluations may not be exactly one."""
    pending = [(node, False)]
    while pending:
        part, maybe = pending.pop()
        if isinstance(part, ast.Name):
            yield part, maybe
        chained = isinstance(part, ast.Compare) and len(part.ops) > 1
        maybe = maybe or chained or isinstance(part, _CONDITIONAL)
        pending += [(child, maybe) for child in ast.iter_child_nodes(part)]


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield defined and imported names; assigned names count as uses."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITION):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return dict(zip(_PARAMETERS, call.args, strict=False)) | keywords


def _payload_count(call: ast.Call) -> int | None:
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return None
    arguments = _arguments(call)
    mode = _literal_text(arguments["mode"]) if "mode" in arguments else "w"
    if _is_set(arguments.get("payload")):
        hunks = arguments.get("hunks")
        return _count_items(hunks) if _is_set(hunks) else 0
    try:
        return None if mode is None else payload_count(mode, _count_items(arguments.get("edits")))
    except ValueError:
        return None  # The tool refuses the call itself, in words of its own.


def _is_set(node: ast.expr | None) -> bool:
    return node is not None and not (isinstance(node, ast.Constant) and node.value is None)


def _count_items(node: ast.expr | None) -> int | None:
    if not isinstance(node, ast.List | ast.Tuple) or any(isinstance(item, ast.Starred) for item in node.elts):
        return None
    return len(node.elts)


def _literal_text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _new_writers(tree: ast.Module, known_writers: frozenset[str]) -> frozenset[str]:
    used_by = defaultdict[str, list[_Binding]](list)
    for binding in _bindings(tree):
        for name in binding.used if binding.is_deferred else binding.stored:
            used_by[name].append(binding)
    writers = {*known_writers, WRITE}
    pending = list(writers)
    while pending:
        for binding in used_by.pop(pending.pop(), ()):
            pending += binding.names - writers
            writers |= binding.names
            binding.names.clear()
    return frozenset(writers - known_writers - {WRITE})


@dataclass(slots=True, eq=False)
class _Binding:
    names: set[str]
    outer: _Binding | None
    """The binding whose code contains this one."""
    is_deferred: bool
    """Whether the code, or a lambda in it, runs when the names are used."""
    used: set[str] = field(default_factory=set)
    """Names in the code."""
    stored: set[str] = field(default_factory=set)
    """Used names other than those merely called."""


def _bindings(tree: ast.Module) -> list[_Binding]:
    bindings: list[_Binding] = []
    called = {part.func for part in ast.walk(tree) if isinstance(part, ast.Call)}
    pending: list[tuple[ast.AST, _Binding | None]] = [(tree, None)]
    while pending:
        node, outer_binding = pending.pop()
        code: ast.AST | None = None  # the child that is the code of a binding
        inner = outer_binding
        if isinstance(node, ast.Name) and outer_binding is not None:
            outer_binding.used.add(node.id)
            if node not in called:
                outer_binding.stored.add(node.id)
        elif isinstance(node, ast.Lambda) and outer_binding is not None:
            outer_binding.is_deferred = True
        elif isinstance(node, _DEFINITION):
            outer_binding = inner = _Binding({node.name}, outer_binding, is_deferred=True)
            bindings.append(inner)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {name.id for target in targets for name, _ in _walk_names(target)}
            code, inner = node.value, _Binding(names, outer_binding, is_deferred=False)
            bindings.append(inner)
        pending += [(child, inner if child is code else outer_binding) for child in ast.iter_child_nodes(node)]
    for binding in reversed(bindings):  # inner bindings follow outer ones
        if (outer := binding.outer) is not None:
            outer.used |= binding.used
            outer.stored |= binding.stored
            outer.is_deferred = outer.is_deferred or binding.is_deferred
    return bindings


_NOTHING_RAN = "Nothing in this reply was run."
_SHORTER = "Send a shorter reply: split the work over several steps, or write a large file in parts (mode='a')."
_LONGER_FENCE = "If the content itself shows fences, open its block with a longer fence (````) or with ~~~."


def empty_reply() -> FormatError:
    return FormatError(
        "empty",
        "The reply was empty. Act with a ```codepilot block, or finish with a ```completion block.",
    )


def too_large(limit: str) -> FormatError:
    return FormatError(
        "truncated", f"The reply has more than {limit}, the most that is read. {_NOTHING_RAN} {_SHORTER}"
    )


def cut_block(block: str, line: int) -> FormatError:
    return FormatError(
        "truncated",
        f"The reply reached the length limit inside the {block} block that line {line} opens. {_NOTHING_RAN} "
        f"{_SHORTER}",
    )


def cut_fence(line: int) -> FormatError:
    return FormatError(
        "truncated",
        f"The reply reached the length limit in the middle of the fence on line {line}. {_NOTHING_RAN} {_SHORTER}",
    )


def unclosed_control(line: int, reason: str) -> FormatError:
    return FormatError(
        "truncated",
        f"The reply ended inside the codepilot block that line {line} opens, and {reason}. {_NOTHING_RAN} "
        "Send the whole reply again and close the block with a bare ``` line before anything else.",
    )


def unclosed_payload(line: int) -> FormatError:
    return FormatError(
        "truncated",
        f"The reply ended inside the payload that line {line} opens, so its content may be incomplete. {_NOTHING_RAN} "
        f"Send the whole reply again and close the payload with a bare fence line. {_LONGER_FENCE}",
    )


def unclosed_block(block: str, line: int, word: str, at: int) -> FormatError:
    return FormatError(
        "ambiguous",
        f"The {block} block that line {line} opens is never closed, so the ```{word} on line {at} counts as its "
        f"content. {_NOTHING_RAN} Close the {block} block with a bare fence line before line {at}. {_LONGER_FENCE}",
    )


def second_control(line: int, first: int) -> FormatError:
    return FormatError(
        "multiple_control",
        f"Line {line} opens a second codepilot block; line {first} opened the first. {_NOTHING_RAN} "
        "Send one codepilot block with all the code of this step, or leave the second for the next step.",
    )


def block_after_completion(word: str, line: int, completion: int) -> FormatError:
    return FormatError(
        "completion_first",
        f"Line {line} opens a block (```{word}) after the completion block of line {completion}. {_NOTHING_RAN} "
        "The completion block comes once and last: move it below every other block, or leave it out.",
    )


def invalid_control(opened: int, code: str, error: CodeError) -> FormatError:
    lines = code.split("\n")
    excerpt = ""
    location = f"the codepilot block that line {opened} opens"
    if error.line is not None and 1 <= error.line <= len(lines):
        location = f"line {error.line} of {location}"
        excerpt = f":\n    {lines[error.line - 1].strip()[:200]}\n"
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
        f"Python syntax error in {location}: {error.reason}{excerpt or '. '}{_NOTHING_RAN} {advice}",
    )


def too_many_payloads(line: int, slots: tuple[Slot, ...]) -> FormatError:
    return FormatError(
        "payload_count",
        f"{_total(slots)}, and line {line} opens one more. {_NOTHING_RAN} Below a codepilot block that writes, every "
        f"fence but completion is a payload: leave out the others, or show them above it. {_LONGER_FENCE}",
    )


def missing_payloads(count: int, slots: tuple[Slot, ...], *, stop_reason: str) -> FormatError:
    slot = slots[count]
    name = f" of {slot.path!r}" if slot.path is not None else ""
    cut = "The reply reached the length limit before all payloads were sent. " if stop_reason == "length" else ""
    return FormatError(
        "payload_count",
        f"{cut}{_total(slots)}, but the reply has {count}: the write{name} on line {slot.line} of the block lacks "
        f"one. {_NOTHING_RAN} Put one fenced block for each write below the codepilot block, in the order of calls.",
    )


def wrong_file(line: int, filename: str, number: int, slot: Slot) -> FormatError:
    return FormatError(
        "filename_mismatch",
        f"Payload {number} on line {line} says filename={filename}, but the call that takes it (line {slot.line} of "
        f"the codepilot block) writes {slot.path!r}. {_NOTHING_RAN} "
        "Put the payloads in the order of the calls, or leave filename= out.",
    )


def _total(slots: tuple[Slot, ...]) -> str:
    return f"The codepilot block takes {len(slots)} payload{'' if len(slots) == 1 else 's'}"
