"""The project's own files as the code rules read them."""

from __future__ import annotations

import ast
import functools
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agent_runtime", "bot", "localhub")

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> list[Path]:
    """Every module of the packages that ship, relative to the root."""
    return sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def dotted(path: Path) -> str:
    """The import name of a module's path."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def repository_files() -> list[Path]:
    """Every file that git tracks or would track, relative to the root; without git, nothing can be said of any."""
    shown = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = sorted(filter(None, shown.stdout.decode().split("\0")))
    return [Path(name) for name in names if (ROOT / name).is_file()]


@functools.cache
def text_of(path: Path) -> str:
    """A file's text, or nothing for one that is not UTF-8."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse(text_of(path), filename=str(path))


@functools.cache
def code_lines(path: Path) -> frozenset[int]:
    """The numbers of the lines that hold code: no blank line, comment or docstring."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type not in _NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(held)


def single_use_helpers(path: Path) -> list[Function]:
    """The private functions and methods of a module whose name is in it once more: where it is called."""
    used: Counter[str] = Counter()
    called: Counter[str] = Counter()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Name | ast.Attribute):
            used[_name_of(node)] += 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called[_name_of(node.func)] += 1
    return [
        each
        for each in functions(path)
        if each.name.startswith("_") and not each.name.endswith("__") and used[each.name] == called[each.name] == 1
    ]


def _name_of(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a module, nested ones too."""
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))
