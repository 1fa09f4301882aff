"""Remove a change's own code, commits and links from the text of its task."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_CUT = "[…]"
_FENCE = re.compile(r" {0,3}(?:>[> ]{0,9})?(`{3,}|~{3,})[ \t]*([\w-]{0,20})")
_DIFF_LINE = re.compile(r"diff --git |index [0-9a-f]{7,40}\.\.|@@ -\d|--- [\w./]|\+\+\+ [\w./]")
_DIFFS = frozenset({"diff", "patch", "suggestion"})
_LINK = re.compile(
    r"https?://[^\s/]{1,255}/[^\s/]{1,100}/[^\s/]{1,100}/(?:pull|pulls|commit|commits|compare)/[^\s)>\]]{1,500}"
)
_COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")
_TRAILER = re.compile(
    r"\s*(?:[\w-]{1,30}-by|Co-authored-by|Change-Id|PR-URL|Backport[\w-]{0,20}|cherry picked from commit\b)[: ]",
    re.IGNORECASE,
)
_COMPOUND = re.compile(r"[A-Za-z0-9]_[A-Za-z0-9]|[a-z][A-Z]")
_WORD = re.compile(r"[A-Za-z_]\w{4,80}")
_SPACES = re.compile(r"[\s`]+")
_MIN_CODE = 12
_MAX_LINE = 2_000
_MAX_CODE_LINES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaks:
    """The marks of a change that its task must not show.

    Attributes:
        numbers: of its pull request.
        commits: sorted ids of all commits of the repository.
        code: its new lines, without spaces.
        names: identifiers that it introduces, and that no test mentions.
    """

    numbers: tuple[int, ...] = ()
    commits: Sequence[str] = ()
    code: tuple[str, ...] = ()
    names: frozenset[str] = field(default_factory=frozenset)

    def find_code(self, line: str) -> str:
        """Return the code of the change in a line of text; empty if there is none."""
        packed = _SPACES.sub("", line)
        names = (word for word in _WORD.findall(line) if word in self.names)
        return next((code for code in self.code if code in packed), "") or next(names, "")

    def cut(self, text: str) -> str:
        """Cut diffs, lines with the change's code, trailers, links and commits from a text."""
        lines: list[str] = []
        fence, is_diff = "", False
        for line in text.replace("\r\n", "\n").split("\n"):
            mark, in_diff = _FENCE.match(line), is_diff
            if mark and not fence:
                fence, is_diff = mark[1], mark[2].lower() in _DIFFS
                in_diff = is_diff
            elif mark and mark[1].startswith(fence) and not mark[2]:
                fence, is_diff = "", False
            if in_diff or _DIFF_LINE.match(line) or _TRAILER.match(line) or self.find_code(line[:_MAX_LINE]):
                lines += [] if lines[-1:] == [_CUT] else [_CUT]
            else:
                lines.append(self.cut_references(line[:_MAX_LINE]))
        return "\n".join(lines).strip()

    def cut_references(self, line: str) -> str:
        """Cut links to changes, commit ids and the change's own number from a line."""

        def cut_commit(word: re.Match[str]) -> str:
            place = bisect_left(self.commits, word[0])
            return _CUT if place < len(self.commits) and self.commits[place].startswith(word[0]) else word[0]

        line = _COMMIT.sub(cut_commit, _LINK.sub(_CUT, line))
        for number in self.numbers:
            mark = rf"(?:GH-|#){number}\b"
            line = re.sub(rf"\s?\({mark}\)|(?<![\w&])(?:[\w.-]{{1,100}}/[\w.-]{{1,100}})?{mark}", "", line)
        return line


def find_leaks(
    reference: bytes, hidden: bytes, old: Iterable[bytes], *, numbers: Iterable[int], commits: Sequence[str]
) -> Leaks:
    """Collect the marks of a change; `old` has the files before it."""
    lines = reference.decode(errors="replace").split("\n")
    added = [line[1:_MAX_LINE] for line in lines if line.startswith("+") and not line.startswith("+++ ")]
    names = set(_WORD.findall(hidden.decode(errors="replace")))
    old_lines: set[str] = set()
    for content in old:
        text = content.decode(errors="replace")
        names.update(_WORD.findall(text))
        old_lines.update(_SPACES.sub("", line) for line in text.split("\n"))
    words = {word for line in added for word in _WORD.findall(line)} - names
    packed = dict.fromkeys(_SPACES.sub("", line) for line in added)
    return Leaks(
        numbers=tuple(numbers),
        commits=commits,
        code=tuple(line for line in packed if len(line) >= _MIN_CODE and line not in old_lines)[:_MAX_CODE_LINES],
        names=frozenset(word for word in words if _COMPOUND.search(word)),
    )
