"""The scripted models of the demo: its own job must fit the script; later ones are told where they do not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, repeat

from typing_extensions import override

from agent_runtime import Chunk, Provider, Request, ScriptedProvider, ScriptError
from bot.apps.demo.tour import TourConversation

KEYS = "ANTHROPIC_API_KEY or OPENAI_API_KEY"
_UNKNOWN = f"""\
```completion
This demo has no key of a model service, so its model only knows the replies of its script, and none of them fits \
here. Everything else is real. {{hint}}Start the demo with {KEYS} to have a real model answer.
```
"""
_HINT = 'The issue "Tour: comments to try" lists the comments that it can answer. '


class _PatientScript(ScriptedProvider):
    """Ends a run that leaves the script with a completion that says so."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        try:
            async with aclosing(super().reply(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ScriptError:  # raised before the first chunk
            async with aclosing(ScriptedProvider([_UNKNOWN.format(hint="")]).reply(request)) as chunks:
                async for chunk in chunks:
                    yield chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class TourModel:
    """Answers each request by what is in it, so that it can take up a run that waited for an approval.

    Attributes:
        conversations: what it knows.
        chunk_chars: see `ScriptedProvider`.
        delay: see `ScriptedProvider`.
        model: what it is called.
        sees_images: that it looks at none.
    """

    conversations: Sequence[TourConversation]
    chunk_chars: int
    delay: float
    model: str = "scripted"
    sees_images: bool = False

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Give the reply that `reply_to` chooses."""
        script = ScriptedProvider([self.reply_to(request)], chunk_chars=self.chunk_chars, delay=self.delay)
        async with aclosing(script.reply(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def reply_to(self, request: Request) -> str:
        """The first reply of the task's conversation that was not given yet and fits the newest message."""
        goal = request.messages[0].text.partition("\n[quote ")[0]
        given = {message.text.strip() for message in request.messages if message.role == "assistant"}
        newest = request.messages[-1].text
        known = (each for each in self.conversations if all(words in goal for words in each.goal))
        for each in next(known, TourConversation(goal=(), replies=())).replies:
            if each.reply.strip() not in given and all(words in newest for words in each.expect):
                return each.reply
        return _UNKNOWN.format(hint=_HINT)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def scripted(
    script: str, conversations: Sequence[TourConversation] = (), *, chunk_chars: int, delay: float
) -> Callable[[], Provider]:
    """What makes the model of each run, of which the first one is the demo's own.

    Args:
        script: the file with the replies.
        conversations: of the tour, for all later runs; without any, they begin the script again.
        chunk_chars: see `ScriptedProvider`.
        delay: see `ScriptedProvider`.
    """

    def own(kind: type[ScriptedProvider]) -> Provider:
        return kind.from_file(script, chunk_chars=chunk_chars, delay=delay)

    def later() -> Provider:
        if conversations:
            return TourModel(conversations=conversations, chunk_chars=chunk_chars, delay=delay)
        return own(_PatientScript)

    makers = chain([lambda: own(ScriptedProvider)], repeat(later))
    return lambda: next(makers)()  # noqa: PLW0108 - a maker for each run
