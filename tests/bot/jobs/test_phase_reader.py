"""A phase of a job asks GitHub each question once, with whichever client it has."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.jobs.access import PhaseReader
from localhub import Exchange, LocalHub
from tests.github_world import World, opened_world


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened


@pytest.fixture
def asked(world: World) -> list[str]:
    calls: list[str] = []
    server = world.hub._server
    judge = server.served

    def served(exchange: Exchange) -> None:
        if exchange.method == "GET":
            calls.append(exchange.path.rpartition("/repos/")[2])
        if judge is not None:
            judge(exchange)

    server.served = served
    return calls


async def test_a_question_is_asked_once_a_phase_and_anew_in_the_next(world: World, asked: list[str]) -> None:
    first, second = PhaseReader(world.github), PhaseReader(world.github)
    number = world.issue.number
    for reader in (first, first, first.continued_by(world.github), second):
        assert await reader.comments(world.name, number) == ()
    assert asked == [f"mona/calc/issues/{number}/comments"] * 2


async def test_no_answer_is_an_answer_and_a_failure_is_none(world: World, asked: list[str]) -> None:
    reader = PhaseReader(world.github)
    assert [await reader.file_at(world.name, "none.yml") for _ in range(2)] == [None, None]
    assert len(asked) == 1
