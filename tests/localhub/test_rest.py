from __future__ import annotations

import aiohttp
import pytest

from localhub import Trouble
from localhub.git import plumbing as git
from tests.localhub.conftest import World

R = "/repos/acme/widgets"


async def test_lists_are_paged_with_links(world: World) -> None:
    for number in range(5):
        world.hub.open_issue(world.repo, author="mona", title=f"Issue {number}")
    reply = await world.nobody.ask("GET", f"{R}/issues?per_page=2&page=2")
    assert [issue["number"] for issue in reply.body] == [3, 2]
    link = reply.headers["Link"]
    assert all(f'rel="{rel}"' in link for rel in ("prev", "next", "first", "last"))
    assert f"{world.hub.api_url}{R}/issues?per_page=2&page=3" in link


async def test_an_unchanged_answer_costs_nothing(world: World) -> None:
    first = await world.owner.ask("GET", R)
    again = await world.owner.ask("GET", R, None, If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, "")
    world.hub.open_issue(world.repo, author="mona", title="Something new")
    assert (await world.owner.ask("GET", R, None, If_None_Match=first.headers["ETag"])).status == 200


async def test_every_answer_tells_the_rate_limit_and_a_request_id(world: World) -> None:
    first, second = await world.owner.ask("GET", R), await world.owner.ask("GET", "/repos/acme/nowhere")
    used = [int(reply.headers["X-RateLimit-Used"]) for reply in (first, second)]
    assert used[1] == used[0] + 1
    assert first.headers["X-GitHub-Request-Id"] != second.headers["X-GitHub-Request-Id"]


async def test_every_address_in_an_answer_is_the_hubs_own(world: World) -> None:
    body = (await world.owner.ask("GET", R)).body
    urls = [value for name, value in body.items() if name.endswith("_url") and isinstance(value, str)]
    own = [url for url in urls if url.partition("://")[2].split("@")[-1].startswith(world.hub.url.partition("://")[2])]
    assert own == urls


async def test_what_cannot_be_is_unprocessable(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="One")
    too_long = await world.bot.ask("POST", f"{R}/issues/1/comments", {"body": "x" * 65_537})
    assert (too_long.status, too_long.body["errors"][0]["field"]) == (422, "body")
    fits = await world.bot.ask("POST", f"{R}/issues/1/comments", {"body": "x" * 65_536})
    assert fits.status == 201
    for body in ({}, {"title": None}, {"title": "  "}):
        assert (await world.owner.ask("POST", f"{R}/issues", body)).status == 422


async def test_pull_requests_that_make_no_sense_are_refused(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.commit(repo, {"n.txt": "n\n"}, message="New", author="mona", branch="new")
    wanted = {"title": "New", "head": "new", "base": "main"}
    assert (await world.bot.ask("POST", f"{R}/pulls", wanted)).status == 201
    again = await world.bot.ask("POST", f"{R}/pulls", wanted)
    assert again.body["errors"][0]["message"] == "A pull request already exists for acme:new."
    await world.bot.ask("POST", f"{R}/git/refs", {"ref": "refs/heads/same", "sha": hub.branches(repo)["main"]})
    nothing = await world.bot.ask("POST", f"{R}/pulls", wanted | {"head": "same"})
    assert nothing.body["errors"][0]["message"] == "No commits between main and same"
    assert (await world.bot.ask("POST", f"{R}/pulls", wanted | {"head": "gone"})).status == 422


async def test_a_branch_moves_forward_only_unless_forced(world: World) -> None:
    old = world.hub.branches(world.repo)["main"]
    new = world.hub.commit(world.repo, {"n.txt": "n\n"}, message="New", author="mona")
    back = await world.bot.ask("PATCH", f"{R}/git/refs/heads/main", {"sha": old})
    assert (back.status, back.body["message"]) == (422, "Update is not a fast forward")
    assert world.hub.branches(world.repo)["main"] == new
    assert (await world.bot.ask("PATCH", f"{R}/git/refs/heads/main", {"sha": old, "force": True})).status == 200


async def test_a_pull_request_from_a_fork_is_shown_and_follows_its_branch(world: World) -> None:
    fork = world.hub.add_repo("eve/widgets", fork_of=world.repo)
    sha = world.hub.commit(fork, {"src/a.py": "x = 2\n"}, message="Two", author="eve", branch="two")
    world.hub.open_pull(world.repo, author="eve", head="eve:two", title="Two")
    body = (await world.bot.ask("GET", f"{R}/pulls/1")).body
    assert (body["head"]["repo"]["full_name"], body["head"]["sha"], body["commits"]) == ("eve/widgets", sha, 1)
    newer = world.hub.commit(fork, {"src/a.py": "x = 3\n"}, message="Three", author="eve", branch="two")
    assert (await world.bot.ask("GET", f"{R}/pulls/1")).body["head"]["sha"] == newer
    files = (await world.bot.ask("GET", f"{R}/pulls/1/files")).body
    assert files[0]["patch"] == "@@ -1 +1 @@\n-x = 1\n+x = 3"


@pytest.mark.parametrize(
    ("trouble", "status"),
    [("502", 502), ("503", 503), ("rate_limited", 403), ("secondary_rate_limited", 403)],
)
async def test_trouble_comes_as_often_as_asked_for(world: World, trouble: Trouble, status: int) -> None:
    world.hub.faults.add("GET", "*/repos/acme/widgets", trouble, times=2)
    assert [(await world.owner.ask("GET", R)).status for _ in range(3)] == [status, status, 200]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "pulls/1/reviews", {"event": "COMMENT", "body": "x"}),
        ("POST", "issues/1/labels", {"labels": ["x"]}),
        ("POST", "labels", {"name": "x"}),
        ("GET", "issues/1/timeline", None),
        ("GET", "actions/workflows/ci.yml/runs", None),
    ],
)
async def test_every_address_of_a_repository_can_be_in_trouble(
    world: World, method: str, path: str, body: dict[str, object] | None
) -> None:
    where = f"{R}/{path}"
    world.hub.commit(world.repo, {"n.txt": "n\n"}, message="N", author="mona", branch="topic")
    world.hub.open_pull(world.repo, author="mona", head="topic", title="N")
    world.hub.faults.add("*", f"*{where}", "secondary_rate_limited", retry_after=7)
    limited = await world.bot.ask(method, where, body)
    assert (limited.status, limited.headers["Retry-After"]) == (403, "7")
    assert "secondary rate limit" in limited.body["message"]
    assert not world.hub.history(world.repo, 1)
    assert not world.hub.reviews(world.repo, 1)
    assert not len(world.hub.faults)
    used = int(limited.headers["X-RateLimit-Used"])
    assert int((await world.bot.ask(method, where, body)).headers["X-RateLimit-Used"]) == used + 1


async def test_a_dropped_answer_leaves_the_deed_done(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="One")
    path = f"{R}/issues/1/comments"
    world.hub.faults.add("POST", "*/comments", "drop")
    world.hub.faults.add("POST", "*/comments", "drop_answer")
    for comments in (0, 1):
        with pytest.raises(aiohttp.ClientError):
            await world.bot.ask("POST", path, {"body": "x"})
        assert len(world.hub.comments(world.repo, 1)) == comments


async def test_a_release_makes_its_tag_when_it_is_published(world: World) -> None:
    draft = (await world.bot.ask("POST", f"{R}/releases", {"tag_name": "v1.0", "name": "One", "draft": True})).body
    assert (draft["published_at"], git.refs(world.repo.path, "refs/tags")) == (None, [])
    assert (await world.stranger.ask("GET", f"{R}/releases/{draft['id']}")).status == 404
    assert (await world.stranger.ask("GET", f"{R}/releases")).body == []
    await world.bot.ask("PATCH", f"{R}/releases/{draft['id']}", {"draft": False})
    [tag] = git.refs(world.repo.path, "refs/tags")
    assert (tag.name, tag.sha) == ("refs/tags/v1.0", git.resolve(world.repo.path, "main"))
    assert [each["name"] for each in (await world.stranger.ask("GET", f"{R}/releases")).body] == ["One"]
    assert (await world.stranger.ask("POST", f"{R}/releases", {"tag_name": "v2"})).status in {403, 404}


async def test_the_latest_release_is_no_prerelease(world: World) -> None:
    assert (await world.bot.ask("GET", f"{R}/releases/latest")).status == 404
    for tag, early in (("v1", False), ("v2", True)):
        await world.bot.ask("POST", f"{R}/releases", {"tag_name": tag, "prerelease": early})
    assert (await world.bot.ask("GET", f"{R}/releases/latest")).body["tag_name"] == "v1"
    assert [each["tag_name"] for each in (await world.bot.ask("GET", f"{R}/releases")).body] == ["v2", "v1"]
    refused = await world.bot.ask("POST", f"{R}/releases", {"tag_name": "v3", "target_commitish": "nowhere"})
    assert (refused.status, refused.body["message"]) == (422, "Release.target_commitish is invalid")
