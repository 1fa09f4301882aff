"""Answers of GitHub that mean nothing for good: a token that died, a clock that is wrong, GraphQL's errors with 200."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.github.client import GitHub
from bot.github.types import GitHubError
from localhub import LocalHub
from tests.changes import a_change, a_file
from tests.github_world import World


async def test_a_token_that_died_is_minted_anew_even_for_a_post(world: World) -> None:
    await world.github.repos.get(world.name)
    world.hub.faults.add("POST", "*/comments", "401")
    await world.github.comments.create(world.name, world.thread, "once")
    assert [each.body for each in world.hub.comments(world.repo, world.issue.number)] == ["once"]


async def test_a_token_that_is_refused_twice_is_an_error_that_may_pass(world: World) -> None:
    world.hub.faults.add("GET", "*/repos/mona/calc", "401", times=2)
    with pytest.raises(GitHubError) as caught:
        await world.github.repos.get(world.name)
    assert caught.value.unsettled


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
            app.id, app.private_key_pem, installation, hub.api_url, redact=str, minted=minted.append
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
    made = await world.github.commits.on_branch(
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
        (422, "Validation Failed", False),
    ],
)
def test_what_may_be_a_hiccup_is_told_from_what_is_meant(status: int, said: str, *, unsettled: bool) -> None:
    assert GitHubError("ask", status, said, "").unsettled is unsettled
