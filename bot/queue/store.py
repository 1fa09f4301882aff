"""The database of the job engine: an SQLite file for one machine, or PostgreSQL for many.

Its tables, transactions (`Transaction`), connections and threads (`JobStore`), and statements for many rows at once. A
transaction writes rows and enqueues workflows of DBOS, whose tables are in the same database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Never, TypeVar, cast
from uuid import uuid4

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions
from dbos import error as dbos_error
from filelock import FileLock
from pydantic_core import to_json
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from typing_extensions import override

from bot.domain.errors import QueueError

log = logging.getLogger(__name__)

APPLICATION = "codepilot"
"""Our name in tables that other applications of DBOS may share."""

SILENCE = {"tcp_keepalives_idle": 1, "tcp_keepalives_interval": 1, "tcp_keepalives_count": 2, "tcp_user_timeout": 3000}
"""PostgreSQL ends a session, and gives its locks to others, three seconds after its machine or network is gone."""

IDLE_SECONDS = 5.0
"""How long a process may stand still in a transaction; they take milliseconds."""

METADATA = sa.MetaData()
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # which numbers rows by INTEGER alone
_SECONDS = sa.Double[float]()
_ID = sa.String(200)


class _Words(sa.TypeDecorator[str]):
    """Text of people and programs, in which what neither database takes is replaced: NUL, half a surrogate pair."""

    impl = sa.Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """See `TypeDecorator`."""
        return value and value.replace("\0", "\ufffd").encode(errors="replace").decode()


JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("id", _ID, nullable=False, unique=True),
    sa.Column("delivery_id", _ID, nullable=False, unique=True),
    sa.Column("repo_id", _NUMBER, nullable=False),
    sa.Column("thread", _NUMBER, nullable=False),
    sa.Column("installation", _NUMBER),
    sa.Column("actor_id", _NUMBER, nullable=False),
    sa.Column("lane", sa.String(10), nullable=False),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("reason", _Words, nullable=False, server_default=""),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    # How often the job was given to a queue; the workflow of an earlier time does nothing any more.
    sa.Column("leg", sa.Integer, nullable=False, server_default="0"),
    # Whether its workflow is in a queue: one job of a thread is, or runs.
    sa.Column("released", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("worker", _ID),
    sa.Column("held_until", _SECONDS, nullable=False, server_default="0"),
    sa.Column("waits_until", _SECONDS),
    sa.Column("enqueued_at", _SECONDS, nullable=False),
    sa.Column("begun_at", _SECONDS),
    sa.Column("finished_at", _SECONDS),
    sa.Column("body", sa.Text),
    # Folded, for searches; missing where the words were forgotten.
    sa.Column("repository", sa.Text),
    sa.Column("actor", sa.Text),
    sqlite_autoincrement=True,
)

# Every question that is asked while somebody waits has an index of its own; those that the ledger counts by hold all it
# needs, so that an hour with very many jobs is counted without reading one of them.
sa.Index("jobs_state", JOBS.c.state)
sa.Index("jobs_of_repository", JOBS.c.repository, JOBS.c.seq)
sa.Index("jobs_of_actor", JOBS.c.actor, JOBS.c.seq)
sa.Index("jobs_thread", JOBS.c.lane, JOBS.c.repo_id, JOBS.c.thread, JOBS.c.seq)
sa.Index("jobs_begun_in_thread", JOBS.c.lane, JOBS.c.repo_id, JOBS.c.thread, JOBS.c.begun_at, JOBS.c.state)
sa.Index("jobs_begun_in_repository", JOBS.c.lane, JOBS.c.repo_id, JOBS.c.begun_at, JOBS.c.state)
sa.Index("jobs_begun_by_user", JOBS.c.lane, JOBS.c.actor_id, JOBS.c.begun_at, JOBS.c.state)
sa.Index("jobs_begun_in_installation", JOBS.c.lane, JOBS.c.installation, JOBS.c.begun_at, JOBS.c.state)
_WAITS, _IS_RELEASED = (released & JOBS.c.finished_at.is_(None) for released in (~JOBS.c.released, JOBS.c.released))
for _index, _columns, _where, _unique in (
    ("jobs_waiting_in_repository", (JOBS.c.lane, JOBS.c.repo_id, JOBS.c.seq), _WAITS, False),
    ("jobs_released_in_repository", (JOBS.c.lane, JOBS.c.repo_id, JOBS.c.thread), _IS_RELEASED, False),
    ("jobs_kept", (JOBS.c.finished_at,), JOBS.c.body.is_not(None), False),
    ("jobs_one_running_in_a_thread", (JOBS.c.lane, JOBS.c.repo_id, JOBS.c.thread), JOBS.c.state == "running", True),
):
    sa.Index(_index, *_columns, unique=_unique, sqlite_where=_where, postgresql_where=_where)

RECORDS = sa.Table(
    "records",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)
SIGNALS = sa.Table(
    "signals",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("id", _ID, nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("text", _Words, nullable=False),
    sa.Column("sender", _Words, nullable=False),
    sa.UniqueConstraint("job_id", "id"),
)
SUSPECTS = sa.Table(
    "suspects",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("deaths", sa.Integer, nullable=False),
    sa.Column("claimed_at", _SECONDS),
    sa.Column("excused", sa.Integer, nullable=False, server_default="0"),
)

# The jobs that workers were running when they died, except deaths that a job which was given up explains.
DEATHS = sa.Table(
    "deaths",
    METADATA,
    sa.Column("worker", _ID, primary_key=True),
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("at", _SECONDS, nullable=False),
)
OWED = sa.Table(
    "owed",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("since", _SECONDS, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
)

# What the dashboard shows of runs that have ended.
RUN_LOGS = sa.Table(
    "run_logs",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("repo_id", _NUMBER, nullable=False),
    sa.Column("repository", sa.Text, nullable=False),
    sa.Column("week", sa.Integer, nullable=False),
    sa.Column("cost_usd", _SECONDS),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
sa.Index("run_logs_week", RUN_LOGS.c.week)
LABELS = sa.Table(
    "labels",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("thread", _NUMBER, primary_key=True, autoincrement=False),
    # GitHub takes two spellings of a label's name for the same label.
    sa.Column("folded", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("labeller_id", _NUMBER, nullable=False),
    sa.Column("labeller_login", sa.Text, nullable=False),
    sa.Column("bound_to", sa.Text, nullable=False),
    sa.Column("at", _SECONDS, nullable=False),
)
TOLD = sa.Table(
    "told",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("thread", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("cause", sa.Text, primary_key=True),
    sa.Column("until", _SECONDS, nullable=False),
)
sa.Index("told_until", TOLD.c.until)

# What files of repositories said when a worker last looked, so that receivers know what means nothing there.
CONFIGS = sa.Table(
    "configs",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("until", _SECONDS, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

# When recipes of repositories are due.
SCHEDULES = sa.Table(
    "schedules",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("recipe", _ID, primary_key=True),
    sa.Column("installation", _NUMBER, nullable=False),
    sa.Column("repo", sa.Text, nullable=False),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("due_at", _SECONDS, nullable=False),
)
sa.Index("schedules_due", SCHEDULES.c.due_at)

# When the last write to GitHub begins that was reserved for an installation: all workers together keep its pace.
PACES = sa.Table(
    "paces",
    METADATA,
    sa.Column("installation", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("last_at", _SECONDS, nullable=False),
)
SWEEPS = sa.Table(
    "sweeps",
    METADATA,
    sa.Column("name", sa.String(50), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)
T = TypeVar("T")
_LOCK = sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(sa.bindparam("what", type_=sa.Text), 0)))


class Transaction:
    """One transaction: what it writes, and what it gives to queues, is there together or not at all.

    Attributes:
        rows: executes statements.
        now: seconds since the epoch.
        jobs_of_repository: how many jobs of one repository may run at once; None for any number.
    """

    def __init__(self, rows: Connection, client: DBOSClient, now: float, jobs_of_repository: int | None) -> None:
        self.rows, self.now, self.jobs_of_repository = rows, now, jobs_of_repository
        self._client = client

    def enqueue(
        self, workflow: str, workflow_id: str, queue: str, partition: str | None, delay: float, *args: str | int
    ) -> None:
        """Have a workflow run, once for each id.

        Args:
            workflow: its name.
            workflow_id: the same one is enqueued once.
            queue: where.
            partition: whose share of a queue with partitions it is in; None for a queue without.
            delay: in how many seconds.
            args: what it is called with.
        """
        one = Enqueued(workflow=workflow, id=workflow_id, queue=queue, partition=partition, delay=delay, args=args)
        self._client.enqueue_in_transaction(self.rows, one.options, *args)

    def enqueue_all(self, several: Sequence[Enqueued]) -> None:
        """Have workflows run, in two statements; DBOS itself makes their rows, and would take two for each."""
        if not several:
            return
        schema = "dbos." if self.rows.dialect.name == "postgresql" else ""
        made = [self._client._build_enqueue_status(each.options, *each.args)[1] for each in several]  # noqa: SLF001 - no other way in 3.4
        statuses = [{**each, "recovery_attempts": 0, "creator_xid": str(uuid4())} for each in made]
        for table, columns in (("workflow_status", _STATUS_COLUMNS), ("workflow_input", _INPUT_COLUMNS)):
            values = [{column: each[column] for column in columns} for each in statuses]
            insert_rows(self.rows, f"{schema}{table}", values)

    def lock(self, *what: object) -> bool:
        """Wait for the transactions that hold the same lock, and hold it until this transaction ends.

        Returns:
            Whether something else may have happened meanwhile: what was read before may be outdated. SQLite has one
            writer at a time, so there is nothing to wait for.
        """
        if self.rows.dialect.name != "postgresql":
            return False
        self.rows.execute(_LOCK, {"what": " ".join(map(str, what))})
        return True


def insert(tx: Transaction | str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insertion that can say what happens to a row that is there; each database has a class of its own for it.

    Args:
        tx: the transaction that it is for, or the name of the kind of database.
        table: where to.
    """
    dialect = tx if isinstance(tx, str) else tx.rows.dialect.name
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


_BUSY_SECONDS = 30.0
_CONNECTIONS = 8
_READERS = 2
_TRIES = 5
_WATCH_SECONDS = 1.0


class JobStore:
    """The database, and the queues of DBOS in it.

    Every answer is given after the commit has reached the disk: GitHub does not send a delivery again that was
    acknowledged, so an acknowledged job has to outlive a power cut.

    Attributes:
        url: the database's address, with its password.
        name: the same for people.
        path: the SQLite file; None for PostgreSQL.
        engine: makes connections.
        client: reaches DBOS's queues.
        clock: seconds since the epoch.
        jobs_of_repository: how many jobs of one repository may run at once; None for any number.
        of_arrivals: the thread for jobs that arrive. It never waits for the locks of other transactions.
    """

    def __init__(
        self, url: str, *, clock: Callable[[], float] = time.time, jobs_of_repository: int | None = None
    ) -> None:
        """Open the database, and create its tables or migrate them.

        Args:
            url: `sqlite:///path` or `postgresql://user:password@host/database`.
            clock: seconds since the epoch.
            jobs_of_repository: how many jobs of one repository may run at once, on all workers; None for any number.

        Raises:
            QueueError: the database cannot be used, or belongs to a newer version.
        """
        self.clock, self.jobs_of_repository = clock, jobs_of_repository
        logging.getLogger("dbos").setLevel(logging.WARNING)  # it reports every step of its start
        address = _address(url)
        self.url = address.render_as_string(hide_password=False)
        self.name, self._address = _name(address), address
        self.path = Path(address.database or "") if _is_file(address) else None
        with _explained(address):
            self.engine = _engine(address)
            try:
                _migrate(self.engine)
                DBOS.migrate(self.url)
                self.client = DBOSClient(
                    system_database_engine=self.engine,
                    serializer=DBOSPortableJSONSerializer(),
                    application_name=APPLICATION,
                    retry_connection_errors=False,
                )
            except BaseException:  # whatever it was, nobody else closes it
                self.engine.dispose()
                raise
        self._identity = _identity(self.path)
        # SQLite has one writer at a time, whatever waits for it.
        self._threads = ThreadPoolExecutor(1 if self.path else _CONNECTIONS, thread_name_prefix="store")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="store-reader")
        self._waiting = Gathering[Callable[[Transaction], Any], Any](self._threads, self._run_together)
        self.of_arrivals = self._threads if self.path else ThreadPoolExecutor(1, thread_name_prefix="store-arrivals")

    async def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run one transaction in a thread; it may be run again when another one came in between.

        Raises:
            QueueError: the database cannot be read or written.
        """
        if self.path is None:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_here, operation)
        return cast("T", await self._waiting.put(operation))

    async def read(self, operation: Callable[[Transaction], T]) -> T:
        """Run a transaction that only reads, and may take its time, without keeping others from writing.

        Raises:
            QueueError: the database cannot be read.
        """

        def reading() -> T:
            with self.checked(), self.engine.connect().execution_options(only_reads=True) as rows, rows.begin():
                return operation(self._transaction(rows))

        return await asyncio.get_running_loop().run_in_executor(self._readers, reading)

    def run_here(self, operation: Callable[[Transaction], T]) -> T:
        """Run one transaction in this thread; see `run`."""
        with self.checked():
            for tries_left in reversed(range(_TRIES)):
                try:
                    with self.engine.begin() as rows:
                        return operation(self._transaction(rows))
                except (DBAPIError, IntegrityError) as error:
                    if not tries_left or not _came_between(error):
                        raise
        raise AssertionError("the last try returns or raises")

    def _transaction(self, rows: Connection) -> Transaction:
        return Transaction(rows, self.client, self.clock(), self.jobs_of_repository)

    def _run_together(self, operations: Sequence[Callable[[Transaction], Any]]) -> list[Any]:
        """Commit everything that waits at once: the disk takes as long for one job as for a hundred."""
        if len(operations) == 1:
            return [self.run_here(operations[0])]
        with self.checked(), self.engine.begin() as rows:
            return [self._run_one(rows, operation) for operation in operations]

    def _run_one(self, rows: Connection, operation: Callable[[Transaction], Any]) -> Any:  # noqa: ANN401 - or its error
        """Run one of those that are committed together; its result, or the error that undid it alone."""
        point = rows.begin_nested()
        try:
            with self.checked():
                result = operation(self._transaction(rows))
        except Exception as error:
            if not rows.connection.in_transaction:
                raise  # on a full disk SQLite rolls back what the others wrote, too
            point.rollback()
            return error
        point.commit()
        return result

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Convert errors of the database to `QueueError`, also when its file was replaced."""
        self._check_file()
        try:
            with _explained(self._address):
                yield
        except QueueError:
            self._check_file()
            raise

    async def watch(self) -> Never:
        """Look after the SQLite file until cancelled; for a process without a worker, whose own look does that.

        Raises:
            QueueError: it was deleted or replaced.
        """
        while True:
            self._check_file()
            await asyncio.sleep(_WATCH_SECONDS)

    def _check_file(self) -> None:
        if _identity(self.path) != self._identity:
            raise QueueError(
                f"the job database {self.name} was deleted or replaced while this process runs, which can no longer "
                "store jobs and must be restarted; move or restore that file only while the bot is stopped"
            )

    async def close(self) -> None:
        """Close all connections; further calls fail."""
        await asyncio.to_thread(self.close_here)

    def close_here(self) -> None:
        """Close all connections from this thread."""
        self.of_arrivals.shutdown()
        self._threads.shutdown()
        self._readers.shutdown()
        self.client.destroy()
        self.engine.dispose()


def examine(url: str) -> None:
    """Open a database as `JobStore` does, and change nothing in it.

    Raises:
        QueueError: the database cannot be used, or belongs to a newer version.
    """
    address = _address(url)
    with _explained(address):
        engine = _engine(address)
        try:
            with engine.connect() as rows:
                _is_current(rows, _migrations())
                mode = rows.exec_driver_sql("PRAGMA journal_mode").scalar() if _is_file(address) else "wal"
                readonly = not _is_file(address) and rows.exec_driver_sql("SHOW transaction_read_only").scalar() == "on"
        finally:
            engine.dispose()
    if readonly:
        raise QueueError(f"the job database {_name(address)} can only be read; give the address of the primary server")
    if mode != "wal":
        raise QueueError(
            f"the job database {_name(address)} is in journal mode {mode}; put it on a local file system (no NFS)"
        )


@contextmanager
def _explained(address: sa.URL) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, dbos_error.DBOSException, OSError) as error:
        reason = getattr(error, "orig", None) or error
        remedy = (
            "check that the disk has space and the file is writable, or name another in CODEPILOT_DATABASE_URL"
            if _is_file(address)
            else "check that it is running"
        )
        raise QueueError(f"the job database {_name(address)} failed: {str(reason).strip()}; {remedy}") from error


def _is_file(address: sa.URL) -> bool:
    return address.get_backend_name() == "sqlite"


def _name(address: sa.URL) -> str:
    return address.render_as_string(hide_password=True)


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path; None when there is none."""
    if path is None:
        return None
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _address(url: str) -> sa.URL:
    try:
        address = sa.make_url(url)
    except ArgumentError as error:
        raise QueueError(
            "the address of the job database is malformed; it must be like postgresql://host/db"
        ) from error
    if address.get_backend_name() == "postgresql":
        return address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() == "sqlite" and address.database not in {None, "", ":memory:"}:
        return address
    raise QueueError(
        f"the job database cannot be {address.get_backend_name()!r}; its address begins with `postgresql://`, or with "
        "`sqlite:///` and a path"
    )


def _engine(address: sa.URL) -> Engine:
    if address.get_backend_name() == "postgresql":
        engine = sa.create_engine(address, pool_size=_CONNECTIONS + 4, max_overflow=0, pool_pre_ping=True)
        sa.event.listen(engine, "connect", _bound)
        return engine
    path = Path(address.database or "")
    engine = sa.create_engine(address, connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None})
    sa.event.listen(engine, "connect", _prepare)
    # Python's own would begin a transaction only before it writes: what was read before could be outdated by then.
    sa.event.listen(engine, "begin", _begin)
    path.parent.stat()  # the lock would make the directory
    # Of two who change a new file's journal at once SQLite lets one fail, without the wait that all else gets.
    with FileLock(f"{path}.lock", timeout=_BUSY_SECONDS, mode=0o600):
        # The jobs hold the words of private repositories; SQLite gives its other files the mode of this one.
        path.touch(mode=0o600, exist_ok=True)
        if not path.stat().st_size:
            # Left of a file that was deleted: SQLite would take them for parts of the new one.
            for part in ("-wal", "-shm"):
                path.with_name(f"{path.name}{part}").unlink(missing_ok=True)
        engine.connect().close()
    return engine


def _begin(rows: Connection) -> None:
    rows.exec_driver_sql("BEGIN" if rows.get_execution_options().get("only_reads") else "BEGIN IMMEDIATE")


def _bound(connection: sa.engine.interfaces.DBAPIConnection, _record: object) -> None:
    """Have PostgreSQL end the session of a process that is gone or stands still: its locks would block all others."""
    cursor = connection.cursor()
    for name, value in {**SILENCE, "idle_in_transaction_session_timeout": int(IDLE_SECONDS * 1000)}.items():
        cursor.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
    cursor.close()
    connection.commit()


def _prepare(connection: sa.engine.interfaces.DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    # A thousand pages, as SQLite has it, are full after four transactions under load, and twice more is synced then.
    for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


_MIGRATING = 0x636F6465
"""The advisory lock for migrating a PostgreSQL database; no thread of a repository hashes to it."""


def _migrate(engine: Engine) -> None:
    migrations = _migrations()
    with engine.begin() as rows:
        if engine.dialect.name == "postgresql":
            rows.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
        if not _is_current(rows, migrations):
            migrations.attributes["connection"] = rows
            command.upgrade(migrations, "head")


def _migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _is_current(rows: Connection, migrations: Config) -> bool:
    """Return whether the tables are this version's; False where an older one made them, or none."""
    known = ScriptDirectory.from_config(migrations)
    if not sa.inspect(rows).has_table("alembic_version"):
        return False
    version = rows.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if version is not None and version not in {each.revision for each in known.walk_revisions()}:
        raise QueueError(
            f"the job database was written by a newer version of Codepilot (its format is {version}, this version "
            f"supports {known.get_current_head()}); install a newer version, or choose another database"
        )
    return version == known.get_current_head()


def _came_between(error: DBAPIError) -> bool:
    """Return whether the same transaction may succeed when it is run again."""
    state = getattr(error.orig, "sqlstate", None)
    # https://www.postgresql.org/docs/current/errcodes-appendix.html: serialization_failure, deadlock_detected; and the
    # loser of two who insert the same row.
    return state in {"40001", "40P01", "23505"}


A = TypeVar("A")
R = TypeVar("R")
_MOST_AT_ONCE = 100


class Gathering(Generic[A, R]):
    """Gathers items while its thread is busy.

    Waking a thread takes longer than most of what is done for an item. So the thread is called once for all that
    wait, and it calls each event loop once for all that it has dealt with.

    Args:
        threads: with one thread, or items are dealt with out of their order.
        deal: called in a thread with up to 100 items. It gives back what becomes of each: a result, or the error that
            its caller gets. What it raises, all of them get.
    """

    def __init__(self, threads: Executor, deal: Callable[[Sequence[A]], Sequence[R | Exception]]) -> None:
        self._threads, self._deal = threads, deal
        self._lock = Lock()
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []

    async def put(self, item: A) -> R:
        """Have an item dealt with, and wait for that."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._waiting:
                self._threads.submit(self._deal_with_waiting)
            self._waiting.append((item, done))
        return await done

    def _deal_with_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), _MOST_AT_ONCE):
            # Nobody waits any more for what was cancelled.
            begun = [each for each in waiting[first : first + _MOST_AT_ONCE] if not each[1].cancelled()]
            if begun:
                self._deal_with(begun)

    def _deal_with(self, begun: Sequence[tuple[A, asyncio.Future[R]]]) -> None:
        ended: Sequence[R | BaseException]
        try:
            ended = self._deal([item for item, _ in begun])
        except BaseException as error:  # noqa: BLE001 - it is for who waits
            ended = [error] * len(begun)
        told: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[R], R | BaseException]]] = {}
        for (_, done), result in zip(begun, ended, strict=True):
            told.setdefault(done.get_loop(), []).append((done, result))
        for loop, results in told.items():
            with suppress(RuntimeError):  # the loop was closed, and with it went who waits
                loop.call_soon_threadsafe(_set_results, results)


def _set_results(results: Sequence[tuple[asyncio.Future[R], R | BaseException]]) -> None:
    for done, result in results:
        if done.cancelled():
            continue
        if isinstance(result, StopIteration):  # no future takes it, and those after it would wait for ever
            done.set_exception(RuntimeError(f"it raised {result!r}"))
        elif isinstance(result, BaseException):
            done.set_exception(result)
        else:
            done.set_result(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A workflow that is to run; see `Transaction.enqueue`."""

    workflow: str
    id: str
    queue: str
    partition: str | None
    delay: float
    args: tuple[str | int, ...]

    @property
    def options(self) -> EnqueueOptions:
        """In the form that DBOS takes."""
        options = EnqueueOptions(workflow_name=self.workflow, queue_name=self.queue, workflow_id=self.id)
        if self.partition is not None:
            options["queue_partition_key"] = self.partition
        if self.delay > 0:
            options["delay_seconds"] = self.delay
        return options


_STATUS_COLUMNS = (
    "workflow_uuid", "status", "name", "queue_name", "queue_partition_key", "priority", "recovery_attempts",
    "serialization", "delay_until_epoch_ms", "application_name", "creator_xid",
)  # fmt: skip
_INPUT_COLUMNS = ("workflow_uuid", "inputs")

_TRY_LOCKS = """
SELECT pg_try_advisory_xact_lock(hashtextextended(name, 0)) FROM json_array_elements_text(CAST(%s AS json)) AS name
"""


def try_locks(rows: Connection, names: Sequence[str]) -> list[bool]:
    """Take the locks that are free; return for each name whether its lock was taken. See `Transaction.lock`."""
    if rows.dialect.name != "postgresql":
        return [True] * len(names)
    return list(rows.exec_driver_sql(_TRY_LOCKS, (to_json(names).decode(),)).scalars())


def insert_rows(
    rows: Connection,
    table: str,
    values: Sequence[Mapping[str, object]],
    computed: tuple[tuple[str, str], ...] = (),
    more: str = "",
) -> sa.CursorResult[Any]:
    """Store rows, except those that are known, by one statement that takes all of them as one value in JSON.

    SQLAlchemy and DBOS by themselves take about a millisecond of processor time to store a job and its workflow.

    Args:
        rows: the connection, in a transaction.
        table: where.
        values: at least one row, all with the same columns.
        computed: further columns and their expressions, in which `new` is the row.
        more: the end of the statement.
    """
    statement = _insert_statement(rows.dialect.name, table, tuple(values[0]), computed)
    return rows.exec_driver_sql(statement + more, (to_json(values).decode(),))


@cache
def _insert_statement(dialect: str, table: str, columns: tuple[str, ...], computed: tuple[tuple[str, str], ...]) -> str:
    if dialect == "postgresql":
        rows = f"json_populate_recordset(NULL::{table}, CAST(%s AS json))"
    else:
        fields = ", ".join(f"json_extract(value, '$.{column}') AS {column}" for column in columns)
        rows = f"(SELECT {fields} FROM json_each(?))"  # noqa: S608 - ours
    into = ", ".join([*columns, *(column for column, _ in computed)])
    values = ", ".join([*columns, *(expression for _, expression in computed)])
    # Without WHERE, SQLite would take ON for a part of FROM.
    return f"INSERT INTO {table} ({into}) SELECT {values} FROM {rows} AS new WHERE true ON CONFLICT DO NOTHING"  # noqa: S608 - ours
