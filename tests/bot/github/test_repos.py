"""Facts about people and files, asked of a real hub."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.job import Actor
from bot.github.types import FileTooLargeError, GitHubError
from bot.jobs.repo_settings import find_recipes
from bot.permissions.repo_config import MAX_RECIPE_BYTES, MAX_RECIPES
from tests.github_world import World


async def test_an_account_is_known_by_its_number(world: World) -> None:
    hubot = world.hub.add_user("hubot")
    found = await world.github.accounts.get(hubot.id)
    assert found is not None
    assert (found.id, found.login) == (hubot.id, "hubot")
    assert await world.github.accounts.get(99_999_999) is None


async def test_a_role_is_of_the_account_and_not_of_the_name(world: World) -> None:
    world.hub.add_collaborator(world.repo, "hubot", "write")
    hubot = world.hub.add_user("hubot")
    stranger = world.hub.add_user("stranger")
    assert await world.github.accounts.get_role(world.name, hubot.id, "hubot") == "write"
    # The stranger took this name, or says so: the right is not theirs.
    assert await world.github.accounts.get_role(world.name, stranger.id, "hubot") in {"none", "read"}
    assert await world.github.accounts.get_role(world.name, 99_999_999, "hubot") == "none"


async def test_who_was_renamed_keeps_the_role(world: World) -> None:
    world.hub.add_collaborator(world.repo, "hubot", "maintain")
    hubot = world.hub.add_user("hubot")
    users = world.hub._site.store.users
    users.put(replace(users[hubot.id], login="hubot-two"))
    assert await world.github.accounts.get_role(world.name, hubot.id, "hubot") == "maintain"


async def test_an_error_about_a_role_is_never_a_role(world: World) -> None:
    world.hub.faults.add("GET", "*/permission", "secondary_rate_limited", retry_after=3600)
    with pytest.raises(GitHubError):
        await world.github.accounts.get_role(world.name, 1, "mona")


async def test_who_opened_a_pull_request_is_known_by_number(world: World) -> None:
    pull = world.pull()
    mona = world.hub.add_user("mona")
    facts = await world.github.pulls.get(world.name, pull.number)
    assert facts.author == Actor(id=mona.id, login="mona")
    thread = await world.github.threads.get(world.name, pull.number)
    assert (thread.kind, thread.author.id) == ("pull", mona.id)


async def test_a_file_is_read_at_a_branch_a_commit_or_where_the_default_branch_stands(world: World) -> None:
    name = "dir with space/\u00fcber#1?.txt"
    sha = world.hub.commit(world.repo, {name: b"\xff\x00"}, message="More", author="mona", branch="topic")
    for ref in ("topic", sha):
        assert await world.github.repos.read_file(world.name, name, ref) == b"\xff\x00"
    assert await world.github.repos.read_file(world.name, name) is None
    assert await world.github.repos.read_file(world.name, "a.txt") == b"1\n"
    assert await world.github.repos.read_file(world.name, "a.txt", "absent") is None
    assert await world.github.repos.read_file("mona/absent", "a.txt") is None


async def test_a_folder_and_a_link_are_no_file(world: World) -> None:
    world.hub.commit(world.repo, {"dir/one": "1"}, message="More", author="mona")
    assert await world.github.repos.read_file(world.name, "dir") is None


async def test_a_file_of_more_than_a_megabyte_is_not_read(world: World) -> None:
    world.hub.commit(world.repo, {"big.bin": b"0123456789abcdef" * 80_000}, message="Big", author="mona")
    with pytest.raises(FileTooLargeError, match=r"big\.bin: has 1,280,000 bytes"):
        await world.github.repos.read_file(world.name, "big.bin")


async def test_the_recipes_of_a_repository_are_read_by_two_requests(world: World) -> None:
    names = [f"recipe-{number:02}" for number in range(MAX_RECIPES)]
    files = {f".github/codepilot/{name}.md": f"---\non: comment\n---\nTidy up \u00fc {name}.\n" for name in names}
    files[".github/codepilot/recipe-03.md"] = "x" * (MAX_RECIPE_BYTES + 1)
    files[".github/codepilot/recipe-04.md"] = files[".github/codepilot/recipe-05.md"]
    world.hub.commit(world.repo, files, message="Recipes", author="mona")
    await world.github.repos.get(world.name)  # has a token from here on
    asked: list[str] = []
    world.hub.observe(on_exchange=lambda exchange: asked.append(exchange.path))
    found = await find_recipes(world.github, world.name)
    assert [each.name for each in found.recipes] == [name for name in names if name != "recipe-03"]
    assert [each.text for each in found.recipes][2:4] == ["Tidy up \u00fc recipe-02.", "Tidy up \u00fc recipe-05."]
    assert found.problems == (".github/codepilot/recipe-03.md: has 16,001 bytes; the limit is 16,000.",)
    assert len(asked) == 2, asked


async def test_a_folder_without_recipes_costs_one_request(world: World) -> None:
    await world.github.repos.get(world.name)
    asked: list[str] = []
    world.hub.observe(on_exchange=lambda exchange: asked.append(exchange.path))
    assert not (await find_recipes(world.github, world.name)).recipes
    assert len(asked) == 1, asked


async def test_files_that_are_no_utf8_text_are_read_as_they_are_and_ids_that_are_gone_are_left_out(
    world: World,
) -> None:
    odd = {
        "latin.md": "gr\u00fc\u00df".encode("latin-1"),
        "binary.md": b"\0\1",
        "empty.md": b"",
        "good.md": b"\xef\xbb\xbfok",
    }
    files = {f".github/codepilot/{name}": content for name, content in odd.items()}
    world.hub.commit(world.repo, files, message="Recipes", author="mona")
    listed = await world.github.repos.list_files(world.name, ".github/codepilot")
    assert {name: file.size for name, file in listed.items()} == {name: len(content) for name, content in odd.items()}
    ids = {name: file.sha for name, file in listed.items()}
    read = await world.github.repos.read_blobs(world.name, [*ids.values(), "0" * 40, world.sha])
    assert read == {ids["empty.md"]: b"", ids["good.md"]: odd["good.md"]}
    found = await find_recipes(world.github, world.name)
    assert ".github/codepilot/latin.md: is not UTF-8 (byte 2); save it as UTF-8." in found.problems
