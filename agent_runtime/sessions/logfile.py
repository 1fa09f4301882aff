"""A session's log as a file that one process at a time adds to.

An event is written the moment it is recorded, so that it outlives the process; `sync` makes it outlive the machine.
A write that breaks off is cut away again, by us or when the log is opened next.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from agent_runtime.core.errors import SessionError
from agent_runtime.core.events import Recorded
from agent_runtime.sessions import index
from agent_runtime.sessions.codec import FORMAT, Header, encode, encode_header
from agent_runtime.sessions.lock import FileLock
from agent_runtime.sessions.log import Log, parse
from agent_runtime.sessions.messages import message_of
from agent_runtime.sessions.regular import opened

_LOGGER = logging.getLogger(__name__)

_INDEX_EVERY = 64 * 1024
"""Bytes that the log may grow before its index is written again; a reader also reads what came since."""


class _Covered(NamedTuple):
    """What the index is to say once everything written so far is durable."""

    size: int
    messages: int
    updated_at: float


class LogFile:
    """A log that this process may write to until it is closed.

    Attributes:
        events: everything in it, oldest first.
        recovered: what was cut off its end when it was opened, and where that lies now; empty for nothing.
    """

    def __init__(self, path: Path, header: Header) -> None:
        """Take the lock and read the log; it is made when the first event is written.

        Args:
            path: the log.
            header: whose it is; when it was made is not looked at.

        Raises:
            SessionError: another process works on it, a newer version wrote it, it is damaged, or cannot be read.
        """
        self._path, self._new, self._header = path, header, header
        self._fd: int | None = None
        self.events: list[Recorded] = []
        self.recovered = ""
        self._size, self._synced, self._indexed, self._torn = 0, 0, 0, False
        self._covered = _Covered(0, 0, 0.0)
        self._guard = threading.Lock()
        with failing_as_session_error(path):
            for directory in reversed(path.parents):
                if not directory.exists():
                    directory.mkdir(mode=0o700, exist_ok=True)
            self._lock = FileLock(path.with_suffix(".lock"), header.session_id)
            try:
                self._open()
            except BaseException:  # whatever it was, nobody closes a log that was never made
                self.close()
                raise

    def append(self, event: Recorded) -> None:
        """Write one event.

        Raises:
            SessionError: it cannot be written.
        """
        line = encode(event) + b"\n"
        with failing_as_session_error(self._path):
            if self._fd is None:
                self._fd = _created(self._path)
            self._write(line if self._size else self._begin() + line)
        self.events.append(event)
        self._cover(self._covered.messages + _count([event]))

    def sync(self) -> None:
        """Make everything written so far durable; may run beside `append`.

        Raises:
            SessionError: it cannot be written.
        """
        with self._guard, failing_as_session_error(self._path):
            size = self._covered.size
            if self._fd is None or size == self._synced:
                return
            os.fsync(self._fd)
            if not self._synced:
                _sync_directory(self._path.parent)
            self._synced = size
            if size - self._indexed >= _INDEX_EVERY:
                self._write_index()

    def replace(self, events: Iterable[Recorded]) -> None:
        """Put a log of other events in the place of this one, at once.

        Raises:
            SessionError: it cannot be written; the log is as it was.
        """
        events = list(events)
        new = self._path.with_suffix(".new")
        with self._guard, failing_as_session_error(self._path):
            new.unlink(missing_ok=True)
            fd = _created(new)
            try:
                _write_all(fd, self._begin() + b"".join(encode(event) + b"\n" for event in events))
                os.fsync(fd)
                index.index_of(self._path).unlink(missing_ok=True)
                new.replace(self._path)
                _sync_directory(self._path.parent)
            except BaseException:  # whatever it was, the old log stays the one that counts
                os.close(fd)
                new.unlink(missing_ok=True)
                raise
            self._let_go()
            self._fd, self._size, self._torn = fd, os.fstat(fd).st_size, False
            self._synced = self._indexed = 0
            self.events[:] = events
            self._cover(_count(events))

    def remove(self) -> None:
        """Delete the log and what was cut off it; the lock stays.

        Raises:
            SessionError: it cannot be deleted.
        """
        with self._guard, failing_as_session_error(self._path):
            self._let_go()
            for path in (index.index_of(self._path), self._path, self._corrupt):
                path.unlink(missing_ok=True)
            self._size, self._torn, self._synced, self._indexed = 0, False, 0, 0
            self.events.clear()
            self._cover(0)

    def close(self) -> None:
        """Give the file and the lock back; idempotent."""
        with self._guard:
            try:
                if self._fd is not None and self._indexed != self._covered.size:
                    self._write_index()
            except OSError as error:  # it can be made again from the log
                _LOGGER.warning("The index of the session file %s cannot be written: %s", self._path, error)
            finally:
                self._let_go()
                self._lock.release()

    @property
    def _corrupt(self) -> Path:
        return self._path.with_suffix(".corrupt")

    def _open(self) -> None:
        log = read(self._path)
        if log.header is not None:
            if log.header.session_id != self._header.session_id:
                raise SessionError(f"The session file {self._path} belongs to session {log.header.session_id!r}.")
            self._header = log.header
        self.events = log.events
        self._size = log.size
        if self._path.exists():
            self._fd = opened(self._path, os.O_RDWR | os.O_APPEND)
            known, updated_at = index.read(index.index_of(self._path)), os.fstat(self._fd).st_mtime
            if known is not None and known.size == self._size:
                self._indexed, updated_at = known.size, known.updated_at
            elif known is not None and known.size > self._size:  # the machine went down and the log lost its end
                index.index_of(self._path).unlink()
            self._covered = _Covered(self._size, _count(log.events), updated_at)
            self._repair(self._fd, log.torn)

    def _repair(self, fd: int, torn: str) -> None:
        """Keep beside the log what is no event at its end, cut it off and say so; end a line that is whole."""
        if tail := os.pread(fd, os.fstat(fd).st_size - self._size, self._size):
            kept = opened(self._corrupt, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                _write_all(kept, tail + b"\n")
                os.fsync(kept)
            finally:
                os.close(kept)
            os.ftruncate(fd, self._size)
            self.recovered = (
                f"The last {len(tail)} bytes of the session file {self._path} were not a complete event ({torn}). They "
                f"were removed and are kept in {self._corrupt}."
            )
            _LOGGER.warning("%s", self.recovered)
        elif self._size and os.pread(fd, 1, self._size - 1) != b"\n":
            self._write(b"\n")
            self._cover(self._covered.messages)

    def _begin(self) -> bytes:
        """The first line; the same as before when there is a log already."""
        if not self._size:
            self._header = replace(self._new, created_at=time.time())
        return encode_header(self._header) + b"\n"

    def _write(self, data: bytes) -> None:
        """Add to the log; what an earlier try left half-written is cut away before."""
        if self._fd is None:
            raise SessionError(f"The session file {self._path} is closed.")
        if self._torn:
            os.ftruncate(self._fd, self._size)
        self._torn = True
        _write_all(self._fd, data)
        self._torn = False
        self._size += len(data)

    def _cover(self, messages: int) -> None:
        # One value, so that `sync` in its thread never sees half of it.
        self._covered = _Covered(self._size, messages, time.time())

    def _write_index(self) -> None:
        size, messages, updated_at = self._covered
        index.write(
            index.index_of(self._path),
            index.Index(format=FORMAT, header=self._header, messages=messages, updated_at=updated_at, size=size),
        )
        self._indexed = size

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def read(path: Path) -> Log:
    """What a log holds; an empty one when there is no such file.

    Raises:
        SessionError: it is damaged, a newer version wrote it, or it cannot be read.
    """
    with failing_as_session_error(path):
        try:
            with os.fdopen(opened(path, os.O_RDONLY), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            data = b""
        return parse(data, f"The session file {path}")


@contextmanager
def failing_as_session_error(path: Path) -> Iterator[None]:
    """Say which file an error is about."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise SessionError(
            f"The session file {path} cannot be used: {reason}. Check the disk space and the permissions."
        ) from error


def _count(events: Iterable[Recorded]) -> int:
    return sum(message_of(event) is not None for event in events)


def _created(path: Path) -> int:
    return opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_directory(path: Path) -> None:
    """Make durable that a new file is there."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
