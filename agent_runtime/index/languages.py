"""The languages that are indexed, and the queries that find definitions and calls in them.

Python's grammar is always installed; those of the other languages are in the extra `syntax`. Files of a language whose
grammar is missing are not indexed.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How one language is read.

    Attributes:
        name: what it is called.
        module: the module of its grammar.
        function: the function in it that gives the grammar.
        shipped: modules whose own tags queries are used.
        extra: patterns beside them. `@owner` names the class of a definition that stands outside of it, `@import` is an
            import, `@binding` an assignment or a parameter with a type.
        comment: what begins a line that belongs to the definition below it.
        bases: what finds the names of base classes in the head of a class.
    """

    name: str
    module: str
    shipped: tuple[str, ...]
    function: str = "language"
    extra: str = ""
    comment: tuple[str, ...] = ("//", "/*", "*", "@", "#[")
    bases: str = r"\bextends\s+([\w.]+)|\bimplements\s+([\w.]+)"


_PYTHON = Language(
    name="Python",
    module="tree_sitter_python",
    shipped=("tree_sitter_python",),
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
    module="tree_sitter_javascript",
    shipped=("tree_sitter_javascript",),
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
    module="tree_sitter_typescript",
    function="language_typescript",
    shipped=("tree_sitter_typescript",),
    extra=_SCRIPT_TYPES,
)
_TSX = replace(_TYPESCRIPT, function="language_tsx")
_GO = Language(
    name="Go",
    module="tree_sitter_go",
    shipped=("tree_sitter_go",),
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
    shipped=("tree_sitter_rust",),
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
    shipped=("tree_sitter_java",),
    extra="""
    (constructor_declaration name: (identifier) @name) @definition.method
    (enum_declaration name: (identifier) @name) @definition.class
    (record_declaration name: (identifier) @name) @definition.class
    """,
)
_RUBY = Language(
    name="Ruby",
    module="tree_sitter_ruby",
    shipped=(),  # its own one takes every word of a file for a call
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
    shipped=("tree_sitter_c",),
    extra="""
    (preproc_function_def name: (identifier) @name) @definition.macro
    (call_expression function: (identifier) @name) @reference.call
    (call_expression function: (field_expression field: (field_identifier) @name)) @reference.call
    """,
)
_CPP = Language(
    name="C++",
    module="tree_sitter_cpp",
    shipped=("tree_sitter_cpp",),
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
    """Whether the grammar of a language is installed; nothing of it is loaded."""
    return importlib.util.find_spec(language.module) is not None


@cache
def grammar(language: Language) -> tuple[Parser, Query] | None:
    """What parses a language, and its query; None when its grammar is not installed."""
    if not is_installed(language):
        return None
    library, module = importlib.import_module("tree_sitter"), importlib.import_module(language.module)
    load: Callable[[], object] = getattr(module, language.function)
    made = library.Language(load())
    queries: list[str] = []
    for package in map(importlib.import_module, language.shipped):
        # TypeScript's has it as a file only.
        file = Path(str(package.__file__)).parent / "queries" / "tags.scm"
        queries.append(getattr(package, "TAGS_QUERY", None) or file.read_text(encoding="utf-8"))
    return library.Parser(made), library.Query(made, "\n".join([*queries, language.extra]))
