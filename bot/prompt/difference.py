"""Show the agent a difference within a budget: a table of all files, and the changes most worth reading.

`order_files` sorts by relevance, `Difference.render` chooses whole files, then hunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice

from agent_runtime import Policy, Rule
from bot.domain.difference import TEST_PATH, ChangedFile, Hunk, Section, clip_name, quote_name
from bot.prompt.sanitize import clean_code

DIFF_SOURCE = "the pull request's diff"
"""Source of the quote with a difference."""
_CUT = "[Shown: "
_DOCUMENT = re.compile(
    r"(?:^|/)docs?/|\.(?:md|mdx|rst|adoc|txt)$|(?:^|/)(?:LICEN[CS]E|NOTICE|CHANGELOG|CHANGES|AUTHORS)(?:\.[^/]*)?$",
    re.IGNORECASE,
)
_DATA = re.compile(
    r"\.(?:json[5l]?|ndjson|geojson|csv|tsv|xml|svg|po|pot|ipynb|sql|html?|log|lock)$|(?:^|/)(?:data|fixtures|locales?)/",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\s`'\"()<>\[\]{},;:|*]+")
_LONE_RETURN = re.compile(r"\r(?!\n|\Z)")
_MOST_CHARS = 1_000_000
_MAX_WORDS_CHARS, _MAX_NAMES = 200_000, 20_000
_MAX_PARTS = 8
"""Of a path, from its end, that a text may name."""

_GROUPS = ("Named in the request or the thread", "Source", "Tests", "Documents", "Data", "Seldom worth reading")
_FOLDED = len(_GROUPS) - 1
_SMALL_CHARS = 4_000
"""Of a file that is seldom worth reading, and is shown all the same."""
_TOOL = "read_file"
_TABLE_SHARE, _LEAST_TABLE = 0.5, 1_500
_LEAST_PART = 400
"""Characters of a hunk that are worth showing."""
_NOTE_CHARS = 100
"""Of the note that a file is cut, and of a header."""
_MOST_LINES, _MOST_FILES, _FILE_LINES = 30_000, 400, 1_000
"""Of the files whose patch is read, and of one of them, so that a huge one leaves room for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedFile:
    """A changed file; `rank` is its place in `_GROUPS`."""

    file: ChangedFile
    rank: int


def order_files(files: Iterable[ChangedFile], texts: Iterable[str], request: str = "") -> tuple[OrderedFile, ...]:
    """Sort files by relevance: files that the texts name, source, tests, documents, data, marked and binary files.

    A marked file comes first only if the request itself names it. Within a rank, small changes come first.
    """
    requested = _find_names([request])
    names = _find_names(texts) | requested
    ordered = [OrderedFile(file=file, rank=_rank(file, requested if file.mark else names)) for file in files]
    return tuple(sorted(ordered, key=lambda entry: (entry.rank, entry.file.lines, entry.file.path)))


def _find_names(texts: Iterable[str]) -> set[str]:
    words = (word[0].strip("./") for text in texts for word in _WORD.finditer(text[:_MAX_WORDS_CHARS]))
    return set(islice((word for word in words if "." in word or word[:1].isupper()), _MAX_NAMES))


def _rank(file: ChangedFile, names: set[str]) -> int:
    for path in file.paths if names else ():
        parts = path.rsplit("/", _MAX_PARTS)[-_MAX_PARTS:]
        if path in names or any("/".join(parts[at:]) in names for at in range(len(parts))):
            return 0
    if file.mark or file.binary:
        return _FOLDED
    kinds, outline = (TEST_PATH, _DOCUMENT, _DATA), file.outline
    return next((rank for rank, kind in enumerate(kinds, 2) if kind.search(outline)), 1)


def find_ignored(paths: Sequence[str], globs: Sequence[str]) -> list[int]:
    """Return the positions of the paths that match a glob.

    A hundred globs and thousands of long paths take half a minute: run it in a worker process.
    """
    # A rule that asks matches in any case and with everything below.
    policy = Policy(rules=(Rule(decision="ask", tool=_TOOL, paths=tuple(globs)),))
    return [number for number, path in enumerate(paths) if policy.hides(_TOOL, path)]


def choose_readable(ordered: Iterable[OrderedFile]) -> list[ChangedFile]:
    """Return the first files with lines, as many as a prompt can show."""
    chosen: list[ChangedFile] = []
    lines = 0
    for entry in ordered:
        if entry.file.lines and len(chosen) < _MOST_FILES and lines < _MOST_LINES:
            chosen.append(entry.file)
            lines += min(entry.file.lines, _FILE_LINES)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changed files by relevance, with the sections of those that can be shown.

    Attributes:
        ignored: files that the repository leaves out of reviews.
    """

    files: tuple[OrderedFile, ...] = ()
    sections: Mapping[str, Section] = field(default_factory=dict)
    ignored: tuple[ChangedFile, ...] = ()

    @classmethod
    def of(
        cls, files: Sequence[OrderedFile], sections: Iterable[Section], ignored: Sequence[ChangedFile] = ()
    ) -> Difference:
        """Make a difference; files whose patch turns out to be that of a minified file come last."""
        by_path = {section.path: section for section in sections}
        marked = [
            replace(entry, file=replace(entry.file, mark="minified"), rank=_FOLDED)
            if entry.rank not in {0, _FOLDED} and (section := by_path.get(entry.file.path)) and section.is_dense
            else entry
            for entry in files
        ]
        return cls(files=tuple(sorted(marked, key=lambda entry: entry.rank)), sections=by_path, ignored=tuple(ignored))

    def render(self, room: int) -> str:
        """Return the table and the changes that fit into `room` characters; empty without a change."""
        if not self.files and not self.ignored:
            return ""
        table = self._render_table(max(min(_LEAST_TABLE, room - _LEAST_PART), int(room * _TABLE_SHARE)))
        shown = _Choice(self.sections, room - len(table) - _LEAST_PART)
        shown.choose(self.files)
        blocks = [table, *(shown.render(entry.file) for entry in self.files if entry.file.path in shown.hunks)]
        readable = [entry.file for entry in self.files if entry.file.lines]
        whole = sum(shown.is_whole(file) for file in readable)
        parts = sum(file.path in shown.hunks for file in readable) - whole
        if whole < len(readable):
            rest = len(readable) - whole - parts
            blocks.append(f"{_CUT}all changes of {whole:,} files, a part of {parts:,}, none of {rest:,}.]")
        return "\n".join(blocks)

    def _render_table(self, room: int) -> str:
        files = [entry.file for entry in self.files]
        head = f"{_count(files)} changed:"
        rows = [_Row(entry.rank, entry.file.path.rpartition("/")[0], (entry.file,)) for entry in self.files]
        if self.ignored:
            rows.append(_Row(len(_GROUPS), "", tuple(self.ignored)))
        return f"{head}\n{_fold(rows, room - len(head) - 1)}"


def is_cut(text: str) -> bool:
    """Whether a rendered difference shows only a part of the changes."""
    return text.rpartition("\n")[2].startswith(_CUT)


@dataclass(frozen=True, slots=True)
class _Row:
    """The files of one rank in one directory; those that a review leaves out have a rank of their own."""

    rank: int
    directory: str
    files: tuple[ChangedFile, ...]

    @property
    def place(self) -> str:
        if self.rank == len(_GROUPS):
            return "Left out of reviews by the repository: "
        return f"- {clip_name(quote_name(self.directory))}/: " if self.directory else "- "

    def summary(self, files: Sequence[ChangedFile]) -> str:
        return f"{'and ' if len(files) < len(self.files) else ''}{_count(files)}"

    def render(self, room: int) -> str:
        """Name as many files as fit, and count the rest."""
        rest, named = list(self.files), list[str]()
        room -= len(self.place) + len(self.summary(rest)) + len("and ")
        depth = len(self.directory) + 1 if self.directory else 0
        for file in self.files:
            name = f"{clip_name(quote_name(file.path[depth:]))} ({file.facts})"
            last = len(rest) == 1
            if (room := room - len(name) - 2) < (-len(self.summary(rest)) if last else 0):
                break
            named.append(name)
            del rest[0]
        return f"{self.place}{', '.join([*named, *([self.summary(rest)] if rest else [])])}"


def _fold(rows: Sequence[_Row], room: int) -> str:
    """Render rows by rank and directory; directories that do not fit are counted with their parents'."""
    depth = max((row.directory.count("/") + 1 for row in rows if row.directory), default=0)
    depth = min(depth, _MAX_PARTS)
    while True:
        merged = list(_merge(rows, depth))
        headings = sum(len(_heading(rank)) + 1 for rank in {row.rank for row in merged})
        least = sum(len(row.place) + len(row.summary(row.files)) + 5 for row in merged) + headings
        if least <= room or not depth:
            break
        depth -= 1
    spare, lines, rank = max(0, room - least), list[str](), -1
    for row in merged:
        if row.rank != rank and (heading := _heading(row.rank)):
            lines.append(heading)
        rank = row.rank
        minimum = len(row.place) + len(row.summary(row.files)) + 5
        line = row.render(minimum + spare)
        spare -= max(0, len(line) + 1 - minimum)
        lines.append(line)
    return "\n".join(lines)


def _merge(rows: Iterable[_Row], depth: int) -> Iterator[_Row]:
    merged: dict[tuple[int, str], list[ChangedFile]] = {}
    for row in rows:
        directory = "/".join(row.directory.split("/")[:depth])
        merged.setdefault((row.rank, directory), []).extend(row.files)
    for (rank, directory), files in merged.items():
        yield _Row(rank, directory, tuple(files))


def _heading(rank: int) -> str:
    return f"{_GROUPS[rank]}:" if rank < len(_GROUPS) else ""


def _count(files: Sequence[ChangedFile]) -> str:
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    lines = " ".join(filter(None, [f"+{added:,}" if added else "", f"-{removed:,}" if removed else ""]))
    number = f"{len(files):,} file{'' if len(files) == 1 else 's'}"
    return f"{number} ({lines})" if lines else number


class _Choice:
    """The hunks to show, chosen within a number of characters.

    In each group small files come whole, then larger ones with at most half of the room that is left; what remains
    after all groups goes to further hunks, the last of which is cut at a line.
    """

    def __init__(self, sections: Mapping[str, Section], room: int) -> None:
        self.hunks: dict[str, list[Hunk]] = {}
        self._texts: dict[tuple[str, int], str] = {}
        self._sections, self._room = sections, room

    def choose(self, files: Sequence[OrderedFile]) -> None:
        groups = [(rank, [entry.file for entry in group]) for rank, group in groupby(files, key=lambda file: file.rank)]
        shown = [group for rank, group in groups if rank != _FOLDED or len(groups) == 1]
        for group in shown:
            self._take_each(group, lambda section: self._take_whole(section, self._room // 2))
            self._take_each(group, lambda section: self._take_hunks(section, self._room // 2))
        for group in shown:
            self._take_each(group, lambda section: self._take_hunks(section, self._room, cuts=True))
        for group in (group for _, group in groups if group not in shown):
            self._take_each(group, lambda section: self._take_whole(section, min(self._room, _SMALL_CHARS)))

    def _take_each(self, files: Iterable[ChangedFile], take: Callable[[Section], None]) -> None:
        for file in files:
            if self._room > _LEAST_PART and not self.is_whole(file) and file.path in self._sections:
                take(self._sections[file.path])

    def count(self, file: ChangedFile) -> int:
        """Return the number of changed lines shown."""
        return sum(hunk.count("+-") for hunk in self.hunks.get(file.path, ()))

    def is_whole(self, file: ChangedFile) -> bool:
        return file.path in self.hunks and self.count(file) == file.lines

    def _take_whole(self, section: Section, room: int) -> None:
        if sum(len(line) for hunk in section.hunks for line in hunk.lines) > room:
            return
        size = _title_size(section) + sum(len(self._text(section, number)) + 1 for number in range(len(section.hunks)))
        if size <= room:
            self.hunks[section.path] = list(section.hunks)
            self._room -= size

    def _take_hunks(self, section: Section, room: int, *, cuts: bool = False) -> None:
        """Take the hunks behind those already taken, as far as they fit."""
        taken = len(self.hunks.get(section.path, ()))
        overhead = 0 if taken else _title_size(section) + _NOTE_CHARS
        for number in range(taken, len(section.hunks)):
            hunk, rest = section.hunks[number], room - overhead
            fits = sum(map(len, hunk.lines)) < rest and len(self._text(section, number)) < rest
            shown, size = (hunk, len(self._text(section, number)) + 1) if fits else self._cut(hunk, rest if cuts else 0)
            if not size:
                return
            room -= size + overhead
            self._room -= size + overhead
            overhead = 0
            self.hunks.setdefault(section.path, []).append(shown)
            if not fits:
                return

    def _cut(self, hunk: Hunk, room: int) -> tuple[Hunk, int]:
        """Return the first lines of a hunk, with a header that counts these, and their size; 0 if they are too few."""
        count, size = 0, _NOTE_CHARS
        for line in hunk.lines:
            added = len(_clean(line)) + 1 if len(line) < room else room
            if size + added > room:
                break
            count, size = count + 1, size + added
        cut = hunk.head(count)
        return cut, size if size >= _LEAST_PART and cut.count("+-") else 0

    def _text(self, section: Section, number: int) -> str:
        key = section.path, number
        if key not in self._texts:
            hunk = section.hunks[number].text
            self._texts[key] = _clean(hunk)
        return self._texts[key]

    def render(self, file: ChangedFile) -> str:
        section, hunks = self._sections[file.path], self.hunks[file.path]
        texts = []
        for number, hunk in enumerate(hunks):
            whole = hunk == section.hunks[number]
            texts.append(self._text(section, number) if whole else _clean(hunk.text))
        if (shown := self.count(file)) < file.lines:
            texts.append(f"[cut: {shown:,} of the {file.lines:,} changed lines of this file are shown]")
        return "\n".join([_title(section), *texts])


def _clean(text: str) -> str:
    # A lone carriage return must not begin a line, which could look like a header.
    return clean_code(_LONE_RETURN.sub("[U+000D]", text), limit=_MOST_CHARS)


def _title_size(section: Section) -> int:
    return len(_title(section)) + 1


def _title(section: Section) -> str:
    before = f"a/{section.previous}" if section.previous else "/dev/null"
    return f"--- {quote_name(before)}\n+++ {quote_name(f'b/{section.path}')}"
