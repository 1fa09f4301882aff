"""A session's log as rows of a database that one process at a time adds to.

Events wait in memory until `sync`, which writes them in one transaction; an eager log begins with that at once, in a
thread. The same transaction makes sure that the session is still ours, so that two processes never write to one log,
whatever their clocks say.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy.engine import Connection

from agent_runtime.core.errors import SessionDamagedError, SessionError, SessionInUseError, SessionNewerError
from agent_runtime.core.events import Recorded
from agent_runtime.sessions import tables
from agent_runtime.sessions.codec import Header, check_format, decode, encode
from agent_runtime.sessions.lease import BEAT_SECONDS, Lease
from agent_runtime.sessions.lock import in_use
from agent_runtime.sessions.messages import message_of
from agent_runtime.sessions.names import escaped
from agent_runtime.sessions.tables import SessionDatabase

_LOGGER = logging.getLogger(__name__)


class RowLog:
    """A log that this process may write to until it is closed.

    Attributes:
        events: everything that was recorded, oldest first.
        recovered: always empty: what a transaction writes is whole.
    """

    def __init__(
        self, database: SessionDatabase, header: Header, *, take_over: bool = False, eager: bool = False
    ) -> None:
        """Make the tables where they are not there, take the lease and read the log.

        Args:
            database: where it lies.
            header: whose it is; when it was made is not looked at.
            take_over: whether it is taken from a process that works on it, which can then write no more.
            eager: whether events are written as soon as they are recorded, and not only by `sync`.

        Raises:
            SessionError: another process works on the session, a newer version wrote it, or it cannot be read.
        """
        self._database, self._header = database, header
        self._guard = threading.Lock()
        self._waiting: list[tuple[bytes, bool]] = []
        self._messages = 0
        self._in_doubt = False
        self.events: list[Recorded] = []
        self.recovered = ""
        mine = Lease.here()
        database.keep(connected=True)
        try:
            database.make_tables()
            with self._database.writing() as connection:
                held = tables.take_lease(connection, self._key, mine, take_over=take_over)
            if held is not None:
                raise in_use(self._header.session_id, held.holder)
        except SessionError:
            database.keep(connected=False)
            raise
        self._lease = mine
        self._eager, self._dropped = eager, False
        self._closing, self._wake = threading.Event(), threading.Event()
        self._beating = threading.Thread(target=self._beat, name="codepilot session lease", daemon=True)
        try:
            self.events = read(database, header.session_id)
        except BaseException:  # whatever it was, nobody closes a log that was never made
            self._give_back()
            raise
        self._written, self._messages = len(self.events), sum(_is_message(event) for event in self.events)
        self._beating.start()

    def append(self, event: Recorded) -> None:
        """Record one event; it waits for `sync`."""
        self._waiting.append((encode(event), _is_message(event)))
        self.events.append(event)
        if self._eager:
            self._wake.set()

    def sync(self) -> None:
        """Write what waits; may run beside `append`.

        Raises:
            SessionError: it cannot be written, or another process has taken the session over.
        """
        with self._guard:
            if not self._waiting:
                return
            in_doubt = self._in_doubt
            with self._changing() as connection:
                if in_doubt:
                    self._compare(connection)
                waiting = self._waiting[:]
                self._add(connection, waiting, position=self._written, messages=self._messages)
            self._keep(len(waiting))

    def replace(self, events: Iterable[Recorded]) -> None:
        """Put other events in the place of all, in one transaction.

        Raises:
            SessionError: it cannot be written; the log is as it was.
        """
        events = list(events)
        lines = [(encode(event), _is_message(event)) for event in events]
        with self._guard:
            with self._changing() as connection:
                tables.remove(connection, self._key)
                self._add(connection, lines, position=0, messages=0)
            self._forget()
            self._count(lines)
            self.events.extend(events)

    def remove(self) -> None:
        """Delete the session; the lease stays.

        Raises:
            SessionError: it cannot be deleted.
        """
        with self._guard:
            with self._changing() as connection:
                tables.remove(connection, self._key)
            self._forget()

    def close(self) -> None:
        """Write what waits and give the lease back; idempotent.

        Raises:
            SessionError: what waits cannot be written.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        if threading.current_thread() is self._beating:  # the garbage collector found the session dropped
            self._dropped = True
            return
        self._beating.join()
        self._finish()

    @property
    def _name(self) -> str:
        return f"Session {self._header.session_id!r} in {self._database.name}"

    @property
    def _key(self) -> str:
        return escaped(self._header.session_id)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction in which the session is ours; nobody can take it before it ends."""
        with self._database.writing() as connection:
            if not tables.beat_lease(connection, self._key, self._lease.token, time.time()):
                raise SessionInUseError(
                    f"{self._name} was taken over by another process "
                    "while this one did not respond; events recorded since its last step are lost."
                )
            yield connection

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """`_writing`; when it fails, it is in doubt what is kept: a commit may come through and its answer be lost."""
        with self._writing() as connection:
            self._in_doubt = True
            yield connection
        self._in_doubt = False

    def _compare(self, connection: Connection) -> None:
        """Find out how much of what waits is kept already.

        Raises:
            SessionError: something else is.
        """
        kept = [encode(event) for event in _kept(connection, self._header.session_id, self._name)]
        held = [*map(encode, self.events[: self._written]), *(line for line, _ in self._waiting)]
        if len(kept) < self._written or kept != held[: len(kept)]:
            raise SessionError(
                f"{self._name} does not hold what was recorded here: the connection was lost while it was replaced or "
                "deleted, or somebody else changed it. Nothing was changed. Open the session again, or reset it."
            )
        self._keep(len(kept) - self._written)

    def _add(
        self, connection: Connection, lines: Sequence[tuple[bytes, bool]], *, position: int, messages: int
    ) -> None:
        now = time.time()
        if not position:
            self._header = replace(self._header, created_at=now)
        tables.add(
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

    def _keep(self, number: int) -> None:
        """Note that so many of those that wait are written."""
        self._count(self._waiting[:number])
        del self._waiting[:number]

    def _forget(self) -> None:
        self._waiting.clear()
        self.events.clear()
        self._written = self._messages = 0

    def _beat(self) -> None:
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
            except SessionError as error:  # nobody is left to be told
                _LOGGER.warning("A session was not closed: %s", error)

    def _finish(self) -> None:
        try:
            self.sync()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        try:
            with self._database.writing() as connection:
                tables.drop_lease(connection, self._key, self._lease.token)
        except SessionError as error:  # it ends by itself once this process is gone
            _LOGGER.warning("The lock of a session could not be released: %s", error)
        finally:
            self._database.keep(connected=False)


def read(database: SessionDatabase, session_id: str) -> list[Recorded]:
    """What is recorded by now.

    Raises:
        SessionError: a newer version wrote it, it is damaged, or cannot be read.
    """
    with database.reading() as connection:
        return [] if connection is None else _kept(connection, session_id, f"Session {session_id!r} in {database.name}")


def _kept(connection: Connection, session_id: str, name: str) -> list[Recorded]:
    key = escaped(session_id)
    number, lines = tables.format_of(connection, key), tables.lines_of(connection, key)
    if number is None:
        return []
    try:
        check_format(number)
        return [_event(position, line) for position, line in enumerate(lines)]
    except ValueError as error:
        raise SessionDamagedError(f"{name} is damaged: {error}. Nothing was changed.") from error
    except SessionNewerError as error:
        raise SessionNewerError(f"{name}: {error}.") from error


def _event(position: int, line: bytes) -> Recorded:
    try:
        return decode(line)
    except ValueError as error:
        raise ValueError(f"at position {position}, {error}") from error


def _is_message(event: Recorded) -> bool:
    return message_of(event) is not None
