"""Find out which changed lines a run has read, from its events.

A line counts if a message to the model had its text with its file and number: in hunks of the first message, in results
of `read_file` and `find`, or in a diff. `Reading.of` collects lines, `find_unread` compares them.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agent_runtime import ChildRecorded, Event, Observed, Started, ToolReturned
from bot.domain.difference import ChangedFile, Hunk, Section, Side, clip_name, parse_patch
from bot.prompt.difference import DIFF_SOURCE

_LISTED = re.compile(r"\n(?:\[lines [0-9]{1,9}-[0-9]{1,9}: above\]\n)? *([0-9]{1,9}) \|([^\n]*)")
"""A line below the heading of a read; lines that the step has shown already may be left out before it."""
# Of these, git, the tools and the host's decoding may make others.
_UNCERTAIN = re.compile(r"[^!-~]+")
_MAX_NAMES = 50
_GENERATED = frozenset({"generated", "lock file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Changed files of which no step read all changed lines.

    Attributes:
        names: of the first ones, each with its kind and size.
        generated: number of lock, generated and binary files among `total`.
        changed: number of all changed files, without ignored ones.
        ignored: names of files that the repository leaves out of reviews, as far as they are listed.
    """

    names: tuple[tuple[str, str], ...] = ()
    total: int = 0
    generated: int = 0
    changed: int = 0
    ignored: tuple[str, ...] = ()
    ignored_total: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether more than lock, generated and binary files are unread, or no file was read."""
        return self.generated < self.total or self.total == self.changed


@dataclass(frozen=True, slots=True)
class Reading:
    """The lines that a run has read: path, side of the difference, number, and text unless the host chose the line."""

    lines: set[tuple[str, Side, int, str | None]] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Reading:
        reading = cls()
        calls: dict[tuple[str, ...], list[ToolReturned]] = defaultdict(list)
        for run, event in _flatten(events):
            match event:
                case Started(task=task):
                    for quote in task.quotes:
                        if quote.source == DIFF_SOURCE:
                            reading._add_patch(quote.text, is_chosen=True)
                case ToolReturned(ok=True):
                    calls[run].append(event)
                case Observed():
                    message = "\n".join([event.text, *(answer.text for answer in event.answers)])
                    reading._add_patch(message)
                    for call in calls.pop(run, ()):
                        reading._add_call(call, message)
                case _:
                    pass
        return reading

    def touches(self, file: ChangedFile) -> bool:
        return not self.paths.isdisjoint(file.paths)

    def has_read(self, section: Section, hunk: Hunk) -> bool:
        """Whether the lines after the change were read; for a deletion, the deleted ones or those around it."""
        lines = hunk.numbered
        if added := [(new, text) for mark, _, new, text in lines if mark == "+"]:
            return self._have("RIGHT", section.path, added)
        removed = [(old, text) for mark, old, _, text in lines if mark == "-"]
        around = [(new, text) for mark, _, new, text in lines if mark == " "]
        return self._have("LEFT", section.previous, removed) or self._have("RIGHT", section.path, around)

    def _have(self, side: Side, path: str, lines: Sequence[tuple[int, str]]) -> bool:
        return bool(lines) and all(
            (path, side, number, None) in self.lines or (path, side, number, _UNCERTAIN.sub("", text)) in self.lines
            for number, text in lines
        )

    def _add(self, path: str, side: Side, number: int, text: str | None) -> None:
        self.paths.add(path)
        self.lines.add((path, side, number, text if text is None else _UNCERTAIN.sub("", text)))

    def _add_call(self, call: ToolReturned, message: str) -> None:
        """Add the lines of a call's result, as far as the step's message to the model has them."""
        if call.tool == "read_file":
            padded, names = f"\n{message}\n", call.args.get("path", "")
            for path in {str(name).partition("::")[0] for name in (names if isinstance(names, list) else [names])}:
                at = 0
                while (at := padded.find(f"\n[read_file] {path!r} (", at)) >= 0:
                    at = padded.index("\n", at + 1)
                    while (listed := _LISTED.match(padded, at)) is not None:
                        self._add(posixpath.normpath(path), "RIGHT", int(listed[1]), listed[2])
                        at = listed.end()
        elif call.tool == "find" and isinstance(call.value, list):
            for match in call.value:
                text, line = (match.get("text"), match.get("line")) if isinstance(match, dict) else ("", 0)
                if isinstance(match, dict) and isinstance(line, int) and f"{line}:{text}" in message:
                    self._add(str(match.get("file", "")), "RIGHT", line, str(text))

    def _add_patch(self, text: str, *, is_chosen: bool = False) -> None:
        for section in parse_patch(text):
            for mark, old, new, line in (line for hunk in section.hunks for line in hunk.numbered):
                shown = None if is_chosen else line
                if mark != "+":
                    self._add(section.previous, "LEFT", old, shown)
                if mark != "-":
                    self._add(section.path, "RIGHT", new, shown)


def _flatten(events: Iterable[Event], run: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Event]]:
    """Yield each event with the names of the tasks that its run was delegated in."""
    for event in events:
        if isinstance(event, ChildRecorded):
            yield from _flatten([event.event], (*run, event.task))
        else:
            yield run, event


def find_unread(
    files: Sequence[ChangedFile], ignored: Collection[str], sections: Iterable[Section], reading: Reading
) -> Unread:
    """Compare the changed files with the lines read, except `ignored` paths.

    `sections` are those of files that the run touched.
    """
    by_path = {section.path: section for section in sections}
    names, total, generated = list[tuple[str, str]](), 0, 0
    kept = [file for file in files if file.path not in ignored]
    for file in kept:
        if not file.lines and not (file.binary and file.status != "deleted"):
            continue
        section = by_path.get(file.path, Section(path=file.path))
        hunks = section.hunks
        unread = [hunk for hunk in hunks if not reading.has_read(section, hunk)]
        if file.lines and sum(hunk.count("+-") for hunk in hunks) == file.lines and not unread:
            continue
        total, generated = total + 1, generated + (file.binary or file.mark in _GENERATED)
        if len(names) < _MAX_NAMES:
            part = f", {len(unread)} of {len(hunks)} parts" if 0 < len(unread) < len(hunks) else ""
            names.append((_name(file), f"{replace(file, previous='').facts}{part}"))
    left_out = tuple(_name(file) for file in files if file.path in ignored)
    return Unread(
        names=tuple(names),
        total=total,
        generated=generated,
        changed=len(kept),
        ignored=left_out[:_MAX_NAMES],
        ignored_total=len(left_out),
    )


def _name(file: ChangedFile) -> str:
    return clip_name(file.path.encode("utf-8", "replace").decode())
