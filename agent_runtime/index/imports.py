"""Read import statements: what a local name stands for. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_PYTHON_FROM = re.compile(r"from\s+(\.*[\w.]*)\s+import\s+\(?([^#]*)", re.DOTALL)
_NAMED = re.compile(r"([\w.*]+)(?:\s+as\s+(\w+))?")
_SCRIPT_FROM = re.compile(r"import\s+(?:type\s+)?(.*?)\s*from\s*[\"']([^\"']+)[\"']", re.DOTALL)
_REQUIRED = re.compile(r"(?:\{([^}]*)\}|([\w$]+))\s*=\s*require\(\s*[\"']([^\"']+)[\"']")
_GO = re.compile(r"(?:([\w.]+)\s+)?[\"`]([^\"`]+)[\"`]")


def imports_in(language: str, statement: str) -> Iterator[tuple[str, str, str]]:
    """Local name, module, and the name in it (empty for the module itself, `*` for all)."""
    read = _READERS.get(language)
    if read is not None:
        yield from read(statement[:10_000])


def _python(statement: str) -> Iterator[tuple[str, str, str]]:
    statement = re.sub(r"#[^\n]*", "", statement)
    if found := _PYTHON_FROM.match(statement):
        for name, local in _NAMED.findall(found[2]):
            yield local or name, found[1], name
    else:
        for name, local in _NAMED.findall(statement.removeprefix("import")):
            yield local or name, name, ""


def _script(statement: str) -> Iterator[tuple[str, str, str]]:
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


def _go(statement: str) -> Iterator[tuple[str, str, str]]:
    if found := _GO.match(statement):
        yield found[1] or found[2].rpartition("/")[2], found[2], ""


_READERS: dict[str, Callable[[str], Iterator[tuple[str, str, str]]]] = {
    "Python": _python,
    "JavaScript": _script,
    "TypeScript": _script,
    "Go": _go,
}
