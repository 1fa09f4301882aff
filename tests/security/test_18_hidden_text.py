"""Threats 18 to 21 in the brief: what a page does not show never reaches the agent, however it is spelled."""

from __future__ import annotations

import pytest

from bot.domain.commands import Fix
from bot.prompt.brief import Material
from tests.builders import a_comment, a_job, in_a_review, on_lines, task_for
from tests.differences import difference_of
from tests.hiding_places import HIDING_PLACES


@pytest.mark.parametrize("hidden", HIDING_PLACES, ids=ascii)
def test_invisible_text_is_removed_with_a_note(hidden: str) -> None:
    job = a_job(body=f"Body\n\n{hidden}", command=Fix(goal=""))
    said = a_comment(1, f"Comment\n\n{hidden}")
    material = Material(comments=(said,), line_comments=(on_lines(said),), reviews=(in_a_review(said),))
    task = task_for(job, material=material)
    assert len(task.quotes) == 4
    for quote in task.quotes:
        assert "EVIL" not in quote.text
        assert "[removed from this text: " in quote.text
        assert not any(0xE0000 <= ord(character) <= 0xE0FFF for character in quote.text)


def test_no_text_of_a_stranger_becomes_the_goal() -> None:
    job = a_job(title="EVIL", body="EVIL", command=Fix(goal=""))
    assert "EVIL" not in task_for(job, material=Material(comments=(a_comment(1, "EVIL"),))).goal


def test_bidirectional_and_zero_width_characters_are_stripped() -> None:
    task = task_for(a_job(title="a\u202eb", body="pass\u200bword\u2066\u2069"))
    assert not set(task.quotes[0].text) & set("\u202e\u200b\u2066\u2069")
    hidden_in_the_command = task_for(a_job(command=Fix(goal="mend it\U000e0045\u202e")))
    assert hidden_in_the_command.goal == "mend it"


@pytest.mark.parametrize("place", ["diff", "approved_plan"])
def test_in_code_and_logs_nothing_is_invisible(place: str) -> None:
    text = "+a\u202e\U000e0045b"
    material = Material(approved_plan=text) if place != "diff" else Material(difference=difference_of({"a.py": [text]}))
    task = task_for(a_job(kind="pull"), material=material)
    assert not set("".join(quote.text for quote in task.quotes)) & set("\u202e\U000e0045")
