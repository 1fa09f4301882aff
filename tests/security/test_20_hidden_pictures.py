"""Threats 18 and 20, for pictures: one that the page does not show is not shown to the agent either."""

from __future__ import annotations

import pytest

from bot.domain.commands import Fix
from bot.prompt.brief import Material, brief_for, picture_addresses
from tests.browser import shown
from tests.builders import a_comment, a_job
from tests.differences import difference_of
from tests.hiding_places import HIDING_PLACES, SHOWN_PLACES

URL = "https://github.com/user-attachments/assets/6f1c0f35-1f0e-4c5e-9c39-0a5d7a0f2b11"
PICTURES = (f"![]({URL})", f'<img src="{URL}">', f"<img src={URL}>")


async def test_a_picture_is_looked_at_if_a_browser_shows_it() -> None:
    places = [place.replace("EVIL", picture) for place in (*HIDING_PLACES, *SHOWN_PLACES) for picture in PICTURES]
    texts = [f"Body\n\n{place}" for place in places]
    pages = await shown(texts)
    for text, page in zip(texts, pages, strict=True):
        assert picture_addresses(text).count(URL) == page.pictures.count(URL), text
    assert 30 < sum(URL in page.pictures for page in pages) < len(texts) - 30


@pytest.mark.parametrize(
    "hidden", [f"<!-- {PICTURES[1]} -->", f"<b title='{PICTURES[1]}'>", f"<svg>{PICTURES[1]}</svg>"]
)
def test_a_picture_in_a_hiding_place_is_not_looked_at(hidden: str) -> None:
    assert picture_addresses(f"{PICTURES[0]}1\n\n{hidden}") == [URL]


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
    material = Material(
        own_id=99, comments=(edited, ours, *many, later), difference=difference_of({"a.py": ["word"] * room_taken})
    )
    brief = brief_for(job, material=material)
    found = {each.address for each in brief.pictures}
    quoted = {int(quote.source.removeprefix("comment by @u")) for quote in brief.quotes if "@u" in quote.source}
    assert found == {f"{URL}#{n}" for n in quoted}
    assert 0 < len(found) < len(many)
