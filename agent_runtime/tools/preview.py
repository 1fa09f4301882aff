"""Previews of calls for people: nothing in one can hide, move or forge a part of it. Pure.

A person approves only what they were shown whole. So a preview is whole, or there is none: it is empty where a call is
too long to be shown.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from agent_runtime.core.calls import Plain
from agent_runtime.core.policy import CallFacts

_MAX_LINES = 300
_MAX_CHARS = 20_000
_MAX_WIDTH = 500
_FOLD = 160
_BLANK_LINES = 3
"""As many blank lines in a row are shown; of more, their number."""
_BLANK = {
    "": "blank lines",
    " ": "blank lines",
    ">": "blank lines",
    "+": "blank lines added",
    "-": "blank lines removed",
}
"""What marks a line before its text, and how blank lines with this mark are told."""

_PLAIN = re.compile(r"[ -~\n\t]*")
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159")
"""Letters and symbols that show nothing, though their category says otherwise."""
_MOST_MARKS = 2
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})


def visible(text: str) -> str:
    r"""A text whose characters can all be seen: control characters, invisible ones, those that turn the direction of
    writing and blanks other than the space stand as escapes such as `\u202e`; line breaks and tabs stay.

    Combining marks stay where one or two of them sit on a letter, as in a name; variation selectors and piles do not.
    """  # noqa: D205 - one sentence
    if _PLAIN.fullmatch(text):
        return text
    shown: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        unseen = category in _HIDDEN and char not in " \n\t"
        selects = marks > 0 and ("\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef")
        shown.append(_escaped(char) if unseen or char in _BLANKS or selects or marks > _MOST_MARKS else char)
    return "".join(shown)


def clipped(lines: Sequence[str]) -> str:
    """Lines made visible, each at most 500 characters, 300 of them, 20,000 characters in all; the rest is counted."""
    kept: list[str] = []
    room = _MAX_CHARS
    for line in lines[:_MAX_LINES]:
        cut = narrowed(line)
        if room < len(cut):
            break
        kept.append(cut)
        room -= len(cut) + 1
    rest = len(lines) - len(kept)
    return "\n".join([*kept, *([f"… {rest:,} more line{'s' if rest > 1 else ''} not shown"] if rest else [])])


def narrowed(line: str) -> str:
    """One line made visible, and cut to 500 characters with the count of the rest."""
    shown = visible(line[: _MAX_WIDTH * 2])
    if len(shown) <= _MAX_WIDTH and len(line) <= _MAX_WIDTH * 2:
        return shown
    cut = visible(line[:_MAX_WIDTH])[:_MAX_WIDTH]
    return f"{cut}… [+{len(line) - _MAX_WIDTH:,} characters]" if len(line) > _MAX_WIDTH else f"{cut}…"


def whole(lines: Iterable[str]) -> str:
    """Lines made visible: long ones are folded, of many blank ones in a row the number is told, none is left out.

    What begins with `…` is ours: no line of a call does.

    Args:
        lines: each begins with a mark or a word of ours.

    Returns:
        The text, or an empty one where it would have more than 20,000 characters.
    """
    kept: list[str] = []
    room = _MAX_CHARS
    for mark, run in groupby(lines, _blank_mark):
        pieces = list(run)
        if mark is not None and len(pieces) > _BLANK_LINES:
            pieces = [f"… {len(pieces):,} {_BLANK[mark]}"]
        for shown in pieces:
            if len(shown) > _MAX_CHARS:
                return ""
            folded = _folded(visible(shown))
            room -= sum(len(line) + 1 for line in folded)
            if room < 0:
                return ""
            kept += folded
    return "\n".join(kept)


def of_call(tool: str, args: dict[str, Plain]) -> str:
    """A call of a tool that nothing else is known of: its name, and its arguments as JSON."""
    return whole([tool, *json.dumps(args, ensure_ascii=False, indent=2).split("\n")])


def in_one_line(facts: CallFacts) -> str:
    """What a call is, without the contents that it writes: the files of a write, the whole command of a shell."""
    args = facts.args
    if facts.command is not None:
        told = f"Execute: {facts.command}"
    elif facts.typed is not None:
        told = f"Type into {args.get('session_id', 'a terminal')!r}: {facts.typed}"
    elif facts.writes and facts.paths:
        told = f"Write {', '.join(map(repr, facts.paths))} ({_operation(facts.tool, args)})"
    else:
        told = f"{facts.tool} {json.dumps(args, ensure_ascii=False)}"
    return visible(told).replace("\n", "\\n")


def _operation(tool: str, args: Mapping[str, Plain]) -> str:
    """How a call writes, in a few words."""
    if tool != "write_file":
        return tool
    match args.get("mode") or "w":
        case "edit":
            return f"replace lines {args.get('start_line')}-{args.get('end_line')}"
        case "insert":
            return f"insert after line {args.get('after_line')}"
        case "multi_edit":
            return f"replace lines {args.get('edits')}"
        case "w":
            return "full file"
        case mode:
            return str(mode)


def of_command(command: str, *, terminal: str, cwd: str, fresh: bool) -> str:
    """A command for a shell.

    Args:
        command: as it is.
        terminal: the terminal's name.
        cwd: its working directory; empty where that is not known yet.
        fresh: whether the terminal would be made for it.
    """
    place = f"In {'a new ' if fresh else ''}terminal {terminal}{f', {cwd}' if cwd else ''}:"
    lines = [f"{'$ ' if number == 0 else '> '}{line}" for number, line in enumerate(command.split("\n"))]
    return whole([visible(place).replace("\n", " "), *lines])


def of_typing(text: str, *, terminal: str, running: str) -> str:
    """What is typed into a program that runs."""
    program = narrowed(" ".join(running.split()))
    return whole([f"Typed into terminal {terminal}, where `{program}` runs:", repr(text)])


def _blank_mark(line: str) -> str | None:
    """The mark of a blank line; None for any other."""
    return line[:1] if line[:1] in _BLANK and not line[1:].strip(" \t") else None


def _folded(line: str) -> list[str]:
    """A line in pieces, so that nothing stands beyond an edge."""
    return [line[:_FOLD], *(f"… {line[at : at + _FOLD]}" for at in range(_FOLD, len(line), _FOLD))]


def _escaped(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:  # noqa: PLR2004 - what two hexadecimal digits hold
        return {"\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - what four hold
