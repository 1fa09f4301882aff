"""Results of the agent's runs, kept before any of them is published: a worker that dies then costs no second run."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from bot.engine.job_record import RunResult, StoredRecord
from bot.workspace.change import Change

_SHOWN_BYTES = 4 * 1024 * 1024
_DAY_SECONDS = 24 * 3600.0


class RunResults:
    """Keeps the work of jobs: what can be told in the queue, the patch in a file of its own.

    Args:
        folder: where patches are; made with mode 0700.
        lasting: whether the patches of published work stay, too, for later steps of a workflow.
    """

    def __init__(self, folder: Path, *, lasting: bool = False) -> None:
        self._folder, self._lasting = folder, lasting

    async def keep(self, job_id: str, record: StoredRecord, work: RunResult, change: Change) -> None:
        """Keep both; they are on disk when this returns."""
        await asyncio.to_thread(self._write, job_id, change)
        await record.update(lambda kept: replace(kept, result=work))

    async def find(self, job_id: str, record: StoredRecord) -> tuple[RunResult, Path] | None:
        """The work of an earlier attempt and the file with its patch, or None if they are not available here."""
        result = (await record.read()).result
        path = self._path(job_id)
        return (result, path) if result is not None and path.is_file() else None

    def patch(self, job_id: str) -> str:
        """The beginning of the patch that is kept, more than any page shows; or an empty text."""
        path = self._path(job_id)
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_SHOWN_BYTES).decode("utf-8", "replace")

    def whole(self, job_id: str) -> bytes | None:
        """All of the patch that is kept; None where there is none."""
        path = self._path(job_id)
        return path.read_bytes() if path.is_file() else None

    def put(self, job_id: str, patch: bytes) -> None:
        """Keep a patch that another machine has kept."""
        self._put(job_id, io.BytesIO(patch))

    def narrow(self, job_id: str, patch: str) -> None:
        """Keep only a part of the patch: the rest is published."""
        self._put(job_id, io.BytesIO(patch.encode("utf-8", "surrogateescape")))

    def file(self, job_id: str) -> Path | None:
        """The file with the patch that is kept; None where there is none, or nothing in it."""
        path = self._path(job_id)
        return path if path.is_file() and path.stat().st_size else None

    def forget(self, job_id: str) -> None:
        """Drop the patch: what it holds is published, or there was nothing in it."""
        if not self._lasting:
            self._path(job_id).unlink(missing_ok=True)

    def sweep(self, days: float, *, keep: Collection[str] = ()) -> int:
        """Remove the patches that were kept `days` ago, but of no job in `keep`; give back how many they were."""
        before = time.time() - days * _DAY_SECONDS
        # What was only begun to be written when the process died is of no use at any age, but another may write it now.
        found = [path for path in self._folder.glob("*.p*") if path.stem not in keep]
        old = [path for path in found if path.stat().st_mtime < before]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def _write(self, job_id: str, change: Change) -> None:
        if change.patch_file is None:
            self.narrow(job_id, change.patch)
            return
        with change.patch_file.open("rb") as whole:
            self._put(job_id, whole)

    def _put(self, job_id: str, content: BinaryIO) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._folder / f"{job_id}.partial"
        with partial.open("wb") as file:
            shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path(job_id))

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.patch"
