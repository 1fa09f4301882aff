"""The facts that permissions are decided by."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.github.client import GitHub
from bot.github.types import Snapshot
from bot.jobs.access import FRESH_SECONDS, AccessCheck, AccessChecks, PhaseReader
from localhub import Exchange, LocalHub
from tests.builders import REPO
from tests.github_world import World, opened_world


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened


@pytest.fixture
def request_paths(world: World) -> list[str]:
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


async def test_a_question_is_asked_once_a_phase_and_anew_in_the_next(world: World, request_paths: list[str]) -> None:
    first, second = PhaseReader(world.github), PhaseReader(world.github)
    number = world.issue.number
    for reader in (first, first, first.with_client(world.github), second):
        assert await reader.comments(world.name, number) == ()
    assert request_paths == [f"mona/calc/issues/{number}/comments"] * 2


async def test_no_answer_is_an_answer_and_a_failure_is_none(world: World, request_paths: list[str]) -> None:
    reader = PhaseReader(world.github)
    assert [await reader.file_at(world.name, "none.yml") for _ in range(2)] == [None, None]
    assert len(request_paths) == 1


GITHUB = GitHub.for_token("a-token", "https://api.github.com", redact=str)


def an_access_check() -> AccessCheck:
    snapshot = Snapshot(repo=REPO, default_head="a" * 40)
    return AccessCheck(facts=snapshot, roles=("write",), reader=PhaseReader(GITHUB))


def test_it_is_given_out_once_and_only_while_it_is_fresh() -> None:
    now = 100.0
    visits = AccessChecks(lambda: now)
    visit = an_access_check()
    for job in ("a", "b"):
        visits.put(job, visit)
    assert [visits.take(job, GITHUB) for job in ("a", "a", "c")] == [visit, None, None]
    now += FRESH_SECONDS + 1
    assert visits.take("b", GITHUB) is None


def test_what_nobody_takes_is_not_kept() -> None:
    now = 100.0
    visits = AccessChecks(lambda: now)
    visits.put("a", an_access_check())
    now += FRESH_SECONDS + 1
    visits.put("b", an_access_check())
    assert set(visits._checks) == {"b"}
