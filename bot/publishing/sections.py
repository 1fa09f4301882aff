"""A diff as git writes it, file by file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEAD = "diff --git "
_WINDOW = 4 << 20
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def sections(patch: str) -> Iterator[tuple[str, str]]:
    """Path and part of each file, in order; a file that becomes a link has two.

    Args:
        patch: without renames. No line in it begins with `diff --git` but those that head a file's part: others begin
            with a mark, or hold base 85.
    """
    begin = 0 if patch.startswith(_HEAD) else _next(patch, 0)
    while begin >= 0:
        end = _next(patch, begin)
        section = patch[begin : end if end >= 0 else len(patch)]
        path = _path(section.partition("\n")[0].removeprefix(_HEAD))
        if path is not None:
            yield path, section
        begin = end


def unquoted(name: bytes) -> bytes:
    """What stands between the quotes of a name that git has quoted."""

    def meant(escape: re.Match[bytes]) -> bytes:
        return bytes([int(escape[1], 8) & 0xFF]) if len(escape[1]) > 1 else _NAMED.get(escape[1], escape[1])

    # https://git-scm.com/docs/git-config#Documentation/git-config.txt-corequotePath
    return _ESCAPE.sub(meant, name)


def _next(patch: str, start: int) -> int:
    """Where the next head stands behind `start`; looked for in windows, so that other threads come to their turn."""
    mark = f"\n{_HEAD}"
    for at in range(start, len(patch), _WINDOW):
        if (found := patch.find(mark, at, at + _WINDOW + len(mark))) >= 0:
            return found + 1
    return -1


def _path(names: str) -> str | None:
    """The one name in `a/NAME b/NAME`; None where it is not one."""
    if names.startswith('"'):
        quoted = _QUOTED.match(names)
        if quoted is None:
            return None
        raw = unquoted(quoted[1].encode("utf-8", "surrogateescape"))
        return raw.decode("utf-8", "surrogateescape").removeprefix("a/")
    half = len(names) // 2
    before, after = names[:half], names[half + 1 :]
    same = before.startswith("a/") and after == f"b/{before[2:]}"
    return before[2:] if same and names[half] == " " else None
