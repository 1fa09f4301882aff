"""Apply a `write_file` call to a file's text: arguments, known version and contents in, new text out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace import edits as engine
from agent_runtime.workspace.edits import LineEdit
from agent_runtime.workspace.matching import find_block
from agent_runtime.workspace.seen import Lines, rebased
from agent_runtime.workspace.text import Text
from agent_runtime.workspace.views import listed

LINE_MODES = frozenset({"edit", "insert", "multi_edit"})
WHOLE_MODES = frozenset({"w", "a"})

_NEEDED: dict[str, frozenset[str]] = {
    "w": frozenset(),
    "a": frozenset(),
    "edit": frozenset({"start_line", "end_line"}),
    "insert": frozenset({"after_line"}),
    "multi_edit": frozenset({"edits"}),
    "replace": frozenset(),
    "patch": frozenset(),
}
"""Each mode, and the line arguments that it takes and needs."""
_AROUND = 3
_SHOWN = 40


_COMMENT = re.compile(
    r"^\s*(?:#+|//+|/\*+|\*|<!--|--+|;+|%+|\{/\*|\{#|\"\"\"|'{3})\s*(?P<text>.*?)\s*(?:\*/\}?|-->|#\})?\s*$"
)
_DOTS = r"(?:\.{3,}|…)"
_WHAT = (
    r"(?:code|file|content|contents|function|functions|class|classes|method|methods|implementation|body|logic|"
    r"imports|tests|lines|module|script|document|section|config|configuration)"
)
_WHICH = r"(?:the\s+|all\s+|your\s+)*(?:rest|remainder|remaining|existing|previous|other|original)"
_STAYS = (
    r"(?:unchanged|unmodified|(?:stays?|remains?|is|are)?\s*the\s+same|as\s+(?:before|is)|goes\s+here|omitted|here)"
)
_LONGEST = 500  # characters; such a comment is short
_LEFT_OUT = re.compile(
    rf"^{_DOTS}\s*\(?{_WHICH}\b.*$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*\b{_STAYS}\)?\s*{_DOTS}?\.?$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*{_DOTS}$"
    rf"|^{_DOTS}\s*\(?(?:{_WHAT}\s+)?(?:unchanged|same\s+as\s+(?:before|above))\)?\s*{_DOTS}?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """One call of `write_file`.

    Attributes:
        path: as the call names it.
        mode: how the contents are to be used.
        lines: the arguments of that name which are not None: `start_line`, `end_line`, `after_line`, `edits`.
        contents: the payloads, as many as the mode takes.
        version: the version of the file that the call is about, if it says.
        force: whether what would be refused for its content is meant.
    """

    path: str
    mode: str
    lines: dict[str, object]
    contents: tuple[str, ...]
    version: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What comes of it.

    Attributes:
        raw: the file's new text.
        notes: what the model should know about how it came to be.
        edits: the edits by line that made it, as they were placed; none in other modes.
    """

    raw: str
    notes: list[str] = field(default_factory=list)
    edits: list[LineEdit] = field(default_factory=list)


class StaleError(ToolError):
    """Line numbers refer to lines that are no longer as they were seen; the text shows how they are now."""


def check_mode(mode: str) -> None:
    """Refuse a mode that does not exist.

    Raises:
        ToolError: there is no such mode.
    """
    if mode not in _NEEDED:
        raise ToolError(f"mode={mode!r}: must be one of {', '.join(map(repr, _NEEDED))}", kind="ValueError")


def contents_taken(mode: str, edits: int | None = None) -> int:
    """How many contents a write takes.

    Args:
        mode: of the call.
        edits: the number of its edits, for `multi_edit`.

    Raises:
        ValueError: there is no such mode, or its edits are not known.
    """
    if mode not in _NEEDED or (mode == "multi_edit" and edits is None):
        raise ValueError(f"mode {mode!r} with {edits} edits: no such write")
    return (edits or 0) if mode == "multi_edit" else 2 if mode == "replace" else 1


def check_arguments(mode: str, given: frozenset[str]) -> None:
    """Hold a call's line arguments against its mode.

    Raises:
        ToolError: one is missing, or one has no meaning in this mode.
    """
    if missing := _NEEDED[mode] - given:
        raise ToolError(f"mode={mode!r} needs {' and '.join(sorted(missing, reverse=True))}", kind="ValueError")
    if extra := given - _NEEDED[mode]:
        name = min(extra)
        fitting = next(each for each, needed in _NEEDED.items() if name in needed)
        raise ToolError(f"mode={mode!r} takes no {name}; for that use mode={fitting!r}", kind="ValueError")


def check_placeholders(path: str, lines: Iterable[str], text: Text | None) -> None:
    """Keep comments that stand for left-out code out of the file.

    Args:
        path: the file, for the error text.
        lines: what is to be written.
        text: the file as it is.

    Raises:
        ToolError: a line is such a comment that the file did not have before.
    """
    if found := placeholder_in(lines, text.lines if text else ()):
        raise ToolError(
            f"{path!r} not written: line {found[0]} of the content, {found[1]!r}, stands for code that was left out, "
            "and the file would lose that code. Write it out, or change only some lines (mode='edit', 'replace' or "
            "'patch'). If the comment is meant, repeat with force=True",
            kind="ValueError",
        )


def make(change: WriteCall, text: Text, base: Lines | None) -> Changed:
    """Apply a change of any mode but `w` and `patch` to a text.

    Args:
        change: the call.
        text: the file as it is.
        base: the lines that the call's line numbers refer to, or None when the agent never saw the file: they are then
            taken for the file as it is.

    Raises:
        StaleError: the addressed lines have changed since.
        ToolError: a range is not within the file, edits overlap, or old text is not found.
    """
    if change.mode == "a":
        return Changed(raw=engine.append(text, change.contents[0]))
    if change.mode == "replace":
        old, new = (engine.lines_of(content) for content in change.contents)
        match = find_block(text.lines, old, new)
        notes = [] if match.rung == "exact" else [f"Not an exact match: {match.rung} differed."]
        return Changed(raw=engine.apply(text, match.edits), notes=notes)
    lines, contents, count = change.lines, change.contents, len(text.lines if base is None else base)
    if change.mode == "insert":
        edits = [engine.insertion(lines["after_line"], contents[0], count)]
    elif change.mode == "edit":
        start, end = lines["start_line"], lines["end_line"]
        edits = [engine.replacement(f"start_line={start}, end_line={end}", start, end, contents[0], count)]
    else:
        edits = [
            engine.replacement(f"edits[{i}]=({start}, {end})", start, end, content, count)
            for i, ((start, end), content) in enumerate(zip(pairs(lines["edits"]), contents, strict=True))
        ]
    placed = edits if base is None else rebased(edits, base, text.lines)
    if placed is None:
        count = len(text.lines)
        first = max(1, min(edit.start for edit in edits) - _AROUND)
        last = min(count, max(edit.end for edit in edits) + _AROUND, first + _SHOWN - 1)
        shown, _ = listed(text.lines, first, last) if first <= last else ([], 0)
        head = f"{change.path!r} changed since you read it, and so did lines you address; nothing was written."
        raise StaleError(
            "\n".join([f"{head} It has {count} lines{'; now:' if shown else '.'}", *shown]), kind="ValueError"
        )
    moves = [
        f"your {_name(edit)} now {'is' if new.end <= new.start else 'are'} {_name(new)}"
        for edit, new in zip(edits, placed, strict=True)
        if edit != new
    ]
    notes = [f"The file changed since you read it: {', '.join(moves)}."] if moves else []
    return Changed(raw=engine.apply(text, placed), notes=notes, edits=placed)


def pairs(edits: object) -> list[tuple[object, object]]:
    """The ranges of a `multi_edit`, as pairs.

    Raises:
        ToolError: it is no list of pairs, or an empty one.
    """
    if not isinstance(edits, list | tuple) or not edits:
        raise ToolError("edits must be a list of (start_line, end_line) pairs, at least one", kind="ValueError")
    found: list[tuple[object, object]] = []
    for i, pair in enumerate(edits):
        match pair:
            case (start, end):
                found.append((start, end))
            case _:
                raise ToolError(f"edits[{i}]={pair!r}: must be a pair (start_line, end_line)", kind="ValueError")
    return found


def _name(edit: LineEdit) -> str:
    if edit.end < edit.start:
        return f"place after line {edit.end}"
    return f"line {edit.start}" if edit.end == edit.start else f"lines {edit.start}-{edit.end}"


def placeholder_in(lines: Iterable[str], known: Sequence[str]) -> tuple[int, str] | None:
    """The first comment line that stands for left-out code, with its number from 1; None when there is none.

    Args:
        lines: what is to be written.
        known: lines of the file as it is: a comment that stood there already is no placeholder of this edit.
    """
    there: set[str] | None = None
    for number, line in enumerate(lines, 1):
        # Without runs of spaces, over which the expressions would backtrack.
        comment = _COMMENT.match(" ".join(line[:_LONGEST].split()))
        if comment and _LEFT_OUT.match(comment["text"]):
            there = {each.strip() for each in known} if there is None else there
            if line.strip() not in there:
                return number, line.strip()
    return None
