"""Facts that are stored beside the jobs: permission labels, notices sent, work begun, due recipes, the pace of writes.

All processes on a database share them. `DurableLedger` implements `Ledger`; `DurableSchedules`, `Schedules`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from itertools import takewhile

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from bot.domain.access import LabelGrant, Tally, TrustedBots, is_unattended
from bot.domain.commands import RecipeDue
from bot.domain.errors import OtherVersionError, QueueError
from bot.domain.job import Actor, Job, JobState, Origin, Repo, Thread
from bot.events.delivery import job_id
from bot.github.rate_limit import Reserve
from bot.permissions.repo_config import RepoConfig, next_due
from bot.queue import transitions
from bot.queue.records import decode_job
from bot.queue.store import CONFIGS, JOBS, LABELS, PACES, SCHEDULES, TOLD, JobStore, Transaction, insert

log = logging.getLogger(__name__)
_CONFIG = TypeAdapter(RepoConfig)
_HOUR = 3600.0
_READ_AT_ONCE = 20
_STARTED_AT_ONCE = 100

_LONGEST_PACE_SECONDS = 60.0
"""A process that has to wait longer writes anyway: others have reserved and died, or a clock was set back."""


class DurableLedger:
    """Implements `Ledger`: labels, notices and counts in the database.

    Args:
        store: the one that the engine is on; the caller closes it.
        trusted_bots: bots that may command; see `is_unattended`.
    """

    def __init__(self, store: JobStore, *, trusted_bots: TrustedBots | None = None) -> None:
        self._run = store.run
        self._trusted_bots = trusted_bots or TrustedBots()

    async def keep_label(self, label: LabelGrant) -> None:
        """See `Ledger.keep_label`."""
        place = {"repo_id": label.repo_id, "thread": label.number, "folded": label.name.casefold()}
        said = {
            "name": label.name,
            "labeller_id": label.labeller.id,
            "labeller_login": label.labeller.login,
            "bound_to": label.bound_to,
            "at": label.at,
        }
        await self._run(
            lambda tx: tx.rows.execute(
                insert(tx, LABELS)
                .values(**place, **said)
                .on_conflict_do_update(index_elements=list(place), set_=said, where=LABELS.c.at <= label.at)
            )
        )

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
        """See `Ledger.labels`."""
        kept = sa.select(LABELS).where(*_in_thread(repo_id, number)).order_by(LABELS.c.folded)
        rows = await self._run(lambda tx: tx.rows.execute(kept).all())
        return tuple(
            LabelGrant(
                repo_id=repo_id,
                number=number,
                name=each.name,
                labeller=Actor(id=each.labeller_id, login=each.labeller_login),
                bound_to=each.bound_to,
                at=each.at,
            )
            for each in rows
        )

    async def drop_label(self, repo_id: int, number: int, name: str) -> None:
        """See `Ledger.drop_label`."""
        gone = LABELS.delete().where(*_in_thread(repo_id, number), LABELS.c.folded == name.casefold())
        await self._run(lambda tx: tx.rows.execute(gone))

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        """See `Ledger.rebind_labels`."""
        bound = LABELS.update().where(*_in_thread(repo_id, number), LABELS.c.bound_to == old_sha)
        await self._run(lambda tx: tx.rows.execute(bound.values(bound_to=new_sha)))

    async def may_tell(self, repo_id: int, number: int, cause: str, *, seconds: float = _HOUR, by: str = "") -> bool:
        """See `Ledger.may_tell`."""

        def told(tx: Transaction) -> bool:
            tx.rows.execute(TOLD.delete().where(TOLD.c.until <= tx.now))
            values = {"repo_id": repo_id, "thread": number, "until": tx.now + seconds}
            first = insert(tx, TOLD).on_conflict_do_nothing().returning(TOLD.c.until)
            is_first = tx.rows.execute(first.values(cause=cause, **values)).scalar() is not None
            own = f"{cause} by {by}"  # in a row beside it, as the table knows no jobs
            if is_first and by:
                tx.rows.execute(first.values(cause=own, **values))
            here = (TOLD.c.repo_id == repo_id, TOLD.c.thread == number, TOLD.c.cause == own)
            return is_first or tx.rows.execute(sa.select(TOLD.c.until).where(*here)).scalar() is not None

        return await self._run(told)

    async def hold_back(self, repo_id: int, number: int, cause: str, *, seconds: float) -> None:
        """See `Ledger.hold_back`."""

        def hold(tx: Transaction) -> None:
            values = {"repo_id": repo_id, "thread": number, "cause": cause, "until": tx.now + seconds}
            row = insert(tx, TOLD).values(**values)
            tx.rows.execute(
                row.on_conflict_do_update(
                    index_elements=["repo_id", "thread", "cause"], set_={"until": values["until"]}
                )
            )

        await self._run(hold)

    async def keep_config(self, repo_id: int, config: RepoConfig, *, seconds: float) -> None:
        """See `Ledger.keep_config`."""
        # What the file does not say is for the operator, and must stay unsaid.
        body = _CONFIG.dump_json(config, exclude_unset=True).decode()

        def put(tx: Transaction) -> None:
            tx.rows.execute(CONFIGS.delete().where(CONFIGS.c.until <= tx.now))
            values = {"until": tx.now + seconds, "body": body}
            row = insert(tx, CONFIGS).values(repo_id=repo_id, **values)
            tx.rows.execute(row.on_conflict_do_update(index_elements=["repo_id"], set_=values))

        await self._run(put)

    async def config(self, repo_id: int) -> RepoConfig | None:
        """See `Ledger.config`."""

        def find(tx: Transaction) -> str | None:
            fresh = sa.select(CONFIGS.c.body).where(CONFIGS.c.repo_id == repo_id, CONFIGS.c.until > tx.now)
            return tx.rows.execute(fresh).scalar()

        body = await self._run(find)
        try:
            return None if body is None else _CONFIG.validate_json(body)
        except ValidationError:  # another version's
            return None

    async def tally(self, job: Job, *, seconds: float = _HOUR) -> Tally:
        """See `Ledger.tally`."""
        return await self._run(lambda tx: _tally(tx, job, seconds, self._trusted_bots))


def _in_thread(repo_id: int, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return LABELS.c.repo_id == repo_id, LABELS.c.thread == number


def _tally(tx: Transaction, job: Job, seconds: float, trusted_bots: TrustedBots) -> Tally:
    # `seq` rather than `id`: every index holds it.
    itself = tx.rows.execute(sa.select(JOBS.c.seq, JOBS.c.begun_at).where(JOBS.c.id == job.id)).one_or_none()
    seq = 0 if itself is None else itself.seq
    counted = (JOBS.c.lane == "work", JOBS.c.state != JobState.REFUSED, JOBS.c.seq != seq)
    recent = JOBS.c.begun_at > tx.now - seconds
    if itself is not None and itself.begun_at is not None:
        # Of two that begin at the same moment, one must not be refused for the other, and the other for the first.
        at = itself.begun_at
        recent &= (JOBS.c.begun_at < at) | ((JOBS.c.begun_at == at) & (JOBS.c.seq < seq))

    def begun(*whose: sa.ColumnElement[bool]) -> int:
        return tx.rows.execute(sa.select(sa.func.count()).where(*counted, recent, *whose)).scalar_one()

    here = (JOBS.c.repo_id == job.repo.id, JOBS.c.thread == job.thread.key)
    unattended = 0
    if is_unattended(job, trusted_bots):
        before = sa.select(JOBS.c.body).where(*counted, *here, JOBS.c.begun_at.is_not(None), JOBS.c.body.is_not(None))
        # Some at a time: a thread may have thousands, and most end at the first few.
        newest = before.order_by(JOBS.c.seq.desc()).execution_options(yield_per=_READ_AT_ONCE)
        with tx.rows.execute(newest).scalars() as bodies:
            unattended = sum(1 for _ in takewhile(lambda body: _is_nobodys(body, trusted_bots), bodies))
    return Tally(
        thread=begun(*here),
        user=begun(JOBS.c.actor_id == job.actor.id),
        repository=begun(JOBS.c.repo_id == job.repo.id),
        installation=0 if job.installation is None else begun(JOBS.c.installation == job.installation),
        unattended=unattended,
    )


def _is_nobodys(body: str, trusted_bots: TrustedBots) -> bool:
    try:
        return is_unattended(decode_job(body), trusted_bots)
    except OtherVersionError:
        # Another version's: no sign of a person.
        return True


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
                    place |= {"cron": cron, "due_at": next_due(cron, tx.now, delay_key=f"{repo.id}:{name}")}
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
            rows = tx.rows.execute(due.limit(_STARTED_AT_ONCE)).all()
            for row in rows:
                name, at = row.recipe, int(row.due_at)
                job = Job(
                    id=job_id("schedule", row.repo_id, f"{name}:{at}"),
                    delivery_id=f"schedule-{row.repo_id}-{name}-{at}",
                    # Whether it is private is asked of GitHub when the job begins.
                    repo=Repo(id=row.repo_id, full_name=row.repo, private=True),
                    thread=Thread.from_number("issue", 0),
                    actor=Actor(id=0, login=""),
                    origin=Origin(kind="event", id=0),
                    command=RecipeDue(name=name),
                    installation=row.installation,
                )
                transitions.accept(tx, job, 0.0)
                # From now, not from then: what was due several times while no process ran is done once.
                here = (SCHEDULES.c.repo_id == row.repo_id, SCHEDULES.c.recipe == name)
                try:
                    following = next_due(row.cron, tx.now, delay_key=f"{row.repo_id}:{name}")
                except ValueError as error:  # another version took it; the next look at the repository tells its people
                    log.warning("the recipe %s of %s is due no more: %r: %s", name, row.repo, row.cron, error)
                    tx.rows.execute(SCHEDULES.delete().where(*here))
                else:
                    tx.rows.execute(SCHEDULES.update().where(*here).values(due_at=following))
            return len(rows)

        return await self._run(start)


def reserve_write(store: JobStore, installation: int) -> Reserve:
    """Return the `Reserve` of an installation in a database: GitHub counts its writes, whatever worker sends them."""

    async def reserve(seconds: float) -> float:
        def next_write(tx: Transaction) -> float:
            tx.lock("pace", installation)
            asked = sa.select(PACES.c.last_at).where(PACES.c.installation == installation)
            last = tx.rows.execute(asked).scalar()
            at = max(tx.now, 0.0 if last is None else last + seconds)
            if at > tx.now + _LONGEST_PACE_SECONDS:
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
