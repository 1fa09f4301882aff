"""A process that works on session `s` until it is killed: `python -m tests.agent_runtime.sessions.writer STORE EVENTS`.

It writes down what it did: `open`, then `appended N` and `committed N` for numbers from 1. EVENTS is after how many
events it waits, holding the session.
"""

from __future__ import annotations

import asyncio
import sys

from agent_runtime.core.events import Observed
from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.file import FileSession
from tests.agent_runtime.sessions.stores import Store


async def work(session: FileSession | DatabaseSession, most: int) -> None:
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


if __name__ == "__main__":
    mine = Store.from_json(sys.argv[1]).session()
    asyncio.run(work(mine, int(sys.argv[2])))
    sys.stdin.read()
    mine.close()
