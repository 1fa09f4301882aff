"""Search the files of a workspace: run ripgrep, collect its output, or search without it.

`Hits` takes the output, keeps the first hits and counts all. Counting must cost next to nothing, because a search can
find more lines than anyone will read. So the output is the one that ripgrep prints fastest (`--heading --null
--line-number`), and only lines that will be shown are taken apart:

    path NUL 12:text of a match NEWLINE 13-text beside it NEWLINE … NEWLINE path NUL …

A line of a file begins with its number, so an empty one ends the file, whatever the file holds. No path has a newline:
files with such names are not searched. `Direct` runs the program; where it is not installed, `search` prints the same.
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
from agent_runtime.workspace.listing import Include, options, rules_above, walk

_WIDTH = 240  # characters of a line that are shown
_BEFORE = 80  # of them before the match, where the line is longer
_LONGEST = 16_000_000  # bytes of a line
_MUCH = 500_000  # bytes of a line that is not complete
_KEPT_BYTES = 10_000  # of a line that is kept as it is
_NEWLINE = 10
_MOST_DIRECTORIES = 8
_LINE = re.compile(rb"(\d+)([:-])")
_COLUMN = re.compile(rb"(\d+):")
_MATCHED = re.compile(rb"^\d+:", re.MULTILINE)


class Hits:
    """Collects a search's output; keeps the first hits by path and line, and counts all."""

    def __init__(
        self,
        *,
        most: int,
        wanted: Include | None = None,
        context: int = 0,
        columns: bool = False,
        withholds: Callable[[str], bool] | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            most: matches to keep.
            wanted: which files count; None for all.
            context: lines before and behind each match that the output has (`--context`).
            columns: whether each match says where in its line it is (`--column`).
            withholds: whether a file is passed over, and nothing said about it, not even that it has a match.
        """
        self._most = most
        self._most_lines = most * (2 * context + 2)  # a mark between groups, too
        self._wanted = wanted
        self._context = context
        self._columns = columns
        self._withholds = withholds or (lambda _name: False)
        self._counts: dict[str, int] = {}
        self._files: dict[str, list[bytes | Hit]] = {}
        self._order: list[str] = []
        self._full = False
        self._rest = bytearray()
        self._name: str | None = None
        self._counted = False
        self._kept: list[bytes | Hit] | None = None
        self._placed: Hits | None = None

    @property
    def takes_time(self) -> bool:
        """Whether the next piece may take a while: each name is matched against a glob, or a line is very long."""
        return self._wanted is not None or len(self._rest) > _MUCH

    @property
    def kept_bytes(self) -> int:
        """How much room the lines take that are kept."""
        lines = (line for kept in self._files.values() for line in kept)
        return sum(len(line.text if isinstance(line, Hit) else line) for line in lines)

    def feed(self, data: bytes) -> None:
        """Take the next piece of output.

        Raises:
            ToolError: a line is too long to be looked at.
        """
        if self._rest and b"\n" not in data and b"\0" not in data:
            self._rest += data  # a very long line, which is not copied and looked through again with each piece
            return self._check_rest()
        data = bytes(self._rest + data)
        at = nul = 0
        while (nul := data.find(b"\0", nul)) >= 0:
            end = data.rfind(b"\n", at, nul)
            if self._name is None or (end > at and data[end - 1] == _NEWLINE):
                self._take(data, at, end - 1)
                self._end()
                self._name = name = data[max(at, end + 1) : nul].decode(errors="surrogateescape").removeprefix("./")
                self._counted = (self._wanted is None or self._wanted.matches(name)) and not self._withholds(name)
                # Files come in any order. Those behind the first ones that already have enough are only counted.
                behind = self._full and name > self._order[-1]
                self._kept = self._files.setdefault(name, []) if self._counted and not behind else None
                at = nul + 1
            nul += 1  # without an empty line before it, it is in the text
        end = data.rfind(b"\n", at)
        if end > at and data[end - 1] != _NEWLINE:
            self._take(data, at, end)
            at = end  # the newline stays: another one behind it would end the file
        self._rest = bytearray(data[at:])
        return self._check_rest()

    def _check_rest(self) -> None:
        if len(self._rest) > _LONGEST:
            raise ToolError(
                f"find: {self._name!r} has a line of more than {_LONGEST:,} bytes that matches; leave that file out "
                "by target or include",
                kind="ValueError",
            )

    def shown(self) -> list[Hit]:
        """The first hits, with their context, by path and line."""
        hits: list[Hit] = []
        room = self._most
        for name in sorted(self._files):
            for hit in self._hits(name):
                if room == 0 and (hit.matched or not _follows(hit, hits[-1])):
                    return hits
                room -= hit.matched
                hits.append(hit)
        return hits

    def cut(self) -> list[str]:
        """The files of which a line is shown that was cut without knowing where its match is."""
        return list(dict.fromkeys(hit.name for hit in self.shown() if hit.cut))

    def place(self, found: Hits) -> None:
        """Take the hits of the files that another search for the same, made with columns, found; counts stay."""
        self._placed = found

    def text(self) -> str:
        """The hits as the model reads them: `path:line:text`; with context, lines below the path of their file."""
        total = sum(self._counts.values())
        if not total:
            return "[find] No matches found."
        hits = self.shown()
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
            lines.append(f"[more: {self._spread()}. Narrow it with target or include, or a more exact pattern.]")
        return "\n".join(lines)

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

    def _hits(self, name: str) -> list[Hit]:
        """The kept lines of a file."""
        if self._placed is not None and name in self._placed._files:  # noqa: SLF001 - of the same class
            return self._placed._hits(name)  # noqa: SLF001 - the same
        hits: list[Hit] = []
        for line in self._files[name]:
            if isinstance(line, Hit):
                hits.append(line)
            elif (begin := _LINE.match(line)) is not None:
                hits.append(self._hit(name, line[begin.end() :], int(begin[1]), matched=begin[2] == b":"))
        return hits

    def _hit(self, name: str, line: bytes, number: int, *, matched: bool) -> Hit:
        start = 0
        if matched and self._columns and (column := _COLUMN.match(line)) is not None:
            line = line[column.end() :]
            start = len(line[: int(column[1]) - 1].decode(errors="replace"))
        text = line.removesuffix(b"\r").decode(errors="replace")
        cut = matched and len(text) > _WIDTH and not self._columns
        if len(text) > _WIDTH:  # the part that its match stands in
            start = min(max(0, start - _BEFORE), len(text) - _WIDTH)
            end = start + _WIDTH
            head = f"[{start} characters]…" if start else ""
            tail = f"…[{len(text) - end} characters]" if end < len(text) else ""
            text = f"{head}{text[start:end]}{tail}"
        text = replace_binary(text)
        return Hit(name=name, line=number, text=text, matched=matched, cut=cut)

    def _take(self, data: bytes, start: int, end: int) -> None:
        """Some whole lines of the file under way, without the last one's end."""
        if data.startswith(b"\n", start):  # the end of a line that was taken before
            start += 1
        if start >= end or self._name is None or not self._counted:
            return
        if self._context:
            count = len(_MATCHED.findall(data[start:end]))
        else:
            last = max(start, data.rfind(b"\n", start, end) + 1)
            # The last one may be the remark that the file is binary.
            count = data.count(b"\n", start, end) + (_LINE.match(data, last) is not None)
        if count:
            self._counts[self._name] = self._counts.get(self._name, 0) + count
        if self._kept is not None and (room := self._most_lines - len(self._kept)) > 0:
            self._kept += [self._short(line) for line in data[start:end].split(b"\n", room)[:room]]

    def _short(self, line: bytes) -> bytes | Hit:
        """A line as it is kept: of a very long one only what will be shown."""
        begin = _LINE.match(line) if len(line) > _KEPT_BYTES else None
        if begin is None or self._name is None:
            return line
        return self._hit(self._name, line[begin.end() :], int(begin[1]), matched=begin[2] == b":")

    def _end(self) -> None:
        """The file under way is complete: forget the files that can no longer be among the first."""
        if self._kept is None or self._name is None:
            return
        bisect.insort(self._order, self._name)
        enough = 0
        for place, each in enumerate(self._order, 1):
            enough += self._counts.get(each, 0)
            if enough >= self._most:
                for late in self._order[place:]:
                    del self._files[late]
                del self._order[place:]
                self._full = True
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One line of a file.

    Attributes:
        name: the file's path from the workspace's root, as it is on the disk.
        line: its number, from 1.
        text: the line, cut around the match where it is long.
        matched: False for a line of context.
        cut: whether the line was cut without knowing where the match is.
    """

    name: str
    line: int
    text: str
    matched: bool
    cut: bool = False

    @property
    def file(self) -> str:
        """The path as it is shown."""
        return _printable(self.name)


def _follows(hit: Hit, previous: Hit) -> bool:
    return hit.name == previous.name and hit.line == previous.line + 1


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]


_CHUNK = 1 << 16
_MAX_ERRORS = 4_000
_SCRIPTS = "Scripts" if sys.platform == "win32" else "bin"


def ripgrep() -> Path | None:
    """The program that the wheel installs beside this Python; else one on the PATH; None where there is neither."""
    found = shutil.which(str(Path(sys.prefix, _SCRIPTS, "rg"))) or shutil.which("rg")
    return None if found is None else Path(found)


class Direct:
    """Starts each program in one directory, with no environment, one after the other.

    Attributes:
        busy: whether one runs.
        errors: the beginning of what the last one wrote to standard error.
        exit_code: of the last one; None when it was stopped.
    """

    def __init__(self, start: Callable[[Sequence[str]], Launch], directory: Path) -> None:
        """Start programs in `directory` of the host, by the command that `start` gives for them."""
        self._start = start
        self._directory = directory
        self.is_busy = False
        self.errors = ""
        self.exit_code: int | None = None

    async def run(self, argv: Sequence[str]) -> AsyncGenerator[bytes]:
        """Run a program and give what it writes, in pieces; leaving the iteration early stops it."""
        self.errors, self.exit_code = "", None
        launch = self._start(argv)
        process = await start_program(launch.argv, env=launch.env, cwd=self._directory, stderr=asyncio.subprocess.PIPE)
        self.is_busy = True
        if process.stdout is None or process.stderr is None:
            raise AssertionError("both are pipes")
        errors = asyncio.ensure_future(_head(process.stderr))
        try:
            while chunk := await process.stdout.read(_CHUNK):
                yield chunk
            self.errors = await errors
            await process.communicate()  # unlike `wait`, it reads what is left
            self.exit_code = process.returncode
        finally:
            errors.cancel()
            if process.returncode is None:
                end(process)
            await process.communicate()
            self.is_busy = False

    def close(self) -> None:
        """Nothing to do: what runs is stopped by leaving its iteration."""


async def _head(stream: asyncio.StreamReader) -> str:
    """The beginning of a stream, which is read to its end so that its writer does not block."""
    kept = b""
    while chunk := await stream.read(_CHUNK):
        kept = (kept + chunk)[:_MAX_ERRORS]
    return kept.decode(errors="replace").strip()


_MOST_BYTES = 16_000_000  # of one file, and of all output
_BINARY_HEAD = 8_000


def search(workspace: Workspace, pattern: str, targets: Sequence[str], context: int, binary: bool) -> bytes:  # noqa: FBT001 - a worker's arguments have no names
    """The lines that match, in the form that `Hits` reads, with the columns of matches.

    Args:
        workspace: where.
        pattern: a regular expression as RE2 reads it, which ripgrep's are much like.
        targets: files, and directories whose files that git ignores are left out; canonical.
        context: lines to give before and behind each match.
        binary: whether to also search files with NUL bytes.

    Raises:
        ToolError: there is no such regular expression.
    """
    import re2  # noqa: PLC0415 - only a search needs it

    try:
        read = options()
        read.encoding = re2.Options.Encoding.UTF8
        wanted = re2.compile(pattern.encode(), read)
    except re2.error as error:
        raise ToolError(f"find: {error}", kind="ValueError") from error
    output = bytearray()
    with workspace:
        for name in _names(workspace, targets):
            try:
                data = workspace.read_bytes(name, _MOST_BYTES)
            except ToolError:  # too large, gone, or not to be read: ripgrep passes over it, too
                continue
            if binary or b"\0" not in data[:_BINARY_HEAD]:
                part = _found(name, data, wanted, context)
                output += b"\n" + part if output and part else part  # an empty line ends a file
            if len(output) > _MOST_BYTES:
                break
    return bytes(output)


def _names(workspace: Workspace, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        base = "" if target == "." else f"{target}/"
        if workspace.is_directory(target):
            yield from sorted(name for _, name in walk(workspace, base, rules_above(workspace, base)))
        else:
            yield target


def _found(name: str, data: bytes, wanted: Any, context: int) -> bytes:  # noqa: ANN401 - a library without types
    """One file's part of the output; empty without a match."""
    lines = data.removesuffix(b"\n").split(b"\n")
    matches = {number: found.start() for number, line in enumerate(lines) if (found := wanted.search(line)) is not None}
    if not matches:
        return b""
    shown = {near for number in matches for near in range(number - context, number + context + 1)}
    told = [
        b"%d:%d:%b" % (number + 1, matches[number] + 1, lines[number])
        if number in matches
        else b"%d-%b" % (number + 1, lines[number])
        for number in sorted(shown & set(range(len(lines))))
    ]
    return name.encode("utf-8", "surrogateescape") + b"\0" + b"\n".join(told) + b"\n"
