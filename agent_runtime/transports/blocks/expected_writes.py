"""The writes that a control block is sure to make, read from its code without running it. Pure."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from agent_runtime.interpreter.source import CodeError, parse_code
from agent_runtime.transports.blocks import payload_plan as plan

_HARMLESS = frozenset({plan.WRITE, "print", "len", "str", "repr", "find", "list_files"})
"""Calls between two writes that change no file, and no line number that the second refers to."""
_MAY_STOP = (ast.Raise, ast.Assert, ast.Return)


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


def expected_writes(code: str) -> tuple[ExpectedWrite, ...]:
    """The writes of a block in the order in which they are made; none where only the run can tell."""
    if plan.WRITE not in code:
        return ()
    try:
        tree = parse_code(code)
    except CodeError:
        return ()
    if plan.plan_payloads(tree).slots is None:
        return ()
    writes: list[ExpectedWrite] = []
    certain = True
    for node in plan.straightened(tree.body):
        calls = plan.direct_writes(node)
        certain = certain and (not writes or _is_harmless(node))
        for call in calls:
            write = _expected(call, certain=certain)
            certain = write.certain and (bool(writes) or _is_harmless(node))
            writes.append(write)
    return tuple(writes)


def _expected(call: ast.Call, *, certain: bool) -> ExpectedWrite:
    given = plan.arguments_of(call)
    arguments: dict[str, object] = {}
    for name, node in given.items():
        try:
            arguments[name] = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            certain = False
    return ExpectedWrite(
        line=call.lineno,
        call=ast.unparse(call),
        payloads=plan.payload_count(call) or 0,
        arguments={name: value for name, value in arguments.items() if value is not None},
        certain=certain,
    )


def _is_harmless(node: ast.AST) -> bool:
    parts = list(ast.walk(node))
    calls = [part.func for part in parts if isinstance(part, ast.Call)]
    return not any(isinstance(part, _MAY_STOP) for part in parts) and all(
        isinstance(func, ast.Name) and func.id in _HARMLESS for func in calls
    )
