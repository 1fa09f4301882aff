"""Work beside the body of a `with`, which waits for none of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def background(*work: Coroutine[object, object, object]) -> AsyncIterator[None]:
    """Do all of it at the same time while the body runs; what has not ended is cancelled with it.

    Raises:
        Exception: what one of them raised, at the end.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        # After `await task`, nobody could tell the end of that task from a cancellation of this one.
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
