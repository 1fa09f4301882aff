"""Stands in for ripgrep where there is none: the same options, the same output, as far as `find` uses them.

It runs as a process of its own, because Python's regular expressions can take exponential time, and a process can be
killed at the deadline. What it opens it opens beneath its working directory, see `confined`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import rules_above, walk

_LARGEST = 1 << 30
_GIVEN = (
    "--no-config",
    "--heading",
    "--with-filename",
    "--null",
    "--line-number",
    "--text",
    "--hidden",
    "--no-require-git",
    "--no-messages",
    "--no-ignore-parent",
    "--no-ignore-dot",
    "--no-ignore-exclude",
    "--no-ignore-global",
)
"""What is so here in any case."""
_LOOKED_AT = 1 << 16
"""Bytes in which a NUL makes a file one that is not text; ripgrep looks at its first buffer, too."""


def main(argv: Sequence[str]) -> int:
    """Search as `rg` with these arguments would; 0 when something was found, 1 when not, 2 for an error."""
    told = _parser().parse_args(argv)
    try:
        pattern = re.compile(told.pattern)
    except re.error as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        return 2
    if "\n" in told.pattern:
        sys.stderr.write("the literal '\\n' is not allowed in a regex\n")
        return 2
    found = False
    readable = {name: Path(place) for name, _, place in (each.partition("=") for each in told.readable)}
    with Workspace(Path.cwd(), readable=readable, confined_to_root=not told.anywhere) as workspace:
        for name, asked_for in _files(workspace, told.targets):
            lines = _lines(workspace, name, asked_for=asked_for)
            hits = [number for number, line in enumerate(lines) if pattern.search(line)][: told.max_count]
            if hits:
                sys.stdout.write("\n" * found)
                found = True
                _write(name, lines, hits, pattern, told)
    return 0 if found else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="find", allow_abbrev=False)
    for flag in (*_GIVEN, "--column", "--anywhere"):
        parser.add_argument(flag, action="store_true")
    for option in ("--iglob", "--type", "--type-add", "--color"):  # `find` leaves the other names out itself
        parser.add_argument(option, action="append")
    parser.add_argument("--readable", action="append", default=[])
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--max-count", type=int)
    parser.add_argument("-e", dest="pattern", required=True)
    parser.add_argument("targets", nargs="+")
    return parser


def _files(workspace: Workspace, targets: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each file to search, and whether it was named itself."""
    for target in targets:
        if workspace.is_file(target):
            yield target, True
            continue
        start = workspace.resolve(target)
        prefix = "" if start == "." else f"{start}/"
        for _, name in walk(workspace, prefix, rules_above(workspace, prefix)):
            if "\n" not in name:
                yield name if name.startswith("/") else f"./{name}", False


def _lines(workspace: Workspace, name: str, *, asked_for: bool) -> list[str]:
    try:
        data = workspace.read_bytes(name, _LARGEST)
    except ToolError:  # as above
        return []
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", errors="replace").encode()
    elif not asked_for and b"\0" in data[:_LOOKED_AT]:
        return []
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="surrogateescape")
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _write(
    name: str, lines: Sequence[str], hits: Sequence[int], pattern: re.Pattern[str], told: argparse.Namespace
) -> None:
    sys.stdout.write(f"{name}\0")
    matched = set(hits)
    near = range(-told.context, told.context + 1)
    for number in sorted({hit + n for hit in hits for n in near if 0 <= hit + n < len(lines)}):
        line, column = lines[number], ""
        if told.column and number in matched and (at := pattern.search(line)) is not None:
            column = f"{len(line[: at.start()].encode(errors='surrogateescape')) + 1}:"
        sys.stdout.write(f"{number + 1}{':' if number in matched else '-'}{column}{line}\n")


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr] # both are real files
    sys.exit(main(sys.argv[1:]))
