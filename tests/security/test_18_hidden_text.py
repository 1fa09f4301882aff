"""Threats 17, 18 and 19 in the brief: hidden text never reaches the agent, and hostile text never becomes the goal."""

from __future__ import annotations

import pytest

from bot.gate.brief import ThreadComment, task_for
from bot.intake.commands import Fix
from tests.builders import a_job

HIDING_PLACES = [
    "<!-- EVIL -->",
    "<!-- EVIL --!>",
    "<!-- EVIL",
    "<!--\n\nEVIL\n\n-->",
    "<!-- <!-- --> <!-- EVIL -->",
    "<!\u200b-- EVIL -->",
    "<!-\u2060- EVIL -->",
    "<\u00ad!-- EVIL -->",
    "".join(chr(0xE0000 + ord(letter)) for letter in "EVIL"),
]


@pytest.mark.parametrize("hidden", HIDING_PLACES, ids=ascii)
def test_what_a_reader_cannot_see_is_gone_and_its_absence_is_told(hidden: str) -> None:
    job = a_job(title=f"Title {hidden}", body=f"Body {hidden}", command=Fix(goal=""))
    task = task_for(job, comments=[ThreadComment(id=1, author="eve", body=f"Comment {hidden}")])
    for quote in task.quotes:
        assert "EVIL" not in quote.text
        assert "[removed from this text: " in quote.text
        assert not any(0xE0000 <= ord(character) <= 0xE0FFF for character in quote.text)


def test_no_text_of_a_stranger_becomes_the_goal() -> None:
    job = a_job(title="EVIL", body="EVIL", command=Fix(goal=""))
    assert "EVIL" not in task_for(job, comments=[ThreadComment(id=1, author="eve", body="EVIL")]).goal


def test_bidirectional_and_zero_width_characters_are_stripped() -> None:
    task = task_for(a_job(title="a\u202eb", body="pass\u200bword\u2066\u2069"))
    assert not set(task.quotes[0].text) & set("\u202e\u200b\u2066\u2069")
