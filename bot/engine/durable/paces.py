"""Keep the pause between writes to GitHub among the workers of a database: GitHub counts them by installation."""

from __future__ import annotations

import logging

import sqlalchemy as sa

from bot.domain.errors import QueueError
from bot.engine.durable.store import JobStore, Transaction, insert
from bot.engine.durable.tables import PACES
from bot.github import Reserve

log = logging.getLogger(__name__)

_MOST_SECONDS = 60.0
"""A process that has to wait longer writes anyway: others have reserved and died, or a clock was set back."""


def reserve_for(store: JobStore, installation: int) -> Reserve:
    """The `Reserve` of an installation in a database."""

    async def reserve(seconds: float) -> float:
        def next_write(tx: Transaction) -> float:
            tx.lock("pace", installation)
            asked = sa.select(PACES.c.last_at).where(PACES.c.installation == installation)
            last = tx.rows.execute(asked).scalar()
            at = max(tx.now, 0.0 if last is None else last + seconds)
            if at > tx.now + _MOST_SECONDS:
                at = tx.now
            row = insert(tx, PACES).values(installation=installation, last_at=at)
            tx.rows.execute(row.on_conflict_do_update(index_elements=["installation"], set_={"last_at": at}))
            return at - tx.now

        try:
            return await store.run(next_write)
        except QueueError as error:
            # Only a courtesy to GitHub depends on it: a writer keeps the pause of this process.
            log.warning("the pace of writes is not shared: %s", error)
            return 0.0

    return reserve
