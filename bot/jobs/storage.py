"""Data of jobs that is kept beside their records: patches, sessions, and sealed jobs that wait.

A result is kept before any of it is published: a worker that dies then costs no second run. Patches and sessions are in
files of this machine, or in the blob store and the database that machines share. A job that waits for a person between
two workflow runs is sealed: nobody else can read it, change it or make one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import logging
import os
import shutil
import time
import zlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from cryptography.fernet import Fernet, InvalidToken
from pydantic import ConfigDict, TypeAdapter

from agent_runtime import DatabaseSession, Event, FileSession, Session, SessionError, SessionInUseError
from bot.domain.errors import BotError
from bot.domain.job import Job
from bot.git.blobs import BlobInfo
from bot.git.change import Change
from bot.git.diff import MAX_DIFF_BYTES
from bot.git.filesystem import SET_ASIDE, discard
from bot.git.snapshots import Vault
from bot.git.tree import CarriedChanges
from bot.queue.records import RunResult, StoredRecord

log = logging.getLogger(__name__)
_SHOWN_BYTES = 4 * 1024 * 1024


class RunResults:
    """Keeps the work of jobs: what can be told in the job's record, the patch beside it. What is not async blocks.

    Args:
        patches: where patches are.
        most_bytes: of all patches together.
        lasting: whether the patches of published work stay, too, for later steps of a workflow.
    """

    def __init__(self, patches: PatchStore, *, most_bytes: int, lasting: bool = False) -> None:
        self._patches, self._most_bytes, self._lasting = patches, most_bytes, lasting

    async def keep(self, job_id: str, record: StoredRecord, work: RunResult, change: Change) -> None:
        """Keep both, durably; the record last, so that its reader finds the patch."""
        await asyncio.to_thread(self._write, job_id, change)
        await record.update(lambda kept: replace(kept, result=work))

    async def find(self, job_id: str, record: StoredRecord) -> tuple[RunResult, Path] | None:
        """The work of an earlier attempt and a file with its patch, or None if they are not available."""
        result = (await record.read()).result
        path = await asyncio.to_thread(self._patches.file, job_id) if result is not None else None
        return (result, path) if result is not None and path is not None else None

    def patch(self, job_id: str) -> str:
        """The patch that is kept, of a long one the first lines and a note; or an empty text."""
        path = self._patches.file(job_id)
        if path is None:
            return ""
        with path.open("rb") as file:
            text, more = file.read(_SHOWN_BYTES), path.stat().st_size - _SHOWN_BYTES
        if more > 0:  # whole lines, since a part of a secret may be too short to be known
            text = text[: text.rfind(b"\n") + 1] + f"… more than {more:,} further bytes are left out …\n".encode()
        return text.decode("utf-8", "replace")

    def whole(self, job_id: str) -> bytes | None:
        """All of the patch that is kept; None where there is none."""
        path = self._patches.file(job_id)
        return path.read_bytes() if path is not None else None

    def put(self, job_id: str, patch: bytes) -> None:
        """Keep a patch that another machine has kept."""
        self._patches.put(job_id, io.BytesIO(patch))

    def narrow(self, job_id: str, patch: str) -> None:
        """Keep only a part of the patch, empty for nothing of it: the rest is published.

        Where the disk fails, more is kept than is needed; no job ends otherwise for that.
        """
        try:
            if patch:
                self.put(job_id, patch.encode("utf-8", "surrogateescape"))
            elif not self._lasting:
                self._patches.delete(job_id)
        except OSError as error:
            log.warning("job %s: more of its patch is kept than is needed: %s", job_id, error)

    def file(self, job_id: str) -> Path | None:
        """The file with the patch that is kept; None where there is none, or nothing in it."""
        path = self._patches.file(job_id)
        return path if path is not None and path.stat().st_size else None

    def sweep(self, days: float, *, keep: Collection[str] = ()) -> int:
        """Remove the patches, of no job in `keep`, that were kept `days` ago or are too much; how many they were."""
        return self._patches.sweep(days=days, most_bytes=self._most_bytes, keep=keep)

    def _write(self, job_id: str, change: Change) -> None:
        if change.patch_file is None:
            self.put(job_id, change.patch.encode("utf-8", "surrogateescape"))
            return
        with change.patch_file.open("rb") as whole:
            self._patches.put(job_id, whole)


_DAY_SECONDS = 24 * 3600.0
_HOUR_SECONDS = 3600.0
_ENDING = ".patch"


class PatchFiles:
    """One patch a job, as files `JOB.patch`. Every method blocks.

    Args:
        folder: where they are; made with mode 0700.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, job_id: str, patch: BinaryIO) -> None:
        """Keep a patch in place of the one before; it is durable when this returns."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._folder / f"{job_id}.partial"
        with partial.open("wb") as file:
            shutil.copyfileobj(patch, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._folder / f"{job_id}{_ENDING}")
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # the file's name, too, must outlive a power cut
        finally:
            os.close(folder)

    def file(self, job_id: str) -> Path | None:
        """A file of this machine with the patch; None where there is none."""
        path = self._folder / f"{job_id}{_ENDING}"
        return path if path.is_file() else None

    def delete(self, job_id: str) -> None:
        """Remove a patch; nothing to do where there is none."""
        (self._folder / f"{job_id}{_ENDING}").unlink(missing_ok=True)

    def sweep(self, *, days: float, most_bytes: int, keep: Collection[str]) -> int:
        """Remove the patches of all jobs but `keep` that are `days` old, and the oldest of more than `most_bytes`.

        What a killed process only began to write goes like the rest.

        Returns:
            How many they were.
        """
        found = list[BlobInfo]()
        for path in self._folder.glob("*.p*"):
            status = path.stat()
            found.append(BlobInfo(name=path.name, size=status.st_size, modified=status.st_mtime))
        names = _superfluous(found, days=days, most_bytes=most_bytes, keep=keep)
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        return len(names)


class PatchBlobs:
    """The same in the blob store, encrypted.

    Args:
        vault: the part of the store that has patches alone.
        folder: has the patches that were kept on this machine before there was a store, and copies of what it reads.
    """

    def __init__(self, vault: Vault, folder: Path) -> None:
        self._vault, self._here, self._copies = vault, PatchFiles(folder), PatchFiles(folder / "copies")

    def put(self, job_id: str, patch: BinaryIO) -> None:
        """See `PatchFiles.put`.

        Raises:
            StorageError: the store failed.
        """
        self._vault.write(f"{job_id}{_ENDING}", patch.read())  # no more than a `Change` holds in memory already

    def file(self, job_id: str) -> Path | None:
        """See `PatchFiles.file`.

        Raises:
            StorageError: the store failed.
            WorkspaceGoneError: what is stored was not written by the bot.
        """
        content = self._vault.read(f"{job_id}{_ENDING}", limit=MAX_DIFF_BYTES)
        if content is None:
            self._copies.delete(job_id)
            return self._here.file(job_id)
        self._copies.put(job_id, BytesIO(content))
        return self._copies.file(job_id)

    def delete(self, job_id: str) -> None:
        """See `PatchFiles.delete`.

        Raises:
            StorageError: the store failed.
        """
        self._vault.blobs.delete(f"{self._vault.folder}/{job_id}{_ENDING}")
        self._copies.delete(job_id)
        self._here.delete(job_id)

    def sweep(self, *, days: float, most_bytes: int, keep: Collection[str]) -> int:
        """See `PatchFiles.sweep`.

        Raises:
            StorageError: the store failed.
        """
        self._copies.sweep(days=1, most_bytes=most_bytes, keep=keep)
        swept = self._here.sweep(days=days, most_bytes=most_bytes, keep=keep)
        stored = (
            BlobInfo(name=each.name.rpartition("/")[2], size=each.size, modified=each.modified)
            for each in self._vault.blobs.list(self._vault.folder)
        )
        names = _superfluous(stored, days=days, most_bytes=most_bytes, keep=keep)
        for name in names:
            self._vault.blobs.delete(f"{self._vault.folder}/{name}")
        return swept + len(names)


PatchStore = PatchFiles | PatchBlobs


def _superfluous(
    patches: Iterable[BlobInfo], *, days: float, most_bytes: int, keep: Collection[str]
) -> tuple[str, ...]:
    """The names of those that are too old or too much; one of the last hour may be of a job that began since."""

    def chosen() -> Iterator[str]:
        now, total = time.time(), 0
        for each in sorted(patches, key=lambda patch: patch.modified, reverse=True):
            total += each.size
            age = now - each.modified
            too_much = total > most_bytes and age > _HOUR_SECONDS
            if each.name.rpartition(".")[0] not in keep and (too_much or age > days * _DAY_SECONDS):
                yield each.name

    return tuple(chosen())


_FILE = "run"
_PREFIX = "job "
_YOUNG_SECONDS = 3600.0
"""A session that was used this lately may be of a job that was accepted since the jobs were counted."""


class FileJobSessions:
    """Keeps one session a job in files, for jobs that no other machine goes on with.

    Every method may block, and raise `SessionError` when the store cannot be used.

    Args:
        folder: has a directory for each job.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, job_id: str) -> FileSession:
        """The session of a job; nothing is opened yet."""
        return FileSession(_FILE, session_dir=self._folder / job_id)

    def has(self, job_id: str) -> bool:
        """Whether an attempt at the job has left a session."""
        return (self._folder / job_id).exists()

    def events(self, job_id: str) -> Sequence[Event]:
        """What the session of a job has recorded; nothing without one."""
        return self.of(job_id).read()

    def stamp(self, job_id: str) -> str:
        """A text that is another one after something was recorded in the session of a job."""
        try:
            status = self.of(job_id).path.stat()
        except FileNotFoundError:
            return ""
        return f"{status.st_mtime_ns} {status.st_size}"

    def forget(self, job_id: str) -> None:
        """Drop the session of a job."""
        discard(self._folder / job_id)

    def sweep(self, live: Collection[str]) -> None:
        """Drop the sessions of all jobs but `live`; one that was used within the hour stays for the next sweep."""
        before = time.time() - _YOUNG_SECONDS
        for folder in self._folder.iterdir() if self._folder.exists() else ():
            if folder.name in live or folder.name.startswith(SET_ASIDE):
                continue
            if folder.stat().st_mtime < before:
                discard(folder)

    def files(self, job_id: str, *, most: int) -> Mapping[str, bytes] | None:
        """The files of a session by their names, without the lock of its process; None for more than `most` bytes."""
        folder = self._folder / job_id
        found = folder.iterdir() if folder.is_dir() else ()
        files = [path for path in sorted(found) if path.is_file() and path.suffix != ".lock"]
        if sum(path.stat().st_size for path in files) > most:
            return None
        return {path.name: path.read_bytes() for path in files}

    def put(self, job_id: str, files: Mapping[str, bytes]) -> None:
        """Keep the files of a session that another machine has kept."""
        if files:
            folder = self._folder / job_id
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in files.items():
                (folder / Path(name).name).write_bytes(content)


class DatabaseJobSessions:
    """Keeps sessions in the database that the workers of all machines share.

    The engine decides which worker has a job, so a session is taken from any other process that holds it: one that is
    dead or was cut off must not make the job wait, and one that lives gets an error instead of writing on.

    Args:
        url: the database.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def prepare(self) -> None:
        """Make the tables, so that a database that cannot be used is found before the first job.

        Raises:
            SessionError: it cannot be used.
        """
        with suppress(SessionInUseError):  # another process starts at the same moment, so the database can be used
            self.forget("")

    def of(self, job_id: str) -> DatabaseSession:
        """See `FileJobSessions.of`."""
        return self._session(job_id, take_over=True)

    def has(self, job_id: str) -> bool:
        """See `FileJobSessions.has`."""
        return self.of(job_id).exists()

    def events(self, job_id: str) -> Sequence[Event]:
        """See `FileJobSessions.events`."""
        return self.of(job_id).read()

    def stamp(self, job_id: str) -> str:
        """See `FileJobSessions.stamp`."""
        return str(self.of(job_id).metadata())

    def forget(self, job_id: str) -> None:
        """See `FileJobSessions.forget`."""
        _reset(self.of(job_id))

    def sweep(self, live: Collection[str]) -> None:
        """See `FileJobSessions.sweep`; one that is being used stays for the next sweep, too."""
        before = time.time() - _YOUNG_SECONDS
        for each in self.of("").list_sessions():
            of_job, _, job_id = each["session_id"].partition(_PREFIX)
            if of_job or job_id in live or each["updated_at"] > before:
                continue
            try:
                _reset(self._session(job_id, take_over=False))
            except SessionError as error:
                log.warning("the session of job %s stays for the next sweep: %s", job_id, error)

    def _session(self, job_id: str, *, take_over: bool) -> DatabaseSession:
        return DatabaseSession(f"{_PREFIX}{job_id}", db_url=self._url, take_over=take_over, eager=True)


JobSessions = FileJobSessions | DatabaseJobSessions


@asynccontextmanager
async def opened(session: Session | None) -> AsyncIterator[None]:
    """Open a session before it is needed and close it afterwards, beside the event loop: its store may take its time.

    Raises:
        SessionError: it cannot be opened.
    """
    if session is None:
        yield
        return
    await asyncio.to_thread(lambda: session.events)
    try:
        yield
    finally:
        await asyncio.to_thread(session.close)


def _reset(session: DatabaseSession) -> None:
    try:
        session.reset()
    finally:
        session.close()


MAX_SEALED_BYTES = 24 * 1024 * 1024
_MAX_OPEN_BYTES = 160 * 1024 * 1024
_FORMAT = 2


class SealError(BotError):
    """A sealed job cannot be used; the text says why, in one sentence."""


class OtherKeyError(SealError):
    """It was not sealed with this key, or it was altered since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob:
    """All that another machine needs to go on.

    Attributes:
        job: what was asked.
        request_id: the request that somebody has to answer.
        until: seconds since the epoch at which it is too late to.
        record: what is recorded of the job, as `encode_record` writes it.
        session: the files of its session, by their names.
        patch: what is kept of a finished run's change; None when it is not finished.
        work: what it has changed in its files, when it is not.
        comment: the digest of the status comment's text, while that waits for the answer.
        format: of this value.
    """

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    job: Job
    request_id: str
    until: float
    record: str
    session: Mapping[str, bytes]
    patch: bytes | None
    work: CarriedChanges
    comment: str
    format: int = field(default=_FORMAT)


_SAVED = TypeAdapter(SavedJob)


def seal(saved: SavedJob, key: bytes) -> bytes:
    """The job as bytes that only who has the key can read, and make.

    Raises:
        SealError: it is too large.
    """
    sealed = Fernet(_fernet_key(key)).encrypt(zlib.compress(_SAVED.dump_json(saved)))
    if len(sealed) > MAX_SEALED_BYTES:
        raise SealError(
            f"The state of the run has {len(sealed):,} bytes; the limit for a waiting workflow run is "
            f"{MAX_SEALED_BYTES:,}. Split the task."
        )
    return sealed


def unseal(sealed: bytes, key: bytes, *, repo_id: int, thread: int) -> SavedJob:
    """The job again, if it is one of this thread.

    Raises:
        SealError: it was made with another key, altered, or is of another place or version.
    """
    try:
        # Nothing is unpacked or parsed that was not made with the key.
        packed = Fernet(_fernet_key(key)).decrypt(sealed)
    except InvalidToken as error:
        raise OtherKeyError("it was made with another key, or was altered") from error
    opened = zlib.decompressobj()
    try:
        saved = _SAVED.validate_json(opened.decompress(packed, _MAX_OPEN_BYTES))
    except ValueError as error:
        raise SealError("another version of Codepilot made it") from error
    if saved.format != _FORMAT:
        raise SealError("another version of Codepilot made it")
    if (saved.job.repo.id, saved.job.thread.key) != (repo_id, thread):
        raise SealError("it belongs to another thread")
    return saved


def digest_of(text: str) -> str:
    """What a comment's text is compared by."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fernet_key(key: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key, b"sealed job", hashlib.sha256))
