"""Receive large deliveries to the disk, and read them in a bounded worker process."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import StreamReader

from agent_runtime import BoundExceededError, run_bounded
from bot.domain.errors import MalformedError
from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.engine.records import dumped, loaded
from bot.intake.deliveries import IgnoredDelivery, Proof, from_proven, lowered
from bot.intake.triggers import TRIGGERS, job_from

_PIECE_BYTES = 1024 * 1024
_SECONDS = 8.0
"""GitHub waits for ten."""
_MEMORY = 256 * 1024**2
_PREFIX = "delivery-"
_LEFT_SECONDS = 3600.0
_HEADERS = ("content-type", "x-github-event", "x-github-delivery")


@asynccontextmanager
async def received(folder: Path | None, content: StreamReader, size: int, proof: Proof) -> AsyncIterator[Path]:
    """The body in a file that is removed afterwards; `proof` has seen all of it.

    Args:
        folder: where the file is made; None for the system's own.
        content: what comes in.
        size: how many bytes.
        proof: fed with them.

    Raises:
        asyncio.IncompleteReadError: there were fewer.
        OSError: the disk does not take them.
    """
    with tempfile.NamedTemporaryFile(prefix=_PREFIX, dir=folder) as file:
        left = size
        while left:
            piece = await content.readexactly(min(left, _PIECE_BYTES))
            await asyncio.to_thread(proof.feed, piece)
            await asyncio.to_thread(file.write, piece)
            left -= len(piece)
        await asyncio.to_thread(file.flush)
        yield Path(file.name)


def sweep(folder: Path) -> None:
    """Remove what processes left that were killed while they received."""
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # the process that received it was faster, or it is not ours
            if path.stat().st_mtime < time.time() - _LEFT_SECONDS:
                path.unlink()


async def read(
    path: Path, headers: Mapping[str, str], listening: Listening, *, seconds: float = _SECONDS
) -> Job | IgnoredDelivery:
    """The job that a proven delivery asks for, or why it asks for none.

    Args:
        path: its body.
        headers: the request's.
        listening: what is listened for.
        seconds: how long that may take.

    Raises:
        MalformedError: it is not a delivery, or takes more memory to read than any delivery should.
        TimeoutError: it took too long, which may be the machine's fault; what is refused for good never comes again.
    """
    names = {name: value for name, value in lowered(headers).items() if name in _HEADERS}
    if names.get("x-github-event") not in TRIGGERS:
        return IgnoredDelivery(reason="no trigger handles this event")
    try:
        answer = await run_bounded(
            job_in, str(path), names, listening, seconds=seconds, memory=_MEMORY, what="Reading the delivery"
        )
    except BoundExceededError as error:
        if error.bound == "seconds":
            raise TimeoutError(str(error)) from error
        raise MalformedError("the delivery requires more memory than allowed") from error
    kind, _, text = answer.partition(":")
    match kind:
        case "job":
            return loaded(text)
        case "ignored":
            return IgnoredDelivery(reason=text)
        case _:
            raise MalformedError(text)


def job_in(path: str, headers: Mapping[str, str], listening: Listening) -> str:
    """What `read` does, in the worker: `job:` and the job, `ignored:` or `malformed:` and why."""
    try:
        found = job_from(from_proven(headers, Path(path).read_bytes()), listening)
    except MalformedError as error:
        return f"malformed:{error}"
    return f"ignored:{found.reason}" if isinstance(found, IgnoredDelivery) else f"job:{dumped(found)}"
