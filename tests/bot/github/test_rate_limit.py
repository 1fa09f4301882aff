"""Writes of one installation never overlap, whichever client makes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from bot.github.client import GitHub
from bot.github.connection import AppSession, GitHubConnection
from bot.github.rate_limit import BURST, Allowance, RequestPace, Urgency
from tests.github_world import World
from tests.waiting import eventually


class Watched:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0
        self.times = 0

    def __call__(self) -> None:
        with self._lock:
            self._inside += 1
            self.times += 1
            self.most = max(self.most, self._inside)
        threading.Event().wait(0.01)
        with self._lock:
            self._inside -= 1


@pytest.fixture
async def clients(world: World) -> AsyncIterator[list[GitHubConnection]]:
    """Five clients of one installation, as five jobs at once have."""
    session = AppSession(0.0).of(7)
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(
                GitHub.for_installation(
                    world.app.id, world.app.private_key_pem, 7, world.hub.api_url, redact=str, session=session
                )
            )
            for _ in range(5)
        ]
        yield [each._connection for each in made]


async def test_writes_of_one_installation_go_one_by_one(clients: list[GitHubConnection]) -> None:
    watched = Watched()
    await asyncio.gather(*(each.call("write", watched, writes=True) for each in clients for _ in range(4)))
    assert (watched.most, watched.times) == (1, 20)


async def test_a_server_that_is_silent_to_many_keeps_no_other_thread_waiting(world: World) -> None:
    silent = threading.Event()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                GitHub.for_installation(world.app.id, world.app.private_key_pem, 7, world.hub.api_url, redact=str)
            )
            for _ in range(40)
        ]
        asked = [asyncio.create_task(each._connection.call("read", silent.wait)) for each in clients]
        try:
            async with asyncio.timeout(10):
                assert await asyncio.to_thread(str, "something else") == "something else"
        finally:
            silent.set()
            await asyncio.gather(*asked)


async def test_reading_waits_for_nobodys_turn(clients: list[GitHubConnection]) -> None:
    first, second, *_ = clients
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait(30)

    writing = asyncio.create_task(first.call("write", slow, writes=True))
    await asyncio.to_thread(begun.wait, 30)
    waiting = asyncio.create_task(second.call("write", lambda: None, writes=True))
    try:
        assert await asyncio.wait_for(second.call("read", lambda: "read"), 20) == "read"
        assert not waiting.done()
    finally:
        go_on.set()
        await asyncio.gather(writing, waiting)


def test_each_installation_has_a_pace_of_its_own() -> None:
    app = AppSession(0.0)
    assert app.of(1) is app.of(1)
    assert app.of(1).pace is not app.of(2).pace


async def test_the_turn_is_given_back_after_an_error() -> None:
    pace = RequestPace(0.0)
    with pytest.raises(ValueError, match="refused"):
        async with pace.turn():
            raise ValueError("refused")
    async with asyncio.timeout(10), pace.turn():
        pass


async def _in_order(pace: RequestPace, wanted: list[Urgency]) -> list[Urgency]:
    """The order in which writes that were wanted while another one was under way get their turn."""
    done: list[Urgency] = []

    async def write(urgency: Urgency) -> None:
        async with pace.turn(urgency):
            done.append(urgency)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group, pace.turn():
        for urgency in wanted:
            group.create_task(write(urgency))
        await eventually(lambda: pace.waiting + len(done) == len(wanted))
    return done


async def test_the_most_urgent_goes_first_and_among_equals_the_first() -> None:
    begin, end, answer = Urgency.BEGINNING, Urgency.ENDING, Urgency.ANSWER
    assert await _in_order(RequestPace(0.0), [begin, end, begin, answer, end]) == [answer, end, end, begin, begin]


async def test_the_signs_of_a_burst_of_commands_wait_for_nothing_that_is_written_for_others() -> None:
    others = [Urgency.ANSWER, Urgency.ENDING, Urgency.BEGINNING] * 10
    done = await _in_order(RequestPace(0.0), [*others, *[Urgency.SIGN] * (BURST + 5)])
    # Those beyond the burst stand in line, before all others.
    assert done[: BURST + 5] == [Urgency.SIGN] * (BURST + 5)
    assert len(done) == len(others) + BURST + 5


async def test_a_lull_comes_when_all_others_have_written_and_costs_no_pause() -> None:
    pace, done = RequestPace(0.0), list[str]()

    async def lull() -> None:
        await pace.lull()
        done.append("lull")

    async def write() -> None:
        async with pace.turn():
            done.append("write")

    async with asyncio.timeout(10), asyncio.TaskGroup() as group, pace.turn():
        for each in (lull(), write(), write()):
            group.create_task(each)
        await eventually(lambda: pace.waiting == 3)
    assert done == ["write", "write", "lull"]
    assert pace.is_free


async def test_somebody_who_gives_up_waiting_keeps_nobody_from_their_turn() -> None:
    pace = RequestPace(0.0)
    async with asyncio.timeout(10):
        async with pace.turn():
            first, second = (asyncio.create_task(pace._line_up(Urgency.ENDING)) for _ in range(2))
            await eventually(lambda: pace.waiting == 2)
            first.cancel()
        await second
        assert first.cancelled()
        assert pace.waiting == 0


async def test_between_two_writes_there_is_a_pause_in_which_somebody_else_may_come_first() -> None:
    pace, done = RequestPace(0.05), list[Urgency]()

    async def write(urgency: Urgency) -> None:
        async with pace.turn(urgency):
            done.append(urgency)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        await write(Urgency.BEGINNING)
        assert not pace.is_free
        group.create_task(write(Urgency.BEGINNING))
        await asyncio.sleep(0)
        group.create_task(write(Urgency.ENDING))
    assert done == [Urgency.BEGINNING, Urgency.ENDING, Urgency.BEGINNING]


def test_an_allowance_grows_back_and_never_beyond_its_most() -> None:
    now = 0.0
    allowance = Allowance(2, 3.0, lambda: now)
    assert [allowance.take() for _ in range(3)] == [True, True, False]
    now = 2.9
    assert not allowance.take()
    now = 3.0
    assert [allowance.take() for _ in range(2)] == [True, False]
    now = 100.0
    assert [allowance.take() for _ in range(3)] == [True, True, False]
