"""Collect the results and prints of a step, in order and within a bound, for the model. Pure.

What does not fit is named by call: of a listing of a file's lines, the lines; of any other text, how much of it. So the
model can ask for just that in its next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agent_runtime.core.binary import without_binary
from agent_runtime.core.calls import ListedLines, Plain
from agent_runtime.core.images import Image
from agent_runtime.transports.protocol import Shown

_LEAST = 400
"""Characters of a result that are worth showing a part of it."""
_NAMED = 30
"""Results that are named when nothing of them is shown; more are counted."""
_NAME_CHARS = 200


class ShownOutput:
    """Collects what a step shows; past the bound, what is missing."""

    def __init__(self, max_chars: int) -> None:
        self._max = max_chars
        self._used = 0
        self._dropped = 0
        self._missing = 0
        self._parts: list[tuple[str, bool]] = []
        self._images: tuple[Image, ...] = ()

    def take(self) -> Shown:
        """Take out what was shown since the last time; it still counts for the bound."""
        shown = Shown(text=self.text(), images=self._images)
        self._parts, self._images = [], ()
        self._dropped = self._missing = 0
        return shown

    def to_plain(self) -> dict[str, Plain]:
        """What was shown so far, to be kept while the run is paused."""
        parts: list[Plain] = [[text, printed] for text, printed in self._parts]
        counts: dict[str, Plain] = {"used": self._used, "dropped": self._dropped, "missing": self._missing}
        return {"parts": parts, **counts, "images": [asdict(image) for image in self._images]}

    def take_back(self, plain: Mapping[str, Any]) -> None:
        """Go on after what `to_plain` gave."""
        self._parts = [(text, printed) for text, printed in plain["parts"]]
        self._used = plain.get("used", sum(len(text) for text, _ in self._parts))
        self._dropped, self._missing = plain["dropped"], plain.get("missing", 0)
        self._images = tuple(Image(**image) for image in plain.get("images", ()))

    def printed(self, text: str) -> None:
        """Add what the control block printed."""
        text = without_binary(text)
        kept = text[: max(0, self._max - self._used)]
        self._used += len(kept)
        self._dropped += len(text) - len(kept)
        if kept:
            self._parts.append((kept, True))

    def result(
        self,
        text: str,
        *,
        call: str = "",
        lines: ListedLines | None = None,
        most: int | None = None,
        images: tuple[Image, ...] = (),
    ) -> None:
        """Add the result of a call, set apart from its neighbours.

        Args:
            text: as the model reads it.
            call: the call in a few words.
            lines: those of a file that the text lists, if it does.
            most: characters of it that are shown at most; None for no bound but the step's.
            images: pictures beside it.
        """
        self._images += images
        text = without_binary(text)
        room, why = max(0, self._max - self._used), f"a step shows {self._max:,} characters"
        if most is not None and most < room:
            room, why = most, f"of such a result {most:,} characters are shown"
        if len(text) <= room:
            shown = text
        elif lines is not None:
            shown = _first_lines(text, room, lines, why)
        else:
            least = min(_LEAST, self._max, most or _LEAST)
            shown = _head_and_tail(text, room, call, why) if room >= least else ""
        self._used += len(shown)
        if not shown:
            self._missing += 1
            what = _span(lines, lines.first) if lines is not None else f"{call or 'a result'}, {len(text):,} characters"
            shown = f"[not shown, since {why}: {what}]" if self._missing <= _NAMED else ""
        if shown:
            self._parts.append((shown, False))

    def text(self) -> str:
        """Everything, as the model reads it: runs of prints and results, a blank line between them."""
        blocks: list[str] = []
        previous = False
        for text, printed in self._parts:
            if blocks and printed and previous:
                blocks[-1] += text
            else:
                blocks.append(text)
            previous = printed
        if self._missing > _NAMED:
            blocks.append(f"[{self._missing - _NAMED} more results are not shown]")
        if self._dropped:
            blocks.append(f"[{self._dropped:,} more characters were printed in this step and are left out; print less]")
        return "\n\n".join(block.rstrip("\n") for block in blocks)


def _first_lines(text: str, room: int, lines: ListedLines, why: str) -> str:
    """A listing up to the last line that fits whole; empty where none does."""
    end = text.rfind("\n", 0, room + 1)
    count = text.count("\n", 0, end) if end > 0 else 0
    if not count:
        return ""
    shown, rest = text[:end], _span(lines, lines.first + count) if lines.first + count <= lines.last else "an outline"
    return f"{shown}\n[not shown, since {why}: {rest}]"


def _head_and_tail(text: str, room: int, call: str, why: str) -> str:
    """The beginning and the end of a text, in whole lines where it has lines."""
    head, tail = text[: room // 2], text[len(text) - room // 2 :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    missing = len(text) - len(head) - len(tail)
    of = f" of {call}" if call else ""
    return f"{head.rstrip()}\n[{missing:,} characters left out{of}, since {why}]\n{tail}"


def _span(lines: ListedLines, first: int) -> str:
    name = repr(lines.path)
    return f"lines {first}-{lines.last} of {name if len(name) <= _NAME_CHARS else f'{name[:_NAME_CHARS]}…'}"
