"""Writes of one installation never overlap, whichever client makes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from bot.github import GitHub, Pace, Paces
from bot.github.connection import Connection
from tests.github_world import World


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
async def clients(world: World) -> AsyncIterator[list[Connection]]:
    """Five clients of one installation, as five jobs at once have."""
    paces = Paces(0.0)
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(
                GitHub.for_installation(
                    world.app.id, world.app.private_key_pem, 7, world.hub.api_url, redact=str, pace=paces.of(7)
                )
            )
            for _ in range(5)
        ]
        yield [each._connection for each in made]


async def test_writes_of_one_installation_go_one_by_one(clients: list[Connection]) -> None:
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


async def test_reading_waits_for_nobodys_turn(clients: list[Connection]) -> None:
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
    paces = Paces(0.0)
    assert paces.of(1) is paces.of(1)
    assert paces.of(1) is not paces.of(2)


async def test_the_turn_is_given_back_after_an_error() -> None:
    pace = Pace(0.0)
    with pytest.raises(ValueError, match="refused"):
        async with pace.turn():
            raise ValueError("refused")
    async with asyncio.timeout(10), pace.turn():
        pass
