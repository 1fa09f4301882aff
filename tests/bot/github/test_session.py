"""What outlives a job: the App's identity, its tokens, and what GitHub said of its limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from bot.github.auth import BELIEVED_SECONDS, RENEW_SECONDS, UNPROVEN_SECONDS, Token, TokenStore
from bot.github.client import GitHub
from bot.github.connection import MOST_INSTALLATIONS, AppSession, InstallationSession
from bot.github.rate_limit import Limits, RequestBudget
from bot.github.types import GitHubError
from localhub import Exchange
from tests.github_world import World


class Jobs:
    """The clients of several jobs of one process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._session = AppSession(0.0)
        self.calls: list[str] = []
        self.learned: list[str] = []
        server = world.hub._server
        judge = server.served

        def served(exchange: Exchange) -> None:
            self.calls.append(f"{exchange.method} {exchange.path.removeprefix('/api/v3')}")
            if judge is not None:
                judge(exchange)

        server.served = served

    @asynccontextmanager
    async def client(self) -> AsyncIterator[GitHub]:
        async with GitHub.for_installation(
            self._world.app.id,
            self._world.app.private_key_pem,
            self._installation,
            self._world.hub.api_url,
            redact=str,
            minted=self.learned.append,
            session=self.session,
        ) as github:
            yield github

    @property
    def session(self) -> InstallationSession:
        return self._session.of(self._installation)

    @property
    def _installation(self) -> int:
        [installation] = [each.id for each in self._world.hub._site.store.installations]
        return installation

    @property
    def mints(self) -> int:
        return sum(call.endswith("/access_tokens") for call in self.calls)


@pytest.fixture
def jobs(world: World) -> Jobs:
    return Jobs(world)


async def test_tokens_and_identity_are_asked_for_once_and_each_job_knows_those_that_it_uses(
    world: World, jobs: Jobs
) -> None:
    tokens = set()
    for _ in range(3):
        jobs.learned.clear()
        async with jobs.client() as github:
            assert (await github.accounts.me()).login == "codepilot[bot]"
            tokens.add(await github.tokens.for_clone(world.name))
            tokens.add(await github.tokens.for_push(world.name))
            await github.repos.get(world.name)
        # Whoever had them minted: what a job can say must be redacted of all that it was given.
        assert set(jobs.learned) > tokens
    assert len(tokens) == 2
    assert jobs.mints == 3
    assert [jobs.calls.count("GET /app"), jobs.calls.count("GET /users/codepilot[bot]")] == [1, 1]


def test_what_is_known_of_installations_is_bounded_and_one_for_all_clients_that_live() -> None:
    app = AppSession(0.0)
    used = app.of(0)
    for installation in range(1, 2 * MOST_INSTALLATIONS):
        app.of(installation).limits.note({"x-ratelimit-resource": "core", "x-ratelimit-remaining": "9"})
    assert app.of(0) is used
    assert len(app._used) <= MOST_INSTALLATIONS + 1


async def test_jobs_that_begin_at_once_wait_for_one_token(world: World, jobs: Jobs) -> None:
    async def read() -> None:
        async with jobs.client() as github:
            await github.repos.get(world.name)

    await asyncio.gather(*(read() for _ in range(6)))
    assert jobs.mints == 1


async def test_a_token_that_github_knows_no_more_is_replaced_at_once(world: World, jobs: Jobs) -> None:
    async with jobs.client() as github:
        await github.repos.get(world.name)
        world.hub._site.store.tokens = {}
        assert (await github.repos.get(world.name)).full_name == world.name
    assert jobs.mints == 2


def a_token(value: str, *, minted_at: float, lives: float = 3600.0) -> Token:
    return Token(value=value, minted_at=minted_at, expires_at=minted_at + lives)


def test_a_token_is_replaced_before_it_expires() -> None:
    now = 1000.0
    store = TokenStore(lambda: now)
    assert store.get((), lambda: a_token("first", minted_at=1000.0)) == "first"
    now += 3600 - RENEW_SECONDS
    assert store.get((), lambda: a_token("second", minted_at=now)) == "first"
    now += 1
    assert store.get((), lambda: a_token("second", minted_at=now)) == "second"


@pytest.mark.parametrize(
    ("age", "outright", "proven", "replaced"),
    [
        (1.0, True, True, True),
        (1.0, False, False, False),
        (UNPROVEN_SECONDS + 1, False, False, True),
        (UNPROVEN_SECONDS + 1, False, True, False),
        (BELIEVED_SECONDS + 1, False, True, True),
    ],
)
def test_only_an_old_token_is_blamed_for_what_it_may_not_do(
    *, age: float, outright: bool, proven: bool, replaced: bool
) -> None:
    now = 1000.0
    store = TokenStore(lambda: now)
    store.get((), lambda: a_token("first", minted_at=1000.0))
    now += age
    assert store.refused("first", outright=outright, proven=proven) is replaced
    assert store.get((), lambda: a_token("second", minted_at=now)) == ("second" if replaced else "first")


@pytest.mark.parametrize("written", [False, True])
async def test_a_repository_that_is_newer_than_the_token_is_written_to(
    world: World, jobs: Jobs, *, written: bool
) -> None:
    async with jobs.client() as github:
        await github.repos.get(world.name)
        if written:
            await github.commits.create_branch(world.name, "first", world.sha)
        jobs.session.tokens._clock = lambda: time.time() + UNPROVEN_SECONDS + 1
        world.hub.faults.add("POST", "*/git/refs", "403", times=1)
        with nullcontext() if not written else pytest.raises(GitHubError):
            await github.commits.create_branch(world.name, "second", world.sha)
    assert jobs.mints == (1 if written else 2)


def test_tokens_of_a_repository_can_be_forgotten() -> None:
    store = TokenStore()

    def mint(value: str) -> Token:
        return Token.lasting(3600.0, value)

    for repo in ("o/a", "o/b"):
        store.get((repo, "contents: read"), lambda repo=repo: mint(f"{repo} 1"))  # type: ignore[misc]
    store.forget("o/a")
    assert store.get(("o/a", "contents: read"), lambda: mint("new")) == "new"
    assert store.get(("o/b", "contents: read"), lambda: mint("new")) == "o/b 1"


async def test_a_long_pause_is_left_to_the_caller_and_kept_by_all_jobs_of_the_installation(
    world: World, jobs: Jobs
) -> None:
    world.hub.faults.add("GET", "*/repos/mona/calc", "secondary_rate_limited", retry_after=150)
    async with jobs.client() as github, jobs.client() as other:
        with pytest.raises(GitHubError) as caught:
            await github.repos.get(world.name)
        assert caught.value.retry_after == 150
        asked = len(jobs.calls)
        with pytest.raises(GitHubError) as caught:
            await other.threads.get(world.name, world.issue.number)
        assert 140 < caught.value.retry_after <= 150
        assert len(jobs.calls) == asked


async def test_a_limit_is_kept_by_those_who_wait_in_line_to_write(world: World, jobs: Jobs) -> None:
    world.hub.faults.add("POST", "*/git/refs", "secondary_rate_limited", retry_after=150)
    async with jobs.client() as github, jobs.client() as other:
        made = (each.commits.create_branch(world.name, name, world.sha) for each, name in ((github, "a"), (other, "b")))
        refused = await asyncio.gather(*made, return_exceptions=True)
    assert [each.limited for each in refused if isinstance(each, GitHubError)] == [True, True]


def a_budget(remaining: int, minutes: float) -> RequestBudget:
    return RequestBudget(limit=5000, remaining=remaining, reset_at=minutes * 60)


@pytest.mark.parametrize(
    ("budget", "spread"),
    [
        (a_budget(5000, 60), 1.0),
        (a_budget(2600, 60), 1.0),  # more than half is left
        (a_budget(1250, 15), 1.0),  # it lasts
        (a_budget(1250, 30), 2.0),
        (a_budget(500, 60), 10.0),
        (a_budget(0, 30), 12.0),
        (a_budget(0, -1), 1.0),  # the hour is over
    ],
)
def test_what_can_wait_becomes_rarer_as_the_budget_runs_out_before_its_hour(
    budget: RequestBudget, spread: float
) -> None:
    assert budget.spread(0.0) == pytest.approx(spread)


def test_the_limits_follow_what_github_says() -> None:
    now = 0.0
    limits = Limits(lambda: now)
    limits.note({"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "500", "x-ratelimit-reset": "3600"})
    limits.note({"x-ratelimit-limit": "?"})
    assert limits.spread == pytest.approx(10.0)
    limits.close(10.0)
    limits.close(5.0)
    assert limits.closed_for == 10.0
    now = 11.0
    assert limits.closed_for == 0.0
