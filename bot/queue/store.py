"""The job engine's database: an SQLite file for one machine, or PostgreSQL for several. Start at `JobStore`.

A `Transaction` writes rows and enqueues DBOS workflows, whose tables are in the same database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Never, TypeVar, cast

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from filelock import FileLock
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from typing_extensions import override

from bot.domain.errors import QueueError
from bot.queue.workflows import WorkflowClient, WorkflowError
from bot.queue.workflows import migrate as migrate_workflows

log = logging.getLogger(__name__)

TIMEOUTS = {"tcp_keepalives_idle": 1, "tcp_keepalives_interval": 1, "tcp_keepalives_count": 2, "tcp_user_timeout": 3000}
"""PostgreSQL ends a session, and releases its locks, three seconds after its client is gone."""

IDLE_SECONDS = 5.0
"""Limit of idle time within a transaction, which normally takes milliseconds."""

METADATA = sa.MetaData()
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # which numbers rows by INTEGER alone
_SECONDS = sa.Double[float]()
_ID = sa.String(200)


class _SafeText(sa.TypeDecorator[str]):
    """Text with NUL and lone surrogates replaced, which no database accepts."""

    impl = sa.Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
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
    sa.Column("reason", _SafeText, nullable=False, server_default=""),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    # Counts how often the job was enqueued; workflows of earlier legs do nothing.
    sa.Column("leg", sa.Integer, nullable=False, server_default="0"),
    # Whether its workflow is enqueued; at most one job of a thread is.
    sa.Column("released", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("worker", _ID),
    sa.Column("held_until", _SECONDS, nullable=False, server_default="0"),
    sa.Column("waits_until", _SECONDS),
    sa.Column("enqueued_at", _SECONDS, nullable=False),
    sa.Column("begun_at", _SECONDS),
    sa.Column("finished_at", _SECONDS),
    sa.Column("body", sa.Text),
    # Case-folded, for searches; NULL after a sweep.
    sa.Column("repository", sa.Text),
    sa.Column("actor", sa.Text),
    sqlite_autoincrement=True,
)

# Each interactive query has an index; those of the ledger's counts are covering.
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
    sa.Column("text", _SafeText, nullable=False),
    sa.Column("sender", _SafeText, nullable=False),
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

# Jobs that workers ran when they died, except deaths explained by a job that was given up.
DEATHS = sa.Table(
    "deaths",
    METADATA,
    sa.Column("worker", _ID, primary_key=True),
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("at", _SECONDS, nullable=False),
)
REPORTS = sa.Table(
    "owed",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("since", _SECONDS, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
)

# Logs of ended runs, for the dashboard.
RUN_LOGS = sa.Table(
    "run_logs",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("repo_id", _NUMBER, nullable=False),
    sa.Column("repository", sa.Text, nullable=False),
    sa.Column("week", sa.Integer, nullable=False),
    sa.Column("cost_usd", _SECONDS),
    sa.Column("body", sa.LargeBinary, nullable=False),
    # Empty for an event.
    sa.Column("person", sa.Text, nullable=False, server_default=""),
    sa.Column("tokens", _NUMBER, nullable=False, server_default="0"),
)
sa.Index("run_logs_week", RUN_LOGS.c.week)
LABELS = sa.Table(
    "labels",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("thread", _NUMBER, primary_key=True, autoincrement=False),
    # Case-folded: GitHub compares labels without case.
    sa.Column("folded", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("labeller_id", _NUMBER, nullable=False),
    sa.Column("labeller_login", sa.Text, nullable=False),
    sa.Column("bound_to", sa.Text, nullable=False),
    sa.Column("at", _SECONDS, nullable=False),
)
NOTICES = sa.Table(
    "told",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("thread", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("cause", sa.Text, primary_key=True),
    sa.Column("until", _SECONDS, nullable=False),
)
sa.Index("told_until", NOTICES.c.until)

# Cached repository configurations, with which receivers ignore irrelevant events.
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

# The last reserved write to GitHub for each installation, shared by all workers.
PACES = sa.Table(
    "paces",
    METADATA,
    sa.Column("installation", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("last_at", _SECONDS, nullable=False),
)

# What each job has cost on each day that it ran; rows outlive their jobs, so that caps and months stay right.
SPENDING = sa.Table(
    "spending",
    METADATA,
    sa.Column("job_id", _ID, primary_key=True),
    # UTC days since 1970.
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("repo_id", _NUMBER, nullable=False),
    sa.Column("repository", sa.Text, nullable=False),
    # 0 and empty if no person asked.
    sa.Column("person_id", _NUMBER, nullable=False),
    sa.Column("person", sa.Text, nullable=False),
    sa.Column("verb", sa.String(20), nullable=False),
    sa.Column("recipe", _ID, nullable=False),
    # NULL if the model's price is unknown.
    sa.Column("cost_usd", _SECONDS),
    sa.Column("tokens", _NUMBER, nullable=False),
    # Count against the caps: the known or estimated cost, and the budget of a running job.
    sa.Column("charged_usd", _SECONDS, nullable=False),
    sa.Column("reserved_usd", _SECONDS, nullable=False),
)
sa.Index("spending_of_repository", SPENDING.c.repo_id, SPENDING.c.day, SPENDING.c.charged_usd, SPENDING.c.reserved_usd)
sa.Index("spending_of_person", SPENDING.c.person_id, SPENDING.c.day, SPENDING.c.charged_usd, SPENDING.c.reserved_usd)
sa.Index("spending_of_verb", SPENDING.c.repo_id, SPENDING.c.recipe, SPENDING.c.verb, SPENDING.c.day)
sa.Index("spending_of_day", SPENDING.c.day, SPENDING.c.repo_id, SPENDING.c.cost_usd)

# The thread's labels when the job started.
SPENDING_LABELS = sa.Table(
    "spending_labels",
    METADATA,
    sa.Column("job_id", _ID, primary_key=True),
    sa.Column("label", _ID, primary_key=True),
)
SWEEPS = sa.Table(
    "sweeps",
    METADATA,
    sa.Column("name", sa.String(50), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)
T = TypeVar("T")
SIGNAL_CHANNEL = "codepilot_signals"
_NOTIFY = sa.select(sa.func.pg_notify(SIGNAL_CHANNEL, sa.bindparam("job_id", type_=sa.Text)))
_LOCK = sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(sa.bindparam("what", type_=sa.Text), 0)))


class Transaction:
    """An atomic change of rows and queues.

    Attributes:
        now: seconds since the epoch.
        jobs_of_repository: limit of parallel jobs of a repository; None for none.
    """

    def __init__(self, rows: Connection, workflows: WorkflowClient, now: float, jobs_of_repository: int | None) -> None:
        self.rows, self.now, self.jobs_of_repository = rows, now, jobs_of_repository
        self.enqueue = partial(workflows.enqueue, rows)

    def notify(self, job_id: str) -> None:
        """Tell workers on PostgreSQL about a job's new signal."""
        if self.rows.dialect.name == "postgresql":
            self.rows.execute(_NOTIFY, {"job_id": job_id})

    def lock(self, *name: object) -> bool:
        """Acquire a lock until the transaction ends.

        Returns:
            Whether earlier reads may be outdated. Always False for SQLite, with its single writer.
        """
        if self.rows.dialect.name != "postgresql":
            return False
        self.rows.execute(_LOCK, {"what": " ".join(map(str, name))})
        return True


def insert(tx: Transaction | str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Return the dialect's INSERT, which supports ON CONFLICT."""
    dialect = tx if isinstance(tx, str) else tx.rows.dialect.name
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


_BUSY_SECONDS = 30.0
_CONNECTIONS = 8
_READERS = 2
_MAX_TRIES = 5
_WATCH_SECONDS = 1.0


class JobStore:
    """The database and its DBOS queues.

    Calls return after the commit has reached the disk: an acknowledged delivery is not sent again, so its job must
    survive a power cut.
    """

    def __init__(
        self, url: str, *, clock: Callable[[], float] = time.time, jobs_of_repository: int | None = None
    ) -> None:
        """Open the database, and create or migrate its tables.

        Args:
            url: `sqlite:///path` or `postgresql://user:password@host/database`.

        Raises:
            QueueError: unusable, or of a newer version.
        """
        self.clock, self.jobs_of_repository = clock, jobs_of_repository
        address = _address(url)
        self.url = address.render_as_string(hide_password=False)
        self.name, self._address = _label(address), address
        self.path = Path(address.database or "") if _is_file(address) else None
        with _map_errors(address):
            self.engine = _engine(address)
            try:
                _migrate(self.engine)
                migrate_workflows(self.url)
                self.workflows = WorkflowClient(self.engine)
            except BaseException:  # no other code would close it
                self.engine.dispose()
                raise
        self._identity = _identity(self.path)
        # SQLite has a single writer.
        self._threads = ThreadPoolExecutor(1 if self.path else _CONNECTIONS, thread_name_prefix="store")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="store-reader")
        self._batches = BatchRunner(self._threads, self._run_batch)

    async def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run a transaction in a thread, with retries on conflicts."""
        if self.path is None:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_sync, operation)
        return cast("T", await self._batches.submit(operation))

    async def read(self, operation: Callable[[Transaction], T]) -> T:
        """Run a read-only transaction, which does not block writers."""

        def read() -> T:
            with self.map_errors(), self.engine.connect().execution_options(only_reads=True) as rows, rows.begin():
                return operation(self._transaction(rows))

        return await asyncio.get_running_loop().run_in_executor(self._readers, read)

    def run_sync(self, operation: Callable[[Transaction], T]) -> T:
        with self.map_errors():
            for tries_left in reversed(range(_MAX_TRIES)):
                try:
                    with self.engine.begin() as rows:
                        return operation(self._transaction(rows))
                except (DBAPIError, IntegrityError) as error:
                    if not tries_left or not _is_retryable(error):
                        raise
        raise AssertionError("the last try returns or raises")

    def _transaction(self, rows: Connection) -> Transaction:
        return Transaction(rows, self.workflows, self.clock(), self.jobs_of_repository)

    def _run_batch(self, operations: Sequence[Callable[[Transaction], Any]]) -> list[Any]:
        """Commit operations together: the disk takes as long for one as for a hundred."""
        if len(operations) == 1:
            return [self.run_sync(operations[0])]
        with self.map_errors(), self.engine.begin() as rows:
            return [self._run_one(rows, operation) for operation in operations]

    def _run_one(self, rows: Connection, operation: Callable[[Transaction], Any]) -> Any:  # noqa: ANN401 - or its error
        point = rows.begin_nested()
        try:
            with self.map_errors():
                result = operation(self._transaction(rows))
        except Exception as error:
            if not rows.connection.in_transaction:
                raise  # on a full disk SQLite rolls back the whole transaction
            point.rollback()
            return error
        point.commit()
        return result

    @contextmanager
    def map_errors(self) -> Iterator[None]:
        """Convert errors of the database, and its replacement, to `QueueError`."""
        self._check_file()
        try:
            with _map_errors(self._address):
                yield
        except QueueError:
            self._check_file()
            raise

    async def watch(self) -> Never:
        """Watch the SQLite file until cancelled, for a process without a worker.

        Raises:
            QueueError: deleted or replaced.
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
        await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        self._threads.shutdown()
        self._readers.shutdown()
        self.workflows.close()
        self.engine.dispose()


def check_database(url: str) -> None:
    """Check a database without a change.

    Raises:
        QueueError: unusable, or of a newer version.
    """
    address = _address(url)
    with _map_errors(address):
        engine = _engine(address)
        try:
            with engine.connect() as rows:
                _is_current(rows, _migrations())
                mode = rows.exec_driver_sql("PRAGMA journal_mode").scalar() if _is_file(address) else "wal"
                readonly = not _is_file(address) and rows.exec_driver_sql("SHOW transaction_read_only").scalar() == "on"
        finally:
            engine.dispose()
    if readonly:
        raise QueueError(f"the job database {_label(address)} can only be read; give the address of the primary server")
    if mode != "wal":
        raise QueueError(
            f"the job database {_label(address)} is in journal mode {mode}; use a local file system (no NFS)"
        )


@contextmanager
def _map_errors(address: sa.URL) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, WorkflowError, OSError) as error:
        reason = getattr(error, "orig", None) or error
        remedy = (
            "check that the disk has space and the file is writable, or name another in CODEPILOT_DATABASE_URL"
            if _is_file(address)
            else "check that it is running"
        )
        raise QueueError(f"the job database {_label(address)} failed: {str(reason).strip()}; {remedy}") from error


def _is_file(address: sa.URL) -> bool:
    return address.get_backend_name() == "sqlite"


def _label(address: sa.URL) -> str:
    return address.render_as_string(hide_password=True)


def _identity(path: Path | None) -> tuple[int, int] | None:
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
        sa.event.listen(engine, "connect", _configure_session)
        return engine
    path = Path(address.database or "")
    engine = sa.create_engine(address, connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None})
    sa.event.listen(engine, "connect", _set_pragmas)
    # Python's sqlite3 begins a transaction only before a write, so earlier reads could be outdated.
    sa.event.listen(engine, "begin", _begin)
    path.parent.stat()  # the lock would make the directory
    # SQLite does not wait for its busy timeout when two processes change a new file's journal mode.
    with FileLock(f"{path}.lock", timeout=_BUSY_SECONDS, mode=0o600):
        # Jobs contain text of private repositories; SQLite creates its other files with the mode of this one.
        path.touch(mode=0o600, exist_ok=True)
        if not path.stat().st_size:
            # Remains of a deleted file, which SQLite would apply to the new one.
            for part in ("-wal", "-shm"):
                path.with_name(f"{path.name}{part}").unlink(missing_ok=True)
        engine.connect().close()
    return engine


def _begin(rows: Connection) -> None:
    rows.exec_driver_sql("BEGIN" if rows.get_execution_options().get("only_reads") else "BEGIN IMMEDIATE")


def _configure_session(connection: sa.engine.interfaces.DBAPIConnection, _record: object) -> None:
    """Limit how long PostgreSQL keeps a session of a dead or stopped process: its locks would block others."""
    cursor = connection.cursor()
    idle = {"idle_in_transaction_session_timeout": int(IDLE_SECONDS * 1000)}
    # A plan that is kept from the time when a table was small would read all of its rows.
    for name, value in {**TIMEOUTS, **idle, "plan_cache_mode": "force_custom_plan"}.items():
        cursor.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
    cursor.close()
    connection.commit()


def _set_pragmas(connection: sa.engine.interfaces.DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    # SQLite's default of 1,000 pages is full after four transactions under load, and doubles the syncs.
    for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


_MIGRATION_LOCK = 0x636F6465
"""Advisory lock of migrations; no thread's lock hashes to it."""


def _migrate(engine: Engine) -> None:
    migrations = _migrations()
    with engine.begin() as rows:
        if engine.dialect.name == "postgresql":
            rows.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
        if not _is_current(rows, migrations):
            migrations.attributes["connection"] = rows
            command.upgrade(migrations, "head")


def _migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _is_current(rows: Connection, migrations: Config) -> bool:
    scripts = ScriptDirectory.from_config(migrations)
    if not sa.inspect(rows).has_table("alembic_version"):
        return False
    version = rows.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if version is not None and version not in {script.revision for script in scripts.walk_revisions()}:
        raise QueueError(
            f"the job database was written by a newer version of Codepilot (its format is {version}, this version "
            f"supports {scripts.get_current_head()}); install a newer version, or choose another database"
        )
    return version == scripts.get_current_head()


def _is_retryable(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    # https://www.postgresql.org/docs/current/errcodes-appendix.html: serialization_failure, deadlock_detected,
    # unique_violation (of two concurrent inserts).
    return state in {"40001", "40P01", "23505"}


_BATCH_SIZE = 100


class BatchRunner:
    """Processes items in batches: those that arrive while a batch is processed form the next one.

    Waking a thread, or an event loop, takes longer than most of the work for an item.

    Args:
        threads: one thread keeps the order.
        process: called with up to 100 items; returns a result or an error for each. An exception fails all.
    """

    def __init__(self, threads: Executor, process: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._threads, self._process = threads, process
        self._lock = Lock()
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []

    async def submit(self, item: Any) -> Any:  # noqa: ANN401 - as `process` takes and returns
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._waiting:
                self._threads.submit(self._process_waiting)
            self._waiting.append((item, future))
        return await future

    def _process_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), _BATCH_SIZE):
            # Skip cancelled items.
            batch = [entry for entry in waiting[first : first + _BATCH_SIZE] if not entry[1].cancelled()]
            if batch:
                self._process_batch(batch)

    def _process_batch(self, batch: Sequence[tuple[Any, asyncio.Future[Any]]]) -> None:
        try:
            results = self._process([item for item, _ in batch])
        except BaseException as error:  # noqa: BLE001 - passed to the waiting callers
            results = [error] * len(batch)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for (_, future), result in zip(batch, results, strict=True):
            by_loop.setdefault(future.get_loop(), []).append((future, result))
        for loop, pairs in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(_set_results, pairs)


def _set_results(results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.cancelled():
            continue
        if isinstance(result, StopIteration):  # futures do not accept it
            future.set_exception(RuntimeError(f"it raised {result!r}"))
        elif isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
