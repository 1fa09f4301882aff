"""Uses of objects in snippets of code: calls, operators, and the methods behind both.

`read_uses` runs in a worker process: strangers write the snippets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from agent_runtime.index.parsing import grammar, language_of

if TYPE_CHECKING:
    from tree_sitter import Node

Use = tuple[str, ...]
"""A name, and steps from it: `()` a call, `.a|b` an attribute or the next one, `!a|b` a call of that method."""
_MAX_NODES = 10_000
_MAX_USES = 100
_MAX_STEPS = 8
_PIECE_BYTES = 1_000
_MAX_NAME = 200
_SCRIPT = re.compile(r"\b(?:const|let|var|function|new)\s|=>|===|\brequire\(|;[ \t]*$", re.MULTILINE)
_ITERATE = "!__iter__|__getitem__"
_STRING = "!__str__|__repr__"
_REDUCE = "|__reduce_ex__|__reduce__|__getstate__"
_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "@": "matmul", "**": "pow",
    "<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor",
}  # fmt: skip
_UNARY = {"-": "!__neg__", "+": "!__pos__", "~": "!__invert__"}
_COMPARISONS = {
    "==": "!__eq__", "!=": "!__ne__|__eq__", "<": "!__lt__|__gt__", ">": "!__gt__|__lt__", "<=": "!__le__|__lt__",
    ">=": "!__ge__|__lt__",
}  # fmt: skip
_FUNCTIONS = {
    **dict.fromkeys(
        ("list", "tuple", "set", "frozenset", "sorted", "sum", "min", "max", "any", "all", "enumerate", "iter", "zip"),
        _ITERATE,
    ),
    **{name: f"!__{name}__" for name in ("len", "hash", "abs", "reversed", "int", "float", "round", "next", "dir")},
    "dict": "!keys|__iter__", "str": _STRING, "print": _STRING, "repr": "!__repr__", "bool": "!__bool__|__len__",
    "bytes": "!__bytes__|__iter__", "format": "!__format__|__str__", "copy": f"!__copy__{_REDUCE}",
    "copy.copy": f"!__copy__{_REDUCE}", "deepcopy": f"!__deepcopy__{_REDUCE}",
    "copy.deepcopy": f"!__deepcopy__{_REDUCE}", "pickle.dumps": f"!{_REDUCE[1:]}", "pickle.dump": f"!{_REDUCE[1:]}",
}  # fmt: skip
"""Methods that a function of Python calls on its first argument."""


def read_uses(snippets: Sequence[str]) -> list[Use]:
    """Read Python and JavaScript; a variable of one snippet has its value in the next ones."""
    reader = _Reader()
    for snippet in snippets:
        language = language_of(".js" if _SCRIPT.search(snippet) else ".py")
        if language is not None and (parser_and_query := grammar(language)):
            for piece in _split(snippet.encode(errors="replace")):
                root = parser_and_query[0].parse(piece).root_node
                # An error may swallow the rest.
                lines = map(bytes.strip, piece.splitlines() if root.has_error else ())
                for part in chain([root], (parser_and_query[0].parse(line).root_node for line in lines)):
                    for node in _walk(part):
                        reader.read(node)
    return list(reader.uses)[:_MAX_USES]


def _split(snippet: bytes) -> Iterator[bytes]:
    """Yield pieces between lines: on hostile text the parser takes quadratic time."""
    piece = b""
    for line in snippet.splitlines(keepends=True):
        if len(piece) + len(line) > _PIECE_BYTES:
            yield piece
            piece = b""
        piece += line[:_PIECE_BYTES]
    yield piece


def _walk(root: Node) -> Iterator[Node]:
    """Yield nodes, outer ones first."""
    cursor = root.walk()
    for _ in range(_MAX_NODES):
        if (node := cursor.node) is not None and node.is_named:
            yield node
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


class _Reader:
    """Variables and uses so far."""

    def __init__(self) -> None:
        self.uses: dict[Use, None] = {}
        self._variables: dict[str, Use] = {}
        self._targets: dict[int, str] = {}

    def read(self, node: Node) -> None:
        read = getattr(self, f"_read_{node.type}", None)
        if read is not None:
            read(node)

    def _use(self, node: Node | None, step: str) -> None:
        if node is not None and (origin := self._trace(node)) and len(self.uses) < _MAX_USES:
            self.uses[*origin, step] = None

    def _bind(self, target: Node | None, origin: Use) -> None:
        """Assign to a variable, an item or an attribute."""
        if target is None:
            return
        if target.type in {"identifier", "as_pattern_target"}:
            self._variables[_text(target)] = origin
        for each in (target, *target.named_children):
            self._targets[each.id] = "set"

    def _trace(self, node: Node | None) -> Use:
        """Return the origin of a value as a use, or () if unknown."""
        steps: list[str] = []
        while node is not None and len(steps) <= _MAX_STEPS:
            match node.type:
                case "call" | "call_expression" | "new_expression":
                    steps.append("()")
                    node = _field(node, "function", "constructor")
                case "attribute" | "member_expression":
                    steps.append(f".{_text(_field(node, 'attribute', 'property'))}")
                    node = node.child_by_field_name("object")
                case "subscript" | "subscript_expression":
                    steps.append("!__getitem__")
                    node = _field(node, "value", "object")
                case "await" | "await_expression" | "parenthesized_expression":
                    node = next(iter(node.named_children), None)
                case "identifier" | "this":
                    name = _text(node)
                    origin = self._variables.get(name, (name,))
                    while origin == (name,) and steps and steps[-1].startswith("."):
                        origin = (name := name + steps.pop(),)
                    return (*origin, *reversed(steps)) if origin and name not in _FUNCTIONS else ()
                case _:
                    return ()
        return ()

    def _read_assignment(self, node: Node) -> None:
        self._bind(_field(node, "left", "name"), self._trace(_field(node, "right", "value")))

    _read_variable_declarator = _read_named_expression = _read_assignment_expression = _read_assignment

    def _read_augmented_assignment(self, node: Node) -> None:
        left, name = node.child_by_field_name("left"), _OPERATORS.get(_text(_field(node, "operator"))[:-1])
        self._use(left, f"!__i{name}__|__{name}__")
        if left is not None and left.type == "subscript":
            self._use(left.child_by_field_name("value"), "!__setitem__")

    def _read_delete_statement(self, node: Node) -> None:
        for child in node.named_children:
            for each in (child, *child.named_children):
                self._targets[each.id] = "del"

    def _read_subscript(self, node: Node) -> None:
        self._use(node.child_by_field_name("value"), f"!__{self._targets.get(node.id, 'get')}item__")

    def _read_attribute(self, node: Node) -> None:
        method, name = self._targets.get(node.id, "get"), _text(_field(node, "attribute", "property"))
        self._use(node.child_by_field_name("object"), f".{name}|__{method}attr__")

    _read_member_expression = _read_attribute

    def _read_call(self, node: Node) -> None:
        function = _field(node, "function", "constructor")
        self._use(function, "()")
        arguments = node.child_by_field_name("arguments")
        if function is not None and (method := _FUNCTIONS.get(_text(function))) and arguments is not None:
            for argument in arguments.named_children[:1] if method != _ITERATE else arguments.named_children:
                self._use(argument, method)

    _read_call_expression = _read_new_expression = _read_call

    def _read_comparison_operator(self, node: Node) -> None:
        operands = node.named_children
        operators = [child.type for child in node.children if not child.is_named]
        for left, operator, right in zip(operands, operators, operands[1:], strict=False):
            if operator in {"in", "not in"}:
                self._use(right, "!__contains__|__iter__|__getitem__")
            elif method := _COMPARISONS.get(operator):
                self._use(left, method)
                self._use(right, method)

    def _read_binary_operator(self, node: Node) -> None:
        if name := _OPERATORS.get(_text(_field(node, "operator"))):
            self._use(node.child_by_field_name("left"), f"!__{name}__")
            self._use(node.child_by_field_name("right"), f"!__r{name}__")

    def _read_unary_operator(self, node: Node) -> None:
        self._use(node.child_by_field_name("argument"), _UNARY.get(_text(_field(node, "operator")), "!__neg__"))

    def _read_not_operator(self, node: Node) -> None:
        self._use(_field(node, "argument", "condition"), "!__bool__|__len__")

    _read_if_statement = _read_while_statement = _read_not_operator

    def _read_for_statement(self, node: Node) -> None:
        right, step = node.child_by_field_name("right"), "!__aiter__" if _is_async(node) else _ITERATE
        self._use(right, step)
        origin = self._trace(right)
        self._bind(node.child_by_field_name("left"), (*origin, step, "!__anext__|__next__") if origin else ())

    _read_for_in_clause = _read_for_statement

    def _read_with_item(self, node: Node) -> None:
        value, alias = node.child_by_field_name("value"), None
        if value is not None and value.type == "as_pattern":
            value, alias = value.named_child(0), value.child_by_field_name("alias")
        statement = node.parent.parent if node.parent else None
        prefix = "__a" if statement is not None and _is_async(statement) else "__"
        self._use(value, f"!{prefix}enter__")
        self._use(value, f"!{prefix}exit__")
        origin = self._trace(value)
        self._bind(alias, (*origin, f"!{prefix}enter__") if origin else ())

    def _read_await(self, node: Node) -> None:
        self._use(node.named_child(0), "!__await__")

    def _read_interpolation(self, node: Node) -> None:
        is_repr = any(child.type == "type_conversion" and _text(child) == "!r" for child in node.children)
        self._use(node.named_child(0), "!__repr__" if is_repr else "!__format__|__str__|__repr__")

    def _read_class_definition(self, node: Node) -> None:
        bases = node.child_by_field_name("superclasses")
        origin = self._trace(bases.named_child(0)) if bases is not None else ()
        self._bind(node.child_by_field_name("name"), origin)
        self._variables["self"] = (*origin, "()") if origin else ()

    def _read_aliased_import(self, node: Node) -> None:
        self._variables[_text(_field(node, "alias"))] = (_text(_field(node, "name")),)


def _is_async(node: Node) -> bool:
    return any(child.type == "async" for child in node.children)


def _field(node: Node, *names: str) -> Node | None:
    return next(filter(None, map(node.child_by_field_name, names)), None)


def _text(node: Node | None) -> str:
    return (node.text or b"")[:_MAX_NAME].decode(errors="replace") if node is not None else ""
