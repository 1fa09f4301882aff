"""A model that replays a script: for demonstrations, tests and trying out a set-up without a key or costs.

It is public and stable. The format of a script is in `agent_runtime.providers.script`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Self

from agent_runtime.core.calls import with_answers
from agent_runtime.core.errors import ScriptError, SettingsError
from agent_runtime.core.images import IMAGE_TOKENS
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.options import ModelOptions
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    ReplyEnd,
    ReplyStart,
    Request,
    TextChunk,
    ToolCalling,
    ToolSchema,
)
from agent_runtime.providers.script import ScriptedReply, parse_script

MODEL = "scripted"
_CHARS_PER_TOKEN = 4


class ScriptedProvider:
    """Gives prepared replies in order, and fails loudly when the conversation leaves the script.

    Tokens are estimated at four characters each, as a service with a warm cache would count them: what the last
    request already sent is cached, the rest of the conversation is written to the cache, the status is neither.
    A script costs nothing: `Usage.cost_usd` is 0.0.
    """

    def __init__(
        self,
        replies: Iterable[str | ScriptedReply],
        *,
        source: str = "given in code",
        chunk_chars: int = 16,
        delay: float = 0.0,
        sees_images: bool = False,
    ) -> None:
        """Get ready to replay.

        Args:
            replies: the replies, oldest first; a plain text expects nothing.
            source: where they come from, for error texts.
            chunk_chars: characters a chunk; small, so that whatever reads the stream is put to the test.
            delay: seconds before each chunk, for people to watch.
            sees_images: whether it is asked with images; it looks at none.

        Raises:
            SettingsError: a chunk size below 1, or a delay below 0.
        """
        if chunk_chars < 1 or delay < 0:
            raise SettingsError(f"chunk_chars is {chunk_chars} and delay {delay}; they must be at least 1 and 0.")
        self._replies = tuple(ScriptedReply(text=reply) if isinstance(reply, str) else reply for reply in replies)
        self._source = source
        self._chunk_chars = chunk_chars
        self._delay = delay
        self._sees_images = sees_images
        self._given = 0
        self._cache = _PrefixCache()

    @classmethod
    def from_file(
        cls, path: Path | str, *, chunk_chars: int = 16, delay: float = 0.0, sees_images: bool = False
    ) -> Self:
        """Replay a file.

        Raises:
            ScriptError: it cannot be read, or is not a script.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptError(f"Script {path} cannot be read: {error}.") from error
        replies = parse_script(text, source=str(path))
        return cls(replies, source=str(path), chunk_chars=chunk_chars, delay=delay, sees_images=sees_images)

    @property
    def model(self) -> str:
        """Always `scripted`."""
        return MODEL

    @property
    def sees_images(self) -> bool:
        """Whether it is asked with images."""
        return self._sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred by a script that has native tool calls; others may be given any."""
        return "preferred" if any(reply.calls for reply in self._replies) else "supported"

    @property
    def remaining(self) -> int:
        """Replies not given yet; a test may want none."""
        return len(self._replies) - self._given

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Give the next reply.

        Raises:
            ScriptError: there is none, or the newest message is not as it expects.
        """
        newest = request.messages[-1]
        message = with_answers(newest.text, newest.answers)
        if not self.remaining:
            count = len(self._replies)
            raise ScriptError(
                f"Script {self._source} has {count} {'reply' if count == 1 else 'replies'}, "
                f"and the conversation needs one more. Add an entry, or end the last one with a completion. "
                f"The newest message: {message[:400]!r}"
            )
        number = self._given + 1
        reply = self._replies[self._given]
        complaint = reply.complaint(message)
        if complaint is not None:
            raise ScriptError(f"Script {self._source}, entry {number}: {complaint}")
        self._given = number
        usage = self._cache.usage(request, reply)
        yield ReplyStart(attempt=1)
        for start in range(0, len(reply.text), self._chunk_chars):
            if self._delay:
                await asyncio.sleep(self._delay)
            yield TextChunk(text=reply.text[start : start + self._chunk_chars])
        for index, call in enumerate(reply.calls):
            yield CallChunk(index=index, id=call.id, name=call.name)
            for start in range(0, len(call.arguments), self._chunk_chars):
                if self._delay:
                    await asyncio.sleep(self._delay)
                yield CallChunk(index=index, arguments=call.arguments[start : start + self._chunk_chars])
        yield ReplyEnd(stop=reply.stop, usage=reply.usage or usage)

    async def close(self) -> None:
        """Nothing to give back."""


def from_settings(
    *,
    api_key: str | None = None,  # noqa: ARG001 - part of every maker's signature
    model: str | None = None,  # noqa: ARG001 - the same
    base_url: str | None = None,  # noqa: ARG001 - the same
    options: ModelOptions | None = None,
) -> ScriptedProvider:
    """The provider for `ModelOptions.script`; a key, a model's name and an address mean nothing to it.

    Raises:
        SettingsError: no script is named.
        ScriptError: it cannot be read, or is not a script.
    """
    if options is None or options.script is None:
        raise SettingsError("The provider `scripted` needs a script to replay: set `script` to a YAML file.")
    return ScriptedProvider.from_file(options.script, sees_images=bool(options.images))


class _PrefixCache:
    """What a provider's cache would hold: the last request, its status aside."""

    def __init__(self) -> None:
        self._system: tuple[str, tuple[ToolSchema, ...]] = ("", ())
        self._messages: tuple[Message, ...] = ()
        self._chars = 0

    def usage(self, request: Request, reply: ScriptedReply) -> Usage:
        """The estimate for one exchange; remembers the request."""
        known = len(self._messages)
        system = (request.system, request.tools)
        warm = system == self._system and request.messages[:known] == self._messages
        cached = self._chars if warm else 0
        added = request.messages[known:] if warm else request.messages
        new = sum(_chars(message) for message in added)
        if not warm:
            new += len(request.system) + sum(len(json.dumps(asdict(each))) for each in request.tools)
        self._system, self._messages, self._chars = system, request.messages, cached + new
        return Usage(
            requests=1,
            input_tokens=_tokens(len(request.status)),
            cached_tokens=_tokens(cached),
            cache_write_tokens=_tokens(new),
            output_tokens=_tokens(len(reply.text) + sum(len(each.name) + len(each.arguments) for each in reply.calls)),
        )


def _chars(message: Message) -> int:
    asked = sum(len(each.name) + len(each.arguments) for each in message.requests)
    answered = sum(len(each.text) for each in message.answers)
    images = len(message.images) + sum(len(each.images) for each in message.answers)
    return len(message.text) + asked + answered + images * IMAGE_TOKENS * _CHARS_PER_TOKEN


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)
