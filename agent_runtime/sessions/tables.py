"""The tables of sessions in a database, and all their statements.

An open session keeps one connection, tested before each use. A `RowLog` writes its waiting events in one transaction
with the renewal of its lease, so that two processes never write to one log, whatever their clocks say. On one machine
the operating system tells whether a holder lives; elsewhere its `Lease` has to expire.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from agent_runtime.core.errors import (
    SessionDamagedError,
    SessionError,
    SessionInUseError,
    SessionNewerError,
    SessionUnavailableError,
    SettingsError,
)
from agent_runtime.core.events import Recorded
from agent_runtime.processes.spawn import process_scope, start_time
from agent_runtime.sessions.codec import (
    FORMAT,
    MAX_KEY,
    Header,
    Metadata,
    check_format,
    decode,
    encode,
    escape_key,
    message_of,
    unescape_key,
)
from agent_runtime.sessions.protocol import Holder, in_use_error

_LOGGER = logging.getLogger(__name__)

_SQLITE_BUSY_SECONDS = 15.0

_CONNECT_SECONDS = 10
"""Less than the system's own limit, which would block a run for minutes."""

BEAT_SECONDS = 15.0
"""Seconds between two renewals of a lease."""

EXPIRY_SECONDS = 60.0
"""Seconds after its last renewal until a lease of another machine is dead."""

_SCHEMA = sa.MetaData()

_ID = sa.String(MAX_KEY)

SESSIONS = sa.Table(
    "codepilot_sessions",
    _SCHEMA,
    sa.Column("session_id", _ID, primary_key=True),
    sa.Column("agent_name", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("messages", sa.Integer, nullable=False),
)

EVENTS = sa.Table(
    "codepilot_events",
    _SCHEMA,
    sa.Column("session_id", _ID, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    # Bytes, because text of a database holds neither NUL nor lone surrogates; the length matters to MySQL only.
    sa.Column("body", sa.LargeBinary(2**24), nullable=False),
)

LEASES = sa.Table(
    "codepilot_leases",
    _SCHEMA,
    sa.Column("session_id", _ID, primary_key=True),
    sa.Column("token", sa.String(32), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("started", sa.Text, nullable=False),
    sa.Column("beat", sa.Double, nullable=False),
)


class SessionDatabase:
    """A database that holds sessions; `name` is without its password."""

    def __init__(self, url: str) -> None:
        """Parse the address; nothing is connected yet."""
        self._engine = _create_engine(url)
        address = self._engine.url
        port = f":{address.port}" if address.port else ""
        where = f"//{address.host}{port}/" if address.host else ""
        self.name = f"{address.get_backend_name()}:{where}{address.database or ''}"
        self._password = str(address.password) if address.password else ""
        self._is_held = False

    def hold_connection(self, *, connected: bool) -> None:
        """Keep the next connection open, or close the present one."""
        self._is_held = connected
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        with self._connected() as connection, connection.begin():
            yield connection if self._has_tables(connection) else None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._connected() as plain:
            connection = plain.execution_options(codepilot_writes=True)
            with connection.begin():
                yield connection

    def make_tables(self) -> None:
        for last in (False, True):
            with self.reading() as connection:
                if connection is not None:
                    return
            try:
                with self.writing() as connection:
                    _SCHEMA.create_all(connection)
            except SessionError:
                if last:  # the first time, another process may have made them at the same moment
                    raise

    def original_rows(self, table: str) -> list[dict[str, Any]]:
        query: sa.Select[Any] = sa.select(sa.literal_column("*")).select_from(sa.table(table))
        with self._connected() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def _has_tables(self, connection: Connection) -> bool:
        inspector = sa.inspect(connection)
        if not inspector.has_table(SESSIONS.name):
            return False
        if "format" not in {column["name"] for column in inspector.get_columns(SESSIONS.name)}:
            raise SessionError(
                f"The table {SESSIONS.name} in {self.name} belongs to another CodePilot, which stores its sessions "
                f"in another format. Nothing was changed. Use another database; or rename the table (ALTER TABLE "
                f"{SESSIONS.name} RENAME TO codepilot_sessions_original) and import its sessions with "
                "`import_session_table`."
            )
        return inspector.has_table(LEASES.name)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with self._session_errors():
            try:
                with self._engine.connect() as connection:
                    yield connection
            finally:
                if not self._is_held:
                    self._engine.dispose()

    @contextmanager
    def _session_errors(self) -> Iterator[None]:
        """Convert an error to one that names the database but no statement, whose parameters hold conversations."""
        try:
            yield
        except (exc.SQLAlchemyError, sqlite3.Error, OSError) as error:  # the latter two while SQLite is opened
            reason = str(error.orig if isinstance(error, exc.DBAPIError) else error).strip()
            if self._password:
                reason = reason.replace(self._password, "***")
            message = f"The database of sessions {self.name} cannot be used: {' '.join(reason.split()).rstrip('.')}"
            remedy = "Check its address and credentials, and that it can be reached."
            raise SessionUnavailableError(f"{message}. {remedy}") from None


def _create_engine(url: str) -> Engine:
    # The name that some hosts still give to PostgreSQL's addresses.
    plain = f"postgresql://{url.removeprefix('postgres://')}" if url.startswith("postgres://") else url
    try:
        address = sa.make_url(plain)
        is_sqlite = address.get_backend_name() == "sqlite"
        if is_sqlite and address.database in {None, "", ":memory:"}:
            raise SettingsError("db_url names a database in memory; use session='memory', or name a file.")
        options: dict[str, float] = {"timeout": _SQLITE_BUSY_SECONDS} if is_sqlite else {}
        if address.get_backend_name() == "postgresql" and "connect_timeout" not in address.query:
            options["connect_timeout"] = _CONNECT_SECONDS
        pool: dict[str, Any] = {"poolclass": NullPool}
        if not is_sqlite:
            pool = {"pool_size": 1, "max_overflow": -1, "pool_pre_ping": True}
        engine = sa.create_engine(address, hide_parameters=True, connect_args=options, **pool)
    except exc.ArgumentError as error:
        raise SettingsError(
            f"db_url is not a valid database address: {error}. It looks like sqlite:///sessions.db or "
            "postgresql://user:password@host/name."
        ) from None
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"The driver of db_url is not installed: {error}. For PostgreSQL, begin it with postgresql:// and "
            "install codepilot-bot[db]"
        ) from None
    if engine.dialect.is_async:
        raise SettingsError(f"db_url names the asynchronous driver {engine.driver}; leave it out or name another.")
    if is_sqlite:
        _prepare_sqlite(engine)
    return engine


def _prepare_sqlite(engine: Engine) -> None:
    """Set up concurrent readers, durable writes and explicit transactions."""

    def set_pragmas(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # we begin transactions ourselves, below
        deadline = time.monotonic() + _SQLITE_BUSY_SECONDS
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                # When two connections change a new file's journal mode at once, SQLite fails one without its timeout.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        connection.execute("PRAGMA synchronous = FULL")

    def begin(connection: Connection) -> None:
        # A transaction that reads before it writes fails if another one writes in between.
        writes = connection.get_execution_options().get("codepilot_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    def create_private_file(*_: object) -> None:
        # Conversations are private. SQLite gives its other files the mode of this one.
        path = Path(engine.url.database or "")
        if not str(path).startswith("file:") and path.parent.is_dir():
            path.touch(mode=0o600, exist_ok=True)

    sa.event.listen(engine, "do_connect", create_private_file)
    sa.event.listen(engine, "connect", set_pragmas)
    sa.event.listen(engine, "begin", begin)


class RowLog:
    """A log that this process writes to until `close`; `recovered` stays empty, as a transaction is atomic."""

    def __init__(
        self, database: SessionDatabase, header: Header, *, take_over: bool = False, eager: bool = False
    ) -> None:
        """Create missing tables, take the lease and read the log; if `eager`, a thread writes events at once."""
        self._database, self._header = database, header
        self._write_lock = threading.Lock()
        self._waiting: list[tuple[bytes, bool]] = []
        self._messages = 0
        self._in_doubt = False
        self.events: list[Recorded] = []
        self.recovered = ""
        lease = Lease.current()
        database.hold_connection(connected=True)
        try:
            database.make_tables()
            with self._database.writing() as connection:
                holder = take_lease(connection, self._key, lease, take_over=take_over)
            if holder is not None:
                raise in_use_error(self._header.session_id, holder.holder)
        except SessionError:
            database.hold_connection(connected=False)
            raise
        self._lease = lease
        self._eager, self._dropped = eager, False
        self._closing, self._wake = threading.Event(), threading.Event()
        self._heartbeat = threading.Thread(target=self._renew_lease, name="codepilot session lease", daemon=True)
        try:
            self.events = read_events(database, header.session_id)
        except BaseException:  # any error: no caller has a log to close
            self._release()
            raise
        self._written, self._messages = len(self.events), sum(_is_message(event) for event in self.events)
        self._heartbeat.start()

    def append(self, event: Recorded) -> None:
        self._waiting.append((encode(event), _is_message(event)))
        self.events.append(event)
        if self._eager:
            self._wake.set()

    def sync(self) -> None:
        """Write the waiting events; may run beside `append`."""
        with self._write_lock:
            if not self._waiting:
                return
            in_doubt = self._in_doubt
            with self._changing() as connection:
                if in_doubt:
                    self._reconcile(connection)
                waiting = self._waiting[:]
                self._insert(connection, waiting, position=self._written, messages=self._messages)
            self._mark_written(len(waiting))

    def replace(
        self, events: Iterable[Recorded], header: Header | None = None, updated_at: float | None = None
    ) -> None:
        events = list(events)
        lines = [(encode(event), _is_message(event)) for event in events]
        with self._write_lock:
            with self._changing() as connection:
                delete_session(connection, self._key)
                self._insert(connection, lines, position=0, messages=0, header=header, updated_at=updated_at)
            self._forget()
            self._count(lines)
            self.events.extend(events)

    def remove(self) -> None:
        with self._write_lock:
            with self._changing() as connection:
                delete_session(connection, self._key)
            self._forget()

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        if threading.current_thread() is self._heartbeat:  # the garbage collector found the session dropped
            self._dropped = True
            return
        self._heartbeat.join()
        self._finish()

    @property
    def _name(self) -> str:
        return f"Session {self._header.session_id!r} in {self._database.name}"

    @property
    def _key(self) -> str:
        return escape_key(self._header.session_id)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Begin a transaction that locks the lease of this process."""
        with self._database.writing() as connection:
            if not renew_lease(connection, self._key, self._lease.token, time.time()):
                raise SessionInUseError(
                    f"{self._name} was taken over by another process "
                    "while this one did not respond; events recorded since its last step are lost."
                )
            yield connection

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """Begin `_writing`; an error leaves the stored state in doubt, because the commit may have succeeded."""
        with self._writing() as connection:
            self._in_doubt = True
            yield connection
        self._in_doubt = False

    def _reconcile(self, connection: Connection) -> None:
        """Count the waiting events that are stored already."""
        stored = [encode(event) for event in _stored_events(connection, self._header.session_id, self._name)]
        recorded = [*map(encode, self.events[: self._written]), *(line for line, _ in self._waiting)]
        if len(stored) < self._written or stored != recorded[: len(stored)]:
            raise SessionError(
                f"{self._name} does not hold what was recorded here: the connection was lost while it was replaced or "
                "deleted, or somebody else changed it. Nothing was changed. Open the session again, or reset it."
            )
        self._mark_written(len(stored) - self._written)

    def _insert(
        self,
        connection: Connection,
        lines: Sequence[tuple[bytes, bool]],
        *,
        position: int,
        messages: int,
        header: Header | None = None,
        updated_at: float | None = None,
    ) -> None:
        now = time.time() if updated_at is None else updated_at
        if not position:
            self._header = header or replace(self._header, created_at=now)
        insert_events(
            connection,
            self._header,
            [line for line, _ in lines],
            position=position,
            messages=messages + sum(is_message for _, is_message in lines),
            now=now,
        )

    def _count(self, lines: Sequence[tuple[bytes, bool]]) -> None:
        self._written += len(lines)
        self._messages += sum(is_message for _, is_message in lines)

    def _mark_written(self, number: int) -> None:
        self._count(self._waiting[:number])
        del self._waiting[:number]

    def _forget(self) -> None:
        self._waiting.clear()
        self.events.clear()
        self._written = self._messages = 0

    def _renew_lease(self) -> None:
        while not self._closing.is_set():
            woken = self._wake.wait(BEAT_SECONDS)
            self._wake.clear()
            try:
                if woken and not self._closing.is_set():
                    self.sync()
                elif not woken:
                    with self._writing():
                        pass
            except SessionError as error:  # the next `sync` fails as well when it is serious
                _LOGGER.warning("The lock of a session could not be renewed, or its events not written: %s", error)
        if self._dropped:
            try:
                self._finish()
            except SessionError as error:  # the session has no caller any more
                _LOGGER.warning("A session was not closed: %s", error)

    def _finish(self) -> None:
        try:
            self.sync()
        finally:
            self._release()

    def _release(self) -> None:
        try:
            with self._database.writing() as connection:
                drop_lease(connection, self._key, self._lease.token)
        except SessionError as error:  # the lease ends with this process
            _LOGGER.warning("The lock of a session could not be released: %s", error)
        finally:
            self._database.hold_connection(connected=False)


def read_events(database: SessionDatabase, session_id: str) -> list[Recorded]:
    with database.reading() as connection:
        return (
            []
            if connection is None
            else _stored_events(connection, session_id, f"Session {session_id!r} in {database.name}")
        )


def _stored_events(connection: Connection, session_id: str, name: str) -> list[Recorded]:
    key = escape_key(session_id)
    number, lines = select_format(connection, key), select_lines(connection, key)
    if number is None:
        return []
    try:
        check_format(number)
        return [_decode_at(position, line) for position, line in enumerate(lines)]
    except ValueError as error:
        raise SessionDamagedError(f"{name} is damaged: {error}. Nothing was changed.") from error
    except SessionNewerError as error:
        raise SessionNewerError(f"{name}: {error}.") from error


def _decode_at(position: int, line: bytes) -> Recorded:
    try:
        return decode(line)
    except ValueError as error:
        raise ValueError(f"at position {position}, {error}") from error


def _is_message(event: Recorded) -> bool:
    return message_of(event) is not None


def select_format(connection: Connection, key: str) -> int | None:
    return connection.execute(sa.select(SESSIONS.c.format).where(SESSIONS.c.session_id == key)).scalar()


def select_lines(connection: Connection, key: str) -> list[bytes]:
    query = sa.select(EVENTS.c.body).where(EVENTS.c.session_id == key).order_by(EVENTS.c.position)
    return [bytes(body) for body in connection.execute(query).scalars()]


def select_metadata(connection: Connection, key: str | None = None) -> list[Metadata]:
    query = sa.select(SESSIONS).order_by(SESSIONS.c.updated_at.desc())
    if key is not None:
        query = query.where(SESSIONS.c.session_id == key)
    return [
        Metadata(
            session_id=unescape_key(row["session_id"]),
            agent_name=unescape_key(row["agent_name"]),
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            messages=row["messages"],
        )
        for row in connection.execute(query).mappings()
    ]


def insert_events(
    connection: Connection, header: Header, lines: Sequence[bytes], *, position: int, messages: int, now: float
) -> None:
    """Insert events from a position on; position 0 creates the session. `messages` is the session's new total."""
    key = escape_key(header.session_id)
    if position:
        update = SESSIONS.update().where(SESSIONS.c.session_id == key)
        connection.execute(update.values(updated_at=now, messages=messages))
    else:
        insert = SESSIONS.insert().values(
            session_id=key,
            agent_name=escape_key(header.agent_name),
            created_at=header.created_at,
            updated_at=now,
            format=FORMAT,
            messages=messages,
        )
        connection.execute(insert)
    rows = [{"session_id": key, "position": number, "body": line} for number, line in enumerate(lines, start=position)]
    if rows:
        connection.execute(EVENTS.insert(), rows)


def delete_session(connection: Connection, key: str) -> None:
    connection.execute(EVENTS.delete().where(EVENTS.c.session_id == key))
    connection.execute(SESSIONS.delete().where(SESSIONS.c.session_id == key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A process's claim on a session.

    Attributes:
        token: random; a process whose token is gone has lost the session.
        machine: boot id and process namespace, or empty.
        beat: the last renewal, in seconds since 1970.
    """

    token: str
    pid: int
    host: str
    since: float
    machine: str
    started: str
    beat: float

    @classmethod
    def current(cls) -> Self:
        pid, now = os.getpid(), time.time()
        return cls(
            token=secrets.token_hex(16),
            pid=pid,
            host=socket.gethostname(),
            since=now,
            machine=process_scope(),
            started=start_time(pid),
            beat=now,
        )

    @property
    def holder(self) -> Holder:
        return Holder(pid=self.pid, host=self.host, since=self.since)

    @property
    def is_dead(self) -> bool:
        """Whether the holder has ended or let the lease expire."""
        if self.machine and self.machine == process_scope():
            return start_time(self.pid) != self.started
        return time.time() - self.beat > EXPIRY_SECONDS


def take_lease(connection: Connection, key: str, mine: Lease, *, take_over: bool = False) -> Lease | None:
    """Claim a session; return the lease of a living holder, which `take_over` overrules."""
    query = sa.select(LEASES).where(LEASES.c.session_id == key).with_for_update()
    row = connection.execute(query).mappings().first()
    stored = None if row is None else Lease(**{name: value for name, value in row.items() if name != "session_id"})
    if stored is None:
        try:
            with connection.begin_nested():
                connection.execute(LEASES.insert().values(session_id=key, **asdict(mine)))
        except exc.IntegrityError:  # another process claimed the session at the same moment
            return take_lease(connection, key, mine, take_over=take_over)
    elif take_over or stored.is_dead:
        connection.execute(LEASES.update().where(LEASES.c.session_id == key).values(**asdict(mine)))
    else:
        return stored
    return None


def renew_lease(connection: Connection, key: str, token: str, now: float) -> bool:
    """Renew a lease and lock it until the transaction ends; return False if it is gone."""
    mine = (LEASES.c.session_id == key) & (LEASES.c.token == token)
    return connection.execute(LEASES.update().where(mine).values(beat=now)).rowcount == 1


def drop_lease(connection: Connection, key: str, token: str) -> None:
    connection.execute(LEASES.delete().where((LEASES.c.session_id == key) & (LEASES.c.token == token)))
