"""Parser for definitions, calls and imports of a source file, by tree-sitter queries.

Pure; runs in worker processes. Start with `parse`; `Language` has the grammars.
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
_CHUNK_BYTES = 64 * 1024  # parsed between two checks of the clock
_MAX_MATCHES = 100_000
_MAX_NAME = 200
_MAX_IMPORT = 10_000
_MAX_TEXT = 200_000  # bytes
_SAMPLES = 64
_MAX_CHILDREN = 2_000  # of an error node
_MAX_DEPTH = 500  # hand-written code has a hundred at most
_MAX_OPEN_MATCHES = 10_000
_MAX_SIGNATURE = 1_000
_MAX_COMMENT_LINES = 100  # lines of comments above a definition
_CLASSES = frozenset({"class", "interface", "module", "type"})
# Nodes that extend the definition they wrap.
_WRAPPERS = frozenset({
    "decorated_definition", "export_statement", "lexical_declaration", "variable_declaration", "expression_statement",
    "function_definition", "pointer_declarator", "reference_declarator", "template_declaration", "type_declaration",
    "parenthesized_declarator", "variable_declarator", "declaration", "field_declaration", "init_declarator",
    "assignment_expression", "ambient_declaration",
})  # fmt: skip
_RECEIVER = re.compile(rb"\s*(?:\.\??|>-|::)\s*((?:\)\()?[\w$.:]*[A-Za-z_$@]|[)\]}\"'])")
"""Receiver of a name; both are reversed."""
_DOTS = frozenset(b".>:")
_ASSIGNMENT = re.compile(r"(\w+)\s*(?::[^=]+)?=\s*(?:await\s+)?(?:([A-Za-z_][\w.]*)\()?")
_ANNOTATION = re.compile(r"(\w+)(?:\s*:\s*[\"']?|\s+\*?)([A-Za-z_][\w.]*)")
_PYTHON_HEAD = re.compile(
    rb"(?:^|\n)[ \t]*(?:async[ \t]+def|def|class)\b[^\n:(]*(\((?:[^()]|\([^()]*\))*\))?"
    rb"[^\n]*?:[ \t]*(?:#[^\n]*)?(?:\n|$)"
)
_RESULT = re.compile(r"(?:->|\)\s*:)(?P<types>[^:{=]{1,300})")
"""The annotation of a result; in TypeScript, too."""
_RETURNED = re.compile(r"return[ \t]{1,8}(?:(?:await|new)[ \t]{1,8})?([A-Za-z_$][\w$.]{0,100})(\(?)")
_TYPE_NAME = re.compile(r"[A-Za-z_$][\w$.]{0,100}")
_MAX_RESULTS = 6
_PYTHON_DOC = re.compile(
    rb"\s*[rRuUbB]{0,2}(\"\"\"(?:.*?)\"\"\"|"
    rb"'''(?:.*?)'''|\"[^\"\n]*\"|'[^'\n]*')",
    re.DOTALL,
)


class TooSlowError(Exception):
    """Parsing takes too long."""


@dataclass(slots=True)
class Piece:
    """A definition, as stored.

    Attributes:
        parent: index of the enclosing definition, or -1.
        bases: names of base classes.
        body: text without signature, docstring and a class's inner definitions.
        results: names of a function's possible result types, and of functions whose result it returns.
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
    results: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ParsedFile:
    """Contents of a source file.

    Attributes:
        calls: index of the enclosing definition or -1, callee, receiver ("" for none, `?` if unnamed), line.
        imports: local name, module, and name in it ("" for the module).
        text: start of the file.
    """

    pieces: list[Piece]
    calls: list[tuple[int, str, str, int]]
    imports: list[tuple[str, str, str]]
    text: str


def parse(language: Language, data: bytes, stem: str = "") -> ParsedFile:
    """Parse a file; `stem` names the exports of a CommonJS module.

    Raises:
        TooSlowError: parsing takes too long.
        LookupError: the grammar is not installed.
    """
    grammar_and_query = grammar(language)
    if grammar_and_query is None:
        raise LookupError(language.name)
    parser, query = grammar_and_query
    root = _tree(parser, data).root_node
    if _is_costly(root):
        raise TooSlowError
    from tree_sitter import QueryCursor  # noqa: PLC0415 - `grammar` has loaded it

    file = _FileMatches(language, data)
    # No progress callback: with one, `matches` crashes (tree-sitter 0.26.1).
    for _, captures in QueryCursor(query, match_limit=_MAX_OPEN_MATCHES).matches(root):
        file.add_match(captures)
    pieces = _nest(sorted(file.pieces.values(), key=lambda piece: (piece.start, -piece.end)))
    for piece in pieces:
        if piece.name == "exports" and piece.parent < 0 and stem:
            piece.name = piece.qualified = stem
    _describe(language, data, pieces)
    text = data[:_MAX_TEXT].decode(errors="replace")
    return ParsedFile(pieces, _assign_calls(pieces, file.calls, file.bindings), file.imports, text)


def list_definitions(path: str, source: str) -> list[tuple[int, int, int, str, str, int]]:
    """Return the fields of `Symbol` of each definition in a file."""
    language = language_of(path)
    try:
        pieces = parse(language, source.encode(errors="replace"), Path(path).stem).pieces if language else []
    except (TooSlowError, LookupError):
        pieces = []
    kinds = dict.fromkeys(_CLASSES, "class")
    return [(p.first, p.last, p.end - p.start, p.qualified, kinds.get(p.kind, p.kind), p.parent) for p in pieces]


def _is_costly(root: Node) -> bool:
    """Whether a sample of nodes is so deep or wide that a query would take quadratic time."""
    cursor = root.walk()
    for at in range(0, root.descendant_count, max(1, root.descendant_count // _SAMPLES)):
        cursor.goto_descendant(at)
        node = cursor.node
        if cursor.depth > _MAX_DEPTH or (node is not None and node.parent is not None and _is_wide(node.parent)):
            return True
    return _is_wide(root)


def _is_wide(node: Node) -> bool:
    return node.is_error and node.child_count > _MAX_CHILDREN


class _FileMatches:
    """Matches of a query in a file."""

    def __init__(self, language: Language, data: bytes) -> None:
        self._language = language
        self._data = data
        self.pieces: dict[int, Piece] = {}
        self.calls: list[tuple[int, str, str, int]] = []
        self.bindings: list[tuple[int, str]] = []
        self.imports: list[tuple[str, str, str]] = []

    def add_match(self, captures: dict[str, list[Node]]) -> None:
        """Add a match.

        Raises:
            TooSlowError: too many.
        """
        if len(self.calls) + len(self.pieces) > _MAX_MATCHES:
            raise TooSlowError
        names = captures.get("name")
        for kind, nodes in captures.items():
            if kind == "binding":
                self.bindings.append((nodes[0].start_byte, self._text(nodes[0])))
            elif kind == "import" and self._language.imports is not None:
                self.imports += self._language.imports(self._text(nodes[0], _MAX_IMPORT))
            elif names and kind == "reference.call":
                at = names[0].start_byte
                self.calls.append((at, self._text(names[0]), _receiver(self._data, at), names[0].start_point[0] + 1))
            elif names and (kind == "scope" or kind.startswith("definition.")):
                owner = captures.get("owner") or captures.get("local.scope")
                self._define(names[0], nodes[0], kind, self._text(owner[0]).partition("<")[0] if owner else "")

    def _define(self, name: Node, node: Node, kind: str, owner: str) -> None:
        """Add a definition; of several matches of a name, the most specific counts."""
        kind = kind.removeprefix("definition.")
        previous = self.pieces.get(name.start_byte)
        if previous and (previous.kind != "function" or kind != "method") and (previous.owner or not owner):
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

    def _text(self, node: Node, most: int = _MAX_NAME) -> str:
        at = node.start_byte
        return self._data[at : min(node.end_byte, at + most)].decode(errors="replace")


def _tree(parser: Parser, data: bytes) -> Tree:
    if len(data) <= _CHUNK_BYTES:
        return parser.parse(data)
    # Thread time, so that a busy machine excludes no file.
    until = time.thread_time() + _SECONDS
    try:
        return parser.parse(
            lambda at, _point: data[at : at + _CHUNK_BYTES], progress_callback=lambda *_: time.thread_time() > until
        )
    except ValueError:
        parser.reset()
        raise TooSlowError from None


def _receiver(data: bytes, at: int) -> str:
    if at == 0 or data[at - 1] not in _DOTS:
        return ""
    match = _RECEIVER.match(data[max(0, at - 100) : at][::-1])
    receiver = match[1][::-1].decode(errors="replace") if match else "?"
    return receiver if receiver[0] not in ")]}\"'" else "?"


def _nest(pieces: list[Piece]) -> list[Piece]:
    """Set parents and qualified names; a scope only adds its name."""
    stack: list[tuple[Piece, str, int]] = []
    definitions: list[Piece] = []
    for piece in pieces:
        while stack and stack[-1][0].end < piece.end:
            stack.pop()
        prefix, parent = (stack[-1][1], stack[-1][2]) if stack else ("", -1)
        owner = f"{piece.owner}." if piece.owner else ""
        piece.parent, piece.qualified = parent, f"{prefix}{owner}{piece.name}".replace("::", ".")[:_MAX_NAME]
        if piece.kind == "function" and parent >= 0 and definitions[parent].kind in _CLASSES:
            piece.kind = "method"
        if piece.kind == "scope":
            stack.append((piece, f"{piece.qualified}.", parent))
            continue
        if piece.kind == "constant" and parent >= 0:
            continue
        stack.append((piece, f"{piece.qualified}.", len(definitions)))
        definitions.append(piece)
    return definitions


def _describe(language: Language, data: bytes, pieces: list[Piece]) -> None:
    """Split each definition into parts of different weight."""
    lines = data.split(b"\n")
    marks = tuple(mark.encode() for mark in language.comment)
    bases = re.compile(language.bases)
    inner: dict[int, list[Piece]] = {}
    for piece in pieces:
        inner.setdefault(piece.parent, []).append(piece)
    for place, piece in enumerate(pieces):
        above = piece.first - 1
        while above > max(0, piece.first - _MAX_COMMENT_LINES) and lines[above - 1].lstrip().startswith(marks):
            above -= 1
        lead = b"\n".join(lines[above : piece.first - 1])
        text = data[piece.start : piece.end]
        piece.first = above + 1
        signature, docstring, body = _split_definition(language.name, text, piece, inner.get(place, []))
        piece.signature = signature.decode(errors="replace")
        piece.docstring = (lead + b"\n" + docstring).decode(errors="replace")
        piece.body = body.decode(errors="replace")
        if piece.kind not in _CLASSES:
            piece.results = _find_results(piece)
        else:
            _, _, head = piece.signature.partition(piece.name)
            matches = bases.findall(head)
            names = [name for groups in matches for name in ([groups] if isinstance(groups, str) else groups) if name]
            piece.bases = list(dict.fromkeys(names))[:20]


def _find_results(piece: Piece) -> list[str]:
    annotation = _RESULT.search(piece.signature)
    names = _TYPE_NAME.findall(annotation["types"]) if annotation else []
    names += [name for name, call in _RETURNED.findall(piece.body) if call or name in {"self", "this"}]
    return list(dict.fromkeys(names))[:_MAX_RESULTS]


def _split_definition(language: str, text: bytes, piece: Piece, inner: list[Piece]) -> tuple[bytes, bytes, bytes]:
    """Return signature, docstring and rest."""
    docstring = b""
    if language == "Python":
        head = _PYTHON_HEAD.search(text[:4000])
        cut = head.end() if head else text.find(b"\n") + 1 or len(text)
        if head and (doc := _PYTHON_DOC.match(text, cut)):
            docstring = doc[1]
            signature, begin = text[:cut], doc.end()
        else:
            signature, begin = text[:cut], cut
    else:
        brace = text.find(b"{")
        line = text.find(b"\n") % (len(text) + 1)
        cut = brace if 0 <= brace < _MAX_SIGNATURE else line
        signature, begin = text[:cut], cut
    if piece.kind not in _CLASSES or not inner:
        return signature, docstring, text[begin:]
    parts, at = [], begin
    for member in inner:
        parts.append(text[at : max(at, member.start - piece.start)])
        at = max(at, member.end - piece.start)
    return signature, docstring, b"\n".join([*parts, text[at:]])


def _assign_calls(
    pieces: list[Piece], calls: list[tuple[int, str, str, int]], bindings: list[tuple[int, str]]
) -> list[tuple[int, str, str, int]]:
    """Assign calls to definitions, and receivers to the classes of local variables."""
    types: dict[tuple[int, str], str] = {}
    bindings, calls = sorted(bindings), sorted(calls)
    for place, (_, text) in zip(_enclosing(pieces, [at for at, _ in bindings]), bindings, strict=True):
        if match := _ASSIGNMENT.match(text) or _ANNOTATION.match(text):
            key, kind = (place, match[1]), match[2] or "?"
            types[key] = kind if types.get(key, kind) == kind else "?"
    assigned = []
    for place, (_, callee, receiver, line) in zip(_enclosing(pieces, [call[0] for call in calls]), calls, strict=True):
        type_name = types.get((place, receiver), "")
        is_class = type_name.rpartition(".")[2][:1].isupper()
        assigned.append((place, callee, f"{type_name}()" if is_class else receiver, line))
    return assigned


def _enclosing(pieces: list[Piece], places: list[int]) -> Iterator[int]:
    """Return the innermost definition at each sorted offset, or -1."""
    open_: list[int] = []
    following = 0
    for at in places:
        while following < len(pieces) and pieces[following].start <= at:
            open_.append(following)
            following += 1
        while open_ and pieces[open_[-1]].end <= at:
            open_.pop()
        # An inner definition may have ended before its outer one.
        yield open_[-1] if open_ else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Grammar and queries of a language.

    Attributes:
        function: in `module`, returns the grammar.
        has_tags: use the grammar's own tags query.
        extra: further patterns. `@owner` is the class of a definition outside it, `@binding` an assignment or typed
            parameter.
        comment: prefixes of lines that belong to the next definition.
        bases: matches base classes.
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
"""Local name, module, and the name in it ("" for the module, `*` for all)."""
_PYTHON_FROM = re.compile(r"from\s+(\.*[\w.]*)\s+import\s+\(?([^#]*)", re.DOTALL)
_IMPORTED_NAME = re.compile(r"([\w.*]+)(?:\s+as\s+(\w+))?")
_SCRIPT_IMPORT = re.compile(r"import\s+(?:type\s+)?(.*?)\s*from\s*[\"']([^\"']+)[\"']", re.DOTALL)
_REQUIRE_CALL = re.compile(r"(?:\{([^}]*)\}|([\w$]+))\s*=\s*require\(\s*[\"']([^\"']+)[\"']")
_GO_IMPORT = re.compile(r"(?:([\w.]+)\s+)?[\"`]([^\"`]+)[\"`]")


def _python_imports(statement: str) -> Imports:
    statement = re.sub(r"#[^\n]*", "", statement)
    if match := _PYTHON_FROM.match(statement):
        for name, local in _IMPORTED_NAME.findall(match[2]):
            yield local or name, match[1], name
    else:
        for name, local in _IMPORTED_NAME.findall(statement.removeprefix("import")):
            yield local or name, name, ""


def _script_imports(statement: str) -> Imports:
    if match := _REQUIRE_CALL.match(statement):
        names, whole, module = match.groups()
        for name, local in re.findall(r"([\w$]+)(?:\s*:\s*([\w$]+))?", names or ""):
            yield local or name, module, name
        if whole:
            yield whole, module, "default"
    if not (match := _SCRIPT_IMPORT.match(statement)):
        return
    clause, module = match.groups()
    outside, _, inside = clause.partition("{")
    for name, local in _IMPORTED_NAME.findall(inside):
        yield local or name, module, name
    if namespace := re.search(r"\*\s+as\s+(\w+)", outside):
        yield namespace[1], module, ""
    elif default := re.match(r"\w+", outside):
        yield default[0], module, "default"


def _go_import(statement: str) -> Imports:
    if match := _GO_IMPORT.match(statement):
        yield match[1] or match[2].rpartition("/")[2], match[2], ""


_PYTHON = Language(
    name="Python",
    imports=_python_imports,
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
    imports=_script_imports,
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
    imports=_script_imports,
    module="tree_sitter_typescript",
    function="language_typescript",
    extra=_SCRIPT_TYPES,
)
_TSX = replace(_TYPESCRIPT, function="language_tsx")
_GO = Language(
    name="Go",
    imports=_go_import,
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
    has_tags=False,  # its own query matches every word as a call
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
    """Return the language by file name; None if not indexed."""
    return _BY_SUFFIX.get(path[path.rfind(".") :])


def is_test(path: str) -> bool:
    """Whether a path is that of a test."""
    return _TEST_PATH.search(path) is not None


def is_copied(path: str) -> bool:
    """Whether a path indicates generated, vendored or example code."""
    return _COPIED_PATH.search(path) is not None


@cache
def is_installed(language: Language) -> bool:
    """Whether a grammar is installed, without loading it.

    Python's always is; others are in the extra `syntax`.
    """
    return importlib.util.find_spec(language.module) is not None


@cache
def grammar(language: Language) -> tuple[Parser, Query] | None:
    """Return parser and query of a language; None if not installed."""
    if not is_installed(language):
        return None
    library, module = importlib.import_module("tree_sitter"), importlib.import_module(language.module)
    load: Callable[[], object] = getattr(module, language.function)
    tree_sitter_language = library.Language(load())
    query = language.extra
    if language.has_tags:
        # TypeScript's grammar has the query only as a file.
        file = Path(str(module.__file__)).parent / "queries" / "tags.scm"
        query = f"{getattr(module, 'TAGS_QUERY', None) or file.read_text(encoding='utf-8')}\n{query}"
    return library.Parser(tree_sitter_language), library.Query(tree_sitter_language, query)
