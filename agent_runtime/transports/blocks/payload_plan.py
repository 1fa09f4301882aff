"""Count the payloads that a control block takes, from its code without running it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent_runtime.workspace.changes import contents_taken

WRITE = "write_file"
_PARAMETERS = ("path", "start_line", "end_line", "after_line", "mode", "edits", "version", "force", "payload", "hunks")
_STRAIGHT = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.withitem)
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NOT_ALWAYS_ONCE = (
    ast.IfExp,
    ast.BoolOp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


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


def _slots(tree: ast.Module, known_writers: frozenset[str]) -> tuple[Slot, ...] | None:
    if any(name in known_writers or name == WRITE for name in _bound_names(tree)):
        return None
    slots: list[Slot] = []
    for node in straightened(tree.body):
        uses = [use for use in _uses(node) if use[0].id == WRITE or use[0].id in known_writers]
        if not uses:
            continue
        calls = direct_writes(node)
        if not isinstance(node, _STRAIGHT) or any(maybe for _, maybe in uses) or len(calls) != len(uses):
            return None
        for call in calls:
            count = payload_count(call)
            if count is None:
                return None
            slots += [Slot(path=_literal_text(arguments_of(call).get("path")), line=call.lineno)] * count
    return tuple(slots)


def direct_writes(node: ast.AST) -> list[ast.Call]:
    """The direct writes in one statement, in the order in which they are made: a call is made where its text ends."""
    calls = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == WRITE
    ]
    return sorted(calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))


def straightened(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
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


def arguments_of(call: ast.Call) -> dict[str, ast.expr]:
    """The arguments of a `write_file` call by name, as they are written."""
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return dict(zip(_PARAMETERS, call.args, strict=False)) | named


def payload_count(call: ast.Call) -> int | None:
    """The payloads one call takes, or None when its arguments do not tell."""
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return None
    arguments = arguments_of(call)
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
    bindings: list[tuple[str, frozenset[str]]] = []  # names bound to code, and the names which that code mentions
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITION):
            bindings.append((node.name, frozenset(name.id for name, _ in _uses(node))))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            # Names whose value lives on in the expression: all but those merely called on the spot.
            parts = list(ast.walk(node.value))
            in_lambda = any(isinstance(part, ast.Lambda) for part in parts)
            called = set() if in_lambda else {part.func for part in parts if isinstance(part, ast.Call)}
            kept = frozenset(name.id for name, _ in _uses(node.value) if name not in called)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bindings += [(name.id, kept) for target in targets for name, _ in _uses(target)]
    writers = known_writers | {WRITE}
    while grown := {name for name, mentioned in bindings if name not in writers and mentioned & writers}:
        writers |= grown
    return writers - known_writers - {WRITE}
