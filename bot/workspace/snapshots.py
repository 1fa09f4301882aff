"""Snapshots of jobs' files in the blob store, with which another machine continues a job.

A snapshot is a head, which is small and replaced by each new one; a manifest, which lists what there is; and packs with
the content of files. What is as in the commit is not stored: a mirror has it. The next snapshot stores what changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.workspace.blobs import BlobStore
from bot.workspace.capturing import Entry, Known, SnapshotLimits, TreeReader
from bot.workspace.changed import Baseline
from bot.workspace.errors import WorkspaceGoneError
from bot.workspace.git import Git
from bot.workspace.keeping import Given
from bot.workspace.restoring import finish, restore, restore_tracked
from bot.workspace.scan import ScannedFile, Stamp, opened_root
from bot.workspace.vault import PACK_BYTES, Packs, Vault

_FOLDER = "snapshots"
_HEAD = "head"
_HEAD_BYTES = 64 * 1024
_MANIFEST_BYTES = 512 * 1024 * 1024
_VERSION = 1
_BATCH, _BATCH_BYTES = 2_000, 64 * 1024 * 1024
"""How much of a commit's files is read from git at a time; a file that comes last may have half as many bytes."""
_DAY_SECONDS = 24 * 3600.0
_MOST_WASTE = 0.5
"""The share of the stored bytes that may belong to no file any more, before all of it is stored again."""


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
                # An earlier version reads entries without `changed`, and goes on without the times.
                "entries": [each[:-1] for each in self.entries],
                "changed": [each.changed for each in self.entries],
                "packs": self.packs,
                "left_out": sorted(map(os.fsdecode, self.left_out)),
                "taken": sorted(map(os.fsdecode, self.taken)),
            }
        ).encode()


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

    def take(self, job_id: str, files: Path, index: Path, *, given: Given, repo_id: int, generation: str) -> int:
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
            capture = TreeReader(packs, known, blobs=given.blobs, given=given.baseline, limits=self.limits)
            captured = capture.of(root)
        used = {number for each in captured.entries for number, _, _ in each.pieces}
        after = TreeManifest(
            entries=captured.entries,
            packs={number: packs.names[number] for number in sorted(used)},
            left_out=given.baseline.left_out,
            taken=given.baseline.taken,
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


def baseline_of(manifest: TreeManifest, stamps: Mapping[str, Stamp], modes: dict[bytes, str]) -> Baseline:
    """What of restored files is as it was given to the agent, and how old the others are.

    Args:
        manifest: what was restored.
        stamps: of the files, as `rebuild` gave them.
        modes: path to git's mode, of every path in the commit.
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
    return Baseline(modes=modes, entries=entries, left_out=manifest.left_out, taken=manifest.taken, restored=restored)


def note(index: Path, name: str, manifest: TreeManifest, stamps: Mapping[str, Stamp]) -> None:
    """Write down what a machine has in its files, and what of it is stored."""
    text = json.dumps({"name": name, "manifest": manifest.encoded().decode(), "stamps": stamps})
    partial = index.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(index)


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


def _noted(index: Path) -> tuple[str, TreeManifest, dict[str, Stamp]]:
    """What `note` wrote; nothing where there is nothing that could be read."""
    try:
        noted = json.loads(index.read_text())
        stamps: dict[str, Stamp] = {path: tuple(stamp) for path, stamp in noted["stamps"].items()}
        return str(noted["name"]), _decoded(json.loads(noted["manifest"])), stamps
    except (OSError, ValueError, KeyError, TypeError):  # a file in whatever state a crash left it
        return "", TreeManifest(entries=[], packs={}), {}


def _decoded(values: dict[str, Any]) -> TreeManifest:
    entries = values["entries"]
    changed = values.get("changed", [0] * len(entries))
    return TreeManifest(
        entries=[Entry._make([*each, at]) for each, at in zip(entries, changed, strict=True)],
        packs={int(number): name for number, name in values["packs"].items()},
        left_out=frozenset(map(os.fsencode, values["left_out"])),
        taken=frozenset(map(os.fsencode, values["taken"])),
    )
