"""Labels."""

from __future__ import annotations

from tests.github_world import World


async def test_a_label_is_taken_off_and_once_more_changes_nothing(world: World) -> None:
    number, name = world.issue.number, "codepilot:auto/\u00fc ?"
    world.hub.add_label(world.repo, number, name, by="mona")
    assert set(world.hub.issue(world.repo, number).labels) == {"bug", name}
    for _ in range(2):
        await world.github.threads.remove_label(world.name, number, name)
    assert world.hub.issue(world.repo, number).labels == ("bug",)


async def test_a_label_is_made_once(world: World) -> None:
    for _ in range(2):
        await world.github.repos.create_label(
            world.name, "codepilot:ask", color="1d76db", description="Shell commands off the list are asked for"
        )
    assert (await world.github.repos.labels(world.name)).count("codepilot:ask") == 1
