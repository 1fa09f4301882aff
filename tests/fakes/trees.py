"""Git's patches and merges of trees in memory, without git."""

from __future__ import annotations

import string
import zlib
from base64 import b85encode
from collections.abc import Mapping
from difflib import SequenceMatcher
from os import fsencode
from typing import Literal

from bot.git.change import SYMLINK, FileChange
from bot.git.diff import NO_BLOB
from tests.fakes.site import FakeFile

_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_LINE_BYTES = 52
_TEXT_BYTES = 8_000
"""As far as git looks for a zero byte."""


Tree = Mapping[str, FakeFile]


def compare(old: Tree, new: Tree) -> tuple[tuple[FileChange, ...], str]:
    """Return the changed files and the patch between two trees, as `git diff-tree --patch --binary --full-index`."""
    files, patches = list[FileChange](), list[str]()
    for path in sorted({*old, *new}, key=fsencode):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        patch, added, removed = _file_patch(path, before, after)
        status: Literal["added", "modified", "deleted"] = "added" if before is None else "modified"
        files.append(
            FileChange(
                path=path,
                status="deleted" if after is None else status,
                old_mode=before.mode if before else "",
                new_mode=after.mode if after else "",
                added=added,
                removed=removed,
                binary=_is_binary(before) or _is_binary(after),
                content=after.content if after else None,
            )
        )
        patches.append(patch)
    return tuple(files), "".join(patches)


def merge(base: Tree, mine: Tree, theirs: Tree) -> tuple[dict[str, FakeFile], list[str]]:
    """Merge the difference from `base` to `mine` into `theirs`; return the tree and the conflicting paths."""
    merged, conflicts = dict(theirs), list[str]()
    for path in sorted({*base, *mine}):
        before, own, other = base.get(path), mine.get(path), theirs.get(path)
        if own in {before, other}:
            continue
        result = own
        if other != before:
            content = None
            if before is not None and own is not None and other is not None and own.mode == other.mode:
                content = _merge_lines(before.content, own.content, other.content)
            if content is None or own is None:
                conflicts.append(path)
                continue
            result = FakeFile(own.mode, content)
        if result is None:
            merged.pop(path, None)
        else:
            merged[path] = result
    return merged, conflicts


def mark_conflict(versions: Mapping[int, FakeFile], label: str) -> tuple[FakeFile, dict[bytes, int]]:
    """Return a file with both sides and their ancestor between markers, and the markers; git keeps equal lines out."""
    ancestor = versions[1].content if 1 in versions else b""
    marks = b"<<<<<<< HEAD", b"||||||| ancestor", b"=======", b">>>>>>> " + label.encode()
    parts = zip(marks, (versions[2].content, ancestor, versions[3].content, b""), strict=True)
    return FakeFile(versions[2].mode, b"".join(mark + b"\n" + text for mark, text in parts)), dict.fromkeys(marks, 0)


def _is_binary(entry: FakeFile | None) -> bool:
    return entry is not None and b"\0" in entry.content[:_TEXT_BYTES]


def _lines(content: bytes) -> list[str]:
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _file_patch(path: str, old: FakeFile | None, new: FakeFile | None) -> tuple[str, int, int]:
    if old is not None and new is not None and (old.mode == SYMLINK) != (new.mode == SYMLINK):
        # Git shows a change of type as a deletion and an addition.
        deletion, _, removed = _file_patch(path, old, None)
        addition, added, _ = _file_patch(path, None, new)
        return deletion + addition, added, removed
    before, after = _quote(f"a/{path}"), _quote(f"b/{path}")
    lines = [f"diff --git {before} {after}\n"]
    mode = ""
    if old is None and new is not None:
        lines.append(f"new file mode {new.mode}\n")
    elif new is None and old is not None:
        lines.append(f"deleted file mode {old.mode}\n")
    elif old is not None and new is not None:
        mode = f" {old.mode}" if old.mode == new.mode else ""
        if not mode:
            lines += [f"old mode {old.mode}\n", f"new mode {new.mode}\n"]
    contents = [entry.content if entry is not None else b"" for entry in (old, new)]
    if old is not None and new is not None and contents[0] == contents[1]:
        return "".join(lines), 0, 0
    ids = [entry.sha if entry is not None else NO_BLOB for entry in (old, new)]
    lines.append(f"index {ids[0]}..{ids[1]}{mode}\n")
    if _is_binary(old) or _is_binary(new):
        return "".join([*lines, "GIT binary patch\n", _literal(contents[1]), _literal(contents[0])]), 0, 0
    hunks, added, removed = _hunks(_lines(contents[0]), _lines(contents[1]))
    if hunks:
        # A name with a space is followed by a tab.
        names = [f"{name}\t" if " " in name else name for name in (before, after)]
        lines.append(f"--- {'/dev/null' if old is None else names[0]}\n")
        lines.append(f"+++ {'/dev/null' if new is None else names[1]}\n")
    return "".join([*lines, *hunks]), added, removed


def _hunks(old: list[str], new: list[str]) -> tuple[list[str], int, int]:
    hunks, added, removed = list[str](), 0, 0
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        first, last = group[0], group[-1]
        hunks.append(f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                hunks += [_marked(" ", line) for line in old[old_start:old_end]]
                continue
            hunks += [_marked("-", line) for line in old[old_start:old_end]]
            hunks += [_marked("+", line) for line in new[new_start:new_end]]
            removed, added = removed + old_end - old_start, added + new_end - new_start
    return hunks, added, removed


def _range(start: int, end: int) -> str:
    count = end - start
    position = start + 1 if count else start
    return f"{position}" if count == 1 else f"{position},{count}"


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _literal(content: bytes) -> str:
    packed = zlib.compress(content)
    chunks = (packed[start : start + _LINE_BYTES] for start in range(0, len(packed), _LINE_BYTES))
    lines = (f"{_LETTERS[len(chunk) - 1]}{b85encode(chunk, pad=True).decode()}\n" for chunk in chunks)
    return f"literal {len(content)}\n{''.join(lines)}\n"


_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def _quote(name: str) -> str:
    """Quote a name as git does with `core.quotePath` off."""
    quoted = "".join(_ESCAPES.get(ord(char), char if " " <= char != "\x7f" else f"\\{ord(char):03o}") for char in name)
    return name if quoted == name else f'"{quoted}"'


def _merge_lines(base: bytes, mine: bytes, theirs: bytes) -> bytes | None:
    """Merge two changes of a text; None where they meet."""
    lines, edits = _lines(base), list[tuple[int, int, list[str]]]()
    for version in (_lines(mine), _lines(theirs)):
        for tag, start, end, new_start, new_end in SequenceMatcher(None, lines, version, autojunk=False).get_opcodes():
            if tag != "equal":
                edits.append((start, end, version[new_start:new_end]))
    edits = [edit for number, edit in enumerate(edits) if edit not in edits[:number]]
    edits.sort(key=lambda edit: edit[:2])
    merged, position = list[str](), 0
    for number, (start, end, replacement) in enumerate(edits):
        if number and start <= edits[number - 1][1]:  # git merges no neighbouring lines either
            return None
        merged += [*lines[position:start], *replacement]
        position = end
    return "".join([*merged, *lines[position:]]).encode("utf-8", "surrogateescape")
