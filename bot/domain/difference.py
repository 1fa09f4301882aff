"""The difference of two commits: its changed files, and the sections and hunks of its patch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

FileStatus = Literal["added", "modified", "deleted", "renamed"]
Side = Literal["LEFT", "RIGHT"]
"""Of a diff: LEFT is before the change."""

Mark = Literal["", "generated", "vendored", "lock file", "minified"]

GENERATED, VENDORED = "linguist-generated", "linguist-vendored"
ATTRIBUTES = (GENERATED, VENDORED, "diff")
"""Git attributes by which GitHub hides a file's changes."""

TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?)/|(?:^|/)(?:conftest|tests?|test_[^/]*|[^/]*[._-](?:test|spec)s?|[^/]*Tests?)\.\w+$"
)
_LOCK_FILE = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|deno\.lock|Cargo\.lock"
    r"|poetry\.lock|uv\.lock|pdm\.lock|pixi\.lock|Pipfile\.lock|pylock(?:\.[^/]+)?\.toml|Gemfile\.lock|composer\.lock"
    r"|go\.sum|go\.work\.sum|mix\.lock|rebar\.lock|pubspec\.lock|Podfile\.lock|Package\.resolved|Cartfile\.resolved"
    r"|packages\.lock\.json|paket\.lock|flake\.lock|gradle\.lockfile|conan\.lock|shard\.lock|stack\.yaml\.lock"
    r"|cabal\.project\.freeze|\.terraform\.lock\.hcl|MODULE\.bazel\.lock)$"
)
_VENDORED = re.compile(r"(?:^|/)(?:node_modules|bower_components|vendor|third_party|Godeps|Pods)/")
_GENERATED = re.compile(
    r"(?:_pb2(?:_grpc)?\.pyi?|\.pb\.(?:go|cc|h)|\.g\.dart|\.designer\.cs|\.snap|(?:^|/)zz_generated\.[^/]+\.go)$"
)
_MINIFIED = re.compile(r"(?:[.-]min|[.-]bundle)\.(?:js|mjs|cjs|css)$|\.(?:js|mjs|cjs|css)\.map$")
_LONG_LINE, _MINIFIED_BYTES = 300, 5_000
"""Average length of a minified file's lines, and its least size."""

_OUTLINE_CHARS = 400
_KINDS = {"120000": "symbolic link", "160000": "submodule"}
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@([^\n]*)")
_QUOTED = re.compile(r"[^ !#-\[\]-~]")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file that differs between two commits.

    Attributes:
        previous: path before a rename.
        size: bytes after the change, or before a deletion.
        mark: why its changes are seldom worth reading; empty for most files.
    """

    path: str
    status: FileStatus
    previous: str = ""
    old_mode: str = ""
    new_mode: str = ""
    added: int = 0
    removed: int = 0
    binary: bool = False
    size: int = 0
    mark: Mark = ""

    @property
    def lines(self) -> int:
        return self.added + self.removed

    @property
    def outline(self) -> str:
        """The path for patterns, which take long for thousands of directories: the middle is left out."""
        half = _OUTLINE_CHARS // 2
        return self.path if len(self.path) <= _OUTLINE_CHARS else f"{self.path[:half]}/{self.path[-half:]}"

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.previous, self.path) if self.previous else (self.path,)

    @property
    def facts(self) -> str:
        """Kind and size of the change, e.g. `renamed from a.py, +3 -1`."""
        status = {"added": "new", "modified": "", "deleted": "deleted", "renamed": "renamed"}[self.status]
        is_mode_change = bool(self.old_mode and self.new_mode) and self.old_mode != self.new_mode
        lines = [f"+{self.added:,}" if self.added else "", f"-{self.removed:,}" if self.removed else ""]
        parts = (
            self.mark,
            _KINDS.get(self.new_mode or self.old_mode, ""),
            f"{status} from {clip_name(quote_name(self.previous))}" if self.previous else status,
            f"mode {self.old_mode} to {self.new_mode}" if is_mode_change else "",
            f"binary, {self.size:,} bytes" if self.binary else " ".join(filter(None, lines)),
        )
        return ", ".join(filter(None, parts)) or "unchanged lines"

    def with_mark(self, attributes: Mapping[str, str]) -> ChangedFile:
        """Add the mark that the file's git attributes, else its name or its shape give it."""
        return replace(self, mark=self._find_mark(attributes))

    def _find_mark(self, attributes: Mapping[str, str]) -> Mark:
        outline = self.outline
        generated, vendored = (_is_set(attributes.get(name, "")) for name in (GENERATED, VENDORED))
        if generated or vendored:
            return "generated" if generated else "vendored"
        if generated is None and (attributes.get("diff") == "unset" or _GENERATED.search(outline)):
            return "generated"
        if _LOCK_FILE.search(outline):
            return "lock file" if generated is None else ""
        if vendored is None and _VENDORED.search(outline):
            return "vendored"
        is_dense = self.status == "added" and self.size > max(_MINIFIED_BYTES, _LONG_LINE * self.added)
        is_minified = _MINIFIED.search(outline) is not None or (is_dense and not self.binary)
        return "minified" if is_minified and generated is None else ""


def _is_set(value: str) -> bool | None:
    """Return an attribute as GitHub reads it; None where `.gitattributes` does not say."""
    if value in {"", "unspecified"}:
        return None
    return value not in {"unset", "false"}


def list_names(names: Sequence[str], most: int = 10) -> str:
    """Join names; beyond `most`, the others are counted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def clip_name(name: str, limit: int = 120) -> str:
    """Cut the middle out of a long path, which has up to 4,096 bytes."""
    return name if len(name) <= limit else f"{name[: limit // 2]}…{name[-limit // 2 :]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Consecutive lines of a patch, each with its mark; `old` and `new` are the numbers of the first line."""

    old: int
    new: int
    lines: tuple[str, ...]
    heading: str = ""

    def count(self, marks: str) -> int:
        """Return the number of lines with one of the marks."""
        return sum(line.startswith(tuple(marks)) for line in self.lines)

    @property
    def text(self) -> str:
        header = f"@@ -{self.old},{self.count(' -')} +{self.new},{self.count(' +')} @@{self.heading}"
        return "\n".join([header, *self.lines])

    def head(self, count: int) -> Hunk:
        """Return the hunk's first lines."""
        return replace(self, lines=self.lines[:count])

    @property
    def numbered(self) -> tuple[tuple[str, int, int, str], ...]:
        """The mark of each line, its number before and after the change, and its text."""
        old, new, numbered = self.old, self.new, list[tuple[str, int, int, str]]()
        for line in self.lines:
            mark = line[:1]
            if mark in {" ", "-", "+"}:
                numbered.append((mark, old, new, line[1:]))
            old, new = old + (mark in {" ", "-"}), new + (mark in {" ", "+"})
        return tuple(numbered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The hunks of one file; `previous` is its name before the change, empty for a new file."""

    path: str
    previous: str = ""
    hunks: tuple[Hunk, ...] = ()

    @property
    def is_dense(self) -> bool:
        """Whether its lines are as long as those of a minified file."""
        lines = [line for hunk in self.hunks for line in hunk.lines]
        size = sum(map(len, lines))
        return size > max(_MINIFIED_BYTES, _LONG_LINE * len(lines))


def parse_patch(text: str) -> Iterator[Section]:
    """Yield the sections with hunks of a patch, in linear time; other lines are skipped."""
    lines = text.split("\n")
    before = after = ""
    hunks: list[Hunk] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(("diff --git ", "--- ")):
            if hunks:
                yield Section(path=after or before, previous=before, hunks=tuple(hunks))
            hunks = []
            before, after = _parse_path(line) if line.startswith("--- ") else "", ""
        elif line.startswith("+++ "):
            after = _parse_path(line)
        elif (start := _HUNK.match(line)) is not None:
            hunk, at = _read_hunk(lines, at, start)
            hunks.append(hunk)
    if hunks:
        yield Section(path=after or before, previous=before, hunks=tuple(hunks))


def _read_hunk(lines: list[str], at: int, start: re.Match[str]) -> tuple[Hunk, int]:
    first, old, new = at, int(start[2] or 1), int(start[4] or 1)
    while (old > 0 or new > 0) and at < len(lines) and lines[at][:1] in {" ", "-", "+", "\\"}:
        mark = lines[at][:1]
        old, new, at = old - (mark in {" ", "-"}), new - (mark in {" ", "+"}), at + 1
    if at < len(lines) and lines[at].startswith("\\"):  # no newline at the end of the file
        at += 1
    return Hunk(old=int(start[1]), new=int(start[3]), lines=tuple(lines[first:at]), heading=start[5]), at


def _parse_path(line: str) -> str:
    name = line[4:].rstrip("\t")
    if name.startswith('"') and name.endswith('"'):
        name = unquote_name(name[1:-1])
    return "" if name == "/dev/null" else name[2:]


def unquote_name(name: str) -> str:
    def unescape(escape: re.Match[bytes]) -> bytes:
        return bytes([int(escape[1], 8) & 0xFF]) if len(escape[1]) > 1 else _ESCAPES.get(escape[1], escape[1])

    # https://git-scm.com/docs/git-config#Documentation/git-config.txt-corequotePath
    return _ESCAPE.sub(unescape, name.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def quote_name(name: str) -> str:
    """Return a path as git does: quoted if it has quotes, back slashes or characters that do not show."""
    if name.isprintable() and not {'"', "\\"} & set(name):
        return name
    raw = name.encode("utf-8", "surrogateescape").decode("latin-1")
    quoted = _QUOTED.sub(lambda char: f"\\{ord(char[0]):03o}", raw)
    return f'"{quoted}"'


@dataclass(frozen=True, slots=True)
class DiffLines:
    """The lines of a diff that can be commented, with the number of their hunk."""

    hunks: dict[tuple[str, Side], dict[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, sections: Iterable[Section]) -> DiffLines:
        diff_lines, number = cls(), 0
        for section in sections:
            # GitHub uses the new name on both sides, unless the file was deleted.
            left = diff_lines.hunks.setdefault((section.path, "LEFT"), {})
            right = diff_lines.hunks.setdefault((section.path, "RIGHT"), {})
            for hunk in section.hunks:
                number += 1
                left |= dict.fromkeys(range(hunk.old, hunk.old + hunk.count(" -")), number)
                right |= dict.fromkeys(range(hunk.new, hunk.new + hunk.count(" +")), number)
        return diff_lines

    def contain(self, path: str, side: Side, first: int, last: int) -> bool:
        """Whether one hunk contains the lines; GitHub rejects others."""
        lines = self.hunks.get((path, side), {})
        return first <= last and first in lines and lines.get(last) == lines[first]
