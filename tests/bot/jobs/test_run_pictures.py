"""Pictures of a thread: shown to a model that supports images, and otherwise noted with the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent_runtime import Image
from bot.domain.job import JobState
from bot.github.downloads import PictureError, TooLargeError
from bot.jobs import material
from bot.prompt.brief import MAX_PICTURE_BYTES, MAX_PICTURES
from tests.fakes.github import outage
from tests.pictures import png
from tests.seam import FIX, Seam, open_seam

OWNER = "issue #1 by @mona"


@dataclass(slots=True)
class Attachments:
    """The attachments of the server, by address."""

    contents: dict[str, bytes] = field(default_factory=dict)
    on_fetch: Callable[[], Awaitable[None]] | None = None

    def add(self, content: bytes) -> str:
        """Attach a file; return its Markdown."""
        address = f"https://github.com/user-attachments/assets/{len(self.contents):08}-0000-0000-0000-000000000000"
        self.contents[address] = content
        return f"![Shot]({address})"

    async def fetch(self, address: str, *, limit: int, **_options: object) -> bytes:
        if self.on_fetch is not None:
            await self.on_fetch()
        content = self.contents[address]
        if not content:
            raise PictureError("it was deleted, or is not for this repository")
        if len(content) > limit:
            raise TooLargeError(f"it has more than {limit:,} bytes")
        return content


@pytest.fixture
def attachments(monkeypatch: pytest.MonkeyPatch) -> Attachments:
    server = Attachments()
    monkeypatch.setattr(material, "fetch_picture", server.fetch)
    return server


async def fix(stage: Seam, body: str, *comments: str, command: str = "/codepilot fix") -> tuple[tuple[Image, ...], str]:
    """Have an issue with these texts fixed; return the pictures of the task and its first message."""
    stage.hub.add_user("eve")
    issue = stage.issue(body=body)
    for comment in comments:
        stage.say(issue.number, comment, author="eve")
    end = await stage.ask(issue.number, command)
    assert end.state is JobState.DONE, end
    assert len(stage.pulls()) == 1
    [play] = stage.providers
    return play.tasks[0].images, play.opening


async def test_the_model_gets_the_pictures_of_all_texts_in_their_order(
    tmp_path: Path, attachments: Attachments
) -> None:
    async with open_seam(tmp_path, FIX, sees_images=True) as stage:
        first, second, third = (attachments.add(png(side)) for side in (1, 2, 3))
        address = second.removeprefix("![Shot](").removesuffix(")")
        comment = f'And so:\n\n<img width="3" alt="Image" src="{address}" />'
        command = f"/codepilot fix as it should be: {third}"
        images, opening = await fix(stage, f"It looks so: {first}", comment, command=command)
        by_eve = next(each for each in stage.hub.comments(stage.repo, 1) if each.body == comment)
    sources = [OWNER, f"comment {by_eve.id} by @eve", "the command of @mona"]
    assert images == tuple(Image.of(source, png(side)) for side, source in enumerate(sources, start=1))
    assert "left out" not in opening


async def test_a_picture_that_cannot_be_shown_is_noted_with_the_reason(
    tmp_path: Path, attachments: Attachments
) -> None:
    large, text, gone = (attachments.add(content) for content in (png(padding=MAX_PICTURE_BYTES), b"<svg/>", b""))
    texts = "![](https://evil.example/p.png)", large, text, gone, attachments.add(png())
    async with open_seam(tmp_path, FIX, sees_images=True) as stage:
        images, opening = await fix(stage, " ".join(texts))
    assert [image.source for image in images] == [f"{OWNER}, picture 5"]
    for reason in (
        f"a picture of {OWNER}: it is not an attachment on GitHub",
        f"a picture of {OWNER}, picture 2: it has more than {MAX_PICTURE_BYTES:,} bytes",
        f"a picture of {OWNER}, picture 3: it is not a PNG, JPEG, GIF or WebP image",
        f"a picture of {OWNER}, picture 4: it was deleted, or is not for this repository",
    ):
        assert reason in opening, reason


async def test_the_most_important_pictures_are_shown_within_the_limits(
    tmp_path: Path, attachments: Attachments
) -> None:
    large = [attachments.add(png(side, padding=3_000_000)) for side in (1, 2, 3)]
    small = [attachments.add(png(side)) for side in range(10, 15)]
    async with open_seam(tmp_path, FIX, sees_images=True) as stage:
        images, opening = await fix(stage, " ".join(large), *small)
    assert [image.source for image in images[:2]] == [OWNER, f"{OWNER}, picture 2"]
    assert len(images) == MAX_PICTURES
    assert [image.data for image in images[2:]] == [Image.of("", png(side)).data for side in (12, 13, 14)]
    assert "picture 3: the images of a task have 8,000,000 bytes at most" in opening
    assert opening.count(f"a task has {MAX_PICTURES} images at most") == 2


@pytest.mark.parametrize(
    ("sees", "pictures", "reason"),
    [
        (False, "auto", "this model does not support images"),
        (True, "off", "the operator has turned images off"),
    ],
)
async def test_a_model_without_images_is_told_that_there_are_pictures(
    tmp_path: Path, attachments: Attachments, *, sees: bool, pictures: str, reason: str
) -> None:
    async with open_seam(tmp_path, FIX, sees_images=sees, operator={"pictures": pictures}) as stage:
        images, opening = await fix(stage, attachments.add(png()))
    assert images == ()
    assert f"a picture of {OWNER}: {reason}" in opening


async def test_pictures_are_fetched_from_their_own_addresses_when_github_renders_no_text(
    tmp_path: Path, attachments: Attachments
) -> None:
    async with open_seam(tmp_path, FIX, sees_images=True) as stage:
        stage.hub.fail("comments.render", outage(), times=2)
        images, _ = await fix(stage, attachments.add(png()), attachments.add(png(2)))
        assert stage.hub.take_fault("comments.render") is None
    assert len(images) == 2


async def test_a_job_that_fetches_pictures_can_be_stopped(tmp_path: Path, attachments: Attachments) -> None:
    async with open_seam(tmp_path, FIX, sees_images=True) as stage:
        issue = stage.issue(body=attachments.add(png()))
        command = stage.say(issue.number, "/codepilot fix")

        async def stop() -> None:
            stage.say(issue.number, "/codepilot stop")
            await stage.settle()

        attachments.on_fetch = stop
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert stage.nothing_published()
        [play] = stage.providers
        assert play.tasks == []
