"""Requests to GitHub: answers, transient errors, tokens and limits."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.github import connection as connection_module
from bot.github.auth import BELIEVED_SECONDS, RENEW_SECONDS, UNPROVEN_SECONDS, AppIdentity, Token, TokenStore
from bot.github.client import GitHub
from bot.github.connection import (
    MAX_ANSWER_BYTES,
    MAX_IDLE_INSTALLATIONS,
    AppSession,
    GitHubConnection,
    InstallationSession,
)
from bot.github.rate_limit import Limits, RequestBudget
from bot.github.types import AppRemovedError, GitHubError, remedy_for
from localhub import Exchange, LocalHub
from tests.changes import a_change, a_file
from tests.github_world import World

Ask = Callable[[GitHub], object]


@dataclass(slots=True, kw_only=True)
class FixedServer:
    """A server that gives one answer to everything.

    Attributes:
        url: its REST address.
        requests: `METHOD path` of every request.
    """

    github: GitHub
    url: str
    requests: list[str] = field(default_factory=list)


@asynccontextmanager
async def fixed_server(text: str, *, status: int = 200) -> AsyncIterator[FixedServer]:
    """A client of a server that answers `text` to everything."""
    requests: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(f"{request.method} {request.path}")
        return web.Response(status=status, text=text, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v3"
        async with GitHub.for_token("a-token", url, redact=str, seconds_between_writes=0) as github:
            yield FixedServer(github=github, requests=requests, url=url)
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.github.connection._FIRST_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty answer"),
        ("<html><title>Maintenance</title>", "not JSON, but `<html><title>Maintenance</title>`"),
        ('{"id": 1, "na', 'not JSON, but `{"id": 1, "na`'),
        ("{}", "an answer without a valid `id`, `full_name`, `private`."),
        ("[" * 100_000, "not JSON, but `[["),
        ("null", "no object and no list, but `null`"),
        ('"OK"', 'no object and no list, but `"OK"`'),
    ],
)
async def test_an_answer_that_nobody_can_read_is_an_error_with_a_text_and_is_asked_for_again(
    text: str, said: str
) -> None:
    async with fixed_server(text) as server:
        with pytest.raises(GitHubError) as error:
            await server.github.repos.get("o/r")
        assert f"GitHub answered 200: {said}" in str(error.value)
        assert "CODEPILOT_API_URL" in error.value.remedy
        assert error.value.is_transient
        assert server.requests == ["GET /api/v3/repos/o/r"] * (1 if text == "{}" else 4)


@pytest.mark.parametrize(("excess", "is_refused"), [(0, False), (1, True)])
async def test_an_answer_has_a_size_limit(excess: int, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool) -> None:
    assert MAX_ANSWER_BYTES == 64 * 1024**2
    monkeypatch.setattr("bot.github.connection.MAX_ANSWER_BYTES", 1_000)
    text = json.dumps([{"name": "x" * 900}]).ljust(1_000 + excess)
    async with fixed_server(text) as server, GitHubConnection("a-token", server.url) as connection:
        with pytest.raises(GitHubError, match="more than 1,000 bytes") if is_refused else nullcontext() as refusal:
            await connection.request("read the list", "GET", "/list")
        assert refusal is None or (refusal.value.status == 0 and refusal.value.is_transient)
        assert server.requests == ["GET /api/v3/list"] * (4 if is_refused else 1)


@pytest.mark.parametrize(("count", "is_refused"), [(10, False), (11, True)])
async def test_an_answer_has_a_limit_of_values(
    count: int, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    monkeypatch.setattr("bot.github.connection.MAX_ANSWER_VALUES", 10)
    text = json.dumps([1] * count)
    async with fixed_server(text) as server, GitHubConnection("a-token", server.url) as connection:
        with pytest.raises(GitHubError, match="more than 10 values") if is_refused else nullcontext():
            await connection.request("read the list", "GET", "/list")


async def test_a_request_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection_module._REQUEST_SECONDS == 600
    monkeypatch.setattr("bot.github.connection._REQUEST_SECONDS", 0.1)
    requests, is_over = list[str](), asyncio.Event()

    async def trickle(request: web.Request) -> web.StreamResponse:
        requests.append(request.method)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"[")
        await is_over.wait()
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", trickle)
    server = TestServer(app)
    async with server, GitHubConnection("a-token", str(server.make_url("/api/v3"))) as connection:
        with pytest.raises(GitHubError, match="no answer from GitHub: TimeoutError") as error:
            await connection.request("open an issue", "POST", "/issues")
        is_over.set()
    assert error.value.may_have_succeeded
    assert requests == ["POST"]


async def test_an_answer_that_is_no_list_where_one_was_asked_for_is_an_error() -> None:
    async with fixed_server('{"message": "maintenance"}') as server:
        with pytest.raises(GitHubError, match="GitHub answered 200: no list", check=lambda error: error.is_transient):
            await server.github.comments.list_for_thread("o/r", 1)


@pytest.mark.parametrize("text", ["<html>", "{}", '{"token": "t"}'])
async def test_a_token_that_nobody_can_read_is_an_error_of_githubs(text: str, world: World) -> None:
    async with fixed_server(text) as server:
        client = GitHub.for_installation(world.app.id, world.app.private_key_pem, 1, server.url, redact=str)
        async with client as github:
            for ask in (github.repos.get("o/r"), github.tokens.for_clone("o/r")):
                with pytest.raises(GitHubError) as error:
                    await ask
                assert error.value.is_transient
        assert set(server.requests) == {"POST /api/v3/app/installations/1/access_tokens"}


@pytest.mark.parametrize("answer", [{"errors": None, "data": None}, {"errors": None}, {"data": {}}, {}])
async def test_an_answer_of_graphql_without_what_was_asked_for_is_an_error(answer: object) -> None:
    async with fixed_server(json.dumps(answer)) as server:
        with pytest.raises(GitHubError):
            await server.github.commits.create(
                "o/r", branch="b", expected_head="a" * 40, title="t", body="", change=a_change(a_file("a.txt"))
            )


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (["Head sha is missing", "Base is missing"], "Validation Failed; Head sha is missing; Base is missing"),
        ([{"message": "Too long"}, {"code": "custom"}, "plain", 5, None], "Validation Failed; Too long; custom; plain"),
        (None, "Validation Failed"),
        ("text", "Validation Failed"),
        ({"a": 1}, "Validation Failed"),
    ],
)
async def test_errors_of_any_form_are_told(errors: object, said: str) -> None:
    async with fixed_server(json.dumps({"message": "Validation Failed", "errors": errors}), status=422) as server:
        with pytest.raises(GitHubError) as error:
            await server.github.repos.get("o/r")
    assert error.value.message == said


@pytest.mark.parametrize("text", ["", "<html>", "[1]", "null", '"x"', "{"])
async def test_a_refusal_of_any_form_is_one_of_githubs(text: str) -> None:
    async with fixed_server(text, status=403) as server:
        with pytest.raises(GitHubError, check=lambda error: error.status == 403):
            await server.github.repos.get("o/r")


async def test_what_graphql_gives_for_a_reason_is_the_reason() -> None:
    refused = {"data": None, "errors": [{"message": "Protected branch update failed: 1 approving review is required"}]}
    async with fixed_server(json.dumps(refused)) as server:
        with pytest.raises(GitHubError) as error:
            await server.github._connection.graphql("commit", "mutation", {}, needs="createRef")
    assert error.value.message == "Protected branch update failed: 1 approving review is required"
    assert "protection rules" in error.value.remedy


def test_each_refusal_has_its_own_remedy() -> None:
    assert "support" in remedy_for(451, "Repository access blocked")
    assert "Unlock" in remedy_for(403, "Issue is locked")
    assert "Unlock" not in remedy_for(403, "Repository access blocked")
    assert "Wait" in remedy_for(429, "Too many requests")
    assert "later" in remedy_for(408, "Request timed out")


async def test_a_token_that_died_is_minted_anew_even_for_a_post(world: World) -> None:
    await world.github.repos.get(world.name)
    world.hub.faults.add("POST", "*/comments", "401")
    await world.github.comments.create(world.name, world.thread, "once")
    assert [each.body for each in world.hub.comments(world.repo, world.issue.number)] == ["once"]


async def test_a_token_that_is_refused_twice_is_an_error_that_may_pass(world: World) -> None:
    world.hub.faults.add("GET", "*/repos/mona/calc", "401", times=2)
    with pytest.raises(GitHubError) as caught:
        await world.github.repos.get(world.name)
    assert caught.value.certainty == "doubtful"


@pytest.mark.parametrize("date", ["soon", "Sat, 21 Nov 99999999999999 12:00:30 GMT"])
def test_an_unreadable_date_corrects_no_clock(date: str) -> None:
    assert not AppIdentity(1, "a key").correct_clock(date)


@pytest.mark.parametrize("minutes", [-5, 5, -150])
async def test_where_our_clock_is_wrong_tokens_are_signed_for_githubs_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, minutes: int
) -> None:
    off = timedelta(minutes=minutes)
    async with LocalHub(tmp_path, now=lambda: datetime.now(UTC) + off) as hub:
        hub.add_user("mona")
        repo = hub.add_repo("mona/calc", owner="mona", files={"a": "1"})
        app = hub.add_app("codepilot")
        installation = hub.install(app, repo)
        minted: list[str] = []
        client = GitHub.for_installation(
            app.id, app.private_key_pem, installation, hub.api_url, redact=str, on_mint=minted.append
        )
        caplog.set_level(logging.WARNING)
        async with client as github:
            for _ in range(2):
                assert (await github.repos.get("mona/calc")).full_name == "mona/calc"
            assert (await github.accounts.me()).login == "codepilot[bot]"
    assert len(set(minted)) == 1
    assert "Set the clock" in caplog.text


@pytest.mark.parametrize("trouble", ["graphql_trouble", "graphql_rate_limited"])
async def test_an_error_of_graphql_that_passes_is_waited_for(world: World, trouble: str) -> None:
    world.hub.faults.add("POST", "*/graphql", trouble, retry_after=0)  # type: ignore[arg-type] # one of the two
    await world.github.commits.create_branch(world.name, "codepilot/x", world.sha)
    change = a_change(a_file("a.txt", b"2\n"), base_sha=world.sha)
    made = await world.github.commits.create(
        world.name, branch="codepilot/x", expected_head=world.sha, title="T", body="", change=change
    )
    assert world.hub.branches(world.repo)["codepilot/x"] == made.sha


@pytest.mark.parametrize(
    ("status", "said", "unsettled"),
    [
        (401, "Bad credentials", True),
        (404, "Not Found", True),
        (403, "Forbidden", True),
        (403, "Resource not accessible by integration", False),
        (403, "Repository was archived so is read-only.", False),
        (403, "This installation has been suspended", False),
        (401, "A JSON web token could not be decoded", False),
        (422, "Validation Failed", False),
    ],
)
def test_what_may_be_a_hiccup_is_told_from_what_is_meant(status: int, said: str, *, unsettled: bool) -> None:
    assert (GitHubError("ask", status, said, "").certainty == "doubtful") is unsettled


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
            self.installation,
            self._world.hub.api_url,
            redact=str,
            on_mint=self.learned.append,
            session=self.session,
        ) as github:
            yield github

    @property
    def session(self) -> InstallationSession:
        return self._session.for_installation(self.installation)

    @property
    def installation(self) -> int:
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
    used = app.for_installation(0)
    for installation in range(1, 2 * MAX_IDLE_INSTALLATIONS):
        app.for_installation(installation).limits.record({"x-ratelimit-resource": "core", "x-ratelimit-remaining": "9"})
    assert app.for_installation(0) is used
    assert len(app._live) <= MAX_IDLE_INSTALLATIONS + 1


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


async def test_an_app_that_is_no_longer_installed_is_a_definite_answer(world: World, jobs: Jobs) -> None:
    async with jobs.client() as github:
        world.hub.uninstall(jobs.installation)
        jobs.calls.clear()
        with pytest.raises(AppRemovedError, match="no longer installed") as error:
            await github.repos.get(world.name)
    token = f"/app/installations/{github._connection.auth.installation_id}"  # type: ignore[union-attr] # an App's
    assert jobs.calls == [f"POST {token}/access_tokens", f"GET {token}"]
    assert error.value.certainty == "definite"
    assert not error.value.can_report_later


async def test_an_app_that_was_deleted_is_a_definite_answer(world: World, jobs: Jobs) -> None:
    key = world.app.private_key_pem
    async with GitHub.for_installation(999_999, key, jobs.installation, world.hub.api_url, redact=str) as github:
        with pytest.raises(AppRemovedError, match="404: Integration not found"):
            await github.repos.get(world.name)


async def test_one_refusal_of_a_token_is_not_believed(world: World, jobs: Jobs) -> None:
    world.hub.faults.add("POST", "*/access_tokens", "404", times=1)
    async with jobs.client() as github:
        with pytest.raises(GitHubError, check=lambda error: error.certainty == "doubtful"):
            await github.repos.get(world.name)
        assert (await github.repos.get(world.name)).full_name == world.name


async def test_a_suspended_installation_and_a_wrong_key_are_definite_answers(world: World, jobs: Jobs) -> None:
    world.hub.suspend(jobs.installation)
    async with jobs.client() as github:
        with pytest.raises(GitHubError, match="suspended") as suspended:
            await github.repos.get(world.name)
    other_key = world.hub.add_app("other").private_key_pem
    async with GitHub.for_installation(
        world.app.id, other_key, jobs.installation, world.hub.api_url, redact=str
    ) as github:
        with pytest.raises(GitHubError, match="codepilot doctor") as wrong_key:
            await github.repos.get(world.name)
    errors = (suspended.value, wrong_key.value)
    assert [(error.status, error.certainty) for error in errors] == [(403, "definite"), (401, "definite")]
    assert all(error.can_report_later for error in errors)  # the operator may mend both within a week


def minting(value: str, *, minted_at: float | None = None) -> Callable[[], Awaitable[Token]]:
    async def mint() -> Token:
        at = time.time() if minted_at is None else minted_at
        return Token(value=value, minted_at=at, expires_at=at + 3600.0)

    return mint


async def test_a_token_is_replaced_before_it_expires() -> None:
    now = 1000.0
    store = TokenStore(lambda: now)
    assert await store.get((), minting("first", minted_at=now)) == "first"
    now += 3600 - RENEW_SECONDS
    assert await store.get((), minting("second", minted_at=now)) == "first"
    now += 1
    assert await store.get((), minting("second", minted_at=now)) == "second"


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
async def test_only_an_old_token_is_blamed_for_what_it_may_not_do(
    *, age: float, outright: bool, proven: bool, replaced: bool
) -> None:
    now = 1000.0
    store = TokenStore(lambda: now)
    await store.get((), minting("first", minted_at=now))
    now += age
    assert store.refuse("first", outright=outright, proven=proven) is replaced
    assert await store.get((), minting("second", minted_at=now)) == ("second" if replaced else "first")


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


async def test_tokens_of_a_repository_can_be_forgotten() -> None:
    store = TokenStore()
    for repo in ("o/a", "o/b"):
        await store.get((repo, "contents: read"), minting(f"{repo} 1"))
    store.forget("o/a")
    assert await store.get(("o/a", "contents: read"), minting("new")) == "new"
    assert await store.get(("o/b", "contents: read"), minting("new")) == "o/b 1"


async def test_a_long_pause_is_left_to_the_caller_and_kept_by_all_jobs_of_the_installation(
    world: World, jobs: Jobs
) -> None:
    world.hub.faults.add("GET", "*/repos/mona/calc", "secondary_rate_limited", retry_after=150)
    async with jobs.client() as github, jobs.client() as other:
        with pytest.raises(GitHubError) as caught:
            await github.repos.get(world.name)
        assert caught.value.retry_after == 150
        count = len(jobs.calls)
        with pytest.raises(GitHubError) as caught:
            await other.threads.get(world.name, world.issue.number)
        assert 140 < caught.value.retry_after <= 150
        assert len(jobs.calls) == count


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
    assert budget.poll_backoff(0.0) == pytest.approx(spread)


def test_the_limits_follow_what_github_says() -> None:
    now = 0.0
    limits = Limits(lambda: now)
    limits.record({"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "500", "x-ratelimit-reset": "3600"})
    limits.record({"x-ratelimit-limit": "?"})
    assert limits.poll_backoff == pytest.approx(10.0)
    limits.suspend(10.0)
    limits.suspend(5.0)
    assert limits.pause_seconds == 10.0
    now = 11.0
    assert limits.pause_seconds == 0.0
