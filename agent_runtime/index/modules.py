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
            parts = module.split("/")
            for at in range(len(parts)):
                tail = "/".join(parts[at:])
                found = [
                    n
                    for p, n in self._paths.items()
                    if p.endswith(".go") and f"/{posixpath.dirname(p)}".endswith(f"/{tail}")
                ]
                if found:
                    return found
            return []
        if not module.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(folder, module))
        names = [base, *(base + end for end in SCRIPTS), *(f"{base}/index{end}" for end in SCRIPTS)]
        names += [posixpath.splitext(base)[0] + end for end in (".ts", ".tsx")]  # `./x.js` is written for `x.ts`
        return [n for name in names if (n := self._paths.get(name))][:1]

    def _ending(self, end: str) -> list[int]:
        """The files whose path is, or ends in, another one; those that lie least deep."""
        if end in self._paths:
            return [self._paths[end]]
        found = [
            (path.count("/"), number)
            for path, number in self._by_name.get(posixpath.basename(end), [])
            if path.endswith(f"/{end}")
        ]
        least = min((depth for depth, _ in found), default=0)
        return [number for depth, number in found if depth == least]

    @cached_property
    def _paths(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT path, id FROM files"))

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for path, number in self._paths.items():
            found.setdefault(posixpath.basename(path), []).append((path, number))
        return found
