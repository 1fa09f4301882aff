"""Snapshots of jobs' files in the blob store, from which another machine resumes a job.

A snapshot has a small head, a manifest, and packs of content. Unchanged files of the commit are not stored, and the
next snapshot adds only differences.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import stat
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import BoundedSemaphore
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bot.domain.errors import BlobTooLargeError
from bot.git.baseline import Baseline
from bot.git.blobs import BlobStore
from bot.git.errors import WorkspaceError, WorkspaceGoneError
from bot.git.filesystem import (
    OPEN_FILE,
    OPEN_FOLDER,
    ScannedFile,
    Stamp,
    is_too_deep,
    make_stamp,
    open_below,
    open_own,
    open_root,
    write_atomically,
)
from bot.git.process import Git

PACK_BYTES = 8 * 1024 * 1024
"""Content per blob, to limit the number of requests."""
_FOLDER = "snapshots"
_HEAD = "head"
_HEAD_BYTES = 64 * 1024
_MANIFEST_BYTES = 512 * 1024 * 1024
_VERSION = 1
_MAX_WASTE = 0.5
"""Share of unused bytes in the store that triggers a complete new snapshot."""
_BATCH, _BATCH_BYTES = 2_000, 64 * 1024 * 1024
"""How much of a commit's files is read from git at a time; a file that comes last may have half as many bytes."""
_DAY_SECONDS = 24 * 3600.0
_CHUNK = 1024 * 1024
_MODE_MASK = 0o1777
"""Permitted mode bits; excludes set-user-id."""
_MAX_TRACKED = 32 * 1024 * 1024
"""Larger files are stored even if they are as in the commit."""
_TICK_NS = 20_000_000
"""Clock granularity: a file changed this recently may change again with the same timestamp."""
_READERS = 3
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 64 * 1024
_ZEROS = bytes(_BLOCK)
_NONCE = 12
_OVERHEAD = 64 * 1024
_SAMPLE = 64 * 1024
_DEFLATED, _PLAIN = b"z", b"p"
_WRITERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    content: int = 12 * 1024**3
    entries: int = 250_000
    seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    blobs: BlobStore
    key: bytes = field(repr=False)
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)

    def vault(self, job_id: str) -> Vault:
        return Vault(blobs=self.blobs, folder=f"{_FOLDER}/{job_id}", key=self.key)

    def take(self, job_id: str, files: Path, index: Path, *, baseline: Baseline, repo_id: int, generation: str) -> int:
        """Store the present files of a job, and return the number of skipped pipes, sockets and devices.

        Files may change meanwhile. `index` caches the last reading, outside every sandbox.

        Raises:
            WorkspaceError: the files exceed the limits.
            StorageError: the store failed; the last snapshot remains valid.
        """
        vault = self.vault(job_id)
        stored = {item.name.rpartition("/")[2] for item in self.blobs.list(vault.folder)}
        name, before, stamps = _load_index(index)
        # Whether the packs hold mostly what belongs to no file any more.
        live = sum(length for item in before.entries for _, _, length in item.pieces)
        is_wasteful = live < (1 - _MAX_WASTE) * PACK_BYTES * (len(before.packs) - 1)
        if name not in stored or not stored.issuperset(before.packs.values()) or is_wasteful:
            name, before, stamps = "", TreeManifest(entries=[], packs={}), {}
        cached = {
            item.path: StoredFile(stamps[item.path], item)
            for item in before.entries
            if item.kind == "file" and item.path in stamps
        }
        with Packs(vault, before.packs) as packs, open_root(files) as root:
            capture = TreeReader(packs, cached, baseline=baseline, limits=self.limits)
            captured = capture.read(root)
        used = {number for item in captured.entries for number, _, _ in item.pieces}
        after = TreeManifest(
            entries=captured.entries,
            packs={number: packs.names[number] for number in sorted(used)},
            excluded=baseline.excluded,
            missing=baseline.missing,
        )
        if after != before or not name:
            name = vault.put(after.encode())
        if after != before or captured.stamps != stamps:
            save_index(index, name, after, captured.stamps)
        head = {"version": _VERSION, "generation": generation, "repo": repo_id, "base": baseline.base_sha, "list": name}
        vault.write(_HEAD, json.dumps(head).encode())
        for item in stored - {_HEAD, name, *after.packs.values()}:
            self.blobs.delete(f"{vault.folder}/{item}")
        return captured.skipped

    def find(self, job_id: str, generation: str) -> StoredTree | None:
        """Return the snapshot of a generation, if it is the stored one.

        Raises:
            WorkspaceGoneError: the head was written with another key or by another version.
        """
        vault = self.vault(job_id)
        if (content := vault.read(_HEAD, limit=_HEAD_BYTES)) is None:
            return None
        head: dict[str, Any] = json.loads(content)
        if head["version"] != _VERSION:
            raise WorkspaceGoneError(
                f"The stored files of job {job_id} were written by another version of Codepilot.",
                "Give the command again.",
            )
        if head["generation"] != generation:
            return None
        return StoredTree(generation=generation, repo_id=head["repo"], base_sha=head["base"], manifest=head["list"])

    def manifest(self, job_id: str, snapshot: StoredTree) -> TreeManifest:
        """Load a snapshot's manifest.

        Raises:
            WorkspaceGoneError: it is missing or was altered.
            StorageError: the store failed.
        """
        return _decode_manifest(json.loads(self.vault(job_id).get(snapshot.manifest, limit=_MANIFEST_BYTES)))

    def delete(self, job_id: str) -> None:
        for blob in self.blobs.list(f"{_FOLDER}/{job_id}"):
            self.blobs.delete(blob.name)

    def sweep(self, keep: Collection[str]) -> tuple[str, ...]:
        newest: defaultdict[str, float] = defaultdict(float)
        for blob in self.blobs.list(_FOLDER):
            job_id = blob.name.split("/")[1]
            newest[job_id] = max(newest[job_id], blob.modified)
        before = time.time() - _DAY_SECONDS
        old = tuple(sorted(job_id for job_id, at in newest.items() if job_id not in keep and at < before))
        for job_id in old:
            self.delete(job_id)
        return old


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    generation: str
    repo_id: int
    base_sha: str
    manifest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeManifest:
    """Content of a snapshot; each directory precedes its content."""

    entries: list[Entry]
    packs: dict[int, str]
    excluded: frozenset[bytes] = frozenset()
    missing: frozenset[bytes] = frozenset()

    def encode(self) -> bytes:
        return json.dumps(
            {
                "entries": self.entries,
                "packs": self.packs,
                "left_out": sorted(map(os.fsdecode, self.excluded)),
                "taken": sorted(map(os.fsdecode, self.missing)),
            }
        ).encode()


class Entry(NamedTuple):
    """A file, link or directory; a tuple, since JSON writes it as a compact list.

    Attributes:
        kind: `again` is a further hard link, to `target`.
        pieces: pack, offset and length of each piece of content.
        blob: git's id, if the content is as in the commit.
        changed_ns: see `Baseline.changed_ns`; 0 for directories and given files.
    """

    path: str
    kind: Literal["file", "folder", "link", "again"]
    mode: int
    modified: int
    size: int = 0
    pieces: list[list[int]] = []  # noqa: RUF012 - shared by all that have none, and never changed
    blob: str = ""
    target: str = ""
    is_given: bool = False
    changed_ns: int = 0


def save_index(index: Path, name: str, manifest: TreeManifest, stamps: Mapping[str, Stamp]) -> None:
    write_atomically(index, json.dumps({"name": name, "manifest": manifest.encode().decode(), "stamps": stamps}))


def _load_index(index: Path) -> tuple[str, TreeManifest, dict[str, Stamp]]:
    try:
        values = json.loads(index.read_text())
        stamps: dict[str, Stamp] = {path: tuple(stamp) for path, stamp in values["stamps"].items()}
        return str(values["name"]), _decode_manifest(json.loads(values["manifest"])), stamps
    except (OSError, ValueError, KeyError, TypeError):  # a file in whatever state a crash left it
        return "", TreeManifest(entries=[], packs={}), {}


def _decode_manifest(values: dict[str, Any]) -> TreeManifest:
    return TreeManifest(
        entries=[Entry._make(values_of_entry) for values_of_entry in values["entries"]],
        packs={int(number): name for number, name in values["packs"].items()},
        excluded=frozenset(map(os.fsencode, values["left_out"])),
        missing=frozenset(map(os.fsencode, values["taken"])),
    )


async def rebuild(files: Path, manifest: TreeManifest, vault: Vault, git: Git) -> dict[str, Stamp]:
    """Write a snapshot's files into an empty directory, and return the stamps of all but directories.

    Raises:
        WorkspaceGoneError: a blob is missing or was altered.
        StorageError: the store failed.
        WorkspaceError: git failed, e.g. lacks the commit's files.
    """
    await asyncio.to_thread(restore, files, manifest.entries, manifest.packs, vault)
    for batch in _batches(manifest.entries):
        contents = await git.run("cat-file", "--batch", stdin="\n".join([entry.blob for entry in batch]).encode())
        await asyncio.to_thread(restore_tracked, files, batch, contents)
    return await asyncio.to_thread(finish_restore, files, manifest.entries)


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch, size = list[Entry](), 0
    for entry in (file for file in entries if file.blob):
        batch.append(entry)
        size += entry.size
        if size >= _BATCH_BYTES or len(batch) == _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def restore(root: Path, entries: Sequence[Entry], packs: Mapping[int, str], vault: Vault) -> None:
    with _open_writer(root) as writer:
        pieces: defaultdict[int, list[tuple[Entry, int, int, int]]] = defaultdict(list)
        for entry in entries:
            if entry.kind == "folder":
                folder, name = writer.locate(entry.path)
                os.mkdir(name, 0o700, dir_fd=folder)
            elif entry.kind == "link":
                folder, name = writer.locate(entry.path)
                os.symlink(entry.target, name, dir_fd=folder)
            elif entry.kind == "file" and not entry.size:
                writer.write(entry, 0, memoryview(b""))
            start = 0
            for number, offset, length in entry.pieces:
                pieces[number].append((entry, start, offset, length))
                start += length
        for number, content in _prefetch_packs(vault, packs, sorted(pieces)):
            view = memoryview(content)
            for entry, start, offset, length in pieces.pop(number):
                writer.write(entry, start, view[offset : offset + length])


def restore_tracked(root: Path, entries: Iterable[Entry], contents: bytes) -> None:
    with _open_writer(root) as writer:
        position = 0
        for entry in entries:
            head = contents.index(b"\n", position) + 1
            content = contents[head : head + entry.size]
            position = head + entry.size + 1
            if blob_id(content, entry.blob) != entry.blob:
                raise WorkspaceGoneError(f"`{entry.path}` is not as it was committed.", "Give the command again.")
            writer.write(entry, 0, memoryview(content))


def finish_restore(root: Path, entries: Sequence[Entry]) -> dict[str, Stamp]:
    with _open_writer(root) as writer:
        try:
            for entry in entries:
                if entry.kind == "again":
                    folder, name = writer.locate(entry.path)
                    parent, _, source_name = entry.target.rpartition("/")
                    with open_below(writer.root, os.fsencode(parent)) as source:
                        os.link(source_name, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
                if entry.kind != "folder":
                    _set_metadata(writer, entry)
            # Before directories get their modes, which may forbid reading.
            stamps = {item.path: item.stamp for item in scan_tree(writer.root) if not stat.S_ISDIR(item.status.st_mode)}
            for entry in reversed(entries):  # inner ones before outer ones
                if entry.kind == "folder":
                    _set_metadata(writer, entry)
        except FileNotFoundError as error:
            raise WorkspaceGoneError(
                "The stored files of the job are incomplete.", "Give the command again."
            ) from error
        return stamps


def _set_metadata(writer: _Writer, entry: Entry) -> None:
    folder, name = writer.locate(entry.path)
    if entry.kind != "link":
        os.chmod(name, entry.mode, dir_fd=folder)
    os.utime(name, ns=(entry.modified, entry.modified), dir_fd=folder, follow_symlinks=False)


def _prefetch_packs(vault: Vault, packs: Mapping[int, str], numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    with ThreadPoolExecutor(max_workers=_READERS, thread_name_prefix="packs") as pool:
        futures = [pool.submit(vault.get, packs[number]) for number in numbers[:_READERS]]
        for index, number in enumerate(numbers):
            content = futures.pop(0).result()
            if index + _READERS < len(numbers):
                futures.append(pool.submit(vault.get, packs[numbers[index + _READERS]]))
            yield number, content


@contextmanager
def _open_writer(root: Path) -> Iterator[_Writer]:
    with open_root(root) as top:
        writer = _Writer(top)
        try:
            yield writer
        finally:
            os.close(writer.folder)


class _Writer:
    def __init__(self, root: int) -> None:
        self.root = root
        self.folder = os.dup(root)
        self._path = ""

    def locate(self, path: str) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        if name in {"", ".", ".."}:
            raise WorkspaceGoneError("A stored file has no name.", "Give the command again.")
        if parent != self._path:
            with open_below(self.root, os.fsencode(parent)) as folder:
                os.close(self.folder)
                self.folder, self._path = os.dup(folder), parent
        return self.folder, name

    def write(self, entry: Entry, start: int, content: memoryview) -> None:
        """Write a piece of a file; blocks of zeros stay sparse."""
        folder, name = self.locate(entry.path)
        descriptor = os.open(name, _WRITE, 0o600, dir_fd=folder)
        try:
            os.ftruncate(descriptor, entry.size)
            if len(content) < _BLOCK:
                os.pwrite(descriptor, content, start)
                return
            for offset in range(0, len(content), _BLOCK):
                block = content[offset : offset + _BLOCK]
                if block != _ZEROS[: len(block)]:
                    os.pwrite(descriptor, block, start + offset)
        finally:
            os.close(descriptor)


def restored_baseline(manifest: TreeManifest, stamps: Mapping[str, Stamp], commit: Baseline) -> Baseline:
    entries, restored = dict[bytes, ScannedFile](), dict[bytes, tuple[Stamp, int]]()
    for entry in manifest.entries:
        path = os.fsencode(entry.path)
        if entry.is_given:
            stamp = stamps[entry.path]
            executable = stamp[-1] & stat.S_IXUSR
            mode = "120000" if entry.kind == "link" else "100755" if executable else "100644"
            entries[path] = ScannedFile(mode, stamp)
        elif entry.changed_ns:
            restored[path] = stamps[entry.path], entry.changed_ns
    return replace(commit, entries=entries, excluded=manifest.excluded, missing=manifest.missing, restored=restored)


class TreeReader:
    """Reads a job's files by descriptor, without following links; includes `.git` directories and ignored files."""

    def __init__(
        self,
        packs: Packs,
        cached: Mapping[str, StoredFile],
        *,
        baseline: Baseline,
        limits: SnapshotLimits,
    ) -> None:
        self._packs, self._cached, self._baseline, self._limits = packs, cached, baseline, limits
        self._bytes_left = limits.content
        self._deadline = time.monotonic() + limits.seconds
        self._names: dict[tuple[int, int], str] = {}
        self._stamps: dict[str, Stamp] = {}

    def read(self, root: int) -> CapturedTree:
        entries: list[Entry] = []
        skipped = 0
        for item in scan_tree(root):
            if (entry := self._read_entry(item)) is not None:
                entries.append(entry)
            elif not stat.S_ISREG(item.status.st_mode):
                skipped += 1
            if len(entries) + skipped > self._limits.entries:
                raise _limit_error(f"{self._limits.entries:,} files and directories")
        return CapturedTree(entries=entries, stamps=self._stamps, skipped=skipped)

    def _read_entry(self, item: ScanItem) -> Entry | None:
        status = item.status
        path = os.fsencode(item.path)
        original = self._baseline.entries.get(path)
        is_given = original is not None and original.stamp == item.stamp
        changed = 0 if is_given else self._baseline.changed_ns(path, item.stamp)
        common = (stat.S_IMODE(status.st_mode) & _MODE_MASK, status.st_mtime_ns)
        if stat.S_ISDIR(status.st_mode):
            return Entry(item.path, "folder", *common)
        if stat.S_ISLNK(status.st_mode):
            try:
                target = os.readlink(item.name, dir_fd=item.parent)
            except OSError:  # removed or replaced
                return None
            return Entry(item.path, "link", *common, target=target, is_given=is_given, changed_ns=changed)
        if not stat.S_ISREG(status.st_mode):
            return None
        first = self._names.setdefault((status.st_dev, status.st_ino), item.path) if status.st_nlink > 1 else ""
        if first and first != item.path:
            return Entry(item.path, "again", *common, target=first, is_given=is_given, changed_ns=changed)
        return self._read_file(item, is_given=is_given, changed=changed)

    def _read_file(self, item: ScanItem, *, is_given: bool, changed: int) -> Entry | None:
        cached = self._cached.get(item.path)
        if cached is not None and cached.stamp == item.stamp:
            self._count(cached.entry.size)
            self._stamps[item.path] = cached.stamp
            return cached.entry._replace(is_given=is_given, changed_ns=changed)
        now = time.time_ns()
        try:
            descriptor = open_own(os.fsencode(item.name), OPEN_FILE, item.parent)
        except OSError:  # removed or replaced
            return None
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return None
            blob = self._baseline.blobs.get(item.path, "")
            if blob and (before.st_size > _MAX_TRACKED or _file_blob_id(descriptor, before.st_size, blob) != blob):
                blob = ""
            if blob:
                self._count(before.st_size)
                size, pieces = before.st_size, list[list[int]]()
            else:
                size, pieces = self._pack(descriptor)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        # The mode before read permission was restored.
        mode, times = stat.S_IMODE(item.status.st_mode) & _MODE_MASK, after.st_mtime_ns
        if make_stamp(before) == make_stamp(after) == item.stamp and after.st_ctime_ns + _TICK_NS < now:
            self._stamps[item.path] = item.stamp
        if make_stamp(after) != item.stamp:  # a program wrote to it meanwhile
            changed = after.st_ctime_ns
        return Entry(item.path, "file", mode, times, size, pieces, blob, is_given=is_given, changed_ns=changed)

    def _pack(self, descriptor: int) -> tuple[int, list[list[int]]]:
        size, pieces = 0, list[list[int]]()
        os.lseek(descriptor, 0, os.SEEK_SET)
        while content := os.read(descriptor, _CHUNK):
            size += len(content)
            self._count(len(content))
            for pack, offset, length in self._packs.add(content):
                last = pieces[-1] if pieces else None
                if last is not None and last[0] == pack and last[1] + last[2] == offset:
                    last[2] += length
                else:
                    pieces.append([pack, offset, length])
        return size, pieces

    def _count(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise _limit_error(f"{self._limits.content:,} bytes")
        if time.monotonic() > self._deadline:
            raise _limit_error(f"{self._limits.seconds:.0f} s allow to store")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTree:
    """Result of reading a tree; `stamps` are of files that nothing wrote to meanwhile."""

    entries: list[Entry]
    stamps: dict[str, Stamp]
    skipped: int


class StoredFile(NamedTuple):
    stamp: Stamp
    entry: Entry


class ScanItem(NamedTuple):
    """A directory entry; `parent` is an open descriptor."""

    path: str
    name: str
    parent: int
    status: os.stat_result

    @property
    def stamp(self) -> Stamp:
        return make_stamp(self.status)


def scan_tree(folder: int, path: str = "") -> Iterator[ScanItem]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda item: item.name)
    for item in listed:
        below = f"{path}/{item.name}" if path else item.name
        try:
            status = item.stat(follow_symlinks=False)
        except FileNotFoundError:  # it has just vanished
            continue
        yield ScanItem(below, item.name, folder, status)
        if not stat.S_ISDIR(status.st_mode):
            continue
        if is_too_deep(os.fsencode(below)):
            raise WorkspaceError("The files of the job are nested too deep to be stored.", "Remove them.")
        try:
            descriptor = open_own(os.fsencode(item.name), OPEN_FOLDER, folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            yield from scan_tree(descriptor, below)
        finally:
            os.close(descriptor)


def blob_id(content: bytes, like: str) -> str:
    """Return git's id of some content, by the digest algorithm of `like`."""
    digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()  # noqa: PLR2004 - hex digits
    digest.update(b"blob %d\0" % len(content) + content)
    return digest.hexdigest()


def _file_blob_id(descriptor: int, size: int, like: str) -> str:
    content = b""
    while chunk := os.read(descriptor, size + 1 - len(content)):
        content += chunk
    return blob_id(content, like)


def _limit_error(limit: str) -> WorkspaceError:
    return WorkspaceError(f"The files of the job are more than {limit}.", "Only this machine can continue the job.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """Encrypted blobs of one job, each bound to its job and name.

    An attacker with write access to the store can delete a blob, or replace it by an older one of the same name, but
    nothing else.
    """

    blobs: BlobStore
    folder: str
    key: bytes = field(repr=False)

    def content_name(self, content: bytes) -> str:
        return hmac.digest(self._key("names"), content, hashlib.sha256).hex()

    def put(self, content: bytes) -> str:
        name = self.content_name(content)
        self.write(name, content)
        return name

    def write(self, name: str, content: bytes) -> None:
        # Do not compress again what is compressed already.
        sample = content[:_SAMPLE]
        deflates = len(zlib.compress(sample, 1)) < 0.9 * len(sample)
        packed = _DEFLATED + zlib.compress(content, 1) if deflates else _PLAIN + content
        nonce = os.urandom(_NONCE)
        self.blobs.put(f"{self.folder}/{name}", nonce + self._cipher.encrypt(nonce, packed, self._binding(name)))

    def get(self, name: str, *, limit: int = PACK_BYTES) -> bytes:
        """Return the content whose digest is its name.

        Raises:
            WorkspaceGoneError: it is missing or was altered.
        """
        content = self.read(name, limit=limit)
        if content is None or not hmac.compare_digest(self.content_name(content), name):
            raise _unusable_error(self, name)
        return content

    def read(self, name: str, *, limit: int) -> bytes | None:
        """Return the content of a chosen name; None if missing.

        Raises:
            WorkspaceGoneError: it was written with another key, or is too large.
        """
        try:
            sealed = self.blobs.get(f"{self.folder}/{name}", limit=limit + _OVERHEAD)
        except BlobTooLargeError as error:
            raise _unusable_error(self, name) from error
        if sealed is None:
            return None
        try:
            packed = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._binding(name))
        except (InvalidTag, ValueError) as error:  # ValueError: too short
            raise _unusable_error(self, name) from error
        if packed[:1] == _PLAIN:
            return packed[1:]
        inflating = zlib.decompressobj()
        content = inflating.decompress(packed[1:], limit)
        if not inflating.eof and inflating.unconsumed_tail:
            raise _unusable_error(self, name)
        return content

    @property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._key("content"))

    def _key(self, purpose: str) -> bytes:
        return hmac.digest(self.key, f"{purpose} of {self.folder}".encode(), hashlib.sha256)

    def _binding(self, name: str) -> bytes:
        return f"{self.folder}/{name}".encode()


class Packs:
    """Writes packs concurrently; `names` is complete on exit."""

    def __init__(self, vault: Vault, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self._vault = vault
        self._number = max(names, default=-1) + 1
        self._content = bytearray()
        self._pool = ThreadPoolExecutor(max_workers=_WRITERS, thread_name_prefix="packs")
        self._room = BoundedSemaphore(_WRITERS + 1)
        self._pending: dict[int, Future[str]] = {}

    def add(self, content: bytes) -> list[tuple[int, int, int]]:
        pieces = []
        view = memoryview(content)
        while view:
            part = view[: PACK_BYTES - len(self._content)]
            pieces.append((self._number, len(self._content), len(part)))
            self._content += part
            view = view[len(part) :]
            if len(self._content) == PACK_BYTES:
                self._flush()
        return pieces

    def _flush(self) -> None:
        if not self._content:
            return
        self._room.acquire()
        future = self._pool.submit(self._vault.put, bytes(self._content))
        future.add_done_callback(lambda _: self._room.release())
        self._pending[self._number] = future
        self._number += 1
        self._content = bytearray()
        for number in [number for number, future in self._pending.items() if future.done()]:
            self.names[number] = self._pending.pop(number).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                for number, future in self._pending.items():
                    self.names[number] = future.result()
        finally:
            self._pool.shutdown(cancel_futures=True)


def _unusable_error(vault: Vault, name: str) -> WorkspaceGoneError:
    return WorkspaceGoneError(
        f"The stored files of the job cannot be used: {vault.folder}/{name} in {vault.blobs.address} is missing, was "
        "changed, or was written with another key.",
        "Give the command again.",
    )
