from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.values import MAX_IMAGE_BYTES
from bot.prompt.brief import (
    MAX_NOTES,
    MAX_PICTURE_BYTES,
    Picture,
    PictureText,
    choose_pictures,
    is_fetchable,
    omission_notes,
    picture_addresses,
    signed_address,
)
from tests.hiding_places import PARTS

ASSET = "6f1c0f35-1f0e-4c5e-9c39-0a5d7a0f2b11"
URL = f"https://github.com/user-attachments/assets/{ASSET}"
SIGNED = f"https://private-user-images.githubusercontent.com/7/42-{ASSET}.png?jwt=a.b-c_d"
SERVER = "https://github.example"


def words(number: int, text: str) -> PictureText:
    return PictureText(kind="comment", id=number, name=f"comment {number} by @ann", text=text)


@pytest.mark.parametrize(
    "text",
    [
        f"![Shot]({URL})",
        f"![]({URL})",
        f"See\n\n> - ![a `b` [c]](<{URL}> 'title')",
        f"[![Shot]({URL})](https://x.example)",
        f"| a |\n|---|\n| ![]({URL}) |",
        f'<img width="640" height="480" alt="Image" src="{URL}" />',
        f"<IMG\r\nsrc='{URL}'\r\n/>",
        f"<p align='center'>\n<img src={URL}>\n</p>",
        f"![{URL}]({URL})",
    ],
)
def test_a_picture_that_the_page_shows_is_found(text: str) -> None:
    assert picture_addresses(text) == [URL]


@pytest.mark.parametrize(
    "text",
    [
        f"[Shot]({URL})",
        URL,
        f"`![]({URL})`",
        f"```\n![]({URL})\n<img src='{URL}'>\n```",
        f"<!-- <img src='{URL}'> -->",
        f"<!-- ![]({URL}) -->",
        f"<a title=\"<img src='{URL}'>\">x</a>",
        "no picture!",
        "",
    ],
)
def test_what_shows_no_picture_has_none(text: str) -> None:
    assert URL not in picture_addresses(text)


def test_pictures_stand_in_the_order_of_the_text() -> None:
    assert picture_addresses("<img src=a> ![](b) <img src='c'>\n\n![](d)") == ["a", "b", "c", "d"]


def test_a_picture_by_reference_has_the_address_of_its_definition() -> None:
    assert picture_addresses(f"![Shot][s]\n\n[s]: {URL}") == [URL]


@given(st.lists(st.sampled_from([*PARTS, f"![]({URL})", f"<img src='{URL}'>"]), max_size=30).map("".join))
def test_no_text_breaks_it_and_no_address_is_made_up(text: str) -> None:
    assert text.count(URL) >= picture_addresses(text).count(URL)


@pytest.mark.parametrize(
    "address",
    [
        URL,
        f"https://github.com/octo/calc/assets/12345/{ASSET}",
        f"{SERVER}/user-attachments/assets/{ASSET}",
        f"{SERVER}/user-attachments/assets/{ASSET}?jwt=a.b.c",
        "https://user-images.githubusercontent.com/7/42-shot.png",
        SIGNED,
    ],
)
def test_github_keeps_attachments_here(address: str) -> None:
    assert is_fetchable(address, SERVER)


def test_the_configured_server_may_be_this_machine() -> None:
    local = "http://127.0.0.1:8000"
    assert is_fetchable(f"{local}/user-attachments/assets/{ASSET}", f"{local}/")
    assert not is_fetchable(f"http://127.0.0.1:8001/user-attachments/assets/{ASSET}", local)


def test_an_enterprise_server_keeps_attachments_below_its_own_name() -> None:
    ghes, file = "https://ghe.example.com", f"user/7/files/{ASSET}"
    assert is_fetchable(f"{ghes}/media/{file}", ghes)
    assert is_fetchable(f"https://media.ghe.example.com/{file}", ghes)
    for address in (f"{ghes}/{file}", f"https://media.github.com/{file}", f"https://media.ghe.example.com/raw/{file}"):
        assert not is_fetchable(address, ghes)
    assert not is_fetchable(f"https://media.github.com/{file}", "https://github.com")
    assert not is_fetchable(f"https://github.com/media/{file}", "https://github.com")


def test_a_signed_address_is_found_by_its_asset() -> None:
    other = SIGNED.replace(ASSET, "00000000-0000-0000-0000-000000000000")
    page = f'<p><img src="{other}"><!-- <img src="x{SIGNED}"> --><img alt="a" src="{SIGNED}&amp;x=1"></p>'
    assert signed_address(URL, page, SERVER) == f"{SIGNED}&x=1"


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<img>",
        f'<img src="https://evil.example/{ASSET}.png">',
        f"<!-- <img src='{SIGNED}'> -->",
        f"<a href='{SIGNED}'>",
    ],
)
def test_without_a_signed_address_it_stays_what_it_is(page: str) -> None:
    assert signed_address(URL, page, SERVER) == URL


def test_an_address_without_an_asset_is_not_looked_up() -> None:
    address = "https://user-images.githubusercontent.com/7/42-shot.png"
    assert signed_address(address, f"<img src='{SIGNED}'>", SERVER) == address


def test_the_commands_pictures_come_first_then_the_description_then_what_was_said_last() -> None:
    found = choose_pictures(
        words(0, "![](a) ![](b)"), [words(1, "![](c)"), words(2, "![](d) ![](b)")], words(3, "![](e)")
    )
    assert [each.address for each in found] == ["e", "a", "b", "d", "c"]
    in_order = sorted(found, key=lambda each: each.place)
    assert [each.address for each in in_order] == ["a", "b", "c", "d", "e"]
    assert [each.source for each in in_order][:2] == ["comment 0 by @ann", "comment 0 by @ann, picture 2"]


def test_a_job_that_no_words_asked_for_has_those_of_the_thread() -> None:
    assert [each.address for each in choose_pictures(words(0, "![](a)"), [words(1, "![](b)")], None)] == ["a", "b"]


def test_of_very_many_left_out_the_last_are_counted() -> None:
    picture = Picture(text=words(1, ""), place=(0, 1), address=URL)
    assert omission_notes([(picture, "it is gone")]) == ["a picture of comment 1 by @ann: it is gone"]
    many = omission_notes([(picture, "it is gone")] * (MAX_NOTES + 7))
    assert (len(many), many[-1]) == (MAX_NOTES + 1, "further pictures: 7")


def test_no_more_is_read_than_a_model_can_be_shown() -> None:
    assert MAX_PICTURE_BYTES == MAX_IMAGE_BYTES
