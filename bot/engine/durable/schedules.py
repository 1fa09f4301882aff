"""Keep when recipes are due, in the store, and turn each due time into one job, however many processes look."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from bot.domain.commands import RecipeDue
from bot.domain.job import Actor, Job, Origin, Repo, Thread
from bot.engine.durable import jobs
from bot.engine.durable.store import JobStore, Transaction, insert
from bot.engine.durable.tables import SCHEDULES
from bot.gate.recipes import next_due
from bot.intake.asking import job_id

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 100


class DurableSchedules:
    """Implements `Schedules`.

    Args:
        store: the one that the engine is on; the one who opened it closes it.
    """

    def __init__(self, store: JobStore) -> None:
        self._run = store.run

    async def keep(self, repo: Repo, installation: int, crons: Mapping[str, str]) -> None:
        """See `Schedules.keep`."""

        def keep(tx: Transaction) -> None:
            tx.lock("schedules")
            here = SCHEDULES.c.repo_id == repo.id
            rows = tx.rows.execute(sa.select(SCHEDULES.c.recipe, SCHEDULES.c.cron).where(here))
            known = {each.recipe: each.cron for each in rows}
            for gone in known.keys() - crons.keys():
                tx.rows.execute(SCHEDULES.delete().where(here, SCHEDULES.c.recipe == gone))
            for name, cron in crons.items():
                place = {"installation": installation, "repo": repo.full_name}
                if known.get(name) != cron:
                    place |= {"cron": cron, "due_at": next_due(cron, tx.now, spread_by=f"{repo.id}:{name}")}
                    row = insert(tx, SCHEDULES).values(repo_id=repo.id, recipe=name, **place)
                    tx.rows.execute(row.on_conflict_do_update(index_elements=["repo_id", "recipe"], set_=place))
                else:
                    tx.rows.execute(SCHEDULES.update().where(here, SCHEDULES.c.recipe == name).values(**place))

        await self._run(keep)

    async def keep_only(self, installation: int, repo_ids: Collection[int]) -> None:
        """See `Schedules.keep_only`."""
        here = SCHEDULES.c.installation == installation

        def forget(tx: Transaction) -> None:
            known = set(tx.rows.execute(sa.select(SCHEDULES.c.repo_id).where(here)).scalars())
            for gone in known.difference(repo_ids):
                tx.rows.execute(SCHEDULES.delete().where(here, SCHEDULES.c.repo_id == gone))

        await self._run(forget)

    async def installations(self) -> frozenset[int]:
        """See `Schedules.installations`."""
        found = sa.select(SCHEDULES.c.installation).distinct()
        return frozenset(await self._run(lambda tx: list(tx.rows.execute(found).scalars())))

    async def start_due(self) -> int:
        """See `Schedules.start_due`."""

        def start(tx: Transaction) -> int:
            tx.lock("schedules")
            due = sa.select(SCHEDULES).where(SCHEDULES.c.due_at <= tx.now).order_by(SCHEDULES.c.due_at)
            rows = tx.rows.execute(due.limit(_MOST_AT_ONCE)).all()
            for row in rows:
                name, at = row.recipe, int(row.due_at)
                job = Job(
                    id=job_id("schedule", row.repo_id, f"{name}:{at}"),
                    delivery_id=f"schedule-{row.repo_id}-{name}-{at}",
                    # Whether it is private is asked of GitHub when the job begins.
                    repo=Repo(id=row.repo_id, full_name=row.repo, private=True),
                    thread=Thread.numbered("issue", 0),
                    actor=Actor(id=0, login=""),
                    origin=Origin(kind="event", id=0),
                    command=RecipeDue(name=name),
                    installation=row.installation,
                )
                jobs.accept(tx, job, 0.0)
                # From now, not from then: what was due several times while no process ran is done once.
                here = (SCHEDULES.c.repo_id == row.repo_id, SCHEDULES.c.recipe == name)
                try:
                    following = next_due(row.cron, tx.now, spread_by=f"{row.repo_id}:{name}")
                except ValueError as error:  # another version took it; the next look at the repository tells its people
                    log.warning("the recipe %s of %s is due no more: %r: %s", name, row.repo, row.cron, error)
                    tx.rows.execute(SCHEDULES.delete().where(*here))
                else:
                    tx.rows.execute(SCHEDULES.update().where(*here).values(due_at=following))
            return len(rows)

        return await self._run(start)
