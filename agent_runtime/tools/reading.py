"""Texts of `read_file`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import accumulate
from typing import NamedTuple

from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.core.values import ListedLines
from agent_runtime.index import parsing
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.workspace.diffs import Text, is_integer
from agent_runtime.workspace.edits import number_lines
from agent_runtime.workspace.overlay import TextFile

WHOLE_CHARS = 8_000
"""Characters up to which a file or class is shown whole; above, its outline and one more request cost less."""
_PART_CHARS, _HEAD_CHARS, _OUTLINE_CHARS, _RANGE_CHARS, _NUMBER_CHARS = 6_000, 1_200, 3_000, 60_000, 6
_SYMBOL_SECONDS, _READ_SECONDS = 5.0, 10.0
_SMALL_CHARS, _MEMORY = 256_000, 200 * 1024**2  # longer texts are cut into lines in a worker process
_COMPARED_NAMES, _COMPARED_CHARS = 1_000, 80


class Symbol(NamedTuple):
    """A definition; `parent` is the index of the enclosing one, or -1."""

    first: int
    last: int
    size: int
    qualified: str
    kind: str
    parent: int


def read_lines(path: str, file: TextFile, start: int, end: int | None, max_chars: int | None) -> ListedLines:
    """List lines of a file; of a long one without a range, an outline."""
    members, size = list[tuple[int, Symbol]](), len(file.text.raw) + _NUMBER_CHARS * file.text.count
    if start == 1 and end is None and max_chars is None and size > WHOLE_CHARS:
        with suppress(BoundExceededError):
            members = _members(_find_symbols(path, file.text.raw))
    limit = max_chars or (_RANGE_CHARS if end is not None or size <= WHOLE_CHARS else _PART_CHARS)
    return _read(path, file, (start, end), limit, members)


def read_symbol(path: str, file: TextFile, name: str, max_chars: int | None) -> list[ListedLines]:
    """List the definitions of a qualified name or of its end; of a long class, an outline."""
    symbols, wanted = _find_symbols(path, file.text.raw), re.sub(r"::|#", ".", name.removesuffix("()"))
    matches = [symbol.qualified for symbol in symbols if f".{symbol.qualified}".endswith(f".{wanted}")]
    if not matches:
        compared = [each.qualified for each in symbols[:_COMPARED_NAMES] if len(each.qualified) <= _COMPARED_CHARS]
        names = ", ".join(map(_printable, get_close_matches(wanted[:_COMPARED_CHARS], compared, n=5, cutoff=0.5)))
        raise ToolError(
            f"{path!r} has no definition {name!r}; {f'it has {names}' if names else 'use find()'}", kind="ValueError"
        )
    chosen, parts = wanted if wanted in matches else matches[0], list[ListedLines]()
    for place, symbol in enumerate(symbols):
        if symbol.qualified == chosen:
            is_long = symbol.size + _NUMBER_CHARS * (symbol.last - symbol.first) > WHOLE_CHARS
            members = _members(symbols, place) if is_long and symbol.kind == "class" and not max_chars else []
            parts.append(_read(path, file, (symbol.first, symbol.last), max_chars or _RANGE_CHARS, members))
    return parts


def _find_symbols(path: str, source: str) -> list[Symbol]:
    task = f"Looking for definitions in {path!r}"
    rows = call_bounded(parsing.list_definitions, path, source, seconds=_SYMBOL_SECONDS, task=task)
    return [Symbol(*row) for row in rows]


def _members(symbols: Sequence[Symbol], root: int = -1) -> list[tuple[int, Symbol]]:
    """Return the members of a file or class with their depth."""
    depths, members = {root: -1 if root < 0 else 0}, list[tuple[int, Symbol]]()
    for place, symbol in enumerate(symbols):
        if symbol.parent in depths and symbol.kind != "constant":
            members.append((depths[symbol.parent] + 1, symbol))
            if symbol.kind == "class":
                depths[place] = members[-1][0]
    return members


def _read(
    path: str, file: TextFile, span: tuple[int, int | None], max_chars: int, members: Sequence[tuple[int, Symbol]]
) -> ListedLines:
    """List lines, or those above the first member and an outline."""
    start, end = span
    stop = max(start, members[0][1].first - 1) if members else None
    arguments = (path, file.text, file.version, (start, end, stop), _HEAD_CHARS if members else max_chars)
    if len(file.text.raw) <= _SMALL_CHARS:
        packed = _pack_lines(*arguments)
    else:
        packed = call_bounded(_pack_lines, *arguments, seconds=_READ_SECONDS, memory=_MEMORY, task=f"Reading {path!r}")
    first, _, value = packed.partition("\n")
    text, last = json.loads(first)
    if members:
        entries = [
            f"{'  ' * depth}{symbol.first}-{symbol.last} {'class ' * (symbol.kind == 'class')}"
            f"{_printable(symbol.qualified if depth == 0 else symbol.qualified.rpartition('.')[2])}"
            for depth, symbol in members
        ]
        if sum(map(len, entries)) > _OUTLINE_CHARS:  # only the outer ones
            entries = [entry for entry, (depth, _) in zip(entries, members, strict=True) if depth == members[0][0]]
        fitting = sum(size <= _OUTLINE_CHARS for size in accumulate(map(len, entries)))
        if fitting < len(entries):
            entries[fitting:] = [
                f"… {len(entries) - fitting} more, from line {entries[fitting].split('-')[0].strip()} on"
            ]
        note = f"[the rest by name, e.g. read_file({f'{path}::{members[0][1].qualified}'!r}), or by lines:]"
        text = "\n".join([text, note, *entries])
    return ListedLines(value=value, text=text, path=path, version=file.version, first=start, last=last)


def _pack_lines(path: str, text: Text, version: str, span: tuple[int, int | None, int | None], max_chars: int) -> str:
    """Return the listing and its last line as JSON, then the plain lines."""
    (start, end, stop), count = span, text.count
    if not is_integer(start) or not (end is None or is_integer(end)):
        raise ToolError("start_line and end_line must be whole numbers", kind="TypeError")
    if not 1 <= start <= max(1, count):
        raise ToolError(f"start_line={start}: must be 1 to {max(1, count)}, the file's last line", kind="ValueError")
    if end is not None and end < start:
        raise ToolError(f"end_line={end}: must be at least start_line={start}", kind="ValueError")
    last = count if end is None else min(end, count)
    listing, last_listed = number_lines(text.first_lines(last), start, min(last, stop or last), max_chars)
    if last_listed < last and stop is None:
        listing.append(f"[{last - last_listed} more lines: read_file({path!r}, {last_listed + 1}, {last}) goes on]")
    span_note = f"lines {start}–{last_listed} of {count}" if count else "empty"  # noqa: RUF001 - the dash of a range
    details = ", ".join(note for note in (span_note, f"version {version}", text.format_notes) if note)
    selected = text.first_lines(last)[start - 1 : last]
    ends_line = last < count or text.ends_with_newline
    listing.insert(0, f"[read_file] {path!r} ({details})")
    # The limit of a step may cut a range again, and then names all missing lines.
    header = json.dumps(["\n".join(listing), last_listed if end is None or stop is not None else last])
    return f"{header}\n" + "\n".join(selected) + ("\n" if selected and ends_line else "")


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]
