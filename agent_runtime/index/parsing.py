"""Find the definitions, calls and imports of one source file. Pure; runs in a worker process only.

`parse` runs a language's queries on the file's syntax tree (tree-sitter) and cuts each definition into what is searched
with different weights. The languages, their grammars, queries and import statements are in `Language` below.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query, Tree


_SECONDS = 1.0
_PIECE = 64 * 1024  # bytes that are parsed between two looks at the clock
_MOST_MATCHES = 100_000
_MOST_NAME = 200
_MOST_IMPORT = 10_000
_MOST_TEXT = 200_000  # bytes
_SAMPLES = 64
_WIDEST = 2_000  # children of what is no program
_DEEPEST = 500  # nodes, one in another; people write a hundred at most
_MOST_OPEN = 10_000  # matches that have begun and not ended
_MOST_SIGNATURE = 1_000
_LONGEST_LEAD = 100  # lines of comments above a definition
_CLASSES = frozenset({"class", "interface", "module", "type"})
# A definition whose node is wrapped by one of these is the whole of it.
_WRAPPERS = frozenset({
    "decorated_definition", "export_statement", "lexical_declaration", "variable_declaration", "expression_statement",
    "function_definition", "pointer_declarator", "reference_declarator", "template_declaration", "type_declaration",
    "parenthesized_declarator", "variable_declarator", "declaration", "field_declaration", "init_declarator",
    "assignment_expression", "ambient_declaration",
})  # fmt: skip
_RECEIVER = re.compile(rb"\s*(?:\.\??|>-|::)\s*((?:\)\()?[\w$.:]*[A-Za-z_$@]|[)\]}\"'])")
"""What a name is called on, both spelled backwards."""
_DOTS = frozenset(b".>:")
_ASSIGNED = re.compile(r"(\w+)\s*(?::[^=]+)?=\s*(?:await\s+)?(?:([A-Za-z_][\w.]*)\()?")
_ANNOTATED = re.compile(r"(\w+)(?:\s*:\s*[\"']?|\s+\*?)([A-Za-z_][\w.]*)")
_PYTHON_HEAD = re.compile(
    rb"(?:^|\n)[ \t]*(?:async[ \t]+def|def|class)\b[^\n:(]*(\((?:[^()]|\([^()]*\))*\))?"
    rb"[^\n]*?:[ \t]*(?:#[^\n]*)?(?:\n|$)"
)
_PYTHON_DOC = re.compile(
    rb"\s*[rRuUbB]{0,2}(\"\"\"(?:.*?)\"\"\"|"
    rb"'''(?:.*?)'''|\"[^\"\n]*\"|'[^'\n]*')",
    re.DOTALL,
)


class TooSlowError(Exception):
    """A file takes its grammar too long."""


@dataclass(slots=True)
class Piece:
    """A definition, as it is stored.

    Attributes:
        parent: the place of the innermost definition around it in its file's list; -1 for none.
        bases: the names of the classes that it extends.
        signature: its head, without the body.
        docstring: the comment or the string that says what it does.
        body: the text of the rest, without the definitions in it if it is a class.
    """

    name: str
    kind: str
    first: int
    last: int
    header: int
    start: int
    end: int
    owner: str = ""
    parent: int = -1
    qualified: str = ""
    bases: list[str] = field(default_factory=list)
    signature: str = ""
    docstring: str = ""
    body: str = ""


@dataclass(slots=True)
class ParsedFile:
    """What was found in a file.

    Attributes:
        pieces: definitions in the order in which they begin.
        calls: for each, the place of the definition around it (-1 for none), the name that is called, what it is called
            on (empty for nothing, `?` for what is no name), and the line.
        imports: for each, the local name, the module, and the name there (empty for the module itself).
        text: of the file, for ranking files; the beginning of a long one.
    """

    pieces: list[Piece]
    calls: list[tuple[int, str, str, int]]
    imports: list[tuple[str, str, str]]
    text: str


def parse(language: Language, data: bytes, stem: str = "") -> ParsedFile:
    """Read a file.

    Args:
        language: its language.
        data: its bytes.
        stem: its name without its end, which names what a CommonJS module exports.

    Raises:
        TooSlowError: its grammar takes too long over it.
        LookupError: its grammar is not installed.
    """
    found = grammar(language)
    if found is None:
        raise LookupError(language.name)
    parser, query = found
    root = _tree(parser, data).root_node
    if _is_costly(root):
        raise TooSlowError
    from tree_sitter import QueryCursor  # noqa: PLC0415 - `grammar` has found it

    file = _File(language, data)
    # No progress callback: with one, `matches` crashes (tree-sitter 0.26.1).
    for _, captures in QueryCursor(query, match_limit=_MOST_OPEN).matches(root):
        file.take(captures)
    pieces = _nested(sorted(file.pieces.values(), key=lambda piece: (piece.start, -piece.end)))
    for piece in pieces:
        if piece.name == "exports" and piece.parent < 0 and stem:
            piece.name = piece.qualified = stem
    _describe(language, data, pieces)
    text = data[:_MOST_TEXT].decode(errors="replace")
    return ParsedFile(pieces, _placed(pieces, file.calls, file.bindings), file.imports, text)


def spans(path: str, source: str, symbol: str) -> list[tuple[int, int]]:
    """The first and last lines of what has a name in a file: `name`, `Class.name`."""
    language = language_of(path)
    try:
        found = parse(language, source.encode(errors="replace")) if language else None
    except (TooSlowError, LookupError):  # nothing can be said of it
        found = None
    wanted = "." + re.sub(r"::|#", ".", symbol)
    return [
        (each.first, each.last) for each in (found.pieces if found else ()) if f".{each.qualified}".endswith(wanted)
    ]


def _is_costly(root: Node) -> bool:
    """Whether a query would take time that grows with the square of the file: it is nested deep, or one wide error.

    What is deep or wide between all places that are looked at costs little.
    """
    cursor = root.walk()
    for at in range(0, root.descendant_count, max(1, root.descendant_count // _SAMPLES)):
        cursor.goto_descendant(at)
        node = cursor.node
        if cursor.depth > _DEEPEST or (node is not None and node.parent is not None and _is_wide(node.parent)):
            return True
    return _is_wide(root)


def _is_wide(node: Node) -> bool:
    return node.is_error and node.child_count > _WIDEST


class _File:
    """What the matches of a query say about a file."""

    def __init__(self, language: Language, data: bytes) -> None:
        self._language = language
        self._data = data
        self.pieces: dict[int, Piece] = {}
        self.calls: list[tuple[int, str, str, int]] = []
        self.bindings: list[tuple[int, str]] = []
        self.imports: list[tuple[str, str, str]] = []

    def take(self, captures: dict[str, list[Node]]) -> None:
        """Take one match.

        Raises:
            TooSlowError: there are more than any file of people has.
        """
        if len(self.calls) + len(self.pieces) > _MOST_MATCHES:
            raise TooSlowError
        names = captures.get("name")
        for kind, nodes in captures.items():
            if kind == "binding":
                self.bindings.append((nodes[0].start_byte, self._text(nodes[0])))
            elif kind == "import" and self._language.imports is not None:
                self.imports += self._language.imports(self._text(nodes[0], _MOST_IMPORT))
            elif names and kind == "reference.call":
                at = names[0].start_byte
                self.calls.append((at, self._text(names[0]), _receiver(self._data, at), names[0].start_point[0] + 1))
            elif names and (kind == "scope" or kind.startswith("definition.")):
                owner = captures.get("owner") or captures.get("local.scope")
                self._define(names[0], nodes[0], kind, self._text(owner[0]).partition("<")[0] if owner else "")

    def _define(self, name: Node, node: Node, kind: str, owner: str) -> None:
        """Note a definition; of several patterns that match one name, the most telling one counts."""
        kind = kind.removeprefix("definition.")
        known = self.pieces.get(name.start_byte)
        if known and (known.kind != "function" or kind != "method") and (known.owner or not owner):
            return
        while (above := node.parent) is not None and above.type in _WRAPPERS:
            node = above
        first, (row, column) = node.start_point[0], node.end_point
        self.pieces[name.start_byte] = Piece(
            name=self._text(name),
            kind=kind,
            first=first + 1,
            last=row + (1 if column or row == first else 0),
            header=name.start_point[0] + 1,
            start=node.start_byte,
            end=node.end_byte,
            owner=owner,
        )

    def _text(self, node: Node, most: int = _MOST_NAME) -> str:
        at = node.start_byte
        return self._data[at : min(node.end_byte, at + most)].decode(errors="replace")


def _tree(parser: Parser, data: bytes) -> Tree:
    if len(data) <= _PIECE:
        return parser.parse(data)
    # The thread's own time: on a busy machine a file must not be left out for what others do.
    until = time.thread_time() + _SECONDS
    try:
        return parser.parse(
            lambda at, _point: data[at : at + _PIECE], progress_callback=lambda *_: time.thread_time() > until
        )
    except ValueError:
        parser.reset()
        raise TooSlowError from None


def _receiver(data: bytes, at: int) -> str:
    """What a name is called on, by the bytes before it."""
    if at == 0 or data[at - 1] not in _DOTS:
        return ""
    found = _RECEIVER.match(data[max(0, at - 100) : at][::-1])
    receiver = found[1][::-1].decode(errors="replace") if found else "?"
    return receiver if receiver[0] not in ")]}\"'" else "?"


def _nested(pieces: list[Piece]) -> list[Piece]:
    """Tell what encloses what; a scope that is no definition leaves its name only."""
    stack: list[tuple[Piece, str, int]] = []
    kept: list[Piece] = []
    for piece in pieces:
        while stack and stack[-1][0].end < piece.end:
            stack.pop()
        prefix, parent = (stack[-1][1], stack[-1][2]) if stack else ("", -1)
        owner = f"{piece.owner}." if piece.owner else ""
        piece.parent, piece.qualified = parent, f"{prefix}{owner}{piece.name}".replace("::", ".")[:_MOST_NAME]
        if piece.kind == "function" and parent >= 0 and kept[parent].kind in _CLASSES:
            piece.kind = "method"
        if piece.kind == "scope":
            stack.append((piece, f"{piece.qualified}.", parent))
            continue
        if piece.kind == "constant" and parent >= 0:
            continue
        stack.append((piece, f"{piece.qualified}.", len(kept)))
        kept.append(piece)
    return kept


def _describe(language: Language, data: bytes, pieces: list[Piece]) -> None:
    """Cut each definition into what is weighed differently."""
    lines = data.split(b"\n")
    marks = tuple(mark.encode() for mark in language.comment)
    bases = re.compile(language.bases)
    inner: dict[int, list[Piece]] = {}
    for piece in pieces:
        inner.setdefault(piece.parent, []).append(piece)
    for place, piece in enumerate(pieces):
        above = piece.first - 1
        while above > max(0, piece.first - _LONGEST_LEAD) and lines[above - 1].lstrip().startswith(marks):
            above -= 1
        lead = b"\n".join(lines[above : piece.first - 1])
        text = data[piece.start : piece.end]
        piece.first = above + 1
        signature, docstring, body = _cut(language.name, text, piece, inner.get(place, []))
        piece.signature = signature.decode(errors="replace")
        piece.docstring = (lead + b"\n" + docstring).decode(errors="replace")
        piece.body = body.decode(errors="replace")
        if piece.kind in _CLASSES:
            _, _, head = piece.signature.partition(piece.name)
            found = bases.findall(head)
            names = [name for each in found for name in ([each] if isinstance(each, str) else each) if name]
            piece.bases = list(dict.fromkeys(names))[:20]


def _cut(language: str, text: bytes, piece: Piece, inner: list[Piece]) -> tuple[bytes, bytes, bytes]:
    """Signature, docstring and the rest of a definition's text."""
    docstring = b""
    if language == "Python":
        head = _PYTHON_HEAD.search(text[:4000])
        cut = head.end() if head else text.find(b"\n") + 1 or len(text)
        if head and (found := _PYTHON_DOC.match(text, cut)):
            docstring = found[1]
            signature, begin = text[:cut], found.end()
        else:
            signature, begin = text[:cut], cut
    else:
        brace = text.find(b"{")
        line = text.find(b"\n") % (len(text) + 1)
        cut = brace if 0 <= brace < _MOST_SIGNATURE else line
        signature, begin = text[:cut], cut
    if piece.kind not in _CLASSES or not inner:
        return signature, docstring, text[begin:]
    parts, at = [], begin
    for each in inner:
        parts.append(text[at : max(at, each.start - piece.start)])
        at = max(at, each.end - piece.start)
    return signature, docstring, b"\n".join([*parts, text[at:]])


def _placed(
    pieces: list[Piece], calls: list[tuple[int, str, str, int]], bindings: list[tuple[int, str]]
) -> list[tuple[int, str, str, int]]:
    """The calls, each with the definition around it, and what is called on a local variable with the class of that."""
    types: dict[tuple[int, str], str] = {}
    bindings, calls = sorted(bindings), sorted(calls)
    for place, (_, text) in zip(_around(pieces, [at for at, _ in bindings]), bindings, strict=True):
        if found := _ASSIGNED.match(text) or _ANNOTATED.match(text):
            key, kind = (place, found[1]), found[2] or "?"
            types[key] = kind if types.get(key, kind) == kind else "?"
    told = []
    for place, (_, callee, receiver, line) in zip(_around(pieces, [call[0] for call in calls]), calls, strict=True):
        known = types.get((place, receiver), "")
        is_class = known.rpartition(".")[2][:1].isupper()
        told.append((place, callee, f"{known}()" if is_class else receiver, line))
    return told


def _around(pieces: list[Piece], places: list[int]) -> Iterator[int]:
    """The innermost definition around each of some bytes, in their order; -1 for none."""
    open_: list[int] = []
    following = 0
    for at in places:
        while following < len(pieces) and pieces[following].start <= at:
            open_.append(following)
            following += 1
        while open_ and pieces[open_[-1]].end <= at:
            open_.pop()
        # What is nested deeper may have ended before, and what is around it still be open.
        yield open_[-1] if open_ else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How one language is read.

    Attributes:
        name: what it is called.
        module: the module of its grammar.
        function: the function in it that gives the grammar.
        has_tags: whether the tags query that comes with the grammar is used.
        extra: patterns beside it. `@owner` names the class of a definition that stands outside of it, `@import` is an
            import, `@binding` an assignment or a parameter with a type.
        comment: what begins a line that belongs to the definition below it.
        imports: reads an import statement; None for a language whose imports are not followed.
        bases: what finds the names of base classes in the head of a class.
    """

    name: str
    module: str
    function: str = "language"
    has_tags: bool = True
    extra: str = ""
    comment: tuple[str, ...] = ("//", "/*", "*", "@", "#[")
    imports: Callable[[str], Imports] | None = None
    bases: str = r"\bextends\s+([\w.]+)|\bimplements\s+([\w.]+)"


Imports = Iterator[tuple[str, str, str]]
"""Local name, module, and the name in it (empty for the module itself, `*` for all)."""
_PYTHON_FROM = re.compile(r"from\s+(\.*[\w.]*)\s+import\s+\(?([^#]*)", re.DOTALL)
_NAMED = re.compile(r"([\w.*]+)(?:\s+as\s+(\w+))?")
_SCRIPT_FROM = re.compile(r"import\s+(?:type\s+)?(.*?)\s*from\s*[\"']([^\"']+)[\"']", re.DOTALL)
_REQUIRED = re.compile(r"(?:\{([^}]*)\}|([\w$]+))\s*=\s*require\(\s*[\"']([^\"']+)[\"']")
_GO_IMPORT = re.compile(r"(?:([\w.]+)\s+)?[\"`]([^\"`]+)[\"`]")


def _imports_of_python(statement: str) -> Imports:
    statement = re.sub(r"#[^\n]*", "", statement)
    if found := _PYTHON_FROM.match(statement):
        for name, local in _NAMED.findall(found[2]):
            yield local or name, found[1], name
    else:
        for name, local in _NAMED.findall(statement.removeprefix("import")):
            yield local or name, name, ""


def _imports_of_script(statement: str) -> Imports:
    if found := _REQUIRED.match(statement):
        names, whole, module = found.groups()
        for name, local in re.findall(r"([\w$]+)(?:\s*:\s*([\w$]+))?", names or ""):
            yield local or name, module, name
        if whole:
            yield whole, module, "default"
    if not (found := _SCRIPT_FROM.match(statement)):
        return
    clause, module = found.groups()
    outside, _, inside = clause.partition("{")
    for name, local in _NAMED.findall(inside):
        yield local or name, module, name
    if every := re.search(r"\*\s+as\s+(\w+)", outside):
        yield every[1], module, ""
    elif default := re.match(r"\w+", outside):
        yield default[0], module, "default"


def _import_of_go(statement: str) -> Imports:
    if found := _GO_IMPORT.match(statement):
        yield found[1] or found[2].rpartition("/")[2], found[2], ""


_PYTHON = Language(
    name="Python",
    imports=_imports_of_python,
    module="tree_sitter_python",
    extra="""
    (decorator (identifier) @name) @reference.call
    (decorator (attribute attribute: (identifier) @name)) @reference.call
    [(import_statement) (import_from_statement)] @import
    (assignment left: (identifier) right: (_)) @binding
    (typed_parameter (identifier) type: (type)) @binding
    """,
    comment=("#",),
    bases=r"(?<![=\w.])([A-Za-z_][\w.]*)(?=\s*[,()\[])",
)
_REQUIRE = """
    ((variable_declarator value: (call_expression function: (identifier) @_called)) @import (#eq? @_called "require"))
"""
_JAVASCRIPT = Language(
    name="JavaScript",
    imports=_imports_of_script,
    module="tree_sitter_javascript",
    extra=f"(import_statement) @import {_REQUIRE}",
)
_SCRIPT_TYPES = f"""{_REQUIRE}
    (function_declaration name: (identifier) @name) @definition.function
    (generator_function_declaration name: (identifier) @name) @definition.function
    (class_declaration name: (type_identifier) @name) @definition.class
    (method_definition name: (property_identifier) @name) @definition.method
    (variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @definition.function
    (assignment_expression left: (member_expression property: (property_identifier) @name)
      right: [(arrow_function) (function_expression)]) @definition.function
    (public_field_definition name: (property_identifier) @name value: (arrow_function)) @definition.method
    (pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @definition.function
    (type_alias_declaration name: (type_identifier) @name) @definition.type
    (enum_declaration name: (identifier) @name) @definition.type
    (call_expression function: (identifier) @name) @reference.call
    (call_expression function: (member_expression property: (property_identifier) @name)) @reference.call
    (import_statement) @import
"""
_TYPESCRIPT = Language(
    name="TypeScript",
    imports=_imports_of_script,
    module="tree_sitter_typescript",
    function="language_typescript",
    extra=_SCRIPT_TYPES,
)
_TSX = replace(_TYPESCRIPT, function="language_tsx")
_GO = Language(
    name="Go",
    imports=_import_of_go,
    module="tree_sitter_go",
    extra="""
    (method_declaration receiver: (parameter_list (parameter_declaration type: [
        (type_identifier) @owner (pointer_type (type_identifier) @owner)
        (generic_type type: (type_identifier) @owner) (pointer_type (generic_type type: (type_identifier) @owner))]))
      name: (field_identifier) @name) @definition.method
    (method_declaration receiver: (parameter_list (parameter_declaration name: (identifier) type: (_)) @binding))
    (import_spec) @import
    """,
)
_RUST = Language(
    name="Rust",
    module="tree_sitter_rust",
    extra="""
    (impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name)]) @scope
    (call_expression function: (scoped_identifier name: (identifier) @name)) @reference.call
    (call_expression function: (generic_function function: (_) @name)) @reference.call
    """,
    comment=("//", "/*", "*", "#["),
)
_JAVA = Language(
    name="Java",
    module="tree_sitter_java",
    extra="""
    (constructor_declaration name: (identifier) @name) @definition.method
    (enum_declaration name: (identifier) @name) @definition.class
    (record_declaration name: (identifier) @name) @definition.class
    """,
)
_RUBY = Language(
    name="Ruby",
    module="tree_sitter_ruby",
    has_tags=False,  # its own query takes every word of a file for a call
    extra="""
    [(method name: (_) @name) (singleton_method name: (_) @name)] @definition.method
    (class name: [(constant) @name (scope_resolution name: (_) @name)]) @definition.class
    (module name: [(constant) @name (scope_resolution name: (_) @name)]) @definition.module
    (call method: (identifier) @name) @reference.call
    """,
    comment=("#",),
    bases=r"<\s*([\w:]+)",
)
_C = Language(
    name="C",
    module="tree_sitter_c",
    extra="""
    (preproc_function_def name: (identifier) @name) @definition.macro
    (call_expression function: (identifier) @name) @reference.call
    (call_expression function: (field_expression field: (field_identifier) @name)) @reference.call
    """,
)
_CPP = Language(
    name="C++",
    module="tree_sitter_cpp",
    extra="""
    (function_declarator declarator: (qualified_identifier scope: (_) @owner name: (identifier) @name))
      @definition.method
    (preproc_function_def name: (identifier) @name) @definition.macro
    (namespace_definition name: (namespace_identifier) @name) @scope
    (call_expression function: (identifier) @name) @reference.call
    (call_expression function: (field_expression field: (field_identifier) @name)) @reference.call
    (call_expression function: (qualified_identifier name: (identifier) @name)) @reference.call
    """,
    bases=r"(?:public|protected|private|virtual)\s+([\w:]+)",
)
_BY_SUFFIX = {
    **dict.fromkeys((".py", ".pyi"), _PYTHON),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), _JAVASCRIPT),
    **dict.fromkeys((".ts", ".mts", ".cts"), _TYPESCRIPT),
    ".tsx": _TSX,
    ".go": _GO,
    ".rs": _RUST,
    ".java": _JAVA,
    **dict.fromkeys((".rb", ".rake"), _RUBY),
    **dict.fromkeys((".c", ".h"), _C),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx"), _CPP),
}
_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|testing|specs?|__tests__|testdata|fixtures)/"
    r"|(?:^|/)(?:test_[^/]*|conftest)\.py$|(?:^|/)tests?\.(?:py|rs)$"
    r"|_(?:test|spec)\.(?:py|go|rb|rs|js|ts|c|cc|cpp)$|\.(?:test|spec)\.[cm]?[jt]sx?$|(?:Test|Tests|IT)\.java$",
)
_COPIED_PATH = re.compile(
    r"(?:^|/)(?:dist|build|_?vendor(?:ed)?|third_party|node_modules|docs?|examples?|samples?|bench(?:marks?)?)/"
    r"|\.min\.|\.(?:pyi|d\.[cm]?ts)$"
)


def language_of(path: str) -> Language | None:
    """The language that a file's name says; None for one that is not indexed."""
    return _BY_SUFFIX.get(path[path.rfind(".") :])


def is_test(path: str) -> bool:
    """Whether a file's path says that it holds tests."""
    return _TEST_PATH.search(path) is not None


def is_copied(path: str) -> bool:
    """Whether a file's path says that it repeats, declares or only explains what other files define."""
    return _COPIED_PATH.search(path) is not None


@cache
def is_installed(language: Language) -> bool:
    """Whether the grammar of a language is installed; nothing of it is loaded.

    Python's is always installed, those of other languages are in the extra `syntax`. Files without one are not indexed.
    """
    return importlib.util.find_spec(language.module) is not None


@cache
def grammar(language: Language) -> tuple[Parser, Query] | None:
    """What parses a language, and its query; None when its grammar is not installed."""
    if not is_installed(language):
        return None
    library, module = importlib.import_module("tree_sitter"), importlib.import_module(language.module)
    load: Callable[[], object] = getattr(module, language.function)
    made = library.Language(load())
    query = language.extra
    if language.has_tags:
        # TypeScript's has it as a file only.
        file = Path(str(module.__file__)).parent / "queries" / "tags.scm"
        query = f"{getattr(module, 'TAGS_QUERY', None) or file.read_text(encoding='utf-8')}\n{query}"
    return library.Parser(made), library.Query(made, query)
