"""Data types and checks of control blocks, without I/O."""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import Self, TypeVar

from agent_runtime.core import text as text_module
from agent_runtime.core.errors import LimitError, ResumeCode, ResumeError
from agent_runtime.core.values import Plain

Span = tuple[int, int]
"""Start and end of an expression as UTF-8 byte offsets, the end exclusive."""
_BINDING_NODES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
"""Nodes that bind a name, besides assignment targets."""


class CodeError(Exception):
    """Python code that does not parse.

    Attributes:
        line: 1-based, or None when the parser does not say.
    """

    def __init__(self, reason: str, line: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


MAX_TOKENS = 10_000
"""Tokens of one control block. Parsing and walking ten times as many takes about 100 ms."""

_TOKEN = re.compile(r"\w+|[^\w\s]|\n(?=.)")


def is_readable(code: str) -> bool:
    """Whether the code is small enough to parse on the event loop."""
    return len(code) <= MAX_TOKENS or sum(1 for _ in islice(_TOKEN.finditer(code), MAX_TOKENS + 1)) <= MAX_TOKENS


@lru_cache(maxsize=1)  # a control block is parsed three times: by the reply parser, for its writes, and to run it
def parse_code(code: str) -> ast.Module:
    """Parse Python code; callers must not change the cached tree.

    Raises:
        CodeError: syntax error, or too many tokens.
    """
    if not is_readable(code):
        raise CodeError(
            f"it has more than {MAX_TOKENS:,} words and signs, and is not read. Divide it over several steps; what a "
            "file is to hold belongs into the contents of a write",
            None,
        )
    try:
        return text_module.parse(code)
    except SyntaxError as error:
        raise CodeError(f"{error.msg} ({text_module.DIALECT})", error.lineno) from None
    except ValueError as error:  # Null characters, before Python 3.12.
        raise CodeError(str(error), None) from None
    except (RecursionError, MemoryError):  # CPython's parser reports deep nesting so.
        raise CodeError("too deeply nested", None) from None


def discarded_calls(nodes: Collection[ast.AST], source: str) -> frozenset[Span]:
    """Return the calls that are expression statements, from a tree's nodes."""
    # Byte offset of each line's start, by the line ends that `ast` counts (not `str.splitlines`).
    starts = [0, *accumulate(len(line) + 1 for line in source.encode().split(b"\n"))]
    calls = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    ends = [starts[(call.end_lineno or call.lineno) - 1] + (call.end_col_offset or 0) for call in calls]
    return frozenset((starts[call.lineno - 1] + call.col_offset, end) for call, end in zip(calls, ends, strict=True))


def bound_names(nodes: Collection[ast.AST]) -> frozenset[str]:
    """Return the variables, functions, classes, imports, attributes and constant keys that the nodes may bind."""
    return frozenset(
        name
        for node in nodes
        if (isinstance(node, _BINDING_NODES) or isinstance(getattr(node, "ctx", None), ast.Store))
        for name in _names_bound_by(node)
    )


def _names_bound_by(node: ast.AST) -> Iterator[str]:
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


_FATAL_RULES = frozenset(
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
_NAME_PATTERNS = (
    re.compile(r"Name `(?P<name>\w+)` used when not defined"),
    re.compile(r"attribute `(?P<name>\w+)`", re.IGNORECASE),
    re.compile(r'Unknown key "(?P<name>[^"]*)"'),
)
_ARGUMENT_TYPE = re.compile(
    r"Argument to function `(?P<function>\w+)` is incorrect: Expected `(?P<wanted>.*)`, found `(?P<given>.*)`"
)
_TOOL_REDEFINITION = re.compile(r"is not assignable to `def (?P<name>\w+)\(")
_MAX_MESSAGE_CHARS = 300
_MAX_FINDINGS = 10


def parse_findings(report: str) -> list[Diagnostic]:
    """Parse the type checker's JSON report."""
    return [
        Diagnostic(line=item["location"]["row"], rule=item["name"], message=item["message"])
        for item in json.loads(report)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A finding of the type checker; lines count from 1."""

    line: int
    rule: str
    message: str

    def must_fail(self, *, tools: AbstractSet[str], bound: AbstractSet[str]) -> bool:
        """Whether the code fails for any values; stricter findings would only cost a turn.

        `bound` are names, attributes and keys that this or an earlier block binds.
        """
        if self.rule in _FATAL_RULES:
            return True
        if self.rule in {"unresolved-reference", "unresolved-attribute", "invalid-key"}:
            if "`None`" in self.message or "in union" in self.message:
                return False
            name_match = next((match for pattern in _NAME_PATTERNS if (match := pattern.search(self.message))), None)
            return name_match is not None and name_match["name"] not in bound
        if self.rule == "invalid-argument-type":
            match = _ARGUMENT_TYPE.match(self.message)
            if match is None or match["function"] not in tools:
                return False
            # The type of a variable is not certain.
            is_constant = match["given"].startswith("Literal[") or match["given"] == "None"
            return is_constant and " | Literal[" not in match["given"]
        redefinition = _TOOL_REDEFINITION.search(self.message)
        return self.rule == "invalid-assignment" and redefinition is not None and redefinition["name"] in tools


_ESCAPE = re.compile(
    r"(?:attribute|[Nn]ame) ['`]__\w+__['`]|^Cannot resolve imported|^ModuleNotFoundError"
    r"|module '(?:asyncio|os|sys)' has no|' is not supported in this environment|^PermissionError: Permission denied: "
)


def is_escape(message: str) -> bool:
    """Whether an error is the end of an attempt to reach the host."""
    return _ESCAPE.search(message[:_MAX_MESSAGE_CHARS]) is not None


def find_missing_tools(findings: Iterable[Diagnostic], source: str) -> list[str]:
    """Return the names of calls that nothing defines."""
    calls = (node.func for node in ast.walk(parse_code(source)) if isinstance(node, ast.Call))
    called = {name.id for name in calls if isinstance(name, ast.Name)}
    named = (_NAME_PATTERNS[0].search(each.message) for each in findings if each.rule == "unresolved-reference")
    return sorted({match["name"] for match in named if match} & called)


def render_findings(findings: list[Diagnostic], source: str) -> str:
    """Format up to ten findings with their source lines, for the model."""
    lines = ["", *source.split("\n")]
    entries = []
    for finding in findings[:_MAX_FINDINGS]:
        line = lines[finding.line] if finding.line < len(lines) else ""
        entries.append(f"line {finding.line}: {finding.message[:_MAX_MESSAGE_CHARS]}\n    {line.strip()[:200]}")
    if len(findings) > len(entries):
        entries.append(f"... and {len(findings) - len(entries)} more")
    return "\n".join(entries)


_SUSPENSIONS_PER_CALL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterLimits:
    """Bounds of one control block; tool calls do not count as time."""

    seconds: float = 10.0
    memory_bytes: int = 256 * 1024**2
    calls: int = 200
    printed_chars: int = 200_000
    recursion: int = 400
    snapshot_bytes: int = 4 * 1024**2


@dataclass(slots=True, kw_only=True)
class BlockUsage:
    """Resources used by a control block, across suspensions.

    Attributes:
        suspensions: tool calls and name lookups.
    """

    limits: InterpreterLimits
    emit: Callable[[str], None]
    calls: int = 0
    suspensions: int = 0
    printed_chars: int = 0
    limit_message: str = ""

    def take_output(self, _stream: str, text: str) -> None:
        """Emit printed text up to the limit; raising MemoryError stops the worker."""
        room = max(0, self.limits.printed_chars - self.printed_chars)
        self.printed_chars += len(text)
        self.emit(text[:room])
        if self.printed_chars > self.limits.printed_chars:
            self.limit_message = f"The block printed more than {self.limits.printed_chars:,} characters."
            raise MemoryError(self.limit_message)

    def count_suspension(self) -> None:
        """Count a request to the host.

        Raises:
            LimitError: over the limit.
        """
        self.suspensions += 1
        if self.suspensions > self.limits.calls * _SUSPENSIONS_PER_CALL:
            raise LimitError("The block asked for unknown names over and over and was stopped; its variables are gone.")

    def count_call(self) -> None:
        """Count a tool call.

        Raises:
            LimitError: over the limit.
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
    """A value that may not cross between control code and host."""


def to_plain(value: object, label: str) -> Plain:
    """Return `value` if it is plain data within the size limits.

    Types are compared exactly. Shared lists count once per reference: a few lines can build 10^9 items.

    Raises:
        NotPlainError: another type, or a value over the limits.
    """
    return _PlainCopy(label).copy(value, 0)


class _PlainCopy:
    def __init__(self, label: str) -> None:
        self._label = label
        self._items = 0
        self._chars = 0

    def copy(self, value: object, depth: int) -> Plain:
        if depth > MAX_DEPTH:
            raise NotPlainError(f"{self._label} nests deeper than {MAX_DEPTH} levels")
        self._items += 1
        if self._items > MAX_ITEMS:
            raise NotPlainError(f"{self._label} has more than {MAX_ITEMS:,} items; pass fewer")
        match value:
            case None | bool() | float() if type(value) in {type(None), bool, float}:
                return value
            case int() if type(value) is int:
                if value.bit_length() > _MAX_BITS:
                    raise NotPlainError(f"{self._label} has an integer of more than {_MAX_BITS} bits; pass it as a str")
                return value
            case str() if type(value) is str:
                return self._text(value)
            case list() if type(value) is list:
                return [self.copy(item, depth + 1) for item in value]
            case tuple() if type(value) is tuple:
                return tuple(self.copy(item, depth + 1) for item in value)
            case dict() if type(value) is dict:
                return {self._key(key): self.copy(item, depth + 1) for key, item in value.items()}
            case _:
                raise NotPlainError(
                    f"{self._label} {'holds' if depth else 'is'} a {type(value).__name__}; only None, bool, int, "
                    "float, str, list, tuple and dict (with str keys) can cross between control code and tools"
                )

    def _text(self, value: str) -> str:
        self._chars += len(value)
        if self._chars > MAX_CHARS:
            raise NotPlainError(f"{self._label} has more than {MAX_CHARS:,} characters; pass less")
        return value

    def _key(self, key: object) -> str:
        if type(key) is not str:
            raise NotPlainError(f"{self._label} has a key of type {type(key).__name__}; keys must be str")
        return self._text(key)


_T = TypeVar("_T")
_COUNTERS = ("blocks", "calls", "suspensions", "printed_chars")


class Suspended(Exception):  # noqa: N818 - not an error: the third way in which a block leaves the interpreter
    """A block waits at a tool call; its worker has ended."""

    def __init__(self, state: InterpreterState) -> None:
        super().__init__("the control block waits at a tool call")
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterState:
    """A block suspended in a tool call. Check its signature before `Interpreter.resume`.

    Attributes:
        version: interpreter version; no other can read the snapshot.
        discarded: spans of discarded calls by block name.
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
        """Return JSON data; equal states give equal text."""
        return {
            "version": self.version,
            "snapshot": base64.b64encode(self.snapshot).decode("ascii"),
            **{name: getattr(self, name) for name in _COUNTERS},
            "discarded": {name: [list(span) for span in sorted(spans)] for name, spans in self.discarded.items()},
            "bound": [*sorted(self.bound)],
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Plain]) -> Self:
        """Parse the output of `to_plain`.

        Raises:
            ResumeError: malformed data.
        """
        try:
            return cls(
                version=_require(data["version"], str),
                snapshot=base64.b64decode(_require(data["snapshot"], str), validate=True),
                **{name: _require(data[name], int) for name in _COUNTERS},
                discarded={
                    name: frozenset(_span(span) for span in _require(spans, list))
                    for name, spans in _require(data["discarded"], dict).items()
                },
                bound=frozenset(_require(name, str) for name in _require(data["bound"], list)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResumeError(ResumeCode.DAMAGED, error=f"{type(error).__name__}: {error}") from error


def _span(value: object) -> Span:
    start, end = _require(value, list)
    return _require(start, int), _require(end, int)


def _require(value: object, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value
