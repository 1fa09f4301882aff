"""A session in files: an append-only log of JSON lines, with a small index and a lock.

An event outlives the process when written, the machine after `sync`. An incomplete write is cut off later. The index
answers `metadata`. Links, pipes and devices are refused.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from agent_runtime.core.errors import SessionError, SettingsError
from agent_runtime.core.events import Recorded
from agent_runtime.processes.spawn import home_dir
from agent_runtime.sessions.codec import (
    FORMAT,
    Header,
    Log,
    Metadata,
    check_format,
    decode_header,
    encode,
    encode_header,
    file_name,
    message_of,
    messages_of,
    original_name,
    parse,
    parse_rest,
)
from agent_runtime.sessions.protocol import Holder, StoredSession, in_use_error

_LOGGER = logging.getLogger(__name__)

_INDEX_EVERY = 64 * 1024
"""Bytes of growth between two writes of the index."""

_MAX_HEADER = 64 * 1024


class FileSession(StoredSession):
    """A session in a file: an event outlives the process at once, the machine after `commit`."""

    def __init__(self, session_id: str, agent_name: str = "agent", session_dir: Path | str | None = None) -> None:
        """Prepare the session, by default in `~/.codepilot/sessions`; nothing is read or created yet."""
        is_usual = session_dir is None
        if session_dir is None:
            place = home_dir("The session has no place to lie", remedy="pass `session_dir`")
            session_dir = place / ".codepilot" / "sessions"
        folder, original_id = Path(session_dir), original_name(session_id)
        # CodePilot 0.9 kept both ids in one file.
        if not _log_path(folder, session_id).exists() and _is_imported(_log_path(folder, original_id)):
            session_id = original_id
        super().__init__(session_id, agent_name)
        self.path = _log_path(folder, session_id)
        self.original: Path | None = folder / f"{original_id}.json"
        """The file of CodePilot 0.9 that has to be imported first, if it exists."""
        self._import_options = "" if is_usual else f" --session-dir {shlex.quote(str(folder))}"

    def require_out_of_reach(self, work_dir: Path) -> None:
        """Refuse a log inside the directory that the agent's tools may write to."""
        if self.path.resolve().is_relative_to(work_dir.resolve()):
            raise SettingsError(
                f"The session {self.path} is in {work_dir}, the agent's directory, where it could be destroyed. "
                "Pass a `session_dir` outside it, or omit it to use ~/.codepilot/sessions."
            )

    @override
    def exists(self) -> bool:
        self._require_imported()
        return self.path.is_file()

    @override
    def metadata(self) -> Metadata | None:
        self._require_imported()
        with session_errors(self.path):
            return read_metadata(self.path)

    @override
    def list_sessions(self) -> list[Metadata]:
        """Return all sessions in the directory, the last used first; skip others with a warning."""
        folder, sessions = self.path.parent, list[Metadata]()
        if any(map(_waits_for_import, folder.glob("*.json"))):
            command = f"codepilot import-session {shlex.quote(str(folder))}/*.json{self._import_options}"
            _LOGGER.warning("Sessions of CodePilot 0.9 in %s are not listed. Import them: %s", folder, command)
        for path in folder.glob("*.jsonl"):
            try:
                with session_errors(path):
                    metadata = read_metadata(path)
            except SessionError as error:
                _LOGGER.warning("A session is not listed: %s", error)
                continue
            if metadata is not None:
                sessions.append(metadata)
        return sorted(sessions, key=lambda session: session["updated_at"], reverse=True)

    @override
    def _open(self) -> LogFile:
        self._require_imported()
        return LogFile(self.path, Header(session_id=self.session_id, agent_name=self.agent_name, created_at=0))

    @override
    def _read(self) -> Sequence[Recorded]:
        self._require_imported()
        return read_log(self.path).events

    def _require_imported(self) -> None:
        if self.original is None or self.path.exists() or not _waits_for_import(self.original):
            return
        command = f"codepilot import-session {shlex.quote(str(self.original))}{self._import_options}"
        raise SessionError(
            f"Session {self.session_id!r} is in {self.original}, in the format of CodePilot 0.9. Nothing was changed. "
            f"Import it: {command} - or move the file away to start again."
        )


def _log_path(folder: Path, session_id: str) -> Path:
    return folder / f"{file_name(session_id)}.jsonl"


def _is_imported(log: Path) -> bool:
    with suppress(OSError, ValueError, SessionError), os.fdopen(open_regular_file(log, os.O_RDONLY), "rb") as file:
        return decode_header(file.readline(_MAX_HEADER)).is_imported
    return False


def _waits_for_import(path: Path) -> bool:
    """Return whether a file is a session of CodePilot 0.9 that was never imported here."""
    log = _log_path(path.parent, path.stem)
    if log.exists() or log.with_suffix(".lock").exists():
        return False
    with suppress(OSError, ValueError, RecursionError):
        data = json.loads(path.read_bytes()) if path.is_file() else None
        if isinstance(data, dict):
            return isinstance(data.get("messages"), list) and {"session_id", "agent_name"} <= data.keys()
    return False


class LogFile:
    """A log that this process writes to until `close`; `recovered` notes damaged bytes that were cut off."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path, self._new, self._header = path, header, header
        self._fd: int | None = None
        self.events: list[Recorded] = []
        self.recovered = ""
        self._size, self._synced, self._indexed, self._torn = 0, 0, 0, False
        self._index_facts = _IndexFacts(0, 0, 0.0)
        self._write_lock = threading.Lock()
        with session_errors(path):
            for directory in reversed(path.parents):
                if not directory.exists():
                    directory.mkdir(mode=0o700, exist_ok=True)
            self._lock = FileLock(path.with_suffix(".lock"), header.session_id)
            try:
                self._open()
            except BaseException:  # any error: no caller has a log to close
                self.close()
                raise

    def append(self, event: Recorded) -> None:
        line = encode(event) + b"\n"
        with session_errors(self._path):
            if self._fd is None:
                self._fd = _create_file(self._path)
            self._write(line if self._size else self._header_line() + line)
        self.events.append(event)
        self._update_index_facts(self._index_facts.messages + _count_messages([event]))

    def sync(self) -> None:
        with self._write_lock, session_errors(self._path):
            size = self._index_facts.size
            if self._fd is None or size == self._synced:
                return
            os.fsync(self._fd)
            if not self._synced:
                _sync_directory(self._path.parent)
            self._synced = size
            if size - self._indexed >= _INDEX_EVERY:
                self._write_index()

    def replace(
        self, events: Iterable[Recorded], header: Header | None = None, updated_at: float | None = None
    ) -> None:
        events = list(events)
        first = self._header_line() if header is None else encode_header(header) + b"\n"
        new = self._path.with_suffix(".new")
        with self._write_lock, session_errors(self._path):
            new.unlink(missing_ok=True)
            fd = _create_file(new)
            try:
                _write_all(fd, first + b"".join(encode(event) + b"\n" for event in events))
                if updated_at is not None:
                    os.utime(fd, (updated_at, updated_at))
                os.fsync(fd)
                index_path(self._path).unlink(missing_ok=True)
                new.replace(self._path)
                _sync_directory(self._path.parent)
            except BaseException:  # any error: the old log stays the one that counts
                os.close(fd)
                new.unlink(missing_ok=True)
                raise
            self._close_file()
            self._fd, self._size, self._torn = fd, os.fstat(fd).st_size, False
            self._synced = self._indexed = 0
            self.events[:] = events
            self._header = header or self._header
            self._update_index_facts(_count_messages(events), updated_at)

    def remove(self) -> None:
        """Delete the log and its cut-off bytes; the lock stays."""
        with self._write_lock, session_errors(self._path):
            self._close_file()
            for path in (index_path(self._path), self._path, self._corrupt):
                path.unlink(missing_ok=True)
            self._size, self._torn, self._synced, self._indexed = 0, False, 0, 0
            self.events.clear()
            self._update_index_facts(0)

    def close(self) -> None:
        with self._write_lock:
            try:
                if self._fd is not None and self._indexed != self._index_facts.size:
                    self._write_index()
            except OSError as error:  # it can be made again from the log
                _LOGGER.warning("The index of the session file %s cannot be written: %s", self._path, error)
            finally:
                self._close_file()
                self._lock.release()

    @property
    def _corrupt(self) -> Path:
        return self._path.with_suffix(".corrupt")

    def _open(self) -> None:
        log = read_log(self._path)
        if log.header is not None:
            if log.header.session_id != self._header.session_id:
                raise SessionError(f"The session file {self._path} belongs to session {log.header.session_id!r}.")
            self._header = log.header
        self.events = log.events
        self._size = log.size
        if self._path.exists():
            self._fd = open_regular_file(self._path, os.O_RDWR | os.O_APPEND)
            index, updated_at = read_index(index_path(self._path)), os.fstat(self._fd).st_mtime
            if index is not None and index.size == self._size:
                self._indexed, updated_at = index.size, index.updated_at
            elif index is not None and index.size > self._size:  # the machine went down and the log lost its end
                index_path(self._path).unlink()
            self._index_facts = _IndexFacts(self._size, _count_messages(log.events), updated_at)
            self._repair(self._fd, log.torn)

    def _repair(self, fd: int, torn: str) -> None:
        """Move an incomplete event from the log's end to a file beside it; complete a missing line end."""
        if tail := os.pread(fd, os.fstat(fd).st_size - self._size, self._size):
            corrupt = open_regular_file(self._corrupt, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                _write_all(corrupt, tail + b"\n")
                os.fsync(corrupt)
            finally:
                os.close(corrupt)
            os.ftruncate(fd, self._size)
            self.recovered = (
                f"The last {len(tail)} bytes of the session file {self._path} were not a complete event ({torn}). They "
                f"were removed and are kept in {self._corrupt}."
            )
            _LOGGER.warning("%s", self.recovered)
        elif self._size and os.pread(fd, 1, self._size - 1) != b"\n":
            self._write(b"\n")
            self._update_index_facts(self._index_facts.messages)

    def _header_line(self) -> bytes:
        if not self._size:
            self._header = replace(self._new, created_at=time.time())
        return encode_header(self._header) + b"\n"

    def _write(self, data: bytes) -> None:
        """Append to the log, after cutting off the rest of an earlier incomplete write."""
        if self._fd is None:
            raise SessionError(f"The session file {self._path} is closed.")
        if self._torn:
            os.ftruncate(self._fd, self._size)
        self._torn = True
        _write_all(self._fd, data)
        self._torn = False
        self._size += len(data)

    def _update_index_facts(self, messages: int, updated_at: float | None = None) -> None:
        # One value, so that `sync` in its thread never sees half of it.
        self._index_facts = _IndexFacts(self._size, messages, time.time() if updated_at is None else updated_at)

    def _write_index(self) -> None:
        size, messages, updated_at = self._index_facts
        write_index(
            index_path(self._path),
            Index(format=FORMAT, header=self._header, messages=messages, updated_at=updated_at, size=size),
        )
        self._indexed = size

    def _close_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class _IndexFacts(NamedTuple):
    size: int
    messages: int
    updated_at: float


def read_log(path: Path) -> Log:
    with session_errors(path):
        try:
            with os.fdopen(open_regular_file(path, os.O_RDONLY), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            data = b""
        return parse(data, f"The session file {path}")


@contextmanager
def session_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise SessionError(
            f"The session file {path} cannot be used: {reason}. Check the disk space and the permissions."
        ) from error


def _count_messages(events: Iterable[Recorded]) -> int:
    return sum(message_of(event) is not None for event in events)


def _create_file(path: Path) -> int:
    return open_regular_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The facts about the first `size` bytes of a log."""

    format: int
    header: Header
    messages: int
    updated_at: float
    size: int


def write_index(path: Path, index: Index) -> None:
    new = path.with_suffix(".index-new")
    new.unlink(missing_ok=True)
    fd = open_regular_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(asdict(index), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    new.replace(path)


def read_index(path: Path) -> Index | None:
    """Return the index; None if it is missing or unusable."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError, SessionError):
        with os.fdopen(open_regular_file(path, os.O_RDONLY), "rb") as file:
            data: dict[str, Any] = json.loads(file.read().decode("utf-8", "surrogatepass"))
        check_format(data["format"])
        return Index(**{**data, "header": Header(**data["header"])})
    return None


def read_metadata(log: Path) -> Metadata | None:
    """Return a session's facts from its index and the log after it; None without a log."""
    name = f"The session file {log}"
    try:
        with os.fdopen(open_regular_file(log, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            index = read_index(index_path(log))
            if index is None or index.size > status.st_size:
                content = parse(file.read(), name)
                header, messages, updated_at = content.header, len(messages_of(content.events)), status.st_mtime
            else:
                file.seek(index.size)
                rest = messages_of(parse_rest(file.read(), name))
                header, messages = index.header, index.messages + len(rest)
                updated_at = index.updated_at if index.size == status.st_size else status.st_mtime
    except FileNotFoundError:
        return None
    if header is None:
        return None
    return Metadata(
        session_id=header.session_id,
        agent_name=header.agent_name,
        created_at=header.created_at,
        updated_at=max(updated_at, header.created_at),  # a file system's clock ticks less often than ours
        messages=messages,
    )


def index_path(log: Path) -> Path:
    return log.with_suffix(".index")


_INHERITED_SECONDS = 2.0
"""Time for a dead holder's lock to go: a child that it forked keeps the lock until `exec`."""


class FileLock:
    """A lock on a file; the system releases it when the process dies."""

    def __init__(self, path: Path, session_id: str) -> None:
        from filelock import FileLock as SystemLock  # noqa: PLC0415 - only who keeps sessions in files pays
        from filelock import Timeout  # noqa: PLC0415 - the same

        # A session may be closed in another thread than it was opened in. A soft lock would survive its process.
        self._lock = SystemLock(
            path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False, on_acquired=_write_holder
        )
        try:
            self._lock.acquire()
        except Timeout:
            holder = _read_holder(path)
            try:
                if holder is None or not holder.has_died:
                    raise in_use_error(session_id, holder) from None
                self._lock.acquire(timeout=_INHERITED_SECONDS)
            except Timeout:
                raise in_use_error(session_id, holder) from None
        except OSError as error:
            raise SessionError(f"Session {session_id!r} cannot be locked: {error}.") from error

    def release(self) -> None:
        self._lock.release()


def _write_holder(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(asdict(Holder.current())).encode(), 0)


def _read_holder(path: Path) -> Holder | None:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        return Holder(**data)
    except (OSError, ValueError, TypeError):
        return None


def open_regular_file(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor; a new file is private. Refuses links, pipes and devices."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file")
