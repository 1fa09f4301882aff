"""Change one definition of a module through its syntax tree, to remove a defence by name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

_Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = _Function | ast.ClassDef | ast.Assign | ast.AnnAssign


def changed(source: str, name: str, how: str, part: str, by: str = "") -> str:
    """Return the module's source with one change of one definition.

    Args:
        name: qualified name of a function, a class or a constant.
        how: a key of `CHANGES`.
        part: the name, last part of a dotted name, string or expression to change.
        by: the replacement, for "replace".

    Raises:
        LookupError: the definition or the part is missing or ambiguous.
    """
    module = ast.parse(source)
    definition = _find(module, name)
    before = ast.dump(definition)
    CHANGES[how](definition, part, by)
    if ast.dump(definition) == before:
        raise LookupError(f"{how} {part!r} changes nothing")
    return ast.unparse(module)


def _find(module: ast.Module, name: str) -> Definition:
    found: list[ast.AST] = [module]
    for word in name.split("."):
        found = [each for scope in found for each in _below(scope) if word in _names(each)]
    if len(found) != 1 or not isinstance(one := found[0], Definition):
        raise LookupError(f"{len(found)} definitions have this name, not one")
    return one


def _below(scope: ast.AST) -> Iterable[Definition]:
    """Return the definitions of a scope, including its branches."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, Definition):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _below(child)


def _names(each: Definition) -> list[str]:
    if isinstance(each, ast.Assign):
        return [ast.unparse(target) for target in each.targets]
    return [ast.unparse(each.target)] if isinstance(each, ast.AnnAssign) else [each.name]


def _becomes(where: Definition, part: str, _: str) -> None:
    """Set a constant's value, or replace a function by its return value."""
    value = ast.parse(part, mode="eval").body
    if isinstance(where, _Function):
        where.body = [ast.Return(value)]
    elif not isinstance(where, ast.ClassDef):
        where.value = value


def _never(where: Definition, part: str, _: str) -> None:
    """Make a condition, or a part of it between `and` and `or`, false."""
    _put(where, _smallest(_conditions(where), part), [ast.Constant(value=False)])


def _always(where: Definition, part: str, _: str) -> None:
    """Make a condition, or a part of it between `and` and `or`, true."""
    _put(where, _smallest(_conditions(where), part), [ast.Constant(value=True)])


def _conditions(where: ast.AST) -> Iterable[ast.expr]:
    for node in ast.walk(where):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            yield from node.values
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.match_case) and node.guard is not None:
            yield node.guard


def _skip(where: Definition, part: str, _: str) -> None:
    """Remove a statement."""
    simple = [each for each in ast.walk(where) if isinstance(each, ast.stmt) and not hasattr(each, "body")]
    _put(where, _smallest(simple, part), [ast.Pass()])


def _drop(where: Definition, part: str, _: str) -> None:
    """Remove an element, an argument or an entry of a mapping."""
    for node in ast.walk(where):
        if isinstance(node, ast.Dict) and (at := [n for n, key in enumerate(node.keys) if key and _is(key, part)]):
            del node.keys[at[0]], node.values[at[0]]
        for field in () if isinstance(node, ast.arguments) else ("elts", "args", "keywords"):
            if isinstance(items := getattr(node, field, None), list):
                items[:] = [each for each in items if not (_is(each, part) or getattr(each, "arg", None) == part)]
        if isinstance(node, ast.BinOp) and _is(node.right, part):
            _put(where, node, [node.left])


def _unwrap(where: Definition, part: str, _: str) -> None:
    """Replace each call of a function by its first argument."""
    for call in [each for each in ast.walk(where) if isinstance(each, ast.Call) and _is(each.func, part)]:
        _put(where, call, call.args[:1])


def _replace(where: Definition, part: str, by: str) -> None:
    """Replace each matching expression, which may be several elements; `part=` is the value of an argument."""
    call = ast.parse(f"_({by})", mode="eval").body
    assert isinstance(call, ast.Call)
    if part.endswith("="):
        old: list[ast.AST] = [n.value for n in ast.walk(where) if isinstance(n, ast.keyword) and n.arg == part[:-1]]
    else:
        wanted = ast.dump(ast.parse(part, mode="eval").body)
        old = [each for each in ast.walk(where) if isinstance(each, ast.expr) and ast.dump(each) == wanted]
    for each in old:
        _put(where, each, call.args)


CHANGES: dict[str, Callable[[Any, str, str], None]] = {
    "becomes": _becomes,
    "never": _never,
    "always": _always,
    "skip": _skip,
    "drop": _drop,
    "unwrap": _unwrap,
    "replace": _replace,
}


def _smallest(candidates: Iterable[ast.AST], part: str) -> ast.AST:
    """Return the innermost node that contains the part."""
    found = [each for each in candidates if any(_is(node, part) for node in ast.walk(each))]
    inner = [each for each in found if not any(other is not each and other in ast.walk(each) for other in found)]
    if len(inner) != 1:
        raise LookupError(f"{len(inner)} places mention {part!r}, not one: {[ast.unparse(each) for each in inner]}")
    return inner[0]


def _is(node: ast.AST, part: str) -> bool:
    if isinstance(node, ast.Constant) and node.value == part:
        return True
    if isinstance(node, ast.Attribute) and node.attr == part:
        return True
    return isinstance(node, ast.expr) and ast.unparse(node) == part


def _put(where: ast.AST, old: ast.AST, new: list[Any]) -> None:
    """Replace a node by others."""
    for node in ast.walk(where):
        for field, value in ast.iter_fields(node):
            if value is old:
                setattr(node, field, new[0])
            elif isinstance(value, list) and any(each is old for each in value):
                value[:] = [got for each in value for got in (new if each is old else [each])]
