"""The record of one job's progress, kept in the queue so that a restart does nothing twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

from pydantic import TypeAdapter

from bot.engine.queue import Queue

T = TypeVar("T")


def encode(kind: TypeAdapter[T], value: T) -> str:
    """A value as a fact can hold it: half a surrogate pair too, which patches and models' words may have."""
    # The standard library's JSON spells those; UTF-8, and so pydantic's own JSON, cannot.
    return json.dumps(kind.dump_python(value, mode="json"))


def decode(kind: TypeAdapter[T], fact: str) -> T:
    """What `encode` made a fact of.

    Raises:
        ValidationError: it is none of this kind.
    """
    return kind.validate_python(json.loads(fact))


class JobMemory:
    """The facts that the queue keeps about one job."""

    def __init__(self, queue: Queue, job_id: str) -> None:
        self._queue = queue
        self._job_id = job_id

    async def recall(self, key: str) -> str | None:
        """The value kept under `key`, or None."""
        return (await self._queue.recall(self._job_id)).get(key)

    async def recall_all(self) -> Mapping[str, str]:
        """Everything that is kept, by its key."""
        return await self._queue.recall(self._job_id)

    async def remember(self, key: str, value: str) -> None:
        """Keep `value` under `key`; it is on disk when this returns."""
        await self._queue.remember(self._job_id, key, value)

    async def remember_once(self, key: str, value: str) -> bool:
        """Keep `value` under `key` when nothing is kept there; False when something is, which stays."""
        return await self._queue.remember_once(self._job_id, key, value)
