"""The protocol of a model provider: messages in, chunks of text out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol

from agent_runtime.core.images import Image
from agent_runtime.core.outcome import Usage

StopReason = Literal["stop", "length"]
"""Why a reply ended: by itself, or because the token limit was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the conversation.

    Attributes:
        role: who says it.
        text: what is said.
        images: pictures beside the text, of a message of `user`; only for a provider that sees.
    """

    role: Literal["user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a model.

    Attributes:
        system: the system prompt; byte-stable for a session so that the provider's cache stays warm.
        messages: the conversation, oldest first; append-only for the same reason. Starts and ends with `user`.
        status: a short text that changes with every request (time, step counter). It is sent after the last
            message and is never part of the cached prefix.
    """

    system: str
    messages: tuple[Message, ...]
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """Some more text of the reply, of any length."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStart:
    """A (new) attempt begins: whatever text came before it, from an attempt that broke off, is void."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFault:
    """The attempt under way has failed; or, right before the end, what a whole reply used was lost.

    Attributes:
        reason: what went wrong, for people.
        billed: whether the service has probably charged for it: it took the request and began to work on it.
        silent: whether it took the request and then said nothing for too long; such an attempt counts as billed.
        wait: seconds until the next attempt; None when there is none.
        model: the model that was asked, where that may be another than the provider's `model`; else empty.
    """

    reason: str
    billed: bool = False
    silent: bool = False
    wait: float | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """The reply is complete; always the last chunk.

    Attributes:
        stop: why it ended.
        usage: what it used, at the prices of the model that gave it.
        model: the model that gave it, where that may be another than the provider's `model`; else empty.
    """

    stop: StopReason
    usage: Usage
    model: str = ""


Chunk = ReplyStart | TextChunk | ReplyFault | ReplyEnd


class Provider(Protocol):
    """A model service.

    Attributes:
        model: the model's name, as the service knows it.
        sees_images: whether messages may hold images.
    """

    @property
    def model(self) -> str:
        """The model's name, as the service knows it."""
        ...

    @property
    def sees_images(self) -> bool:
        """Whether messages may hold images: True when the model is known to see, or said to; always the same."""
        ...

    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Answer one request: `ReplyStart`, `TextChunk`…, `ReplyEnd`.

        A dropped connection, an early end without a stop reason, an overload or a rate limit is tried again
        inside (each failure told by a `ReplyFault`, each attempt announced by a `ReplyStart`), so retries never cost
        the run a step.

        Raises:
            ModelOutageError: every attempt failed, and the service may be asked again later.
            ModelUnreachableError: every attempt failed, and asking on would only cost more.
            ModelRejectedError: the service refused for good.
            ContextOverflowError: the conversation is too long for the model.
            ModelRefusedError: the model declined.
        """
        ...

    async def close(self) -> None:
        """Give back connections; idempotent."""
        ...
