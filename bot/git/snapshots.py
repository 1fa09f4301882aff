"""Snapshots of jobs' files in the blob store, with which another machine continues a job.

A snapshot is a head, which is small and replaced by each new one; a manifest, which lists what there is; and packs with
the content of files. What is as in the commit is not stored: a mirror has it. The next snapshot stores what changed.
`TreeReader` reads the files, which hostile programs may have made, `rebuild` writes them again, and `Vault` compresses,
encrypts and names the blobs, so that only the bot can read or make them.
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
    open_own,
    opened,
    opened_root,
    stamp_of,
    write_atomically,
)
from bot.git.process import Git

PACK_BYTES = 8 * 1024 * 1024
"""How much of the files' content one blob holds: few requests for many small files."""
_FOLDER = "snapshots"
_HEAD = "head"
_HEAD_BYTES = 64 * 1024
_MANIFEST_BYTES = 512 * 1024 * 1024
_VERSION = 1
_MOST_WASTE = 0.5
"""The share of the stored bytes that may belong to no file any more, before all of it is stored again."""
_BATCH, _BATCH_BYTES = 2_000, 64 * 1024 * 1024
"""How much of a commit's files is read from git at a time; a file that comes last may have half as many bytes."""
_DAY_SECONDS = 24 * 3600.0
_PIECE = 1024 * 1024
_MODES = 0o1777
"""What is kept of a mode: a program that runs with its owner's rights is never made."""
_MOST_TRACKED = 32 * 1024 * 1024
"""Bytes of a file that is taken from the commit again rather than stored."""
_TICK_NS = 20_000_000
"""A file changed so shortly before it was read may change again without a trace: the kernel's clock has ticks."""
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
    """What a snapshot may hold; a sandbox's own limits are lower.

    Attributes:
        content: bytes of all files together.
        entries: files, links, directories, and what is left out.
        seconds: that taking it may last.
    """

    content: int = 12 * 1024**3
    entries: int = 250_000
    seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """The snapshots of all jobs in one store; every method blocks.

    Attributes:
        blobs: the store.
        key: a key of the bot's for this purpose, the same on every machine.
        limits: what one snapshot may hold.
    """

    blobs: BlobStore
    key: bytes = field(repr=False)
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)

    def vault(self, job_id: str) -> Vault:
        """Where the blobs of one job are."""
        return Vault(blobs=self.blobs, folder=f"{_FOLDER}/{job_id}", key=self.key)

    def take(self, job_id: str, files: Path, index: Path, *, given: Baseline, repo_id: int, generation: str) -> int:
        """Store the files of a job as they are now, in place of its last snapshot.

        Args:
            job_id: the job.
            files: where they lie; no program needs to have stopped, but what is read while it changes may be either.
            index: a file that no sandbox can write to, in which this notes what it need not read again.
            given: the files as they were given to the agent.
            repo_id: GitHub's numeric id.
            generation: names this state of the files.

        Returns:
            How many pipes, sockets and devices were left out.

        Raises:
            WorkspaceError: they are more than a snapshot may hold.
            StorageError: the store failed; the last snapshot is whole.
            OSError: they cannot be read.
        """
        vault = self.vault(job_id)
        stored = {each.name.rpartition("/")[2] for each in self.blobs.list(vault.folder)}
        name, before, stamps = _noted(index)
        # Whether the packs hold mostly what belongs to no file any more.
        live = sum(length for each in before.entries for _, _, length in each.pieces)
        is_wasteful = live < (1 - _MOST_WASTE) * PACK_BYTES * (len(before.packs) - 1)
        if name not in stored or not stored.issuperset(before.packs.values()) or is_wasteful:
            name, before, stamps = "", TreeManifest(entries=[], packs={}), {}
        known = {
            each.path: Known(stamps[each.path], each)
            for each in before.entries
            if each.kind == "file" and each.path in stamps
        }
        with Packs(vault, before.packs) as packs, opened_root(files) as root:
            capture = TreeReader(packs, known, given=given, limits=self.limits)
            captured = capture.of(root)
        used = {number for each in captured.entries for number, _, _ in each.pieces}
        after = TreeManifest(
            entries=captured.entries,
            packs={number: packs.names[number] for number in sorted(used)},
            left_out=given.left_out,
            taken=given.taken,
        )
        if after != before or not name:
            name = vault.put(after.encoded())
        if after != before or captured.stamps != stamps:
            note(index, name, after, captured.stamps)
        head = {"version": _VERSION, "generation": generation, "repo": repo_id, "base": given.base_sha, "list": name}
        vault.write(_HEAD, json.dumps(head).encode())
        for each in stored - {_HEAD, name, *after.packs.values()}:
            self.blobs.delete(f"{vault.folder}/{each}")
        return captured.skipped

    def find(self, job_id: str, generation: str) -> StoredTree | None:
        """The snapshot of one state of a job's files; None when there is none, or one of another state only.

        Raises:
            WorkspaceGoneError: what is stored was not written by the bot with this key, or by another version.
            StorageError: the store failed.
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
        """What a snapshot holds.

        Raises:
            WorkspaceGoneError: it is missing or was changed.
            StorageError: the store failed.
        """
        return _decoded(json.loads(self.vault(job_id).get(snapshot.manifest, limit=_MANIFEST_BYTES)))

    def forget(self, job_id: str) -> None:
        """Remove the snapshot of a job; nothing to do when there is none.

        Raises:
            StorageError: the store failed.
        """
        for each in self.blobs.list(f"{_FOLDER}/{job_id}"):
            self.blobs.delete(each.name)

    def sweep(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove the snapshots of jobs that are over and were stored more than a day ago; give back their ids.

        Args:
            keep: ids of jobs that have not ended. One may have begun since they were listed, hence the day.

        Raises:
            StorageError: the store failed.
        """
        newest: defaultdict[str, float] = defaultdict(float)
        for each in self.blobs.list(_FOLDER):
            job_id = each.name.split("/")[1]
            newest[job_id] = max(newest[job_id], each.modified)
        before = time.time() - _DAY_SECONDS
        old = tuple(sorted(job_id for job_id, at in newest.items() if job_id not in keep and at < before))
        for job_id in old:
            self.forget(job_id)
        return old


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """The stored files of one job.

    Attributes:
        generation: names the state of the files.
        repo_id: GitHub's numeric id.
        base_sha: the commit they were taken from.
        manifest: the name of what lists them.
    """

    generation: str
    repo_id: int
    base_sha: str
    manifest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeManifest:
    """What a snapshot holds.

    Attributes:
        entries: each directory before what is in it.
        packs: the names of packs, by the numbers that entries use.
        left_out: see `Baseline`.
        taken: see `Baseline`.
    """

    entries: list[Entry]
    packs: dict[int, str]
    left_out: frozenset[bytes] = frozenset()
    taken: frozenset[bytes] = frozenset()

    def encoded(self) -> bytes:
        """As JSON; half surrogate pairs spell the bytes of names that are no UTF-8."""
        return json.dumps(
            {
                "entries": self.entries,
                "packs": self.packs,
                "left_out": sorted(map(os.fsdecode, self.left_out)),
                "taken": sorted(map(os.fsdecode, self.taken)),
            }
        ).encode()


class Entry(NamedTuple):
    """A file, link or directory; a plain tuple, since there are many and JSON writes it as a list.

    Attributes:
        path: from the root, as `os.fsdecode` spells it.
        kind: `file`, `folder`, `link`, or `again` for a file that has another name as well.
        mode: its permissions.
        modified: its modification time, in ns.
        size: bytes of a file.
        pieces: where the content is: pack, offset and length of each piece.
        blob: git's id of the content instead, where it is as in the commit.
        target: of a link; of `again` the other name.
        given: whether it is as it was given to the agent.
        changed: see `Baseline.changed_ns`; 0 for a directory, and for what is as it was given.
    """

    path: str
    kind: Literal["file", "folder", "link", "again"]
    mode: int
    modified: int
    size: int = 0
    pieces: list[list[int]] = []  # noqa: RUF012 - shared by all that have none, and never changed
    blob: str = ""
    target: str = ""
    given: bool = False
    changed: int = 0


def note(index: Path, name: str, manifest: TreeManifest, stamps: Mapping[str, Stamp]) -> None:
    """Write down what a machine has in its files, and what of it is stored."""
    write_atomically(index, json.dumps({"name": name, "manifest": manifest.encoded().decode(), "stamps": stamps}))


def _noted(index: Path) -> tuple[str, TreeManifest, dict[str, Stamp]]:
    """What `note` wrote; nothing where there is nothing that could be read."""
    try:
        noted = json.loads(index.read_text())
        stamps: dict[str, Stamp] = {path: tuple(stamp) for path, stamp in noted["stamps"].items()}
        return str(noted["name"]), _decoded(json.loads(noted["manifest"])), stamps
    except (OSError, ValueError, KeyError, TypeError):  # a file in whatever state a crash left it
        return "", TreeManifest(entries=[], packs={}), {}


def _decoded(values: dict[str, Any]) -> TreeManifest:
    return TreeManifest(
        entries=[Entry._make(each) for each in values["entries"]],
        packs={int(number): name for number, name in values["packs"].items()},
        left_out=frozenset(map(os.fsencode, values["left_out"])),
        taken=frozenset(map(os.fsencode, values["taken"])),
    )


async def rebuild(files: Path, manifest: TreeManifest, vault: Vault, git: Git) -> dict[str, Stamp]:
    """Write the files of a snapshot into an empty directory; give back the stamps of all but directories.

    Args:
        files: the directory, in which no program runs yet.
        manifest: what it is to hold.
        vault: where the content of files is.
        git: a git directory that has the commit.

    Raises:
        WorkspaceGoneError: something that was stored is missing or was changed.
        StorageError: the store failed.
        WorkspaceError: git failed, for lack of the commit's files for example.
    """
    await asyncio.to_thread(restore, files, manifest.entries, manifest.packs, vault)
    for batch in _batches(manifest.entries):
        contents = await git.run("cat-file", "--batch", stdin="\n".join([each.blob for each in batch]).encode())
        await asyncio.to_thread(restore_tracked, files, batch, contents)
    return await asyncio.to_thread(finish, files, manifest.entries)


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The files that are as in the commit, as many at a time as git may be asked for."""
    batch, size = list[Entry](), 0
    for entry in (each for each in entries if each.blob):
        batch.append(entry)
        size += entry.size
        if size >= _BATCH_BYTES or len(batch) == _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def restore(root: Path, entries: Sequence[Entry], packs: Mapping[int, str], vault: Vault) -> None:
    """Write all but the files that are in the commit, and the links between files.

    Raises:
        WorkspaceGoneError: something that was stored is missing or was changed.
        StorageError: the store failed.
    """
    with _open_writer(root) as writer:
        pieces: defaultdict[int, list[tuple[Entry, int, int, int]]] = defaultdict(list)
        for entry in entries:
            if entry.kind == "folder":
                folder, name = writer.at(entry.path)
                os.mkdir(name, 0o700, dir_fd=folder)
            elif entry.kind == "link":
                folder, name = writer.at(entry.path)
                os.symlink(entry.target, name, dir_fd=folder)
            elif entry.kind == "file" and not entry.size:
                writer.write(entry, 0, memoryview(b""))
            start = 0
            for number, offset, length in entry.pieces:
                pieces[number].append((entry, start, offset, length))
                start += length
        for number, content in _contents(vault, packs, sorted(pieces)):
            view = memoryview(content)
            for entry, start, offset, length in pieces.pop(number):
                writer.write(entry, start, view[offset : offset + length])


def restore_tracked(root: Path, entries: Iterable[Entry], contents: bytes) -> None:
    """Write files that are as in the commit, from what `git cat-file --batch` says of them in the same order.

    Raises:
        WorkspaceGoneError: git has something else.
    """
    with _open_writer(root) as writer:
        position = 0
        for entry in entries:
            head = contents.index(b"\n", position) + 1
            content = contents[head : head + entry.size]
            position = head + entry.size + 1
            if blob_id(content, entry.blob) != entry.blob:
                raise WorkspaceGoneError(f"`{entry.path}` is not as it was committed.", "Give the command again.")
            writer.write(entry, 0, memoryview(content))


def finish(root: Path, entries: Sequence[Entry]) -> dict[str, Stamp]:
    """Link files that have two names, and set modes and times; give back the stamps of all but directories.

    Raises:
        WorkspaceGoneError: something is missing.
    """
    with _open_writer(root) as writer:
        try:
            for entry in entries:
                if entry.kind == "again":
                    folder, name = writer.at(entry.path)
                    above, _, other = entry.target.rpartition("/")
                    with opened(writer.root, os.fsencode(above)) as source:
                        os.link(other, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
                if entry.kind != "folder":
                    _set(writer, entry)
            # Before directories get their modes: some may not be read then.
            stamps = {
                found.path: found.stamp for found in found_in(writer.root) if not stat.S_ISDIR(found.status.st_mode)
            }
            for entry in reversed(entries):  # inner ones before outer ones
                if entry.kind == "folder":
                    _set(writer, entry)
        except FileNotFoundError as error:
            raise WorkspaceGoneError(
                "The stored files of the job are incomplete.", "Give the command again."
            ) from error
        return stamps


def _set(writer: _Writer, entry: Entry) -> None:
    """Set the mode and the time of what is there."""
    folder, name = writer.at(entry.path)
    if entry.kind != "link":
        os.chmod(name, entry.mode, dir_fd=folder)
    os.utime(name, ns=(entry.modified, entry.modified), dir_fd=folder, follow_symlinks=False)


def _contents(vault: Vault, packs: Mapping[int, str], numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The packs of some numbers, a few of which are fetched ahead."""
    with ThreadPoolExecutor(max_workers=_READERS, thread_name_prefix="packs") as pool:
        waiting = [pool.submit(vault.get, packs[number]) for number in numbers[:_READERS]]
        for index, number in enumerate(numbers):
            content = waiting.pop(0).result()
            if index + _READERS < len(numbers):
                waiting.append(pool.submit(vault.get, packs[numbers[index + _READERS]]))
            yield number, content


@contextmanager
def _open_writer(root: Path) -> Iterator[_Writer]:
    with opened_root(root) as top:
        writer = _Writer(top)
        try:
            yield writer
        finally:
            os.close(writer.folder)


class _Writer:
    """Writes below one directory; the directory that was written to last stays open."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.folder = os.dup(root)
        self._path = ""

    def at(self, path: str) -> tuple[int, str]:
        """The directory that a path is in, and its name there."""
        above, _, name = path.rpartition("/")
        if name in {"", ".", ".."}:
            raise WorkspaceGoneError("A stored file has no name.", "Give the command again.")
        if above != self._path:
            with opened(self.root, os.fsencode(above)) as folder:
                os.close(self.folder)
                self.folder, self._path = os.dup(folder), above
        return self.folder, name

    def write(self, entry: Entry, start: int, content: memoryview) -> None:
        """Write a piece of a file; blocks of zeros are not written."""
        folder, name = self.at(entry.path)
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


def baseline_of(manifest: TreeManifest, stamps: Mapping[str, Stamp], commit: Baseline) -> Baseline:
    """What of restored files is as it was given to the agent, and how old the others are.

    Args:
        manifest: what was restored.
        stamps: of the files, as `rebuild` gave them.
        commit: what the commit lists.
    """
    entries, restored = dict[bytes, ScannedFile](), dict[bytes, tuple[Stamp, int]]()
    for each in manifest.entries:
        path = os.fsencode(each.path)
        if each.given:
            stamp = stamps[each.path]
            executable = stamp[-1] & stat.S_IXUSR
            mode = "120000" if each.kind == "link" else "100755" if executable else "100644"
            entries[path] = ScannedFile(mode, stamp)
        elif each.changed:
            restored[path] = stamps[each.path], each.changed
    return replace(commit, entries=entries, left_out=manifest.left_out, taken=manifest.taken, restored=restored)


class TreeReader:
    """One reading of a job's files.

    Directories are opened by descriptor and never through a symbolic link. Unlike `baseline.differences`, this includes
    directories named `.git` and files that git ignores.

    Args:
        packs: take the content of what is new.
        known: what an earlier snapshot read, by path.
        given: the files as they were given to the agent.
        limits: what it may hold.
    """

    def __init__(
        self,
        packs: Packs,
        known: Mapping[str, Known],
        *,
        given: Baseline,
        limits: SnapshotLimits,
    ) -> None:
        self._packs, self._known, self._given, self._limits = packs, known, given, limits
        self._left = limits.content
        self._deadline = time.monotonic() + limits.seconds
        self._names: dict[tuple[int, int], str] = {}
        self._stamps: dict[str, Stamp] = {}

    def of(self, root: int) -> Captured:
        """Read what is below a descriptor.

        Raises:
            WorkspaceError: it is more than a snapshot may hold.
            StorageError: the store failed.
        """
        entries: list[Entry] = []
        skipped = 0
        for found in found_in(root):
            if (entry := self._entry(found)) is not None:
                entries.append(entry)
            elif not stat.S_ISREG(found.status.st_mode):
                skipped += 1
            if len(entries) + skipped > self._limits.entries:
                raise _too_much(f"{self._limits.entries:,} files and directories")
        return Captured(entries=entries, stamps=self._stamps, skipped=skipped)

    def _entry(self, found: Found) -> Entry | None:
        status = found.status
        path = os.fsencode(found.path)
        given = self._given.entries.get(path)
        same = given is not None and given.stamp == found.stamp
        changed = 0 if same else self._given.changed_ns(path, found.stamp)
        common = (stat.S_IMODE(status.st_mode) & _MODES, status.st_mtime_ns)
        if stat.S_ISDIR(status.st_mode):
            return Entry(found.path, "folder", *common)
        if stat.S_ISLNK(status.st_mode):
            try:
                target = os.readlink(found.name, dir_fd=found.parent)
            except OSError:  # it is gone, or a link no longer
                return None
            return Entry(found.path, "link", *common, target=target, given=same, changed=changed)
        if not stat.S_ISREG(status.st_mode):
            return None
        first = self._names.setdefault((status.st_dev, status.st_ino), found.path) if status.st_nlink > 1 else ""
        if first and first != found.path:
            return Entry(found.path, "again", *common, target=first, given=same, changed=changed)
        return self._file(found, given=same, changed=changed)

    def _file(self, found: Found, *, given: bool, changed: int) -> Entry | None:
        known = self._known.get(found.path)
        if known is not None and known.stamp == found.stamp:
            self._take(known.entry.size)
            self._stamps[found.path] = known.stamp
            return known.entry._replace(given=given, changed=changed)
        now = time.time_ns()
        try:
            descriptor = open_own(os.fsencode(found.name), OPEN_FILE, found.parent)
        except OSError:  # it is gone, or something else has its name
            return None
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return None
            blob = self._given.blobs.get(found.path, "")
            if blob and (before.st_size > _MOST_TRACKED or _blob_of(descriptor, before.st_size, blob) != blob):
                blob = ""
            if blob:
                self._take(before.st_size)
                size, pieces = before.st_size, list[list[int]]()
            else:
                size, pieces = self._packed(descriptor)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        # Rights that were given back to read it are not the agent's.
        mode, times = stat.S_IMODE(found.status.st_mode) & _MODES, after.st_mtime_ns
        if stamp_of(before) == stamp_of(after) == found.stamp and after.st_ctime_ns + _TICK_NS < now:
            self._stamps[found.path] = found.stamp
        if stamp_of(after) != found.stamp:  # a program wrote to it meanwhile
            changed = after.st_ctime_ns
        return Entry(found.path, "file", mode, times, size, pieces, blob, given=given, changed=changed)

    def _packed(self, descriptor: int) -> tuple[int, list[list[int]]]:
        size, pieces = 0, list[list[int]]()
        os.lseek(descriptor, 0, os.SEEK_SET)
        while content := os.read(descriptor, _PIECE):
            size += len(content)
            self._take(len(content))
            for pack, offset, length in self._packs.add(content):
                last = pieces[-1] if pieces else None
                if last is not None and last[0] == pack and last[1] + last[2] == offset:
                    last[2] += length
                else:
                    pieces.append([pack, offset, length])
        return size, pieces

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _too_much(f"{self._limits.content:,} bytes")
        if time.monotonic() > self._deadline:
            raise _too_much(f"what {self._limits.seconds:.0f} s are enough for")


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Everything that was found.

    Attributes:
        entries: each directory before what is in it.
        stamps: of the files among them that were read while nothing wrote to them, by path.
        skipped: how many pipes, sockets and devices there were, which have no content.
    """

    entries: list[Entry]
    stamps: dict[str, Stamp]
    skipped: int


class Known(NamedTuple):
    """What an earlier snapshot read."""

    stamp: Stamp
    entry: Entry


class Found(NamedTuple):
    """What lies in the directory that is open as `parent`."""

    path: str
    name: str
    parent: int
    status: os.stat_result

    @property
    def stamp(self) -> Stamp:
        """Changes whenever the content or the mode does."""
        return stamp_of(self.status)


def found_in(folder: int, path: str = "") -> Iterator[Found]:
    """Everything below a directory, each directory before what is in it.

    Raises:
        WorkspaceError: something is too deep.
    """
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda each: each.name)
    for each in listed:
        below = f"{path}/{each.name}" if path else each.name
        try:
            status = each.stat(follow_symlinks=False)
        except FileNotFoundError:  # it vanished while we looked
            continue
        yield Found(below, each.name, folder, status)
        if not stat.S_ISDIR(status.st_mode):
            continue
        if is_too_deep(os.fsencode(below)):
            raise WorkspaceError("The files of the job are nested too deep to be stored.", "Remove them.")
        try:
            held = open_own(os.fsencode(each.name), OPEN_FOLDER, folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            yield from found_in(held, below)
        finally:
            os.close(held)


def blob_id(content: bytes, like: str) -> str:
    """Git's id of some content, by the digest that another id was made with."""
    digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()  # noqa: PLR2004 - hex digits
    digest.update(b"blob %d\0" % len(content) + content)
    return digest.hexdigest()


def _blob_of(descriptor: int, size: int, like: str) -> str:
    content = b""
    while piece := os.read(descriptor, size + 1 - len(content)):
        content += piece
    return blob_id(content, like)


def _too_much(what: str) -> WorkspaceError:
    return WorkspaceError(f"The files of the job are more than {what}.", "Only this machine can continue the job.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """The blobs of one job.

    Each is encrypted and bound to its job and its name. With write access to the store, an attacker can remove a blob
    or replace it by an older one of the same name, and nothing else.

    Attributes:
        blobs: the store.
        folder: begins their names.
        key: a key of the bot's for this purpose.
    """

    blobs: BlobStore
    folder: str
    key: bytes = field(repr=False)

    def name_of(self, content: bytes) -> str:
        """The name that some content has."""
        return hmac.digest(self._key("names"), content, hashlib.sha256).hex()

    def put(self, content: bytes) -> str:
        """Store some content; give back its name.

        Raises:
            StorageError: the store failed.
        """
        name = self.name_of(content)
        self.write(name, content)
        return name

    def write(self, name: str, content: bytes) -> None:
        """Store some content under another name than its digest.

        Raises:
            StorageError: the store failed.
        """
        # What is compressed already costs much time and becomes no smaller.
        sample = content[:_SAMPLE]
        deflates = len(zlib.compress(sample, 1)) < 0.9 * len(sample)
        packed = _DEFLATED + zlib.compress(content, 1) if deflates else _PLAIN + content
        nonce = os.urandom(_NONCE)
        self.blobs.put(f"{self.folder}/{name}", nonce + self._cipher.encrypt(nonce, packed, self._bound(name)))

    def get(self, name: str, *, limit: int = PACK_BYTES) -> bytes:
        """The content that has its digest for a name.

        Raises:
            WorkspaceGoneError: it is missing, or is not what was stored.
            StorageError: the store failed.
        """
        content = self.read(name, limit=limit)
        if content is None or not hmac.compare_digest(self.name_of(content), name):
            raise _unusable(self, name)
        return content

    def read(self, name: str, *, limit: int) -> bytes | None:
        """What was written under a name; None when there is nothing.

        Raises:
            WorkspaceGoneError: it was not written by the bot with this key, or has more than `limit` bytes.
            StorageError: the store failed.
        """
        try:
            sealed = self.blobs.get(f"{self.folder}/{name}", limit=limit + _OVERHEAD)
        except BlobTooLargeError as error:
            raise _unusable(self, name) from error
        if sealed is None:
            return None
        try:
            packed = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._bound(name))
        except (InvalidTag, ValueError) as error:  # ValueError: too short
            raise _unusable(self, name) from error
        if packed[:1] == _PLAIN:
            return packed[1:]
        inflating = zlib.decompressobj()
        content = inflating.decompress(packed[1:], limit)
        if not inflating.eof and inflating.unconsumed_tail:
            raise _unusable(self, name)
        return content

    @property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._key("content"))

    def _key(self, purpose: str) -> bytes:
        return hmac.digest(self.key, f"{purpose} of {self.folder}".encode(), hashlib.sha256)

    def _bound(self, name: str) -> bytes:
        return f"{self.folder}/{name}".encode()


class Packs:
    """Writes content to packs, some at the same time; the stored names are complete when the body ends.

    Args:
        vault: where to.
        names: the packs that there are already, by number; further ones are added.
    """

    def __init__(self, vault: Vault, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self._vault = vault
        self._number = max(names, default=-1) + 1
        self._content = bytearray()
        self._pool = ThreadPoolExecutor(max_workers=_WRITERS, thread_name_prefix="packs")
        self._room = BoundedSemaphore(_WRITERS + 1)
        self._pending: dict[int, Future[str]] = {}

    def add(self, content: bytes) -> list[tuple[int, int, int]]:
        """Take some content; give back where it is: pack, offset and length of each piece."""
        pieces = []
        view = memoryview(content)
        while view:
            taken = view[: PACK_BYTES - len(self._content)]
            pieces.append((self._number, len(self._content), len(taken)))
            self._content += taken
            view = view[len(taken) :]
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
        for number in [number for number, each in self._pending.items() if each.done()]:
            self.names[number] = self._pending.pop(number).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is being stored; raises StorageError when some of it could not be."""
        try:
            if kind is None:
                self._flush()
                for number, future in self._pending.items():
                    self.names[number] = future.result()
        finally:
            self._pool.shutdown(cancel_futures=True)


def _unusable(vault: Vault, name: str) -> WorkspaceGoneError:
    return WorkspaceGoneError(
        f"The stored files of the job cannot be used: {vault.folder}/{name} in {vault.blobs.address} is missing, was "
        "changed, or was written with another key.",
        "Give the command again.",
    )
