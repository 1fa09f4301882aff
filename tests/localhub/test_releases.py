"""Releases: what makes a tag, who sees a draft, which one is the latest."""

from __future__ import annotations

from localhub.git import plumbing as git
from tests.localhub.conftest import World

R = "/repos/acme/widgets"


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
