"""Syntax errors that a change brings into a file, found by parsing what changed. Pure.

A Python file of 5,000 lines takes 40 ms to parse, and an agent edits the same file again and again. Where the top-level
statements of the last version that parsed begin is remembered; when the statements that a change touches parse on
their own, so does the file with them in it. Whenever they do not, the whole file is parsed and its parser has the word.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from agent_runtime.workspace.diffs import outer_span
from agent_runtime.workspace.grammars import fault_in
from agent_runtime.workspace.syntax import LONGEST, check, is_python
from agent_runtime.workspace.text import Text

_KEPT = 32  # files


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A text that parses, and the lines, from 0, on which its top-level statements begin."""

    text: Text
    starts: list[int]


def parsed(source: str) -> list[int] | str:
    """The lines, from 0, on which the top-level statements of a Python text begin, or its first error."""
    tree = check(source)
    if isinstance(tree, str):
        return tree
    first = [min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]) for node in tree.body]
    return sorted({line - 1 for line in first})


class SyntaxMemory:
    """Finds the syntax errors that changes introduce."""

    def __init__(
        self,
        parse: Callable[[str], list[int] | str | None] = parsed,
        fault: Callable[[str, str], str | None] = fault_in,
    ) -> None:
        """Remember nothing yet.

        Args:
            parse: `parsed`, or the same for large texts, which gives None where it cannot tell.
            fault: `fault_in`, or the same.
        """
        self._parse, self._fault = parse, fault
        self._known: OrderedDict[str, _Parsed] = OrderedDict()

    def introduced(self, path: str, old: Text | None, new: Text) -> str | None:
        """A syntax error that the file has now and had not before, as one sentence.

        Args:
            path: the file's name, which says its language.
            old: the file before; None when there was none.
            new: the file as it is to be.
        """
        if not is_python(path):
            fault = self._fault(path, new.raw)
            return fault if fault and (old is None or self._fault(path, old.raw) is None) else None
        if len(new.raw) > LONGEST:
            return None
        known = self._known.get(path)
        if known and old and known.text.raw == old.raw and (starts := self._starts_after(known, new)) is not None:
            self._keep(path, new, starts)
            return None
        checked = self._parse(new.raw)
        if isinstance(checked, str):
            return checked if old is None or isinstance(self._parse(old.raw), list) else None
        if checked is not None:
            self._keep(path, new, checked)
        return None

    def _starts_after(self, known: _Parsed, new: Text) -> list[int] | None:
        """Where the statements of the new text begin, if it can be told that it parses."""
        before, after = known.text.lines, new.lines
        first, old_end, new_end = outer_span(before, after)
        moved = new_end - old_end
        starts = known.starts
        low = max(0, bisect_right(starts, first - 1) - 1)
        high = bisect_left(starts, old_end)
        begin = starts[low] if low < len(starts) and starts[low] <= first else 0
        stop = starts[high] + moved if high < len(starts) else len(after)
        if not _counts_alike(new) or (begin and after[begin - 1].endswith("\\")):
            return None
        inner = self._parse("\n".join(after[begin:stop]) + "\n")
        if not isinstance(inner, list):
            return None
        kept = [start for start in starts[: low + 1] if start < begin]
        return [*kept, *(start + begin for start in inner), *(start + moved for start in starts[high:])]

    def _keep(self, path: str, text: Text, starts: list[int]) -> None:
        if not _counts_alike(text):
            return
        self._known[path] = _Parsed(text, starts)
        self._known.move_to_end(path)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


def _counts_alike(text: Text) -> bool:
    """Whether Python counts the lines of a text as we do: a carriage return by itself ends one for Python only."""
    if "\r" not in text.raw:
        return True
    return text.raw.count("\r") == text.raw.count("\r\n") == text.raw.count("\n")
