"""Show passages of files whole, numbered as `read_file` numbers them, until a budget is used. Pure but for reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agent_runtime.context.briefing import Excerpt, printable
from agent_runtime.context.passages import Passage
from agent_runtime.workspace.text import Text
from agent_runtime.workspace.views import listed

_PART_LINES = 12
_WHOLE_FILE_CHARS = 1_500
_HEAD_CHARS = 80
"""What the line above a file's excerpts takes, on average."""
_SHARE = 0.75
"""Of the budget, the most that one passage takes unless it is the first."""
_MOST_NAMED = 6


@dataclass(slots=True)
class _Chosen:
    """The lines of one file that are shown."""

    text: Text
    lines: set[int] = field(default_factory=set)

    def cost(self, wanted: Iterable[int]) -> int:
        """The characters that more lines take."""
        return sum(len(self.text.lines[n - 1]) + len(str(n)) + 4 for n in set(wanted) - self.lines)


def excerpts(passages: Iterable[Passage], read: Callable[[str], Text | None], budget: int) -> tuple[Excerpt, ...]:
    """The passages that fit, best first, each with the lines of the classes around it; no line twice.

    Args:
        passages: best first.
        read: gives a file's text; None for one that cannot be shown.
        budget: characters of all excerpts together.
    """
    chosen: dict[str, _Chosen] = {}
    named: list[str] = []
    left = budget
    for passage in passages:
        if left < _HEAD_CHARS:
            break
        file = chosen.get(passage.path)
        if file is None:
            text = read(passage.path)
            if text is None or not text.raw:
                continue
            file = _Chosen(text)
        if passage.definition is not None and passage.definition.last > len(file.text.lines):
            continue  # the file has changed
        wanted = _wanted(passage, file)
        room = left - (0 if passage.path in chosen else _HEAD_CHARS)
        if not wanted or file.cost(wanted) > min(room, budget if not chosen else _SHARE * budget):
            part = _part(passage)
            if not part or file.cost(part) > room:
                if (definition := passage.definition) is not None:
                    lines = f"{definition.first}-{definition.last}"
                    named.append(f"{printable(passage.path)}:{lines} {definition.qualified}")
                continue
            wanted = part
        left = room - file.cost(wanted)
        file.lines |= set(wanted)
        chosen[passage.path] = file
    shown = [_shown(path, file) for path, file in chosen.items()]
    if named and left > _HEAD_CHARS:
        rest = "\n".join(dict.fromkeys(named[:_MOST_NAMED]))
        shown.append(Excerpt(path="Not shown, too long:", text=rest[:left]))
    return tuple(shown)


def _wanted(passage: Passage, file: _Chosen) -> list[int]:
    """The lines of a passage as a whole; none for a file that is too long, or has changed."""
    count, definition = len(file.text.lines), passage.definition
    if definition is not None:
        return [*definition.parents, *range(definition.first, definition.last + 1)]
    if passage.line is None:
        return list(range(1, count + 1)) if len(file.text.raw) <= _WHOLE_FILE_CHARS else []
    return list(range(passage.first, min(count, passage.last) + 1)) if passage.line <= count else []


def _part(passage: Passage) -> list[int]:
    """Of a definition that is too long, its head and what is around the line that the text names."""
    definition, line = passage.definition, passage.line
    if definition is None or line is None:
        return []
    first, last = max(definition.header, line - _PART_LINES), min(definition.last, line + _PART_LINES)
    return [*definition.parents, definition.header, *range(first, last + 1)]


def _shown(path: str, file: _Chosen) -> Excerpt:
    numbers = sorted(file.lines)
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [each for first, last in spans for each in listed(file.text.lines, first, last)[0]]
    told = ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)  # noqa: RUF001 - the dash of a range
    about = "whole" if len(numbers) == file.text.count else f"lines {told} of {file.text.count}"
    return Excerpt(path=f"{printable(path)} ({about})", text="\n".join(shown))
