"""Find out which changed lines a run has read, from its events.

Lines count that the host knows to have been in a message to the model: hunks of the first message, results of
`read_file` and `find`, and diffs that git printed. `Reading.of` collects them, `find_unread` compares.
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

_SPAN = re.compile(r"\(lines (\d{1,9})\u2013(\d{1,9}) of ")
_OMITTED = re.compile(r"\[not shown, since [^\n\[\]]*: lines (\d{1,9})-(\d{1,9}) of (['\"].*)\]$", re.MULTILINE)
# A program of the repository could print anything.
_GIT_DIFF = re.compile(
    r"\s*git(?:\s+(?:--no-pager|-C\s+\S+|-c\s+\S+))*\s+(?:diff|show|log|diff-tree)\b[^;&|`$<>\n]*"
    r"(?:\|\s*(?:head|tail|cat)\b[^;&|`$<>\n]*)?"
)
_MAX_NAMES = 50
_Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Changed files of which no step read all changed lines.

    Attributes:
        names: of the first ones, each with its kind and size.
        changed: number of all changed files, without ignored ones.
        ignored: names of files that the repository leaves out of reviews, as far as they are listed.
    """

    names: tuple[tuple[str, str], ...] = ()
    total: int = 0
    changed: int = 0
    ignored: tuple[str, ...] = ()
    ignored_total: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The lines that a run has read, by path and side of the difference."""

    spans: dict[tuple[str, Side], list[_Span]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, events: Iterable[Event]) -> Reading:
        reading = cls()
        calls: dict[tuple[str, ...], list[ToolReturned]] = defaultdict(list)
        for run, event in _flatten(events):
            match event:
                case Started(task=task):
                    for quote in task.quotes:
                        if quote.source == DIFF_SOURCE:
                            reading._add_patch(quote.text)
                case ToolReturned(ok=True):
                    calls[run].append(event)
                case Observed():
                    message = "\n".join([event.text, *(answer.text for answer in event.answers)])
                    for call in calls.pop(run, ()):
                        reading._add_call(call, message)
                case _:
                    pass
        return reading

    def touches(self, file: ChangedFile) -> bool:
        return any((path, side) in self.spans for path in file.paths for side in ("LEFT", "RIGHT"))

    def covers(self, path: str, side: Side, first: int, last: int) -> bool:
        for start, end in sorted(self.spans.get((path, side), ())):
            if start <= first <= end:
                first = end + 1
            if first > last:
                return True
        return False

    def has_read(self, section: Section, hunk: Hunk) -> bool:
        """Whether the lines after the change were read; for a deletion, the deleted ones or those around it."""
        sides = {side: (first, last) for side, first, last in hunk.changed_lines}
        if "RIGHT" in sides:
            return self.covers(section.path, "RIGHT", *sides["RIGHT"])
        paths = (section.path, section.previous)
        if "LEFT" in sides and any(self.covers(path, "LEFT", *sides["LEFT"]) for path in paths):
            return True
        count = hunk.new_count
        return count > 0 and self.covers(section.path, "RIGHT", hunk.new, hunk.new + count - 1)

    def _add_call(self, call: ToolReturned, message: str) -> None:
        """Add the lines of a call's result, as far as the step's message to the model has them."""
        head = call.text.partition("\n")[0]
        if head not in message:  # the agent's code has used the result
            return
        name = str(call.args.get("path", "")).partition("::")[0]
        path = posixpath.normpath(name)
        if call.tool == "read_file" and (spans := _SPAN.findall(head)):
            first, last = map(int, spans[-1])
            for start, end, omitted in _OMITTED.findall(message):
                if repr(name).startswith(omitted.rstrip("\u2026")):
                    last = min(last, int(start) - 1) if int(end) >= first else last
            self.spans[path, "RIGHT"].append((first, last))
        elif call.tool == "execute" and _GIT_DIFF.fullmatch(str(call.args.get("command", ""))):
            self._add_patch(call.text, message)
        elif call.tool == "find" and isinstance(call.value, list):
            for match in call.value:
                text, line = (match.get("text"), match.get("line")) if isinstance(match, dict) else ("", 0)
                if isinstance(match, dict) and isinstance(line, int) and str(text) in message:
                    self.spans[str(match.get("file", "")), "RIGHT"].append((line, line))

    def _add_patch(self, text: str, message: str | None = None) -> None:
        for section in parse_patch(text):
            for hunk in section.hunks:
                if message is not None and "\n".join(hunk.lines) not in message:
                    continue
                old, new = hunk.old_count, hunk.new_count
                if old:
                    self.spans[section.previous or section.path, "LEFT"].append((hunk.old, hunk.old + old - 1))
                if new:
                    self.spans[section.path, "RIGHT"].append((hunk.new, hunk.new + new - 1))


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
    names, total = list[tuple[str, str]](), 0
    kept = [file for file in files if file.path not in ignored]
    for file in kept:
        if not file.lines and not (file.binary and file.status != "deleted"):
            continue
        section = by_path.get(file.path)
        hunks = section.hunks if section is not None else ()
        unread = [hunk for hunk in hunks if section is not None and not reading.has_read(section, hunk)]
        patch_lines = sum(line[:1] in {"+", "-"} for hunk in hunks for line in hunk.lines)
        if file.lines and patch_lines == file.lines and not unread:
            continue
        total += 1
        if len(names) < _MAX_NAMES:
            part = f", {len(unread)} of {len(hunks)} parts" if 0 < len(unread) < len(hunks) else ""
            names.append((_name(file), f"{replace(file, previous='').facts}{part}"))
    left_out = tuple(_name(file) for file in files if file.path in ignored)
    return Unread(
        names=tuple(names),
        total=total,
        changed=len(kept),
        ignored=left_out[:_MAX_NAMES],
        ignored_total=len(left_out),
    )


def _name(file: ChangedFile) -> str:
    return clip_name(file.path.encode("utf-8", "replace").decode())
