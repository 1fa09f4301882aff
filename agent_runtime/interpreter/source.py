"""Facts and values of control blocks, for the interpreter that runs them. Pure.

The facts of its source (`parse_code`, `discarded_calls`, `bound_names`), the findings of the type checker
(`Diagnostic`), its bounds and what it has used of them (`BlockUsage`), the plain data that may cross between it and the
host (`plain`), and a block that is suspended in the middle of a tool call (`InterpreterState`).
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import Self, TypeVar

from agent_runtime.core import text as text_module
from agent_runtime.core.errors import LimitError, ResumeCode, ResumeError
from agent_runtime.core.values import Plain

Span = tuple[int, int]
"""Start and end of an expression as UTF-8 byte offsets into the source, the end exclusive."""
_BINDING = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
"""What binds a name, besides the targets of assignments."""


class CodeError(Exception):
    """Python code that does not parse.

    Attributes:
        line: 1-based line in the code, or None when the parser does not say.
        reason: the parser's words.
    """

    def __init__(self, reason: str, line: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


MOST_TOKENS = 10_000
"""Words and signs of one control block. The parser and what walks the tree take about 100 ms for ten times as many."""

_TOKEN = re.compile(r"\w+|[^\w\s]|\n(?=.)")


def is_readable(code: str) -> bool:
    """Whether code is small enough to be parsed on the event loop."""
    return len(code) <= MOST_TOKENS or sum(1 for _ in islice(_TOKEN.finditer(code), MOST_TOKENS + 1)) <= MOST_TOKENS


@lru_cache(maxsize=1)  # a control block is parsed by the reader of the reply, for its writes, and to run it
def parse_code(code: str) -> ast.Module:
    """Parse Python code; nobody may change the tree.

    Raises:
        CodeError: it does not parse, or has more than `MOST_TOKENS`.
    """
    if not is_readable(code):
        raise CodeError(
            f"it has more than {MOST_TOKENS:,} words and signs, and is not read. Divide it over several steps; what a "
            "file is to hold belongs into the contents of a write",
            None,
        )
    try:
        return text_module.parse(code)
    except SyntaxError as error:
        raise CodeError(f"{error.msg} ({text_module.DIALECT})", error.lineno) from None
    except ValueError as error:  # Null characters, before Python 3.12.
        raise CodeError(str(error), None) from None
    except (RecursionError, MemoryError):  # How CPython's parser says that code is nested too deeply.
        raise CodeError("too deeply nested", None) from None


def discarded_calls(nodes: Collection[ast.AST], source: str) -> frozenset[Span]:
    """The calls whose value the code throws away: expression statements, wherever they stand.

    Args:
        nodes: all of the code's syntax tree.
        source: the code.
    """
    # Byte offset of each line's start, by the line ends that `ast` counts (not `str.splitlines`).
    starts = [0, *accumulate(len(line) + 1 for line in source.encode().split(b"\n"))]
    calls = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    ends = [starts[(call.end_lineno or call.lineno) - 1] + (call.end_col_offset or 0) for call in calls]
    return frozenset((starts[call.lineno - 1] + call.col_offset, end) for call, end in zip(calls, ends, strict=True))


def bound_names(nodes: Collection[ast.AST]) -> frozenset[str]:
    """Every name that the code may bind: variables, functions, classes, imports, attributes, constant keys.

    Args:
        nodes: all of the code's syntax tree.
    """
    return frozenset(
        name
        for node in nodes
        if (isinstance(node, _BINDING) or isinstance(getattr(node, "ctx", None), ast.Store))
        for name in _bound(node)
    )


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            yield key
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=None):
            yield name.partition(".")[0]
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case _:
            pass


_ALWAYS = frozenset(
    {
        "call-non-callable",
        "invalid-await",
        "missing-argument",
        "parameter-already-assigned",
        "too-many-positional-arguments",
        "unknown-argument",
        "unresolved-import",
    }
)
_ABOUT_A_NAME = (
    re.compile(r"Name `(?P<name>\w+)` used when not defined"),
    re.compile(r"attribute `(?P<name>\w+)`", re.IGNORECASE),
    re.compile(r'Unknown key "(?P<name>[^"]*)"'),
)
_ARGUMENT = re.compile(
    r"Argument to function `(?P<function>\w+)` is incorrect: Expected `(?P<wanted>.*)`, found `(?P<given>.*)`"
)
_OVER_A_TOOL = re.compile(r"is not assignable to `def (?P<name>\w+)\(")
_MESSAGE_CHARS = 300
_MOST_TOLD = 10


def parse_findings(report: str) -> list[Diagnostic]:
    """Read the checker's JSON report (an array of objects with `name`, `message` and `location`)."""
    return [
        Diagnostic(line=item["location"]["row"], rule=item["name"], message=item["message"])
        for item in json.loads(report)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding of the type checker, and its line, from 1."""

    line: int
    rule: str
    message: str

    def counts(self, *, tools: AbstractSet[str], bound: AbstractSet[str]) -> bool:
        """Whether the code must fail, whatever values it meets; all else is for the run itself to show.

        The checker is stricter than Python: it minds a `None` that cannot come, a list of mixed items, an annotation
        that is only roughly right, a `*args` whose length it does not know. Refusing a program for such a thing
        costs the model a turn for nothing.

        Args:
            tools: the names of the tools.
            bound: names, attributes and keys that control code binds, in this block or an earlier one.
        """
        if self.rule in _ALWAYS:
            return True
        if self.rule in {"unresolved-reference", "unresolved-attribute", "invalid-key"}:
            if "`None`" in self.message or "in union" in self.message:
                return False
            found = next((match for pattern in _ABOUT_A_NAME if (match := pattern.search(self.message))), None)
            return found is not None and found["name"] not in bound
        if self.rule == "invalid-argument-type":
            match = _ARGUMENT.match(self.message)
            if match is None or match["function"] not in tools:
                return False
            # Of a variable's type nothing is certain.
            certain = match["given"].startswith("Literal[") or match["given"] == "None"
            return certain and " | Literal[" not in match["given"]
        taken = _OVER_A_TOOL.search(self.message)
        return self.rule == "invalid-assignment" and taken is not None and taken["name"] in tools


def render(findings: list[Diagnostic], source: str) -> str:
    """Tell the model: the line it wrote under each finding, at most ten of them."""
    lines = ["", *source.split("\n")]
    told = []
    for each in findings[:_MOST_TOLD]:
        line = lines[each.line] if each.line < len(lines) else ""
        told.append(f"line {each.line}: {each.message[:_MESSAGE_CHARS]}\n    {line.strip()[:200]}")
    if len(findings) > len(told):
        told.append(f"... and {len(findings) - len(told)} more")
    return "\n".join(told)


_NAMES_A_CALL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterLimits:
    """Bounds of one control block.

    Attributes:
        seconds: running time of the code itself; tool calls do not count.
        memory_bytes: heap of the worker.
        calls: tool calls.
        printed_chars: characters that `print` may produce.
        recursion: depth of function calls.
        snapshot_bytes: what the variables may take while a call waits for a person.
    """

    seconds: float = 10.0
    memory_bytes: int = 256 * 1024**2
    calls: int = 200
    printed_chars: int = 200_000
    recursion: int = 400
    snapshot_bytes: int = 4 * 1024**2


@dataclass(slots=True, kw_only=True)
class BlockUsage:
    """What one control block has used so far: from zero, or from what it had used before it was frozen.

    Attributes:
        limits: what it may use.
        show: is given what it prints.
        calls: tool calls made.
        suspensions: questions put to the host, be it a call or what a name means.
        printed_chars: characters printed.
        over_limit: which limit its printing went over, or "".
    """

    limits: InterpreterLimits
    show: Callable[[str], None]
    calls: int = 0
    suspensions: int = 0
    printed_chars: int = 0
    over_limit: str = ""

    def printed(self, _stream: str, text: str) -> None:
        """Take what the block prints; raising here is how the worker is told to stop."""
        room = max(0, self.limits.printed_chars - self.printed_chars)
        self.printed_chars += len(text)
        self.show(text[:room])
        if self.printed_chars > self.limits.printed_chars:
            self.over_limit = f"The block printed more than {self.limits.printed_chars:,} characters."
            raise MemoryError(self.over_limit)

    def count_suspension(self) -> None:
        """Count one question to the host; the worker's clock stands still then.

        Raises:
            LimitError: it is one too many.
        """
        self.suspensions += 1
        if self.suspensions > self.limits.calls * _NAMES_A_CALL:
            raise LimitError("The block asked for unknown names over and over and was stopped; its variables are gone.")

    def count_call(self) -> None:
        """Count one tool call.

        Raises:
            LimitError: it is one too many.
        """
        self.calls += 1
        if self.calls > self.limits.calls:
            raise LimitError(
                f"The block made more than {self.limits.calls} tool calls and was stopped; its variables are gone."
            )


MAX_DEPTH = 32
MAX_ITEMS = 100_000
MAX_CHARS = 2_000_000
_MAX_BITS = 64


class NotPlainError(TypeError):
    """A value that may not cross; the text names what is wrong and where it stands."""


def plain(value: object, where: str) -> Plain:
    """Return `value` if it is plain data through and through, and little enough of it.

    Types are compared exactly: a subclass of `str` is an object with methods of its own, and no object of the
    control block's making reaches the host. Every place counts, also where one list is in many places: thirty
    lines of control code can make a list of a thousand million places that takes no memory until it is copied.

    Raises:
        NotPlainError: `value`, or something inside it, is anything else; it nests deeper than `MAX_DEPTH`, has more
            than `MAX_ITEMS` places or `MAX_CHARS` characters, or an integer of more than 64 bits.
    """
    return _Crossing(where).take(value, 0)


class _Crossing:
    """One value on its way: what has been counted of it so far."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._items = 0
        self._chars = 0

    def take(self, value: object, depth: int) -> Plain:
        if depth > MAX_DEPTH:
            raise NotPlainError(f"{self._where} nests deeper than {MAX_DEPTH} levels")
        self._items += 1
        if self._items > MAX_ITEMS:
            raise NotPlainError(f"{self._where} has more than {MAX_ITEMS:,} items; pass fewer")
        match value:
            case None | bool() | float() if type(value) in {type(None), bool, float}:
                return value
            case int() if type(value) is int:
                if value.bit_length() > _MAX_BITS:
                    raise NotPlainError(f"{self._where} has an integer of more than {_MAX_BITS} bits; pass it as a str")
                return value
            case str() if type(value) is str:
                return self._text(value)
            case list() if type(value) is list:
                return [self.take(item, depth + 1) for item in value]
            case tuple() if type(value) is tuple:
                return tuple(self.take(item, depth + 1) for item in value)
            case dict() if type(value) is dict:
                return {self._key(key): self.take(item, depth + 1) for key, item in value.items()}
            case _:
                raise NotPlainError(
                    f"{self._where} {'holds' if depth else 'is'} a {type(value).__name__}; only None, bool, int, "
                    "float, str, list, tuple and dict (with str keys) can cross between control code and tools"
                )

    def _text(self, value: str) -> str:
        self._chars += len(value)
        if self._chars > MAX_CHARS:
            raise NotPlainError(f"{self._where} has more than {MAX_CHARS:,} characters; pass less")
        return value

    def _key(self, key: object) -> str:
        if type(key) is not str:
            raise NotPlainError(f"{self._where} has a key of type {type(key).__name__}; keys must be str")
        return self._text(key)


_T = TypeVar("_T")
_COUNTS = ("blocks", "calls", "suspensions", "printed_chars")


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
            **{name: getattr(self, name) for name in _COUNTS},
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
                **{name: _of(data[name], int) for name in _COUNTS},
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
