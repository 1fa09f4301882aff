"""The payloads of one reply, handed out in order to the calls that write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from agent_runtime.errors import ToolError
from agent_runtime.payload_plan import same_file


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
        """The next payload's text, for the file `path`.

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
        if payload.filename is not None and not same_file(payload.filename, path):
            raise ToolError(
                f"payload {number} says filename={payload.filename}, but its turn came with write_file({path!r}); put "
                "the payloads in the order of the calls, or leave filename= out",
                kind="ValueError",
            )
        self._taken = number
        return payload.text

    def left(self) -> int:
        """How many payloads no call has taken."""
        return len(self._payloads) - self._taken
