"""Facts about threads rather than jobs: permission labels, notices sent, work begun."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial

from pydantic import ValidationError

from bot.domain.access import LabelGrant, Tally, is_unattended
from bot.domain.job import Actor, Job
from bot.domain.listening import TrustedBots
from bot.engine.database import Database, exclusive
from bot.engine.records import loaded
from bot.gate.repo_config import RepoConfig

_HOUR_SECONDS = 3600.0
_NEVER = 1e15

# `seq` rather than `id`: every index holds it.
_BEGUN = (
    "SELECT count(*) FROM jobs WHERE lane = 'work' AND begun_at > :since AND state != 'refused' AND {whose}"
    " AND (begun_at < :begun_at OR begun_at = :begun_at AND seq < :seq)"
)
_THREAD = "repo_id = :repo AND thread = :thread"


class SqliteLedger:
    """Implements `Ledger` in the database.

    Args:
        database: the one that the queue is in; whoever opened it closes it.
        trusted_bots: bots that may command; see `is_unattended`.
        clock: seconds since the epoch; the same for every process on the file.
    """

    def __init__(
        self, database: Database, *, trusted_bots: TrustedBots | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._run = database.run
        self._trusted_bots = trusted_bots or TrustedBots()
        self._clock = clock

    async def keep_label(self, label: LabelGrant) -> None:
        """See `Ledger.keep_label`."""
        await self._run(partial(_keep_label, label=label))

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
        """See `Ledger.labels`."""
        return await self._run(partial(_labels, repo_id=repo_id, number=number))

    async def drop_label(self, repo_id: int, number: int, name: str) -> None:
        """See `Ledger.drop_label`."""
        values = (repo_id, number, name)
        await self._run(
            lambda rows: _write(rows, "DELETE FROM labels WHERE repo_id = ? AND thread = ? AND name = ?", values)
        )

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        """See `Ledger.rebind_labels`."""
        statement = "UPDATE labels SET bound_to = ? WHERE repo_id = ? AND thread = ? AND bound_to = ?"
        await self._run(lambda rows: _write(rows, statement, (new_sha, repo_id, number, old_sha)))

    async def may_tell(self, repo_id: int, number: int, cause: str, *, seconds: float = _HOUR_SECONDS) -> bool:
        """See `Ledger.may_tell`."""
        now = self._clock()
        return await self._run(lambda rows: _may_tell(rows, (repo_id, number, cause, now + seconds), now))

    async def keep_config(self, repo_id: int, config: RepoConfig, *, seconds: float) -> None:
        """Nothing is kept: this database has one process."""

    async def config(self, repo_id: int) -> RepoConfig | None:
        """Nothing is kept."""

    async def tally(self, job: Job, *, seconds: float = _HOUR_SECONDS) -> Tally:
        """See `Ledger.tally`."""
        since = self._clock() - seconds
        return await self._run(partial(_tally, job=job, since=since, trusted_bots=self._trusted_bots))


def _write(rows: sqlite3.Connection, statement: str, values: tuple[object, ...]) -> int:
    """One statement, one transaction; give back how many rows it changed."""
    with exclusive(rows):
        return rows.execute(statement, values).rowcount


def _keep_label(rows: sqlite3.Connection, *, label: LabelGrant) -> None:
    _write(
        rows,
        "INSERT INTO labels (repo_id, thread, name, labeller_id, labeller_login, bound_to, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name,"
        " labeller_id = excluded.labeller_id, labeller_login = excluded.labeller_login, bound_to = excluded.bound_to,"
        " at = excluded.at WHERE excluded.at >= labels.at",
        (label.repo_id, label.number, label.name, label.labeller.id, label.labeller.login, label.bound_to, label.at),
    )


def _labels(rows: sqlite3.Connection, *, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
    found = rows.execute(
        "SELECT name, labeller_id, labeller_login, bound_to, at FROM labels WHERE repo_id = ? AND thread = ?"
        " ORDER BY name",
        (repo_id, number),
    )
    return tuple(
        LabelGrant(
            repo_id=repo_id, number=number, name=name, labeller=Actor(id=id_, login=login), bound_to=bound_to, at=at
        )
        for name, id_, login, bound_to, at in found
    )


def _may_tell(rows: sqlite3.Connection, values: tuple[int, int, str, float], now: float) -> bool:
    with exclusive(rows):
        rows.execute("DELETE FROM told WHERE until <= ?", (now,))
        return rows.execute("INSERT INTO told VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", values).rowcount == 1


def _tally(rows: sqlite3.Connection, *, job: Job, since: float, trusted_bots: TrustedBots) -> Tally:
    row = rows.execute("SELECT seq, begun_at FROM jobs WHERE id = ?", (job.id,)).fetchone()
    seq, begun_at = row or (0, None)
    values = {
        "since": since,
        "seq": seq,
        # Of two that begin at the same moment, one must not be refused for the other, and the other for the first.
        "begun_at": _NEVER if begun_at is None else begun_at,
        "repo": job.repo.id,
        "thread": job.thread.key,
        "user": job.actor.id,
        "installation": job.installation,
    }

    def begun(whose: str) -> int:
        return int(rows.execute(_BEGUN.format(whose=whose), values).fetchone()[0])

    return Tally(
        thread=begun(_THREAD),
        user=begun("actor_id = :user"),
        repository=begun("repo_id = :repo"),
        installation=0 if job.installation is None else begun("installation = :installation"),
        unattended=_unattended(rows, job, seq, trusted_bots),
    )


def _unattended(rows: sqlite3.Connection, job: Job, seq: int, trusted_bots: TrustedBots) -> int:
    """Follow the thread's work backwards from `job` to the last that a person asked for."""
    if not is_unattended(job, trusted_bots):
        return 0
    before = rows.execute(
        "SELECT body FROM jobs WHERE lane = 'work' AND repo_id = ? AND thread = ? AND seq != ? AND body IS NOT NULL"
        " AND begun_at IS NOT NULL AND state != 'refused' ORDER BY seq DESC",
        (job.repo.id, job.thread.key, seq),
    )
    count = 0
    for (body,) in before:
        if not _nobodys(body, trusted_bots):
            break
        count += 1
    return count


def _nobodys(body: str, trusted_bots: TrustedBots) -> bool:
    try:
        return is_unattended(loaded(body), trusted_bots)
    except ValidationError:
        # Another version's: no sign of a person.
        return True
