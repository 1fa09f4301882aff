"""Turns among many receivers to look for failed deliveries, and the memory of the last look."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from bot.workspace.locks import try_lock

_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptDeliveries:
    """How far failed deliveries were looked for.

    Attributes:
        at: when the last sweep began that saw to all of them, in seconds since the epoch; 0 for never.
        tries: how often a delivery was asked for again, by its GUID.
    """

    at: float = 0.0
    tries: Mapping[str, int] = field(default_factory=dict)


_SWEPT = TypeAdapter(SweptDeliveries)


def dumped(swept: SweptDeliveries) -> bytes:
    """As it is stored."""
    return _SWEPT.dump_json(swept)


def loaded(body: bytes | str) -> SweptDeliveries:
    """What was stored; that nothing was looked for yet, where it is empty, was cut off, or is another version's."""
    try:
        return _SWEPT.validate_json(body)
    except ValidationError:
        return SweptDeliveries()


class SweepTurn(Protocol):
    """The right of one process to sweep.

    Attributes:
        swept: what the turn before left.
    """

    swept: SweptDeliveries

    async def leave(self, swept: SweptDeliveries) -> None:
        """Leave this for the next turn; without it the next one begins where this one did."""
        ...


class DeliverySweeps(Protocol):
    """Gives the turn to one process at a time; a process that dies, or loses its connection, loses it."""

    def turn(self) -> AbstractAsyncContextManager[SweepTurn | None]:
        """Have the turn while the body runs; None while another process has it.

        Raises:
            QueueError: the database cannot be used.
            OSError: the directory cannot be used.
        """
        ...


class FileDeliverySweeps:
    """Turns among the processes of one machine: a locked file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[SweepTurn | None]:
        """See `DeliverySweeps.turn`."""
        descriptor = try_lock(self._path)
        if descriptor is None:
            yield None
            return
        try:
            yield _FileTurn(descriptor)
        finally:
            os.close(descriptor)


class _FileTurn:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.swept = loaded(os.pread(descriptor, _MOST_BYTES, 0))

    async def leave(self, swept: SweptDeliveries) -> None:
        """See `SweepTurn.leave`."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, dumped(swept), 0)
