"""Results of the agent's runs, kept before any of them is published: a worker that dies then costs no second run."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from bot.engine.job_record import RunResult, StoredRecord
from bot.jobs.patches import PatchStore
from bot.workspace.change import Change

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
