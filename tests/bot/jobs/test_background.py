"""Work beside the body of a `with`."""

from __future__ import annotations

import asyncio

import pytest

from bot.jobs.status import background


async def _slow_to_end(ending: asyncio.Event, go: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ending.set()
        await go.wait()


async def test_who_is_cancelled_while_the_work_ends_is_cancelled() -> None:
    ending, go = asyncio.Event(), asyncio.Event()
    went_on = False

    async def body() -> None:
        nonlocal went_on
        async with background(_slow_to_end(ending, go)):
            await asyncio.sleep(0)
        went_on = True

    task = asyncio.create_task(body())
    await ending.wait()
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not went_on


async def test_what_the_work_has_raised_is_raised_at_the_end() -> None:
    done = []

    async def fails() -> None:
        raise ValueError("no")

    async def with_it() -> None:
        async with background(fails(), asyncio.sleep(0)):
            await asyncio.sleep(0)
            done.append("body")

    with pytest.raises(ValueError, match="no"):
        await with_it()
    assert done == ["body"]
