"""What people attached to a thread is shown to a model that sees; what cannot be shown is told, and fails nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime import Image, ScriptedProvider
from agent_runtime.providers.protocol import Chunk, Request
from bot.domain.job import JobState
from bot.prompt.brief import MAX_PICTURE_BYTES, MAX_PICTURES
from localhub import LocalHub
from tests.pictures import png
from tests.stage import FIX, Stage, staged
from tests.waiting import eventually


@dataclass
class Models:
    """Makes models that give one fix each, and keeps what they were asked."""

    sees: bool = True
    asked: list[Request] = field(default_factory=list)

    def __call__(self) -> ScriptedProvider:
        return _Listening([FIX], self.asked, sees=self.sees)

    @property
    def images(self) -> tuple[Image, ...]:
        """What the first request shows."""
        return tuple(image for message in self.asked[0].messages for image in message.images)

    @property
    def text(self) -> str:
        """What the first request says."""
        return "\n".join(message.text for message in self.asked[0].messages)


class _Listening(ScriptedProvider):
    def __init__(self, replies: list[str], asked: list[Request], *, sees: bool) -> None:
        super().__init__(replies, sees_images=sees)
        self._asked = asked

    @override
    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        self._asked.append(request)
        return super().reply(request)


async def fixed(stage: Stage, body: str, *said: str, command: str = "/codepilot fix") -> None:
    """Have an issue fixed, in which this was said."""
    issue = stage.issue(body=body)
    for each in said:
        stage.say(issue.number, each, author="eve")
    end = await stage.ask(issue.number, command)
    assert end.state is JobState.DONE, end
    assert len(stage.pulls()) == 1


async def test_the_model_is_shown_what_the_thread_shows(hub: LocalHub, tmp_path: Path) -> None:
    models = Models()
    async with staged(hub, tmp_path, provider=models) as stage:
        hub.add_user("eve")
        first, second, third = (hub.attach(stage.repo, png(side), author="eve") for side in (1, 2, 3))
        await fixed(
            stage,
            f"It looks so: ![Shot]({first})",
            f'And so:\n\n<img width="3" alt="Image" src="{second}" />',
            command=f"/codepilot fix as it should be: ![]({third})",
        )
        [said, _] = [each for each in hub.comments(stage.repo, 1) if each.author_id != stage.app.bot.id]
    assert [image.source for image in models.images] == [
        "issue #1 by @mona",
        f"comment {said.id} by @eve",
        "the command of @mona",
    ]
    assert models.images == tuple(
        Image.of(image.source, png(side)) for side, image in enumerate(models.images, start=1)
    )
    assert "left out" not in models.text


async def test_a_private_repositorys_pictures_are_seen_but_not_those_of_another(hub: LocalHub, tmp_path: Path) -> None:
    models = Models()
    async with staged(hub, tmp_path, provider=models) as stage:
        hub._site.store.repos.put(replace(stage.repo, private=True))
        own = hub.attach(stage.repo, png(), author="mona")
        other = hub.add_repo("mona/hidden", owner="mona", private=True, files={"a": "b"})
        await fixed(stage, f"![Shot]({own}) ![Shot]({hub.attach(other, png(2), author='mona')})")
    assert [image.source for image in models.images] == ["issue #1 by @mona"]
    assert "a picture of issue #1 by @mona, picture 2: it was deleted, or is not for this repository" in models.text


async def test_what_is_elsewhere_too_large_gone_or_no_picture_is_left_out_and_said_so(
    hub: LocalHub, tmp_path: Path
) -> None:
    models = Models()
    async with staged(hub, tmp_path, provider=models) as stage:
        large = hub.attach(stage.repo, png(padding=MAX_PICTURE_BYTES), author="mona")
        text = hub.attach(stage.repo, b"<svg/>", author="mona", media_type="image/svg+xml")
        gone = f"{hub.url}/user-attachments/assets/00000000-0000-0000-0000-000000000000"
        shown = hub.attach(stage.repo, png(), author="mona")
        addresses = ("https://evil.example/p.png", large, text, gone, shown)
        await fixed(stage, " ".join(f"![]({each})" for each in addresses))
    assert [image.source for image in models.images] == ["issue #1 by @mona, picture 5"]
    for said in (
        "a picture of issue #1 by @mona: it is not an attachment on GitHub",
        f"a picture of issue #1 by @mona, picture 2: it has more than {MAX_PICTURE_BYTES:,} bytes",
        "a picture of issue #1 by @mona, picture 3: it is not a PNG, JPEG, GIF or WebP image",
        "a picture of issue #1 by @mona, picture 4: it was deleted",
    ):
        assert said in models.text, said


async def test_no_more_than_the_caps_are_shown_those_first_that_matter_most(hub: LocalHub, tmp_path: Path) -> None:
    models = Models()
    async with staged(hub, tmp_path, provider=models) as stage:
        hub.add_user("eve")
        large = [hub.attach(stage.repo, png(side, padding=3_000_000), author="eve") for side in (1, 2, 3)]
        small = [hub.attach(stage.repo, png(side), author="eve") for side in range(10, 15)]
        await fixed(stage, " ".join(f"![]({each})" for each in large), *(f"![]({each})" for each in small))
    sources = [image.source for image in models.images]
    assert sources[:2] == ["issue #1 by @mona", "issue #1 by @mona, picture 2"]
    assert len(sources) == MAX_PICTURES
    assert [image.data for image in models.images[2:]] == [Image.of("", png(side)).data for side in (12, 13, 14)]
    assert "picture 3: the images of a task have 8,000,000 bytes at most" in models.text
    assert models.text.count(f"a task has {MAX_PICTURES} images at most") == 2


@pytest.mark.parametrize(("sees", "pictures"), [(False, "auto"), (True, "off")])
async def test_a_model_that_does_not_see_is_told_that_there_are_pictures(
    hub: LocalHub, tmp_path: Path, *, sees: bool, pictures: str
) -> None:
    models = Models(sees=sees)
    async with staged(hub, tmp_path, provider=models, operator={"pictures": pictures}) as stage:
        await fixed(stage, f"![Shot]({hub.attach(stage.repo, png(), author='mona')})")
    assert models.images == ()
    why = "this model does not support images" if not sees else "the operator has turned images off"
    assert f"a picture of issue #1 by @mona: {why}" in models.text


@pytest.mark.slow
async def test_a_job_does_without_when_github_does_not_render(hub: LocalHub, tmp_path: Path) -> None:
    models = Models()
    async with staged(hub, tmp_path, provider=models) as stage:
        issue = stage.issue(body=f"![]({hub.attach(stage.repo, png(), author='mona')})")
        said = stage.say(issue.number, f"![]({hub.attach(stage.repo, png(2), author='mona')})")
        hub.faults.add("GET", f"*/issues/comments/{said.id}", "502", times=9)
        assert (await stage.ask(issue.number, "/codepilot fix")).state is JobState.DONE
    assert len(models.images) == 2


@pytest.mark.slow
async def test_a_job_that_looks_at_pictures_can_be_stopped(hub: LocalHub, tmp_path: Path) -> None:
    models = Models()
    async with staged(hub, tmp_path, provider=models) as stage:
        issue = stage.issue()
        said = stage.say(issue.number, f"![]({hub.attach(stage.repo, png(), author='mona')})")
        hub.faults.add("GET", f"*/issues/comments/{said.id}", "502", times=9)
        command = stage.say(issue.number, "/codepilot fix")
        await eventually(lambda: hub.faults._waiting[0].times < 9 or None, within=30.0)
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert stage.nothing_published()
    assert models.asked == []
