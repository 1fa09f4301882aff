"""What comes while a thread is busy is dealt with at once, and each caller hears of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from bot.queue.store import Gathering

SECONDS = 20.0


class Dealer:
    """Doubles numbers, refuses odd ones, and keeps what it was given at once."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        if 0 in items:
            raise LookupError("nothing to deal with")
        return [ValueError(f"{item} is odd") if item % 2 else 2 * item for item in items]


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@contextmanager
def busy(thread: ThreadPoolExecutor) -> Iterator[None]:
    gate = threading.Event()
    thread.submit(gate.wait, SECONDS)
    try:
        yield
    finally:
        gate.set()


async def put_together(
    thread: ThreadPoolExecutor, gathering: Gathering[int, int], items: Sequence[int]
) -> list[asyncio.Task[int]]:
    with busy(thread):
        tasks = [asyncio.create_task(gathering.put(item)) for item in items]
        await asyncio.sleep(0)  # each has been put
    return tasks


async def test_each_gets_its_own_result_or_error(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    tasks = await put_together(thread, Gathering(thread, deal), [2, 3, 4])
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)
    assert [str(result) for result in results] == ["4", "3 is odd", "8"]
    assert deal.batches == [[2, 3, 4]]


async def test_what_fails_for_all_fails_each(thread: ThreadPoolExecutor) -> None:
    gathering = Gathering(thread, Dealer())
    tasks = await put_together(thread, gathering, [0, 2])
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)
    assert [type(result) for result in results] == [LookupError, LookupError]
    assert await asyncio.wait_for(gathering.put(2), SECONDS) == 4


async def test_an_error_that_no_future_takes_keeps_nothing_from_others(thread: ThreadPoolExecutor) -> None:
    def deal(items: Sequence[int]) -> list[int | Exception]:
        return [StopIteration() if item % 2 else 2 * item for item in items]

    tasks = await put_together(thread, Gathering(thread, deal), [3, 4])
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)
    assert [type(result) for result in results] == [RuntimeError, int]


async def test_no_more_than_a_hundred_are_dealt_with_at_once_and_none_is_left(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    tasks = await put_together(thread, Gathering(thread, deal), range(2, 502, 2))
    # What is put before the thread was told to end is dealt with.
    thread.shutdown(wait=False)
    assert await asyncio.wait_for(asyncio.gather(*tasks), SECONDS) == [2 * item for item in range(2, 502, 2)]
    assert [len(batch) for batch in deal.batches] == [100, 100, 50]


async def test_what_nobody_waits_for_any_more_is_not_begun(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    gathering = Gathering(thread, deal)
    with busy(thread):
        first, second = (asyncio.create_task(gathering.put(item)) for item in (2, 4))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
    assert await asyncio.wait_for(second, SECONDS) == 8
    assert deal.batches == [[4]]


async def test_a_caller_whose_loop_is_closed_keeps_nothing_from_others(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    gathering = Gathering(thread, deal)

    async def put_and_leave() -> None:
        putting = gathering.put(2)
        putting.send(None)
        putting.close()

    other = asyncio.new_event_loop()
    with busy(thread):
        await asyncio.to_thread(other.run_until_complete, put_and_leave())
        task = asyncio.create_task(gathering.put(4))
        await asyncio.sleep(0)
        other.close()
    assert await asyncio.wait_for(task, SECONDS) == 8
    assert deal.batches == [[2, 4]]
