"""The payloads of one reply, handed out in order to the calls that write them; and those that were not written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self

from agent_runtime.core.calls import Plain
from agent_runtime.core.errors import ToolError
from agent_runtime.transports.blocks.payload_plan import same_file

_MOST_KEPT = 50
_MOST_KEPT_CHARS = 4_000_000


class Content(Protocol):
    """What is needed of a reply's payload block."""

    @property
    def text(self) -> str:
        """The content, as it stood between the fences."""
        ...

    @property
    def filename(self) -> str | None:
        """The file that the fence names, if it names one."""
        ...


class Payloads:
    """One step's payloads; the loop makes one of these for each reply."""

    def __init__(self, payloads: Iterable[Content] = ()) -> None:
        self._payloads = tuple(payloads)
        self._taken = 0

    def take(self, path: str) -> str:
        """The next payload's text, for the file `path`; an empty path leaves the name on the fence unchecked.

        Raises:
            ToolError: there is none left, or it names another file; nothing is taken then.
        """
        number = self._taken + 1
        if number > len(self._payloads):
            raise ToolError(
                f"write_file({path!r}) needs payload {number}, but the reply has {len(self._payloads)}; put one fenced "
                "block for each write below the codepilot block, in the order of the calls",
                kind="ValueError",
            )
        payload = self._payloads[self._taken]
        if path and payload.filename is not None and not same_file(payload.filename, path):
            raise ToolError(
                f"payload {number} says filename={payload.filename}, but its turn came with write_file({path!r}); put "
                "the payloads in the order of the calls, or leave filename= out",
                kind="ValueError",
            )
        self._taken = number
        return payload.text

    def copy(self) -> Payloads:
        """The same payloads, to try something out on."""
        twin = Payloads(self._payloads)
        twin._taken = self._taken
        return twin

    @property
    def taken(self) -> int:
        """How many payloads calls have taken."""
        return self._taken

    def skip(self, count: int) -> None:
        """Count payloads as taken that were taken before a run was paused.

        Raises:
            ValueError: there are not so many.
        """
        if not 0 <= count <= len(self._payloads):
            raise ValueError(f"{count} payloads were taken, but the reply has {len(self._payloads)}")
        self._taken = count

    def left(self) -> int:
        """How many payloads no call has taken."""
        return len(self._payloads) - self._taken

    def ahead(self) -> tuple[str, ...]:
        """The texts that no call has taken."""
        return tuple(payload.text for payload in self._payloads[self._taken :])


class KeptContents:
    """Contents that were sent but not written, by number, so that they need not be sent again.

    The oldest go first when there are more than 50, or more than 4,000,000 characters of them.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        self._last = 0

    def keep(self, contents: tuple[str, ...], number: int | None = None) -> int:
        """Keep the contents of one write; the answer is their number.

        Args:
            contents: of the write.
            number: of other contents, which these replace; None for a number of their own.
        """
        if number is None:
            self._last = number = self._last + 1
        self._kept[number] = contents
        self._kept.move_to_end(number)
        chars = sum(len(text) for kept in self._kept.values() for text in kept)
        while len(self._kept) > 1 and (len(self._kept) > _MOST_KEPT or chars > _MOST_KEPT_CHARS):
            chars -= sum(map(len, self._kept.popitem(last=False)[1]))
        return number

    def get(self, number: object, count: int) -> tuple[str, ...]:
        """The contents of a number.

        Raises:
            ToolError: there are none under it, or not as many as the write takes.
        """
        if not isinstance(number, int) or isinstance(number, bool) or number not in self._kept:
            numbers = f"kept are {', '.join(map(str, self._kept))}" if self._kept else "nothing is kept"
            raise ToolError(
                f"payload={number!r}: must be the number of a write that was refused; {numbers}", kind="ValueError"
            )
        contents = self._kept[number]
        if len(contents) != count:
            raise ToolError(
                f"payload={number}: holds {len(contents)} content{'s' if len(contents) != 1 else ''}, but this write "
                f"takes {count}; repeat it in the mode in which it was refused",
                kind="ValueError",
            )
        return contents

    def to_plain(self) -> dict[str, Plain]:
        """All of them, to be kept while a run is paused."""
        return {"last": self._last, "kept": [[number, *contents] for number, contents in self._kept.items()]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """What `to_plain` gave."""
        kept = cls()
        kept._last = plain["last"]
        kept._kept = OrderedDict((number, tuple(contents)) for number, *contents in plain["kept"])
        return kept
