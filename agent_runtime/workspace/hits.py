"""What a search found: ripgrep's output in, the first hits, the true total and where the rest is out. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent_runtime.workspace.globs import Include

_WIDTH = 240  # characters of a line that are shown
_BEFORE = 80  # of them before the match, where the line is longer
_PRUNED_AT = 20_000
_MOST_DIRECTORIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One line of a file.

    Attributes:
        file: its path from the workspace's root.
        line: its number, from 1.
        text: the line, cut around the match where it is long.
        matched: False for a line of context.
    """

    file: str
    line: int
    text: str
    matched: bool


class Hits:
    """Collects a search's output; keeps the first hits by path and line, and counts all."""

    def __init__(self, *, most: int, wanted: Include | None = None) -> None:
        self._most = most
        self._wanted = wanted
        self._counts: dict[str, int] = {}
        self._files: dict[str, list[Hit]] = {}
        self._kept = 0
        self._file: list[Hit] | None = None
        self._name = ""
        self._matches_here = 0

    def add(self, line: bytes) -> None:
        """Take one line of `rg --json`; a file's lines come together."""
        if self._file is None and not line.startswith(b'{"type":"begin"'):
            return
        is_match = line.startswith(b'{"type":"match"')
        if is_match:
            self._counts[self._name] = self._counts.get(self._name, 0) + 1
            self._matches_here += 1
        if self._matches_here > self._most and not line.startswith(b'{"type":"begin"'):
            return
        message = json.loads(line)
        if message["type"] == "begin":
            self._begin(_text(message["data"]["path"]).removeprefix("./"))
        elif message["type"] in {"match", "context"} and self._file is not None:
            self._file.append(_hit(self._name, message["data"], matched=is_match))
            self._kept += 1

    def shown(self) -> list[Hit]:
        """The first hits, with their context, by path and line."""
        hits: list[Hit] = []
        room = self._most
        for name in sorted(self._files):
            for hit in self._files[name]:
                if room == 0 and (hit.matched or not _follows(hit, hits[-1])):
                    return hits
                room -= hit.matched
                hits.append(hit)
        return hits

    def text(self) -> str:
        """The hits as the model reads them."""
        total = sum(self._counts.values())
        if not total:
            return "[find] No matches found."
        hits = self.shown()
        matched = sum(hit.matched for hit in hits)
        lines = [f"[find] {total} match(es) (showing {matched} of {total}):"]
        with_context = matched < len(hits)
        previous: Hit | None = None
        for hit in hits:
            if with_context and previous and not _follows(hit, previous):
                lines.append("--")
            mark = ":" if hit.matched else "-"
            lines.append(f"{hit.file}{mark}{hit.line}{mark}{hit.text}")
            previous = hit
        if matched < total and len(self._counts) > 1:
            lines.append(f"[more: {self._spread()}. Narrow it with target or include, or a more exact pattern.]")
        return "\n".join(lines)

    def start_over(self, counts: bytes) -> list[str]:
        """Forget all hits and take the totals from `rg --count --null`; the files that have the first hits, to search.

        Args:
            counts: the whole output: a path, NUL, the number of matching lines, newline.
        """
        self._files, self._kept, self._file, self._counts = {}, 0, None, {}
        for line in counts.splitlines():
            path, _, count = line.rpartition(b"\0")
            name = path.decode(errors="surrogateescape").removeprefix("./")
            if self._wanted is None or self._wanted.matches(name):
                self._counts[name] = int(count)
        first: list[str] = []
        room = self._most
        for name in sorted(self._counts):
            if room <= 0:
                break
            first.append(name)
            room -= self._counts[name]
        return first

    def take_again(self, lines: Iterable[bytes]) -> None:
        """Add the hits of the files that `start_over` named, which are counted already."""
        counts = self._counts
        self._counts = {}
        for line in lines:
            self.add(line)
        self._counts = counts

    def _spread(self) -> str:
        """Where the matches are, by the first directory in which they differ."""
        prefix = ""
        while True:
            groups: dict[str, int] = {}
            for name, count in self._counts.items():
                head, slash, _ = name[len(prefix) :].partition("/")
                group = f"{prefix}{head}{slash}"
                groups[group] = groups.get(group, 0) + count
            (only, *more) = groups
            if more or not only.endswith("/"):
                break
            prefix = only
        ordered = sorted(groups.items(), key=lambda item: (-item[1], item[0]))
        told = [f"{_printable(name)} {count}" for name, count in ordered[:_MOST_DIRECTORIES]]
        rest = ordered[_MOST_DIRECTORIES:]
        if rest:
            told.append(f"{len(rest)} other places {sum(count for _, count in rest)}")
        return ", ".join(told)

    def _begin(self, name: str) -> None:
        if self._kept > _PRUNED_AT:
            self._prune()
        self._name = name
        self._matches_here = 0
        self._file = None
        if self._wanted is None or self._wanted.matches(name):
            self._file = self._files.setdefault(name, [])

    def _prune(self) -> None:
        """Forget what can no longer be among the first hits."""
        kept: dict[str, list[Hit]] = {}
        room = self._most
        for name in sorted(self._files):
            if room <= 0:
                break
            kept[name] = self._files[name]
            room -= sum(hit.matched for hit in kept[name])
        self._files = kept
        self._kept = sum(map(len, kept.values()))


def _follows(hit: Hit, previous: Hit) -> bool:
    return hit.file == previous.file and hit.line == previous.line + 1


def _hit(name: str, data: dict[str, Any], *, matched: bool) -> Hit:
    line = _text(data["lines"]).removesuffix("\n").removesuffix("\r")
    at = 0
    if matched and data["submatches"]:
        raw = _raw(data["lines"])
        at = len(raw[: data["submatches"][0]["start"]].decode(errors="replace"))
    return Hit(file=_printable(name), line=data["line_number"], text=_around(line, at), matched=matched)


def _around(line: str, at: int) -> str:
    """The part of a long line that its match stands in."""
    if len(line) <= _WIDTH:
        return line
    start = min(max(0, at - _BEFORE), len(line) - _WIDTH)
    end = start + _WIDTH
    head = f"[{start} characters]…" if start else ""
    tail = f"…[{len(line) - end} characters]" if end < len(line) else ""
    return f"{head}{line[start:end]}{tail}"


def _text(value: dict[str, str]) -> str:
    """Ripgrep gives text as it is, and bytes that are no UTF-8 in base64."""
    return value["text"] if "text" in value else _raw(value).decode(errors="replace")


def _raw(value: dict[str, str]) -> bytes:
    return base64.b64decode(value["bytes"]) if "bytes" in value else value["text"].encode()


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]
