"""Pictures that people attached to a thread are fetched from GitHub and shown to a model that supports images."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import override

from agent_runtime import Image, ScriptedProvider
from agent_runtime.providers.protocol import Chunk, Request
from bot.domain.job import JobState
from localhub import LocalHub
from tests.pictures import png
from tests.stage import FIX, Stage, staged


@dataclass
class Models:
    """Makes models that give one fix each, and keeps their requests."""

    requests: list[Request] = field(default_factory=list)

    def __call__(self) -> ScriptedProvider:
        return _Listening([FIX], self.requests)

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the first request."""
        return tuple(image for message in self.requests[0].messages for image in message.images)

    @property
    def text(self) -> str:
        """The text of the first request."""
        return "\n".join(message.text for message in self.requests[0].messages)


class _Listening(ScriptedProvider):
    def __init__(self, replies: list[str], requests: list[Request]) -> None:
        super().__init__(replies, sees_images=True)
        self._requests = requests

    @override
    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        self._requests.append(request)
        return super().reply(request)


async def fixed(stage: Stage, body: str, *comments: str, command: str = "/codepilot fix") -> None:
    """Have an issue with these comments fixed."""
    issue = stage.issue(body=body)
    for each in comments:
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
        [comment, _] = [each for each in hub.comments(stage.repo, 1) if each.author_id != stage.app.bot.id]
    assert [image.source for image in models.images] == [
        "issue #1 by @mona",
        f"comment {comment.id} by @eve",
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
