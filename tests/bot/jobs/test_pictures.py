"""Which pictures of a thread the agent is shown, and what becomes of the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from agent_runtime import Task
from bot.github.downloads import PictureError, TooLargeError
from bot.github.types import GitHubError
from bot.jobs import material
from bot.prompt.brief import LARGEST_BYTES, MOST, TOGETHER_BYTES, Brief, Picture, PictureText
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import context_of
from tests.pictures import png

SERVER = "https://github.com"
DESCRIPTION = PictureText(kind="thread", id=0, name="issue #7 by @mona", text="")
COMMENT = PictureText(kind="comment", id=17, name="comment 17 by @eve", text="")


def _address(number: int) -> str:
    return f"{SERVER}/user-attachments/assets/{number:08}-0000-0000-0000-000000000000"


def _several(count: int, words: PictureText = DESCRIPTION, order: int = 0) -> list[Picture]:
    """Pictures in the order of their places."""
    places = [(order, number) for number in range(1, count + 1)]
    return [Picture(words=words, place=place, address=_address(100 * order + place[1])) for place in places]


@dataclass(slots=True)
class _GitHub:
    """Attachments, each small and there unless `content` has another for its number, and the texts that show them."""

    content: dict[int, bytes | Exception] = field(default_factory=dict)
    page: str | Exception = ""
    fetched: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    rendered_texts: list[int] = field(default_factory=list)

    async def rendered(self, _: str, __: int, ___: str, text_id: int) -> str:
        self.rendered_texts.append(text_id)
        if isinstance(self.page, Exception):
            raise self.page
        return self.page

    async def fetch(self, address: str, *, server_url: str, limit: int, seconds: float, **_trust: object) -> bytes:
        assert server_url == SERVER
        assert seconds > 0
        self.fetched.append(address)
        self.limits.append(limit)
        found = self.content.get(int(address.split("/assets/")[1][:8]), png())
        if isinstance(found, Exception):
            raise found
        if len(found) > limit:
            raise TooLargeError(f"it has more than {limit:,} bytes")
        return found


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> _GitHub:
    made = _GitHub()
    monkeypatch.setattr(material, "fetch_picture", made.fetch)
    return made


async def _shown(github: _GitHub, found: Sequence[Picture], *, sees: bool = True, on: bool = True) -> Task:
    services = SimpleNamespace(pictures=on, server_url=SERVER, ca_file=None)
    context = context_of(InMemoryEngine(), a_job(), github=SimpleNamespace(comments=github), services=services)
    brief = Brief(goal="Fix it.", quotes=(), notes=(), pictures=tuple(found))
    return await material.shown(context, "octo/calc", brief, sees=sees)


def _noted(task: Task) -> str:
    return "\n".join(quote.text for quote in task.quotes)


async def test_what_github_shows_is_not_read_on_the_event_loop(
    github: _GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(address: str, _page: str, _server: str) -> str:
        threads.append(threading.current_thread())
        return address

    monkeypatch.setattr(material, "signed", noted)
    assert len((await _shown(github, _several(2))).images) == 2
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_pictures_are_shown_in_the_order_in_which_they_are_read(github: _GitHub) -> None:
    task = await _shown(github, [*_several(1, COMMENT, order=1), *_several(2)])
    assert [each.source for each in task.images] == [
        "issue #7 by @mona",
        "issue #7 by @mona, picture 2",
        "comment 17 by @eve",
    ]
    assert task.quotes == ()


async def test_each_text_is_rendered_once_even_where_github_fails_to(github: _GitHub) -> None:
    github.page = GitHubError("read a text", 502, "Bad gateway", "Later.")
    task = await _shown(github, [*_several(3), *_several(1, COMMENT, order=1)])
    assert github.rendered_texts == [0, 17]
    assert len(task.images) == 4


async def test_a_private_picture_is_fetched_from_the_address_that_github_signed(github: _GitHub) -> None:
    github.page = f'<p><img src="{_address(1)}?jwt=abc"></p>'
    await _shown(github, _several(2))
    assert github.fetched == [f"{_address(1)}?jwt=abc", _address(2)]


@pytest.mark.parametrize("address", ["https://evil.example/p.png", "http://169.254.169.254/", "", "file:///etc/passwd"])
async def test_nothing_is_asked_of_another_place_or_for_one_there(github: _GitHub, address: str) -> None:
    task = await _shown(github, [Picture(words=DESCRIPTION, place=(0, 1), address=address)])
    assert (task.images, github.fetched, github.rendered_texts) == ((), [], [])
    assert "issue #7 by @mona" in _noted(task)


@pytest.mark.parametrize("wrong", [PictureError("it is gone"), b"<svg/>", b"", b"x" * (LARGEST_BYTES + 1)])
async def test_one_that_cannot_be_shown_is_noted_and_fails_no_other(github: _GitHub, wrong: bytes | Exception) -> None:
    github.content = {1: wrong}
    task = await _shown(github, _several(2))
    assert [each.source for each in task.images] == ["issue #7 by @mona, picture 2"]
    assert "issue #7 by @mona" in _noted(task)


async def test_no_more_are_shown_than_a_task_has_room_for(github: _GitHub) -> None:
    task = await _shown(github, _several(MOST + 3))
    assert len(task.images) == len(github.fetched) == MOST
    assert _noted(task).count("a picture of") == 3


async def test_a_thread_full_of_broken_pictures_costs_a_few_requests(github: _GitHub) -> None:
    github.content = {number: PictureError("it is gone") for number in range(1, 200)}
    task = await _shown(github, _several(200))
    assert task.images == ()
    assert len(github.fetched) <= 2 * MOST
    assert len(_noted(task)) < 2_000


async def test_a_large_one_leaves_room_for_smaller_ones(github: _GitHub) -> None:
    large = png(padding=LARGEST_BYTES - 1_000)
    github.content = dict.fromkeys((1, 2, 3), large)
    task = await _shown(github, _several(4))
    assert [each.source.rpartition(" ")[2] for each in task.images] == ["@mona", "2", "4"]
    assert github.limits[2] == TOGETHER_BYTES - 2 * len(large)


async def test_those_that_there_is_no_time_for_are_not_asked_for(
    github: _GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "_SECONDS_TOGETHER_PICTURES", 0.0)
    task = await _shown(github, _several(2))
    assert (task.images, github.fetched) == ((), [])
    assert _noted(task).count("a picture of") == 2


@pytest.mark.parametrize(("sees", "on"), [(False, True), (True, False), (False, False)])
async def test_for_a_model_that_does_not_see_none_is_fetched(github: _GitHub, *, sees: bool, on: bool) -> None:
    task = await _shown(github, _several(2), sees=sees, on=on)
    assert (task.images, github.fetched) == ((), [])
    assert _noted(task).count("a picture of") == 2


async def test_a_thread_without_pictures_is_told_as_it_is(github: _GitHub) -> None:
    task = await _shown(github, [], sees=False)
    assert (task.images, task.quotes) == ((), ())
