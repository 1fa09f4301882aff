"""Search with ripgrep or RE2.

`Hits` counts all matches and parses only those to show, from ripgrep's fastest format (`--heading --null
--line-number`):

    path NUL 12:text of a match NEWLINE 13-text beside it NEWLINE … NEWLINE path NUL …

An empty line ends a file, as file lines begin with a number.
"""

from __future__ import annotations

import asyncio
import bisect
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_runtime.core.errors import ToolError
from agent_runtime.core.text import replace_binary
from agent_runtime.processes.spawn import end, start_program
from agent_runtime.sandbox.protocol import Launch
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import Include, parent_rules, re2_options, walk_files

_WIDTH = 240  # visible characters of a line
_WIDTH_BEFORE = 80  # of these before the match
_MAX_LINE_BYTES = 16_000_000
_SLOW_LINE_BYTES = 500_000  # of an incomplete line
_MAX_RAW_BYTES = 10_000  # of an unshortened line
_NEWLINE = 10
_MAX_DIRECTORIES = 8
_LINE = re.compile(rb"(\d+)([:-])")
_COLUMN = re.compile(rb"(\d+):")
_MATCHED = re.compile(rb"^\d+:", re.MULTILINE)


class Hits:
    """Collects search output: the first hits by path and line, and counts."""

    def __init__(
        self,
        *,
        limit: int,
        include: Include | None = None,
        context: int = 0,
        columns: bool = False,
        is_hidden: Callable[[str], bool] | None = None,
    ) -> None:
        """Configure the collection.

        Args:
            limit: matches to store.
            include: files to count.
            context: lines around each match in the output.
            columns: matches have columns.
            is_hidden: excludes a file entirely.
        """
        self._limit = limit
        self._max_lines = limit * (2 * context + 2)  # with group separators
        self._include = include
        self._context = context
        self._columns = columns
        self._is_hidden = is_hidden or (lambda _name: False)
        self._counts: dict[str, int] = {}
        self._files: dict[str, list[bytes | Hit]] = {}
        self._order: list[str] = []
        self._is_full = False
        self._rest = bytearray()
        self._name: str | None = None
        self._is_included = False
        self._lines: list[bytes | Hit] | None = None
        self._with_columns: Hits | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the next piece may be slow: globs, or a very long line."""
        return self._include is not None or len(self._rest) > _SLOW_LINE_BYTES

    @property
    def stored_bytes(self) -> int:
        """Memory used by lines."""
        lines = (line for stored in self._files.values() for line in stored)
        return sum(len(line.text if isinstance(line, Hit) else line) for line in lines)

    def feed(self, data: bytes) -> None:
        """Process output.

        Raises:
            ToolError: a line is too long.
        """
        if self._rest and b"\n" not in data and b"\0" not in data:
            self._rest += data  # do not copy and search a very long line for each piece
            return self._check_rest()
        data = bytes(self._rest + data)
        at = nul = 0
        while (nul := data.find(b"\0", nul)) >= 0:
            end = data.rfind(b"\n", at, nul)
            if self._name is None or (end > at and data[end - 1] == _NEWLINE):
                self._add_lines(data, at, end - 1)
                self._finish_file()
                self._name = name = data[max(at, end + 1) : nul].decode(errors="surrogateescape").removeprefix("./")
                self._is_included = (self._include is None or self._include.matches(name)) and not self._is_hidden(name)
                # Files come in any order; later ones are only counted once enough hits are stored.
                behind = self._is_full and name > self._order[-1]
                self._lines = self._files.setdefault(name, []) if self._is_included and not behind else None
                at = nul + 1
            nul += 1  # without an empty line before, it belongs to the text
        end = data.rfind(b"\n", at)
        if end > at and data[end - 1] != _NEWLINE:
            self._add_lines(data, at, end)
            at = end  # keep the newline: a second one would end the file
        self._rest = bytearray(data[at:])
        return self._check_rest()

    def _check_rest(self) -> None:
        if len(self._rest) > _MAX_LINE_BYTES:
            raise ToolError(
                f"find: {self._name!r} has a line of more than {_MAX_LINE_BYTES:,} bytes that matches; leave that file "
                "out by target or include",
                kind="ValueError",
            )

    def first_hits(self) -> list[Hit]:
        """Return the first hits with context, sorted."""
        hits: list[Hit] = []
        room = self._limit
        for name in sorted(self._files):
            for hit in self._file_hits(name):
                if room == 0 and (hit.matched or not _follows(hit, hits[-1])):
                    return hits
                room -= hit.matched
                hits.append(hit)
        return hits

    def truncated_files(self) -> list[str]:
        """Return the files with lines truncated at an unknown match position."""
        return list(dict.fromkeys(hit.name for hit in self.first_hits() if hit.is_truncated))

    def use_columns(self, hits: Hits) -> None:
        """Use the hits of the same search with columns; keep counts."""
        self._with_columns = hits

    def render(self) -> str:
        """Render for the model."""
        total = sum(self._counts.values())
        if not total:
            return "[find] No matches found."
        hits = self.first_hits()
        matched = sum(hit.matched for hit in hits)
        lines = [f"[find] {total} match(es) (showing {matched} of {total}):"]
        previous: Hit | None = None
        for hit in hits:
            text = f"{hit.line}{':' if hit.matched else '-'}{hit.text}"
            if not self._context:
                lines.append(f"{hit.file}:{text}")
                continue
            if previous is None or previous.name != hit.name:
                lines += [*([""] if previous else []), hit.file]
            elif not _follows(hit, previous):
                lines.append("--")
            lines.append(text)
            previous = hit
        if matched < total and len(self._counts) > 1:
            lines.append(f"[more: {self._distribution()}. Narrow it with target or include, or a more exact pattern.]")
        return "\n".join(lines)

    def _distribution(self) -> str:
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
        parts = [f"{_printable(name)} {count}" for name, count in ordered[:_MAX_DIRECTORIES]]
        rest = ordered[_MAX_DIRECTORIES:]
        if rest:
            parts.append(f"{len(rest)} other places {sum(count for _, count in rest)}")
        return ", ".join(parts)

    def _file_hits(self, name: str) -> list[Hit]:
        if self._with_columns is not None and name in self._with_columns._files:  # noqa: SLF001 - of the same class
            return self._with_columns._file_hits(name)  # noqa: SLF001 - the same
        hits: list[Hit] = []
        for line in self._files[name]:
            if isinstance(line, Hit):
                hits.append(line)
            elif (begin := _LINE.match(line)) is not None:
                hits.append(self._make_hit(name, line[begin.end() :], int(begin[1]), matched=begin[2] == b":"))
        return hits

    def _make_hit(self, name: str, line: bytes, number: int, *, matched: bool) -> Hit:
        start = 0
        if matched and self._columns and (column := _COLUMN.match(line)) is not None:
            line = line[column.end() :]
            start = len(line[: int(column[1]) - 1].decode(errors="replace"))
        text = line.removesuffix(b"\r").decode(errors="replace")
        is_truncated = matched and len(text) > _WIDTH and not self._columns
        if len(text) > _WIDTH:  # keep the part with the match
            start = min(max(0, start - _WIDTH_BEFORE), len(text) - _WIDTH)
            end = start + _WIDTH
            head = f"[{start} characters]…" if start else ""
            tail = f"…[{len(text) - end} characters]" if end < len(text) else ""
            text = f"{head}{text[start:end]}{tail}"
        text = replace_binary(text)
        return Hit(name=name, line=number, text=text, matched=matched, is_truncated=is_truncated)

    def _add_lines(self, data: bytes, start: int, end: int) -> None:
        if data.startswith(b"\n", start):  # the end of an earlier line
            start += 1
        if start >= end or self._name is None or not self._is_included:
            return
        if self._context:
            count = len(_MATCHED.findall(data[start:end]))
        else:
            last = max(start, data.rfind(b"\n", start, end) + 1)
            # The last line may be the note that the file is binary.
            count = data.count(b"\n", start, end) + (_LINE.match(data, last) is not None)
        if count:
            self._counts[self._name] = self._counts.get(self._name, 0) + count
        if self._lines is not None and (room := self._max_lines - len(self._lines)) > 0:
            self._lines += [self._shorten(line) for line in data[start:end].split(b"\n", room)[:room]]

    def _shorten(self, line: bytes) -> bytes | Hit:
        begin = _LINE.match(line) if len(line) > _MAX_RAW_BYTES else None
        if begin is None or self._name is None:
            return line
        return self._make_hit(self._name, line[begin.end() :], int(begin[1]), matched=begin[2] == b":")

    def _finish_file(self) -> None:
        if self._lines is None or self._name is None:
            return
        bisect.insort(self._order, self._name)
        total = 0
        for place, name in enumerate(self._order, 1):
            total += self._counts.get(name, 0)
            if total >= self._limit:
                for dropped in self._order[place:]:
                    del self._files[dropped]
                del self._order[place:]
                self._is_full = True
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A line of a file.

    Attributes:
        name: path on disk.
        text: cut around the match.
        matched: False for context.
        is_truncated: cut at an unknown match position.
    """

    name: str
    line: int
    text: str
    matched: bool
    is_truncated: bool = False

    @property
    def file(self) -> str:
        """Printable path."""
        return _printable(self.name)


def _follows(hit: Hit, previous: Hit) -> bool:
    return hit.name == previous.name and hit.line == previous.line + 1


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]


_CHUNK = 1 << 16
_MAX_ERRORS = 4_000
_SCRIPTS = "Scripts" if sys.platform == "win32" else "bin"


def find_ripgrep() -> Path | None:
    """Find the wheel's program, or one on the PATH."""
    program = shutil.which(str(Path(sys.prefix, _SCRIPTS, "rg"))) or shutil.which("rg")
    return None if program is None else Path(program)


class DirectRunner:
    """Runs programs in a directory, one at a time, without environment."""

    def __init__(self, start: Callable[[Sequence[str]], Launch], directory: Path) -> None:
        """Run programs in `directory` by the launch that `start` returns."""
        self._start = start
        self._directory = directory
        self.is_busy = False
        self.errors = ""
        self.exit_code: int | None = None

    async def run(self, argv: Sequence[str]) -> AsyncGenerator[bytes]:
        """Run a program and yield its output; leaving the iteration stops it."""
        self.errors, self.exit_code = "", None
        launch = self._start(argv)
        process = await start_program(launch.argv, env=launch.env, cwd=self._directory, stderr=asyncio.subprocess.PIPE)
        self.is_busy = True
        if process.stdout is None or process.stderr is None:
            raise AssertionError("stdout and stderr are not pipes")
        errors = asyncio.ensure_future(_read_head(process.stderr))
        try:
            while chunk := await process.stdout.read(_CHUNK):
                yield chunk
            self.errors = await errors
            await process.communicate()  # unlike `wait`, it reads the remaining output
            self.exit_code = process.returncode
        finally:
            errors.cancel()
            if process.returncode is None:
                end(process)
            await process.communicate()
            self.is_busy = False

    def close(self) -> None:
        """Do nothing."""


async def _read_head(stream: asyncio.StreamReader) -> str:
    """Read a stream to its end; return the start."""
    head = b""
    while chunk := await stream.read(_CHUNK):
        head = (head + chunk)[:_MAX_ERRORS]
    return head.decode(errors="replace").strip()


_MAX_BYTES = 16_000_000  # of one file, and of all output
_BINARY_HEAD = 8_000


def search(workspace: Workspace, pattern: str, targets: Sequence[str], context: int, binary: bool) -> bytes:  # noqa: FBT001 - a worker's arguments have no names
    """Search without ripgrep, in the format that `Hits` reads, with columns.

    Raises:
        ToolError: invalid pattern.
    """
    import re2  # noqa: PLC0415 - only a search needs it

    try:
        settings = re2_options()
        settings.encoding = re2.Options.Encoding.UTF8
        regex = re2.compile(pattern.encode(), settings)
    except re2.error as error:
        raise ToolError(f"find: {error}", kind="ValueError") from error
    output = bytearray()
    with workspace:
        for name in _target_files(workspace, targets):
            try:
                data = workspace.read_bytes(name, _MAX_BYTES)
            except ToolError:  # too large, missing or unreadable; ripgrep skips it, too
                continue
            if binary or b"\0" not in data[:_BINARY_HEAD]:
                part = _file_matches(name, data, regex, context)
                output += b"\n" + part if output and part else part  # an empty line ends a file
            if len(output) > _MAX_BYTES:
                break
    return bytes(output)


def _target_files(workspace: Workspace, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        base = "" if target == "." else f"{target}/"
        if workspace.is_directory(target):
            yield from sorted(name for _, name in walk_files(workspace, base, parent_rules(workspace, base)))
        else:
            yield target


def _file_matches(name: str, data: bytes, regex: Any, context: int) -> bytes:  # noqa: ANN401 - a library without types
    lines = data.removesuffix(b"\n").split(b"\n")
    matches = {number: match.start() for number, line in enumerate(lines) if (match := regex.search(line)) is not None}
    if not matches:
        return b""
    visible = {neighbour for number in matches for neighbour in range(number - context, number + context + 1)}
    output = [
        b"%d:%d:%b" % (number + 1, matches[number] + 1, lines[number])
        if number in matches
        else b"%d-%b" % (number + 1, lines[number])
        for number in sorted(visible & set(range(len(lines))))
    ]
    return name.encode("utf-8", "surrogateescape") + b"\0" + b"\n".join(output) + b"\n"
