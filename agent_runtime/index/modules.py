"""Find the files of the modules that source files import, by the paths of the index."""

from __future__ import annotations

import posixpath
import sqlite3
from functools import cached_property

SCRIPTS = (".js", ".ts", ".tsx", ".jsx", ".mjs", ".cjs", ".mts", ".cts")


class ModulePaths:
    """The files of one index, by the names under which they are imported."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def named(self, path: str, module: str) -> list[int]:
        """The files of a module, as the file at a path names it."""
        folder = posixpath.dirname(path)
        if path.endswith((".py", ".pyi")):
            name = module.lstrip(".")
            for _ in range(len(module) - len(name) - 1):
                folder = posixpath.dirname(folder)
            below = name.replace(".", "/")
            ends = [f"{below}.py", f"{below}.pyi", f"{below}/__init__.py"] if below else ["__init__.py"]
            if module.startswith("."):
                return [n for end in ends if (n := self._paths.get(posixpath.join(folder, end)))]
            return [n for end in ends for n in self._ending(end)]
        if path.endswith(".go"):
            found = filter(None, map(self._by_tail.get, _tails(module)))
            return [self._paths[each] for each in next(found, [])]
        if not module.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(folder, module))
        names = [base, *(base + end for end in SCRIPTS), *(f"{base}/index{end}" for end in SCRIPTS)]
        names += [posixpath.splitext(base)[0] + end for end in (".ts", ".tsx")]  # `./x.js` is written for `x.ts`
        return [n for name in names if (n := self._paths.get(name))][:1]

    def _ending(self, end: str) -> list[int]:
        """The files whose path is, or ends in, another one; those that lie least deep."""
        found = self._by_tail.get(end, [])
        least = min((path.count("/") for path in found), default=0)
        return [self._paths[path] for path in found if path.count("/") == least]

    @cached_property
    def _paths(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT path, id FROM files"))

    @cached_property
    def _by_tail(self) -> dict[str, list[str]]:
        """The paths by what they end in; those of Go by what their directory ends in, which is what is imported."""
        found: dict[str, list[str]] = {}
        for path in self._paths:
            for tail in _tails(posixpath.dirname(path) if path.endswith(".go") else path):
                found.setdefault(tail, []).append(path)
        return found


def _tails(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]
