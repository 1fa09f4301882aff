"""Storage of patches, sessions and encrypted waiting jobs.

A result is stored before its publication, so that a crash costs no second run.
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
from bot.domain.errors import BotError, StorageError
from bot.domain.job import Job
from bot.git.blobs import BlobInfo
from bot.git.change import Change
from bot.git.diff import MAX_DIFF_BYTES
from bot.git.filesystem import SET_ASIDE, discard
from bot.git.snapshots import Vault
from bot.git.tree import CarriedChanges
from bot.jobs.record import RunResult, StoredRecord

log = logging.getLogger(__name__)
_EXCERPT_BYTES = 4 * 1024 * 1024


class RunResults:
    """Store results: a summary in the job's record, and the patch. Methods that are not async block.

    Args:
        lasting: keep patches of published work for later workflow steps.
    """

    def __init__(self, patches: PatchStore, *, most_bytes: int, lasting: bool = False) -> None:
        self._patches, self._most_bytes, self._lasting = patches, most_bytes, lasting

    async def save(self, job_id: str, record: StoredRecord, result: RunResult, change: Change) -> None:
        """Store a result durably; the record last, so that its reader finds the patch."""
        await asyncio.to_thread(self._write, job_id, change)
        await record.update(lambda stored: replace(stored, result=result))

    async def find(self, job_id: str, record: StoredRecord) -> tuple[RunResult, Path] | None:
        """Return the result of an earlier attempt and its patch file, if available."""
        result = (await record.read()).result
        path = await asyncio.to_thread(self._patches.file, job_id) if result is not None else None
        return (result, path) if result is not None and path is not None else None

    def excerpt(self, job_id: str) -> str:
        """Return the stored patch; a long one is cut with a note."""
        path = self._patches.file(job_id)
        if path is None:
            return ""
        with path.open("rb") as file:
            text, more = file.read(_EXCERPT_BYTES), path.stat().st_size - _EXCERPT_BYTES
        if more > 0:  # whole lines, since a part of a secret may be too short to be known
            text = text[: text.rfind(b"\n") + 1] + f"… more than {more:,} further bytes are left out …\n".encode()
        return text.decode("utf-8", "replace")

    def read(self, job_id: str) -> bytes | None:
        path = self._patches.file(job_id)
        return path.read_bytes() if path is not None else None

    def put(self, job_id: str, patch: bytes) -> None:
        self._patches.put(job_id, io.BytesIO(patch))

    def reduce(self, job_id: str, patch: str) -> None:
        """Keep only the unpublished part of the patch; an error of the disk or the store is logged."""
        try:
            if patch:
                self.put(job_id, patch.encode("utf-8", "surrogateescape"))
            elif not self._lasting:
                self._patches.delete(job_id)
        except (OSError, StorageError) as error:
            log.warning("job %s: more of its patch is kept than is needed: %s", job_id, error)

    def append(self, job_id: str, patch: str) -> None:
        """Append the patch of leftovers, once, unless later steps apply it; an error of disk or store is logged."""
        if self._lasting:
            return
        try:
            stored, more = self.read(job_id) or b"", patch.encode("utf-8", "surrogateescape")
            if not stored.endswith(more):
                self.put(job_id, stored + more)
        except (OSError, StorageError) as error:
            log.warning("job %s: the patch of files that were left out is not kept: %s", job_id, error)

    def file(self, job_id: str) -> Path | None:
        path = self._patches.file(job_id)
        return path if path is not None and path.stat().st_size else None

    def sweep(self, days: float, *, keep: Collection[str] = ()) -> int:
        """Delete old and excess patches except of `keep`; return their number."""
        return self._patches.sweep(days=days, most_bytes=self._most_bytes, keep=keep)

    def _write(self, job_id: str, change: Change) -> None:
        if change.patch_file is None:
            self.put(job_id, change.patch.encode("utf-8", "surrogateescape"))
            return
        with change.patch_file.open("rb") as file:
            self._patches.put(job_id, file)


_DAY_SECONDS = 24 * 3600.0
_HOUR_SECONDS = 3600.0
_SUFFIX = ".patch"


class PatchFiles:
    """Store patches in files `JOB.patch`. Every method blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, job_id: str, patch: BinaryIO) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._folder / f"{job_id}.partial"
        with partial.open("wb") as file:
            shutil.copyfileobj(patch, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._folder / f"{job_id}{_SUFFIX}")
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # the file's name, too, must outlive a power cut
        finally:
            os.close(folder)

    def file(self, job_id: str) -> Path | None:
        path = self._folder / f"{job_id}{_SUFFIX}"
        return path if path.is_file() else None

    def delete(self, job_id: str) -> None:
        (self._folder / f"{job_id}{_SUFFIX}").unlink(missing_ok=True)

    def sweep(self, *, days: float, most_bytes: int, keep: Collection[str]) -> int:
        """Delete old, partial and excess patches except of `keep`; return their number."""
        files = list[BlobInfo]()
        for path in self._folder.glob("*.p*"):
            status = path.stat()
            files.append(BlobInfo(name=path.name, size=status.st_size, modified=status.st_mtime))
        names = _expired_names(files, days=days, most_bytes=most_bytes, keep=keep)
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        return len(names)


class PatchBlobs:
    """Store encrypted patches in the blob store; methods raise `StorageError` if it fails.

    Args:
        vault: of patches alone.
        folder: has patches from before the blob store, and copies.
    """

    def __init__(self, vault: Vault, folder: Path) -> None:
        self._vault, self._local, self._copies = vault, PatchFiles(folder), PatchFiles(folder / "copies")

    def put(self, job_id: str, patch: BinaryIO) -> None:
        self._vault.write(f"{job_id}{_SUFFIX}", patch.read())  # no more than a `Change` holds in memory already

    def file(self, job_id: str) -> Path | None:
        """Return a local file with the patch, if any; WorkspaceGoneError if the bot did not write the stored data."""
        content = self._vault.read(f"{job_id}{_SUFFIX}", limit=MAX_DIFF_BYTES)
        if content is None:
            self._copies.delete(job_id)
            return self._local.file(job_id)
        self._copies.put(job_id, BytesIO(content))
        return self._copies.file(job_id)

    def delete(self, job_id: str) -> None:
        self._vault.blobs.delete(f"{self._vault.folder}/{job_id}{_SUFFIX}")
        self._copies.delete(job_id)
        self._local.delete(job_id)

    def sweep(self, *, days: float, most_bytes: int, keep: Collection[str]) -> int:
        self._copies.sweep(days=1, most_bytes=most_bytes, keep=keep)
        swept = self._local.sweep(days=days, most_bytes=most_bytes, keep=keep)
        stored = (
            BlobInfo(name=blob.name.rpartition("/")[2], size=blob.size, modified=blob.modified)
            for blob in self._vault.blobs.list(self._vault.folder)
        )
        names = _expired_names(stored, days=days, most_bytes=most_bytes, keep=keep)
        for name in names:
            self._vault.blobs.delete(f"{self._vault.folder}/{name}")
        return swept + len(names)


PatchStore = PatchFiles | PatchBlobs


def _expired_names(
    patches: Iterable[BlobInfo], *, days: float, most_bytes: int, keep: Collection[str]
) -> tuple[str, ...]:
    """Return names of old or excess patches; those of the last hour may belong to new jobs."""

    def chosen() -> Iterator[str]:
        now, total = time.time(), 0
        for patch in sorted(patches, key=lambda patch: patch.modified, reverse=True):
            total += patch.size
            age = now - patch.modified
            is_excess = total > most_bytes and age > _HOUR_SECONDS
            if patch.name.rpartition(".")[0] not in keep and (is_excess or age > days * _DAY_SECONDS):
                yield patch.name

    return tuple(chosen())


_FILE = "run"
_PREFIX = "job "
_RECENT_SECONDS = 3600.0
"""A younger session may belong to a job that was accepted after the list of live jobs was made."""


class FileJobSessions:
    """Store sessions in files of one machine.

    Every method may block, and raise `SessionError`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, job_id: str) -> FileSession:
        """Return the session of a job, unopened."""
        return FileSession(_FILE, session_dir=self._folder / job_id)

    def has(self, job_id: str) -> bool:
        return (self._folder / job_id).exists()

    def events(self, job_id: str) -> Sequence[Event]:
        return self.get(job_id).read()

    def version(self, job_id: str) -> str:
        """Return a text that changes with each recorded event."""
        try:
            status = self.get(job_id).path.stat()
        except FileNotFoundError:
            return ""
        return f"{status.st_mtime_ns} {status.st_size}"

    def forget(self, job_id: str) -> None:
        discard(self._folder / job_id)

    def sweep(self, live: Collection[str]) -> None:
        """Delete the sessions of jobs not in `live`, except recent ones."""
        before = time.time() - _RECENT_SECONDS
        for folder in self._folder.iterdir() if self._folder.exists() else ():
            if folder.name in live or folder.name.startswith(SET_ASIDE):
                continue
            if folder.stat().st_mtime < before:
                discard(folder)

    def files(self, job_id: str, *, max_bytes: int) -> Mapping[str, bytes] | None:
        """Return the session's files without locks; None if larger than `max_bytes`."""
        folder = self._folder / job_id
        entries = folder.iterdir() if folder.is_dir() else ()
        files = [path for path in sorted(entries) if path.is_file() and path.suffix != ".lock"]
        if sum(path.stat().st_size for path in files) > max_bytes:
            return None
        return {path.name: path.read_bytes() for path in files}

    def put(self, job_id: str, files: Mapping[str, bytes]) -> None:
        if files:
            folder = self._folder / job_id
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in files.items():
                (folder / Path(name).name).write_bytes(content)


class DatabaseJobSessions:
    """Store sessions in the workers' shared database.

    A worker takes its job's session over from any process: a dead one must not block the job, a live one gets an error.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def prepare(self) -> None:
        with suppress(SessionInUseError):  # another process starts at the same moment, so the database can be used
            self.forget("")

    def get(self, job_id: str) -> DatabaseSession:
        return self._session(job_id, take_over=True)

    def has(self, job_id: str) -> bool:
        return self.get(job_id).exists()

    def events(self, job_id: str) -> Sequence[Event]:
        return self.get(job_id).read()

    def version(self, job_id: str) -> str:
        return str(self.get(job_id).metadata())

    def forget(self, job_id: str) -> None:
        _reset(self.get(job_id))

    def sweep(self, live: Collection[str]) -> None:
        """Delete the sessions of jobs not in `live`, except recent ones and ones in use."""
        before = time.time() - _RECENT_SECONDS
        for session in self.get("").list_sessions():
            prefix, _, job_id = session["session_id"].partition(_PREFIX)
            if prefix or job_id in live or session["updated_at"] > before:
                continue
            try:
                _reset(self._session(job_id, take_over=False))
            except SessionError as error:
                log.warning("the session of job %s stays for the next sweep: %s", job_id, error)

    def _session(self, job_id: str, *, take_over: bool) -> DatabaseSession:
        return DatabaseSession(f"{_PREFIX}{job_id}", db_url=self._url, take_over=take_over, eager=True)


JobSessions = FileJobSessions | DatabaseJobSessions


@asynccontextmanager
async def open_session(session: Session | None) -> AsyncIterator[None]:
    """Open and close a session in a thread.

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
    """A saved job cannot be used."""


class OtherKeyError(SealError):
    """It was encrypted with another key, or altered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob:
    """The state that another machine needs to resume a job.

    Attributes:
        until: deadline in seconds since the epoch.
        record: from `encode_record`.
        patch: of a finished run, else None.
        work: uncommitted changes of an unfinished run.
        comment: digest of the waiting status comment.
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
    """Compress and encrypt a job; SealError if it is too large."""
    sealed = encrypt(_SAVED.dump_json(saved), key)
    if len(sealed) > MAX_SEALED_BYTES:
        raise SealError(
            f"The state of the run has {len(sealed):,} bytes; the limit for a waiting workflow run is "
            f"{MAX_SEALED_BYTES:,}. Split the task."
        )
    return sealed


def unseal(sealed: bytes, key: bytes, *, repo_id: int, thread: int) -> SavedJob:
    """Decrypt a job of this thread.

    Raises:
        SealError: it has another key, thread or version, or was altered.
    """
    try:
        saved = _SAVED.validate_json(decrypt(sealed, key, max_bytes=_MAX_OPEN_BYTES))
    except ValueError as error:
        raise SealError("another version of Codepilot made it") from error
    if saved.format != _FORMAT:
        raise SealError("another version of Codepilot made it")
    if (saved.job.repo.id, saved.job.thread.key) != (repo_id, thread):
        raise SealError("it belongs to another thread")
    return saved


def comment_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encrypt(data: bytes, key: bytes) -> bytes:
    """Compress and encrypt; the result is base64url."""
    return Fernet(_fernet_key(key)).encrypt(zlib.compress(data, level=9))


def decrypt(sealed: bytes, key: bytes, *, max_bytes: int) -> bytes:
    """Reverse `encrypt`.

    Raises:
        OtherKeyError: it has another key, or was altered.
    """
    try:
        # Nothing is unpacked or parsed that was not made with the key.
        data = Fernet(_fernet_key(key)).decrypt(sealed)
    except InvalidToken as error:
        raise OtherKeyError("it was made with another key, or was altered") from error
    return zlib.decompressobj().decompress(data, max_bytes)


def _fernet_key(key: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key, b"sealed job", hashlib.sha256))
