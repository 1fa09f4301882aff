"""Writes of one installation never overlap, whichever client makes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from bot.github.connection import AppSession, GitHubConnection
from bot.github.rate_limit import BURST, Allowance, RequestPace, Urgency
from tests.waiting import eventually


@dataclass(slots=True, kw_only=True)
class SlowServer:
    """A server that holds every request to `/slow` until it is released, and counts the requests under way."""

    url: str = ""
    current: int = 0
    maximum: int = 0
    total: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.current += 1
        self.total += 1
        self.maximum = max(self.maximum, self.current)
        if request.path == "/slow":
            await self.released.wait()
        for _ in range(20):  # others can come meanwhile
            await asyncio.sleep(0)
        self.current -= 1
        return web.json_response({})


@pytest.fixture
async def server() -> AsyncIterator[SlowServer]:
    server, app = SlowServer(), web.Application()
    app.router.add_route("*", "/{path}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.released.set()
        await runner.cleanup()


@pytest.fixture
async def connections(server: SlowServer) -> AsyncIterator[list[GitHubConnection]]:
    """Connections of one installation, as five jobs at once have."""
    session = AppSession(0.0).for_installation(7)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(GitHubConnection("a-token", server.url, session=session)) for _ in range(5)
        ]


async def test_writes_of_one_installation_go_one_by_one(
    server: SlowServer, connections: list[GitHubConnection]
) -> None:
    await asyncio.gather(*(each.request("write", "POST", "/fast", {}) for each in connections for _ in range(4)))
    assert (server.maximum, server.total) == (1, 20)


async def test_a_connection_sends_one_request_at_a_time(
    server: SlowServer, connections: list[GitHubConnection]
) -> None:
    await asyncio.gather(*(connections[0].read(dict[str, str], "read", "/fast") for _ in range(10)))
    assert (server.maximum, server.total) == (1, 10)


async def test_requests_to_a_silent_server_use_no_threads(
    server: SlowServer, connections: list[GitHubConnection]
) -> None:
    threads = threading.active_count()
    requests = [asyncio.create_task(each.read(dict[str, str], "read", "/slow")) for each in connections]
    await eventually(lambda: server.current == len(connections))
    assert threading.active_count() == threads
    server.released.set()
    assert await asyncio.gather(*requests) == [{}] * len(connections)


async def test_reading_waits_for_nobodys_turn(server: SlowServer, connections: list[GitHubConnection]) -> None:
    first, second, third, *_ = connections
    writing = asyncio.create_task(first.request("write", "POST", "/slow", {}))
    await eventually(lambda: server.current == 1)
    waiting = asyncio.create_task(second.request("write", "POST", "/fast", {}))
    assert await asyncio.wait_for(third.read(dict[str, str], "read", "/fast"), 20) == {}
    assert not waiting.done()
    server.released.set()
    await asyncio.gather(writing, waiting)


def test_each_installation_has_a_pace_of_its_own() -> None:
    app = AppSession(0.0)
    assert app.for_installation(1) is app.for_installation(1)
    assert app.for_installation(1).pace is not app.for_installation(2).pace


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
    begin, end, answer = Urgency.NORMAL, Urgency.RESULT, Urgency.CONTROL
    assert await _in_order(RequestPace(0.0), [begin, end, begin, answer, end]) == [answer, end, end, begin, begin]


async def test_the_signs_of_a_burst_of_commands_wait_for_nothing_that_is_written_for_others() -> None:
    others = [Urgency.CONTROL, Urgency.RESULT, Urgency.NORMAL] * 10
    done = await _in_order(RequestPace(0.0), [*others, *[Urgency.ACKNOWLEDGEMENT] * (BURST + 5)])
    # Those beyond the burst stand in line, before all others.
    assert done[: BURST + 5] == [Urgency.ACKNOWLEDGEMENT] * (BURST + 5)
    assert len(done) == len(others) + BURST + 5


async def test_a_lull_comes_when_all_others_have_written_and_costs_no_pause() -> None:
    pace, done = RequestPace(0.0), list[str]()

    async def wait_until_idle() -> None:
        await pace.wait_until_idle()
        done.append("idle")

    async def write() -> None:
        async with pace.turn():
            done.append("write")

    async with asyncio.timeout(10), asyncio.TaskGroup() as group, pace.turn():
        for each in (wait_until_idle(), write(), write()):
            group.create_task(each)
        await eventually(lambda: pace.waiting == 3)
    assert done == ["write", "write", "idle"]
    assert pace.is_free


async def test_somebody_who_gives_up_waiting_keeps_nobody_from_their_turn() -> None:
    pace = RequestPace(0.0)
    async with asyncio.timeout(10):
        async with pace.turn():
            first, second = (asyncio.create_task(pace._wait_turn(Urgency.RESULT)) for _ in range(2))
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
        await write(Urgency.NORMAL)
        assert not pace.is_free
        group.create_task(write(Urgency.NORMAL))
        await asyncio.sleep(0)
        group.create_task(write(Urgency.RESULT))
    assert done == [Urgency.NORMAL, Urgency.RESULT, Urgency.NORMAL]


def test_an_allowance_grows_back_and_never_beyond_its_most() -> None:
    now = 0.0
    allowance = Allowance(2, 3.0, lambda: now)
    assert [allowance.try_take() for _ in range(3)] == [True, True, False]
    now = 2.9
    assert not allowance.try_take()
    now = 3.0
    assert [allowance.try_take() for _ in range(2)] == [True, False]
    now = 100.0
    assert [allowance.try_take() for _ in range(3)] == [True, True, False]
