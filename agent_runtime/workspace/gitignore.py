"""Match a path against one `.gitignore` as git does, in time linear in the path. Pure.

Patterns without wildcards are looked up. The others become regular expressions of RE2, which does not backtrack, and
are matched all at once. They match bytes, as git's do.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache
from typing import Any

_TOGETHER = 1000  # patterns of one automaton
_AUTOMATON_BYTES = 16 * 1024**2
_SPECIAL = frozenset(b"*?[\\")
_SLASH, _STAR, _BACKSLASH, _CLOSE = b"/*\\]"
_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": string.ascii_letters + string.digits + string.punctuation,
    b"lower": string.ascii_lowercase,
    b"print": string.ascii_letters + string.digits + string.punctuation + " ",
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line of a `.gitignore`.

    Attributes:
        text: the pattern itself; without a slash it is about names in any directory.
        negated: whether what it matches is not ignored.
        directory: whether it is about directories only.
    """

    text: bytes
    negated: bool
    directory: bool

    @property
    def anchored(self) -> bool:
        """Whether it is about paths from the file's own directory."""
        return b"/" in self.text

    @property
    def plain(self) -> bool:
        """Whether it has no wildcards."""
        return _SPECIAL.isdisjoint(self.text)

    @classmethod
    def parse(cls, line: bytes) -> Pattern | None:
        """Read a line; None for one without a pattern."""
        line = line.removesuffix(b"\r").partition(b"\0")[0]
        kept = line.rstrip(b" ")
        escaped = (len(kept) - len(kept.rstrip(b"\\"))) % 2  # a backslash keeps the first trailing space
        line = line[: len(kept) + escaped]
        if not line or line.startswith(b"#"):
            return None
        text = line.removeprefix(b"!")
        bare = text.removesuffix(b"/")
        return cls(text=bare, negated=line.startswith(b"!"), directory=bare != text)

    def regex(self) -> bytes | None:
        """RE2's expression for the paths that it matches, from the file's own directory; None when there is none."""
        text = self.text.removeprefix(b"/")
        head = next((at for at, byte in enumerate(text) if byte in _SPECIAL), len(text))
        # git compares what stands before the first wildcard by itself: `**` behind it counts as if it began a name.
        glob, at = text[head:], 0
        pieces = [b"" if self.anchored else b"(?:.*/)?", _quoted(text[:head])]
        while at < len(glob):
            byte = glob[at]
            if byte == _STAR:
                piece, at = _stars(glob, at, paths=self.anchored)
            elif byte == _BACKSLASH:
                if at + 1 == len(glob):
                    return None
                piece, at = _quoted(glob[at + 1 : at + 2]), at + 2
            elif byte == ord("["):
                members, at = _members(glob, at + 1)
                if not members:
                    return None
                piece = b"[" + b"".join(b"\\x%02x" % member for member in sorted(members)) + b"]"
            else:
                piece, at = b"[^/]" if byte == ord("?") else _quoted(glob[at : at + 1]), at + 1
            pieces.append(piece)
        return b"".join(pieces)


class IgnoreFile:
    """The patterns of one `.gitignore`."""

    def __init__(self, data: bytes, *, most: int | None = None) -> None:
        """Read them.

        Args:
            data: the file's content.
            most: lines to be read; the others are as if they were not there. None for all.
        """
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:most]
        self.patterns = [pattern for line in lines if (pattern := Pattern.parse(line)) is not None]
        # For names and paths without wildcards: the last pattern about each, of any kind, and for non-directories.
        self._names: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._paths: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        wild: list[tuple[int, bytes]] = []
        for number, pattern in enumerate(self.patterns):
            if pattern.plain:
                known = self._paths if pattern.anchored else self._names
                for each in known[: 1 if pattern.directory else 2]:
                    each[pattern.text.removeprefix(b"/")] = number
            elif (regex := pattern.regex()) is not None:
                wild.append((number, regex))
        self._wild = [_automaton(wild[at : at + _TOGETHER]) for at in range(0, len(wild), _TOGETHER)]

    def says(self, path: str, *, directory: bool) -> bool | None:
        """Whether a path is ignored; None when no pattern is about it.

        Args:
            path: from the file's own directory. The directories above it are asked about by themselves.
            directory: whether it is one.
        """
        data = path.encode("utf-8", "surrogateescape")
        kind = 0 if directory else 1
        last = max(self._names[kind].get(data.rpartition(b"/")[2], -1), self._paths[kind].get(data, -1))
        for automaton, numbers in self._wild:
            for found in automaton.Match(data) or ():
                if numbers[found] > last and (directory or not self.patterns[numbers[found]].directory):
                    last = numbers[found]
        return None if last < 0 else not self.patterns[last].negated


@cache
def options() -> Any:  # noqa: ANN401 - a library without types
    """How RE2 is to read the expressions of this module."""
    import re2  # noqa: PLC0415 - only a run needs it

    chosen = re2.Options()
    chosen.encoding = re2.Options.Encoding.LATIN1
    chosen.log_errors = False
    chosen.never_capture = True
    chosen.dot_nl = True
    chosen.max_mem = _AUTOMATON_BYTES
    return chosen


def _automaton(wild: list[tuple[int, bytes]]) -> tuple[Any, list[int]]:
    import re2  # noqa: PLC0415 - see above

    automaton = re2.Set.FullMatchSet(options())
    for _, regex in wild:
        automaton.Add(regex)
    automaton.Compile()
    return automaton, [number for number, _ in wild]


def _stars(glob: bytes, at: int, *, paths: bool) -> tuple[bytes, int]:
    """What a run of stars matches, and where it ends; with `paths`, `**` between slashes means directories."""
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    rest = glob[end : end + 2]
    alone = paths and end - at > 1 and (at == 0 or glob[at - 1] == _SLASH)
    if alone and rest.startswith(b"/"):
        return b"(?:.*/)?", end + 1
    if alone and rest in {b"", b"\\/"}:
        return b".*", end
    return b"[^/]*", end


def _members(glob: bytes, at: int) -> tuple[frozenset[int], int]:
    """The bytes of a bracket expression, and where it ends; none for one that is malformed. As in git's wildmatch.c."""
    negated = glob[at : at + 1] in {b"!", b"^"}
    at += negated
    members: set[int] = set()
    before, first = 0, True
    nothing = frozenset[int](), len(glob)
    while first or glob[at : at + 1] != b"]":
        first = False
        escaped = glob[at : at + 1] == b"\\"
        at += escaped
        if at >= len(glob):
            return nothing
        byte = glob[at]
        if not escaped and byte == ord("-") and before and glob[at + 1 : at + 2] not in {b"", b"]"}:
            at += 2 if glob[at + 1] == _BACKSLASH else 1
            if at >= len(glob):
                return nothing
            members.update(range(before, glob[at] + 1))
            before = 0
        elif not escaped and glob.startswith(b"[:", at) and (close := glob.find(b"]", at + 2)) != at + 2:
            if close < 0:
                return nothing
            if glob[close - 1] != ord(":") or close == at + 2:
                members.add(byte)
                before = byte
            elif (named := _CLASSES.get(glob[at + 2 : close - 1])) is None:
                return nothing
            else:
                members.update(named.encode())
                at, before = close, 0
        else:
            members.add(byte)
            before = byte
        at += 1
    found = frozenset(range(256)) - members if negated else members
    return frozenset(found - {_SLASH}), at + 1


def _quoted(text: bytes) -> bytes:
    return b"".join(bytes((b,)) if chr(b).isalnum() and b < 128 else b"\\x%02x" % b for b in text)  # noqa: PLR2004 - ASCII
