"""Show a person what to approve, whole and with nothing hidden, or say why it cannot be shown. Pure.

A person approves only what was shown to them whole: what cannot be shown cannot be approved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from bot.publishing.sections import sections
from bot.publishing.text import code, fenced
from bot.publishing.unseen import spelled_out
from bot.workspace.change import Change

PREVIEW_LIMIT = 45_000
"""Characters of what a job's comment shows to be approved. The words before it and the lines to answer with have room
beside it; what follows is cut where there is none."""
PART_LIMIT = 60_000
"""The same in a comment of its own."""
MOST_PARTS = 8

_FOLD = 160
_BLANK_LINES = 3
_BLANK = {" ": "blank lines", "+": "blank lines added", "-": "blank lines removed"}
_BINARY = re.compile(r"^(?:GIT binary patch|Binary files .*)$", re.MULTILINE)
_HOW = "Apply the patch yourself, or request smaller changes."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """What a change does to some of its files.

    Attributes:
        diff: all of it; empty where it cannot be shown.
        hindrance: why it cannot be, and what to do, for the comment.
        spells: whether characters in it are spelled out, as in `[U+202E]`.
    """

    diff: str
    hindrance: str = ""
    spells: bool = False


def show_files(change: Change, paths: Iterable[str], redacted: Callable[[str], str]) -> ShownChange:
    """The whole difference in some files, for people.

    Args:
        change: all of it.
        paths: the files, in the order in which they are shown.
        redacted: what becomes of a text on its way out.
    """
    wanted = dict.fromkeys(paths, "")
    for path, section in sections(change.patch):
        if path in wanted:
            wanted[path] += section
    pointed = {file.path for file in change.large if file.path in wanted}
    binary = {file.path for file in change.files if file.path in wanted and file.binary and file.new_mode}
    if unreadable := sorted(pointed | binary):
        names = ", ".join(code(spelled_out(name)) for name in unreadable)
        why = "which is binary" if not pointed else "which is binary or only a pointer to Git LFS"
        return ShownChange(diff="", hindrance=f"It cannot be approved here: nobody can read {names}, {why}. {_HOW}")
    if missing := [path for path, section in wanted.items() if not section]:
        names = ", ".join(code(spelled_out(name)) for name in missing)
        return ShownChange(diff="", hindrance=f"It cannot be approved here: git shows no difference in {names}. {_HOW}")
    size = sum(map(len, wanted.values()))
    if size > MOST_PARTS * PART_LIMIT:
        return ShownChange(diff="", hindrance=_too_long(size))
    diff = "\n".join(line for section in wanted.values() for line in _lines(section))
    blocks = parts_of(diff)
    if len(blocks) > MOST_PARTS:
        return ShownChange(diff="", hindrance=_too_long(len(diff)))
    if any(redacted(each) != each for each in (fenced(diff, "diff"), *(fenced(block, "diff") for block in blocks))):
        why = "it contains something like a secret, which would not be shown"
        return ShownChange(diff="", hindrance=f"It cannot be approved here: {why}. {_HOW}")
    plain = (section.replace("\r\n", "\n") for section in wanted.values())
    return ShownChange(diff=diff, spells=any(spelled_out(each) != each for each in plain))


def parts_of(diff: str) -> tuple[str, ...]:
    """A diff in parts that fit into comments of their own, cut between lines; one part where it fits into one."""
    parts: list[list[str]] = [[]]
    room = PART_LIMIT
    for line in diff.split("\n"):
        if len(line) + 1 > room:
            parts.append([])
            room = PART_LIMIT
        parts[-1].append(line)
        room -= len(line) + 1
    return tuple("\n".join(part) for part in parts if part)


def fits(preview: str) -> bool:
    """Whether the job's own comment can show it whole."""
    return len(fenced(preview)) <= PREVIEW_LIMIT


def call_hindrance(preview: str, redacted: Callable[[str], str]) -> str:
    """Why nobody can approve a call, for the model; empty where it can be shown.

    Args:
        preview: what the call would do.
        redacted: what becomes of a text on its way out.
    """
    if not fits(preview):
        return "it is too long to be approved: put it in a script, or make it shorter"
    shown = fenced(preview)
    if redacted(shown) != shown:
        return "it contains something like a secret, so it cannot be shown in full; remove that"
    return ""


def denies_unshowable(redacted: Callable[[str], str]) -> Callable[..., str | None]:
    """A handler of requests for permission that denies, in words, what nobody can be shown whole."""

    def deny(preview: str, **_: object) -> str | None:
        return call_hindrance(preview, redacted) or None

    return deny


def _too_long(size: int) -> str:
    return (
        f"It cannot be approved here: the diff of these files has {size:,} characters, and at most "
        f"{MOST_PARTS * PART_LIMIT:,} can be shown. {_HOW}"
    )


def _lines(section: str) -> Iterator[str]:
    """The lines of one file's part: what nobody sees is spelled out, long lines are folded, blank ones counted."""
    text = section.removesuffix("\n")
    if binary := _BINARY.search(text):
        # Only of a file that is gone: what it held is of no interest.
        text = f"{text[: binary.start()]}(binary, gone)"
    lines = text.split("\n")
    if all(line.endswith("\r") for line in lines if _is_content(line)) and any(map(_is_content, lines)):
        lines = [*(line.removesuffix("\r") for line in lines), "(its lines end with CR LF)"]
    for mark, run in groupby(lines, _blank_mark):
        same = list(run)
        if mark is not None and len(same) > _BLANK_LINES:
            yield f"… {len(same):,} {_BLANK[mark]}"
            continue
        for line in same:
            shown = spelled_out(line)
            yield shown[:_FOLD]
            yield from (f"… {shown[at : at + _FOLD]}" for at in range(_FOLD, len(shown), _FOLD))


def _is_content(line: str) -> bool:
    return line[:1] in _BLANK and not line.startswith(("+++ ", "--- "))


def _blank_mark(line: str) -> str | None:
    """The mark of a line without text; None for any other."""
    return line[:1] if line[:1] in _BLANK and not line[1:].strip(" \t") else None
