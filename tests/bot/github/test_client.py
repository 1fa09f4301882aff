"""The client against a real hub over HTTP."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bot.git.change import Change
from bot.github.client import GitHub
from bot.github.types import GitHubError, HeadMovedError, PullDraft
from tests.changes import a_change, a_file
from tests.github_world import SECRET, World


@pytest.mark.parametrize("role", ["admin", "maintain", "write", "triage", "read"])
async def test_a_role_is_told_as_it_is(world: World, role: str) -> None:
    world.hub.add_collaborator(world.repo, "hubot", role)  # type: ignore[arg-type] # one of the five
    assert await world.github.accounts.get_role(world.name, world.hub.add_user("hubot").id, "hubot") == role


async def test_an_unknown_login_has_no_role(world: World) -> None:
    assert await world.github.accounts.get_role(world.name, 10**9, "nobody-at-all") == "none"


async def test_an_error_about_a_role_is_an_error_and_not_a_role(world: World) -> None:
    world.hub.faults.add("GET", "*/permission", "secondary_rate_limited", retry_after=3600)
    with pytest.raises(GitHubError, match="permission of mona", check=lambda error: error.limited):
        await world.github.accounts.get_role(world.name, world.hub.add_user("mona").id, "mona")


async def test_facts(world: World) -> None:
    repo = await world.github.repos.get(world.name)
    assert (repo.id, repo.default_branch, repo.archived, repo.private) == (world.repo.id, "main", False, False)
    assert repo.clone_url == f"{world.hub.url}/mona/calc.git"
    thread = await world.github.threads.get(world.name, world.issue.number)
    assert (thread.kind, thread.state, thread.title, thread.body) == ("issue", "open", "It breaks", "Badly.")
    assert (thread.author.login, thread.labels, thread.locked) == ("mona", ("bug",), False)
    assert await world.github.repos.branch_head(world.name, "main") == world.sha
    assert await world.github.repos.branch_head(world.name, "absent") is None
    me = await world.github.accounts.me()
    assert me.login == "codepilot[bot]"


async def test_a_plain_token_knows_who_it_is_and_clones_by_itself(world: World) -> None:
    async with GitHub.for_token(world.token, world.hub.api_url, redact=str, seconds_between_writes=0) as github:
        assert (await github.accounts.me()).login == "mona"
        assert await github.tokens.for_clone(world.name) == world.token


async def test_a_pull_request_is_known_by_both_ends(world: World) -> None:
    head = world.hub.commit(world.repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")
    number = world.hub.open_pull(world.repo, author="mona", head="topic", title="Two").number
    pull = await world.github.pulls.get(world.name, number)
    assert (pull.head_ref, pull.head_sha, pull.base_ref, pull.base_sha) == ("topic", head, "main", world.sha)
    assert (pull.state, pull.from_fork, pull.head_repo) == ("open", False, "mona/calc")


async def test_comments_are_made_found_and_edited_without_secrets(world: World) -> None:
    number = world.issue.number
    made = await world.github.comments.create(world.name, world.thread, f"marker-1 {SECRET}")
    assert made.body == "marker-1 [redacted]"
    world.hub.comment(world.repo, number, author="mona", body="marker-2 forged")
    me = await world.github.accounts.me()
    assert await world.github.comments.find(world.name, world.thread, "marker-1", me.id) == (made,)
    assert await world.github.comments.find(world.name, world.thread, "marker-2", me.id) == ()
    await world.github.comments.edit(world.name, world.thread, made.id, "marker-1 edited")
    assert [c.body for c in world.hub.comments(world.repo, number)] == ["marker-1 edited", "marker-2 forged"]


async def test_a_comment_is_found_on_a_later_page(world: World) -> None:
    for each in range(105):
        world.hub.comment(world.repo, world.issue.number, author="mona", body=f"{each}")
    made = await world.github.comments.create(world.name, world.thread, "here")
    assert await world.github.comments.find(world.name, world.thread, "here", made.author.id) == (made,)


async def test_reacting_twice_is_reacting_once(world: World) -> None:
    comment = world.hub.comment(world.repo, world.issue.number, author="mona", body="/codepilot fix")
    await world.github.comments.react(world.name, world.thread, comment.id, "eyes")
    await world.github.comments.react(world.name, world.thread, comment.id, "eyes")
    assert [r.content for r in world.hub.reactions(comment)] == ["eyes"]


async def test_a_branch_is_made_once_and_never_moved(world: World) -> None:
    await world.github.commits.create_branch(world.name, "codepilot/x", world.sha)
    await world.github.commits.create_branch(world.name, "codepilot/x", world.sha)
    world.hub.commit(world.repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="codepilot/x")
    with pytest.raises(HeadMovedError, match="it points to"):
        await world.github.commits.create_branch(world.name, "codepilot/x", world.sha)


def change_of(world: World) -> Change:
    return a_change(
        a_file("a.txt", b"2\n"), a_file("b.txt", None), a_file("c/d.txt", b"\xff", old_mode=""), base_sha=world.sha
    )


async def test_a_commit_lands_on_its_branch(world: World) -> None:
    await world.github.commits.create_branch(world.name, "codepilot/x", world.sha)
    made = await world.github.commits.create(
        world.name,
        branch="codepilot/x",
        expected_head=world.sha,
        title=f"Fix {SECRET}",
        body="Because.",
        change=change_of(world),
    )
    assert made.parents == (world.sha,)
    assert world.hub.branches(world.repo)["codepilot/x"] == made.sha


async def test_a_commit_on_a_branch_that_moved_is_refused(world: World) -> None:
    world.hub.commit(world.repo, {"a.txt": "theirs\n"}, message="Theirs", author="mona", branch="topic")
    with pytest.raises(HeadMovedError):
        await world.github.commits.create(
            world.name, branch="topic", expected_head=world.sha, title="T", body="", change=change_of(world)
        )


async def test_one_pull_request_a_branch(world: World) -> None:
    world.hub.commit(world.repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")
    draft = PullDraft(base="main", title="T", body="B", draft=False)
    first = await world.github.pulls.create(world.name, draft, head="topic")
    again = await world.github.pulls.create(world.name, draft, head="topic")
    assert first == again
    assert first.html_url == f"{world.hub.url}/mona/calc/pull/{first.number}"


async def test_a_lost_answer_is_not_a_second_comment(world: World) -> None:
    world.hub.faults.add("POST", "*/comments", "drop_answer")
    with pytest.raises(GitHubError) as caught:
        await world.github.comments.create(world.name, world.thread, "once")
    assert caught.value.is_transient
    assert len(world.hub.comments(world.repo, world.issue.number)) == 1


async def test_a_server_error_is_tried_again_where_twice_is_once(world: World) -> None:
    world.hub.faults.add("POST", "*/git/refs", "drop_answer")
    world.hub.faults.add("GET", "*/api/v3/repos/mona/calc", "502")
    await world.github.commits.create_branch(world.name, "codepilot/x", world.sha)
    assert (await world.github.repos.get(world.name)).full_name == "mona/calc"


@pytest.mark.parametrize("trouble", ["rate_limited", "secondary_rate_limited"])
async def test_a_rate_limit_is_waited_for_even_by_a_post(world: World, trouble: str) -> None:
    world.hub.faults.add("POST", "*/comments", trouble, retry_after=0)  # type: ignore[arg-type] # one of the two
    await world.github.comments.create(world.name, world.thread, "late")
    assert [c.body for c in world.hub.comments(world.repo, world.issue.number)] == ["late"]


async def test_a_rate_limit_that_lasts_too_long_is_an_error(world: World) -> None:
    world.hub.faults.add("POST", "*/comments", "secondary_rate_limited", retry_after=3600)
    with pytest.raises(GitHubError, match="rate limit"):
        await world.github.comments.create(world.name, world.thread, "never")


async def test_a_missing_permission_is_named_with_its_remedy(world: World) -> None:
    app = world.hub.add_app("reader", permissions={"issues": "read", "contents": "read"})
    installation = world.hub.install(app, world.repo)
    async with GitHub.for_installation(
        app.id, app.private_key_pem, installation, world.hub.api_url, redact=str
    ) as reader:
        with pytest.raises(GitHubError) as caught:
            await reader.comments.create(world.name, world.thread, "x")
    assert caught.value.lacks_permission
    assert "permission `" in caught.value.remedy


async def test_a_clone_token_reads_one_repository_and_nothing_else(world: World) -> None:
    other = world.hub.add_repo("mona/other", owner="mona", private=True, files={"a": "1"})
    world.hub.install(world.hub.add_app("x"), other)
    token = await world.github.tokens.for_clone(world.name)
    assert token.startswith("ghs_")
    async with GitHub.for_token(token, world.hub.api_url, redact=str) as narrow:
        assert (await narrow.repos.get(world.name)).full_name == world.name
        with pytest.raises(GitHubError):
            await narrow.comments.create(world.name, world.thread, "x")
        with pytest.raises(GitHubError):
            await narrow.repos.get(other.full_name)


async def test_calls_at_once_do_not_mix_their_answers(world: World) -> None:
    numbers = [world.issue.number]
    numbers += [world.hub.open_issue(world.repo, author="mona", title=f"T{n}").number for n in range(10)]
    facts = await asyncio.gather(*(world.github.threads.get(world.name, n) for n in numbers))
    assert [f.number for f in facts] == numbers


async def test_no_token_and_no_key_reach_a_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = await world.github.tokens.for_clone(world.name)
    await world.github.repos.get(world.name)
    assert token not in caplog.text
    assert "PRIVATE KEY" not in caplog.text + repr(world.github)
