"""Each verb in each place, in the App and in a workflow: what happens, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix import CELLS, Place, Row, System, open_scene


@pytest.mark.parametrize(
    ("row", "place", "system"), CELLS, ids=[f"{row.verb}, {place}, {system}" for row, place, system in CELLS]
)
async def test_a_verb_does_in_a_place_what_the_table_says(
    tmp_path: Path, row: Row, place: Place, system: System
) -> None:
    expected = row.results[place]
    async with open_scene(tmp_path, row, place, system) as scene:
        async with scene.ready(row.set_up):
            before = scene.look()
            await scene.say(row.command)
        after = scene.look()
        comments = before.comments_until(after)
        assert before.changes_until(after, scene.stage.repo.commits) == expected.changes, comments
        assert expected.text in comments
        assert (after.agents > before.agents) is expected.is_paid
