"""The tour of a kept demo: comments to try, and the scripted models that answer them; `tour.yaml` has the entries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import chain, repeat
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import yaml
from pydantic import TypeAdapter
from typing_extensions import override

from agent_runtime import Chunk, Provider, Request, ScriptedProvider, ScriptError
from localhub import LocalHub, Repo

_TITLE = "Tour: comments to try"
_PASTE = "Each link opens a thread with the comment filled in: press **Comment**, and watch the bot's answer below it."
_ELSE = {
    True: "The model is scripted: it knows these comments, and says so when it is asked for something else.",
    False: "A real model answers, so you can ask for anything else, too.",
}
KEYS = "ANTHROPIC_API_KEY or OPENAI_API_KEY"
_UNKNOWN = f"""\
```completion
This demo has no key of a model service, so its model only knows the replies of its script, and none of them fits \
here. Everything else is real. {{hint}}Start the demo with {KEYS} to have a real model answer.
```
"""
_HINT = 'The issue "Tour: comments to try" lists the comments that it can answer. '


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """An issue, or with `branch` a pull request that appends to `file`."""

    title: str
    body: str
    labels: tuple[str, ...] = ()
    branch: str = ""
    file: str = ""
    appended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TourReply:
    """Reply to a message with every text of `expect`."""

    expect: tuple[str, ...]
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TourConversation:
    """Scripted replies, chosen by the texts of `goal` in the task; those of the file `script` precede them."""

    goal: tuple[str, ...]
    replies: tuple[TourReply, ...]
    script: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TourEntry:
    """A comment to try; `conversations` has the most specific first."""

    title: str
    about: str
    thread: Literal["issue", "pull"] | NewThread
    comment: str
    then: str = ""
    needs_network: bool = False
    conversations: tuple[TourConversation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTour:
    number: int
    threads: tuple[tuple[TourEntry, int], ...]


def read_tour() -> tuple[TourEntry, ...]:
    def raw(name: str) -> object:
        return yaml.safe_load(files(__package__).joinpath(name).read_text(encoding="utf-8"))

    def with_script(conversation: TourConversation) -> TourConversation:
        script_replies = (
            TypeAdapter(tuple[TourReply, ...]).validate_python(raw(conversation.script)) if conversation.script else ()
        )
        return replace(conversation, replies=(*script_replies, *conversation.replies))

    entries = TypeAdapter(tuple[TourEntry, ...]).validate_python(raw("tour.yaml"))
    return tuple(replace(each, conversations=tuple(map(with_script, each.conversations))) for each in entries)


def open_tour(
    hub: LocalHub,
    repo: Repo,
    source: Path,
    entries: Sequence[TourEntry],
    *,
    author: str,
    existing: dict[str, int],
    scripted: bool,
) -> OpenedTour:
    """Open the tour's threads, and the issue that lists them; omit entries without a thread."""
    threads = []
    for entry in entries:
        thread = entry.thread
        if isinstance(thread, str):
            if thread in existing:
                threads.append((entry, existing[thread]))
            continue
        if thread.branch:
            changed = (source / thread.file).read_text(encoding="utf-8") + thread.appended
            hub.commit(repo, {thread.file: changed}, message=thread.title, author=author, branch=thread.branch)
            opened = hub.open_pull(repo, author=author, head=thread.branch, title=thread.title, body=thread.body)
        else:
            opened = hub.open_issue(repo, author=author, title=thread.title, body=thread.body, labels=thread.labels)
        threads.append((entry, opened.number))
    parts = [f"{_PASTE} {_ELSE[scripted]}"]
    for position, (entry, number) in enumerate(threads, start=1):
        link = f"{hub.url}/{repo.full_name}/issues/{number}?body={quote(entry.comment)}#comment"
        parts += [f"### {position}. {entry.title}", entry.about, f"```\n{entry.comment}\n```"]
        parts += [" ".join(filter(None, [f"[Open #{number} with this comment]({link}).", entry.then]))]
    listing = hub.open_issue(repo, author=author, title=_TITLE, body="\n\n".join(parts))
    return OpenedTour(number=listing.number, threads=tuple(threads))


def make_models(
    script: str, conversations: Sequence[TourConversation] = (), *, chunk_chars: int, delay: float
) -> Callable[[], Provider]:
    """Return a factory of models: the first plays the script, the later ones the conversations."""

    def from_script(kind: type[ScriptedProvider]) -> Provider:
        return kind.from_file(script, chunk_chars=chunk_chars, delay=delay)

    def next_model() -> Provider:
        if conversations:
            return TourModel(conversations=conversations, chunk_chars=chunk_chars, delay=delay)
        return from_script(_PatientScript)

    makers = chain([lambda: from_script(ScriptedProvider)], repeat(next_model))
    return lambda: next(makers)()  # noqa: PLW0108 - a maker for each run


@dataclass(frozen=True, slots=True, kw_only=True)
class TourModel:
    """A model without state: each request alone decides its reply."""

    conversations: Sequence[TourConversation]
    chunk_chars: int
    delay: float
    model: str = "scripted"
    sees_images: bool = False

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        script = ScriptedProvider([self.reply_to(request)], chunk_chars=self.chunk_chars, delay=self.delay)
        async with aclosing(script.reply(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def reply_to(self, request: Request) -> str:
        """Return the first unused reply that fits the newest message."""
        goal = request.messages[0].text.partition("\n[quote ")[0]
        used_replies = {message.text.strip() for message in request.messages if message.role == "assistant"}
        newest = request.messages[-1].text
        fitting = (each for each in self.conversations if all(words in goal for words in each.goal))
        for each in next(fitting, TourConversation(goal=(), replies=())).replies:
            if each.reply.strip() not in used_replies and all(words in newest for words in each.expect):
                return each.reply
        return _UNKNOWN.format(hint=_HINT)

    async def close(self) -> None:
        """Do nothing."""


class _PatientScript(ScriptedProvider):
    """A script that answers an unknown request with a completion."""

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
