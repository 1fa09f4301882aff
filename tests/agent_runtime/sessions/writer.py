"""A process that works on session `s` until it is killed.

It writes down what it did: `open`, then `appended N` and `committed N` for numbers from 1.
"""

from __future__ import annotations

import asyncio
import sys

from agent_runtime.core.events import Observed
from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.file import FileSession
from tests.agent_runtime.sessions.stores import Store


def write(store: str, most: int) -> None:
    """Record `most` events in a store, which is JSON, then wait, holding the session."""
    mine = Store.from_json(store).session()
    asyncio.run(_work(mine, most))
    sys.stdin.read()
    mine.close()


async def _work(session: FileSession | DatabaseSession, most: int) -> None:
    _say("open", len(session.events))
    first = len(session.events) + 1
    for number in range(first, first + most):
        session.append(Observed(step=number, text=f"{number} " * (number % 900), ok=True))
        _say("appended", number)
        if number % 3 == 0:
            await session.commit()
            _say("committed", number)


def _say(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()
