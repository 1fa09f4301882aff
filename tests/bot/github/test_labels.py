"""Labels, and who set them."""

from __future__ import annotations

from tests.github_world import World


async def test_who_set_a_label_is_who_set_it_last(world: World) -> None:
    number = world.issue.number
    for login in ("hubot", "octo"):
        world.hub.add_collaborator(world.repo, login, "triage")
    world.hub.add_label(world.repo, number, "codepilot:auto", by="hubot")
    world.hub.add_label(world.repo, number, "codepilot:ask", by="hubot")
    world.hub.remove_label(world.repo, number, "codepilot:auto", by="octo")
    world.hub.add_label(world.repo, number, "codepilot:auto", by="octo")
    world.hub.remove_label(world.repo, number, "codepilot:ask", by="octo")
    setters = await world.github.label_setters(world.name, number)
    octo = world.hub.add_user("octo")
    assert (setters["codepilot:auto"].id, setters["codepilot:auto"].login) == (octo.id, "octo")
    assert "codepilot:ask" not in setters
    assert set(await world.github.labels(world.name, number)) == {"bug", "codepilot:auto"}


async def test_a_label_is_set_and_taken_off_and_once_more_changes_nothing(world: World) -> None:
    number, name = world.issue.number, "codepilot:auto/\u00fc ?"
    for _ in range(2):
        await world.github.add_label(world.name, number, name)
    assert set(await world.github.labels(world.name, number)) == {"bug", name}
    for _ in range(2):
        await world.github.remove_label(world.name, number, name)
    assert await world.github.labels(world.name, number) == ("bug",)


async def test_a_label_is_made_once(world: World) -> None:
    for _ in range(2):
        await world.github.create_label(
            world.name, "codepilot:ask", color="1d76db", description="Shell commands off the list are asked for"
        )
    assert (await world.github.repo_labels(world.name)).count("codepilot:ask") == 1
