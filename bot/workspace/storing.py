"""Store the files of a job that waits, beside those on the machine; and tell a job's newest files from older ones."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bot.domain.errors import QueueError, StorageError
from bot.workspace.errors import WorkspaceError
from bot.workspace.keeping import Given
from bot.workspace.mirror import Source
from bot.workspace.snapshots import Snapshots

log = logging.getLogger(__name__)

INDEX = "snapshot.json"
"""The file, beside the trusted git directory, with what is stored already."""
_GENERATIONS = "generation"

Current = Callable[[str, str], Awaitable[bool]]
"""Asks whether a job's files are still those of a generation: another worker may have taken the job over meanwhile.

It raises `QueueError` when nobody can tell now."""


async def always_current(_job_id: str, _generation: str) -> bool:
    """No other worker works on these jobs."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The files of a job as its last attempt has left them, on whichever machine.

    Attributes:
        generation: names their state, as `Tree.generation` did; empty where that was not recorded.
        repo_id: GitHub's numeric id.
        source: the commit that they were taken from.
    """

    generation: str
    repo_id: int
    source: Source


def begin_generation(folder: Path, *, after: str = "") -> str:
    """Name the state of a job's files that begins now.

    Until somebody has recorded the new name, the files are still as the one before names them; so both are noted.
    """
    generation = secrets.token_hex(8)
    partial_note = folder / f"{_GENERATIONS}.partial"
    partial_note.write_text("\n".join(filter(None, (after, generation))))
    partial_note.replace(folder / _GENERATIONS)
    return generation


def generations(folder: Path) -> list[str]:
    """The names that the state of a job's files may have, the newest last; none where there are no files."""
    note = folder / _GENERATIONS
    return note.read_text().split() if note.exists() else []


async def store(snapshots: Snapshots, folder: Path, *, given: Given, repo_id: int, current: Current) -> None:
    """Take a snapshot of a job's files, if they are still the job's.

    What fails is logged: the files are on this machine, and where it may pass, a note says that they are to be stored.
    """
    owed, job_id = folder / "owed", folder.name
    [*_, generation] = await asyncio.to_thread(generations, folder)
    await asyncio.to_thread(owed.touch)
    take = partial(snapshots.take, given=given, repo_id=repo_id, generation=generation)
    try:
        if await current(job_id, generation):
            skipped = await asyncio.to_thread(take, job_id, folder / "files", folder / "trusted" / INDEX)
            if skipped:
                log.info("%s: %d pipes, sockets or devices were not stored", job_id, skipped)
    except (QueueError, StorageError) as error:
        log.warning("%s: only this machine can continue the job until its files are stored: %s", job_id, error)
        return
    except (WorkspaceError, OSError) as error:
        log.warning("%s: only this machine can continue the job: %s", job_id, error)
    await asyncio.to_thread(owed.unlink, missing_ok=True)


async def forget(snapshots: Snapshots, job_id: str, generation: str = "", current: Current = always_current) -> None:
    """Remove what is stored of a job, if its files are still those of a generation; what fails is left to a sweep."""
    try:
        if await current(job_id, generation):
            await asyncio.to_thread(snapshots.forget, job_id)
    except (QueueError, StorageError) as error:
        log.warning("%s: the snapshot of the job was not removed; a sweep tries again: %s", job_id, error)
