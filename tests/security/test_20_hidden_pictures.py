"""Threats 18 and 20, for pictures: one that the page does not show is not shown to the agent either."""

from __future__ import annotations

import pytest

from bot.domain.commands import Fix
from bot.prompt.brief import Material, brief_for, picture_addresses
from tests.builders import a_comment, a_job
from tests.hiding_places import HIDING_PLACES

URL = "https://github.com/user-attachments/assets/6f1c0f35-1f0e-4c5e-9c39-0a5d7a0f2b11"
MARKDOWN, TAGS = f"![]({URL})", (f'<img src="{URL}">', f"<img src={URL}>")
# A tag in the name of a tag, and brackets in brackets, undo the hiding place, so that the page shows the picture.
IN_NAMES, IN_BRACKETS = ("<EVIL", "<x-EVIL"), ("(EVIL)", "\nEVIL)", "[EVIL]:")
PLACES = [place for place in HIDING_PLACES if "EVIL" in place and not place.startswith(IN_NAMES)]


@pytest.mark.parametrize("picture", TAGS)
@pytest.mark.parametrize("hidden", PLACES, ids=ascii)
def test_a_tag_that_a_reader_cannot_see_is_not_looked_at(hidden: str, picture: str) -> None:
    assert URL not in picture_addresses(f"Body\n\n{hidden.replace('EVIL', picture)}")


@pytest.mark.parametrize("hidden", [place for place in PLACES if not any(map(place.count, IN_BRACKETS))], ids=ascii)
def test_a_picture_that_a_reader_cannot_see_is_not_looked_at(hidden: str) -> None:
    assert URL not in picture_addresses(f"Body\n\n{hidden.replace('EVIL', MARKDOWN)}")


@pytest.mark.parametrize("room_taken", [0, 20_000])
def test_a_comment_that_is_not_quoted_is_not_looked_at_either(room_taken: int) -> None:
    at = "2026-01-02T03:04:0{}Z"
    job = a_job(command=Fix(goal=""), body="")
    later = a_comment(901, f"![]({URL}1)", at=at.format(6))
    edited = a_comment(1, f"![]({URL}2)", at=at.format(1), edited=at.format(9))
    ours = a_comment(2, f"![]({URL}3)", author="codepilot[bot]", author_id=99)
    many = tuple(
        a_comment(10 + n, f"{'word ' * 900} ![]({URL}#{n})", author=f"u{n}", at=at.format(2)) for n in range(40)
    )
    material = Material(own_id=99, comments=(edited, ours, *many, later), diff="+word\n" * room_taken)
    brief = brief_for(job, material=material)
    found = {each.address for each in brief.pictures}
    quoted = {int(quote.source.removeprefix("comment by @u")) for quote in brief.quotes if "@u" in quote.source}
    assert found == {f"{URL}#{n}" for n in quoted}
    assert 0 < len(found) < len(many)


def test_where_hiding_places_never_end_nothing_is_looked_at() -> None:
    assert picture_addresses(f"![]({URL})\n\n{'<b' * 3}{'>' * 3}") == [URL]
    assert picture_addresses(f"![]({URL})\n\n{'<b' * 30}{'>' * 30}") == []
