"""Tell open pages that something has changed, by server-sent events: one poller for all of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bot.domain.errors import QueueError

log = logging.getLogger(__name__)

MOST_PAGES = 200
"""How many pages may listen at the same time; others are not live."""
_MOST_OF_ONE = 20
_POLL_SECONDS = 1.0
_SILENCE_SECONDS = 15.0


@dataclass(slots=True, eq=False)
class _Listener:
    who: str
    run: str
    seen: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class LivePages:
    """The pages that listen, and the poller, which only runs while there are some.

    Args:
        pulse: gives a text that is another one after any job has changed.
        stamp: the same for the log of one run; it blocks.
        poll_seconds: between two looks.
    """

    def __init__(
        self, pulse: Callable[[], Awaitable[str]], stamp: Callable[[str], str], *, poll_seconds: float = _POLL_SECONDS
    ) -> None:
        self._pulse, self._stamp, self._poll_seconds = pulse, stamp, poll_seconds
        self._listeners: set[_Listener] = set()
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def listening(self, who: str, run: str) -> AsyncIterator[Callable[[float], AsyncIterator[bytes]] | None]:
        """The events for one page; None when too many listen already.

        Args:
            who: names the person, or the operator's sign-in.
            run: the run that the page shows; empty for a page about all.
        """
        of_one = sum(each.who == who for each in self._listeners)
        if self._closed or len(self._listeners) >= MOST_PAGES or of_one >= _MOST_OF_ONE:
            yield None
            return
        mine = _Listener(who, run)
        self._listeners.add(mine)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            yield lambda until: self._events(mine, until)
        finally:
            self._listeners.discard(mine)
            if not self._listeners and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def close(self) -> None:
        """End all events, so that the server can end."""
        self._closed = True
        for each in self._listeners:
            each.changed.set()

    async def _events(self, mine: _Listener, until: float) -> AsyncIterator[bytes]:
        yield b"retry: 3000\n: live\n\n"
        while (left := until - time.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_SILENCE_SECONDS, left)):
                    await mine.changed.wait()
            if self._closed:
                return
            yield b"event: changed\ndata: .\n\n" if mine.changed.is_set() else b": still live\n\n"
            mine.changed.clear()

    async def _poll(self) -> None:
        while True:
            runs = {each.run for each in self._listeners}
            try:
                pulse = await self._pulse()
                stamps = await asyncio.to_thread(lambda names: {each: self._stamp(each) for each in names}, runs - {""})
            except QueueError as error:
                log.warning("pages of the dashboard are not live: %s", error, extra={"stranger": True})
                await asyncio.sleep(self._poll_seconds)
                continue
            for each in self._listeners:
                now = f"{pulse} {stamps.get(each.run, '')}"
                # Also at the first look: something may have changed since the page was made.
                if each.run in runs and each.seen != now:
                    each.seen = now
                    each.changed.set()
            await asyncio.sleep(self._poll_seconds)
