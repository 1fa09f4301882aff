"""Untracked files that build and test tools leave in a workspace, which are no part of a change."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import translate

from bot.git.filesystem import join_path, parent_folders


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverRule:
    """Names of the files or directories that one tool leaves.

    Attributes:
        names: globs of the last part of a path; a slash separates the parent's name.
        siblings: names of files of which one is in the same directory; empty if none is needed.
        marker: the name of a file in the directory; empty if none is needed.
        is_cache: whether the tool makes the same content again at any time.
    """

    names: tuple[str, ...]
    tool: str
    siblings: tuple[str, ...] = ()
    marker: str = ""
    is_cache: bool = False


_PYTHON = ("pyproject.toml", "setup.cfg", "setup.py")
_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
FOLDERS = (
    LeftoverRule(names=("node_modules", ".npm", ".pnpm-store"), tool="npm, pnpm, Yarn, Bun", is_cache=True),
    LeftoverRule(names=("bower_components",), tool="Bower", is_cache=True),
    LeftoverRule(names=(".next", ".nuxt", ".parcel-cache", ".svelte-kit", ".turbo"), tool="JavaScript frameworks"),
    LeftoverRule(names=(".nyc_output",), tool="nyc"),
    LeftoverRule(names=("coverage",), tool="Jest, Vitest, SimpleCov", siblings=("package.json", "Gemfile")),
    LeftoverRule(names=("build", "dist"), tool="builds", siblings=("package.json", *_PYTHON, *_GRADLE)),
    LeftoverRule(names=("__pycache__",), tool="Python", is_cache=True),
    LeftoverRule(names=(".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"), tool="checks", is_cache=True),
    LeftoverRule(names=(".tox", ".nox"), tool="tox, nox", is_cache=True),
    LeftoverRule(names=("htmlcov",), tool="coverage.py"),
    LeftoverRule(names=("*.egg-info", ".eggs"), tool="setuptools", siblings=_PYTHON, is_cache=True),
    LeftoverRule(names=("*",), tool="virtual environments", marker="pyvenv.cfg", is_cache=True),
    LeftoverRule(names=("target",), tool="Cargo, Maven", siblings=("Cargo.toml", "pom.xml")),
    LeftoverRule(names=(".gradle",), tool="Gradle", siblings=_GRADLE, is_cache=True),
    LeftoverRule(names=("vendor/bundle",), tool="Bundler", is_cache=True),
    LeftoverRule(names=("_build", "deps"), tool="Mix", siblings=("mix.exs",), is_cache=True),
    LeftoverRule(names=("CMakeFiles",), tool="CMake", is_cache=True),
)
"""Directories; one with a tracked file below is none, nor, except a cache, one with the name of a tracked directory."""
FILES = (
    LeftoverRule(names=("core", "core.[0-9]*", "vgcore.[0-9]*"), tool="crashed programs"),
    LeftoverRule(names=("hs_err_pid[0-9]*.log",), tool="the Java virtual machine"),
    LeftoverRule(names=(".coverage", ".coverage.*"), tool="coverage.py"),
    LeftoverRule(names=("*.py[co]",), tool="Python", is_cache=True),
    LeftoverRule(names=("*.gcda", "*.gcno"), tool="gcov"),
    LeftoverRule(names=("CMakeCache.txt",), tool="CMake"),
    LeftoverRule(names=(".eslintcache", "*.tsbuildinfo"), tool="ESLint, TypeScript", is_cache=True),
    LeftoverRule(
        names=("lerna-debug.log*", "npm-debug.log*", "yarn-*.log", ".pnpm-debug.log*"), tool="npm, pnpm, Yarn"
    ),
    LeftoverRule(names=("*.orig", "*.rej"), tool="patch, merges"),
    LeftoverRule(names=("*.sw[op]", "*~"), tool="editors"),
    LeftoverRule(names=(".DS_Store", "Thumbs.db"), tool="file managers", is_cache=True),
)
"""Files; where a tracked file of the repository fits a rule, that rule does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file, or a directory and its files; `path` of a directory ends with a slash."""

    path: bytes
    files: tuple[bytes, ...]
    is_cache: bool


def find_leftovers(
    untracked: Collection[bytes], tracked: Collection[bytes], present: Collection[bytes]
) -> list[Leftover]:
    """Return what tools left among some untracked files, sorted by path; `present` has all of them."""
    search = _Search(present, tracked)
    found: defaultdict[bytes, list[bytes]] = defaultdict(list)
    rules: dict[bytes, LeftoverRule] = {}
    for path in untracked:
        end = path.find(b"/")
        while end != -1 and search.folder_rule(path[:end]) is None:
            end = path.find(b"/", end + 1)
        name, rule = (path[: end + 1], search.folder_rule(path[:end])) if end != -1 else (path, search.file_rule(path))
        if rule is not None:
            rules[name] = rule
            found[name].append(path)
    return [
        Leftover(path=path, files=tuple(sorted(files)), is_cache=rules[path].is_cache)
        for path, files in sorted(found.items())
    ]


class _Search:
    def __init__(self, present: Collection[bytes], tracked: Collection[bytes]) -> None:
        self._present, self._tracked = (present, tracked)
        self._tracked_folders = parent_folders(tracked)
        self._tracked_names = {folder.rpartition(b"/")[2] for folder in self._tracked_folders}
        self._rules: dict[bytes, LeftoverRule | None] = {}
        self._used: dict[LeftoverRule, bool] = {}

    def folder_rule(self, folder: bytes) -> LeftoverRule | None:
        if folder not in self._rules:
            self._rules[folder] = None
            for rule, names in _FOLDER_NAMES if folder not in self._tracked_folders else ():
                (parent, _, base), marker = folder.rpartition(b"/"), join_path(folder, rule.marker.encode())
                siblings = {join_path(parent, name.encode()) for name in rule.siblings}
                has_sibling = any(path in self._tracked or path in self._present for path in siblings)
                is_marked = not rule.marker or marker in self._present
                may_be_moved = base in self._tracked_names and not rule.is_cache
                if names.search(folder) and is_marked and (has_sibling or not siblings) and not may_be_moved:
                    self._rules[folder] = rule
                    break
        return self._rules[folder]

    def file_rule(self, path: bytes) -> LeftoverRule | None:
        for rule, names in _FILE_NAMES:
            if names.search(path):
                if rule not in self._used:
                    self._used[rule] = any(map(names.search, self._tracked))
                return None if self._used[rule] else rule
        return None


def _compile(rules: Iterable[LeftoverRule]) -> list[tuple[LeftoverRule, re.Pattern[bytes]]]:
    """Compile the globs; `*` matches no slash, as names have none."""
    return [
        (
            rule,
            re.compile("|".join(rf"(?:^|/){translate(name)}" for name in rule.names).replace(".*", "[^/]*").encode()),
        )
        for rule in rules
    ]


_FOLDER_NAMES, _FILE_NAMES = _compile(FOLDERS), _compile(FILES)
