"""Keep the patches of jobs: as files that the operator can read, or in the blob store that machines share."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from bot.workspace.blobs import BlobInfo
from bot.workspace.describing import MAX_DIFF_BYTES
from bot.workspace.vault import Vault

_DAY_SECONDS = 24 * 3600.0
_HOUR_SECONDS = 3600.0
_ENDING = ".patch"


class PatchStore(Protocol):
    """Keeps one patch a job. Every method blocks."""

    def put(self, job_id: str, patch: BinaryIO) -> None:
        """Keep a patch in place of the one before; it is durable when this returns."""
        ...

    def file(self, job_id: str) -> Path | None:
        """A file of this machine with the patch; None where there is none."""
        ...

    def delete(self, job_id: str) -> None:
        """Remove a patch; nothing to do where there is none."""
        ...

    def sweep(self, *, days: float, most_bytes: int, keep: Collection[str]) -> int:
        """Remove the patches of all jobs but `keep` that are `days` old, and the oldest of more than `most_bytes`.

        Returns:
            How many they were.
        """
        ...


class PatchFiles:
    """Patches as files `JOB.patch`.

    Args:
        folder: where they are; made with mode 0700.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, job_id: str, patch: BinaryIO) -> None:
        """See `PatchStore.put`."""
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
        """See `PatchStore.file`."""
        path = self._folder / f"{job_id}{_ENDING}"
        return path if path.is_file() else None

    def delete(self, job_id: str) -> None:
        """See `PatchStore.delete`."""
        (self._folder / f"{job_id}{_ENDING}").unlink(missing_ok=True)

    def sweep(self, *, days: float, most_bytes: int, keep: Collection[str]) -> int:
        """See `PatchStore.sweep`. What a killed process only began to write goes like the rest."""
        found = list[BlobInfo]()
        for path in self._folder.glob("*.p*"):
            status = path.stat()
            found.append(BlobInfo(name=path.name, size=status.st_size, modified=status.st_mtime))
        names = _superfluous(found, days=days, most_bytes=most_bytes, keep=keep)
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        return len(names)


class PatchBlobs:
    """Patches in the blob store, encrypted.

    Args:
        vault: the part of the store that has patches alone.
        folder: has the patches that were kept on this machine before there was a store, and copies of what it reads.
    """

    def __init__(self, vault: Vault, folder: Path) -> None:
        self._vault, self._here, self._copies = vault, PatchFiles(folder), PatchFiles(folder / "copies")

    def put(self, job_id: str, patch: BinaryIO) -> None:
        """See `PatchStore.put`.

        Raises:
            StorageError: the store failed.
        """
        self._vault.write(f"{job_id}{_ENDING}", patch.read())  # no more than a `Change` holds in memory already

    def file(self, job_id: str) -> Path | None:
        """See `PatchStore.file`.

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
        """See `PatchStore.delete`.

        Raises:
            StorageError: the store failed.
        """
        self._vault.blobs.delete(f"{self._vault.folder}/{job_id}{_ENDING}")
        self._copies.delete(job_id)
        self._here.delete(job_id)

    def sweep(self, *, days: float, most_bytes: int, keep: Collection[str]) -> int:
        """See `PatchStore.sweep`.

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
