"""The tour of a kept demo: comments to try, each with a thread to try it in and scripted conversations of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import yaml
from pydantic import TypeAdapter

from localhub import LocalHub, Repo

_TITLE = "Tour: comments to try"
_PASTE = "Each link opens a thread with the comment filled in: press **Comment**, and watch the bot's answer below it."
_ELSE = {
    True: "The model is scripted: it knows these comments, and says so when it is asked for something else.",
    False: "A real model answers, so you can ask for anything else, too.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """A thread that is opened for an entry: an issue, or a pull request if it has a branch.

    Attributes:
        branch: the pull request's; it changes `file`, to which it appends `appended`.
    """

    title: str
    body: str
    labels: tuple[str, ...] = ()
    branch: str = ""
    file: str = ""
    appended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TourReply:
    """A reply to a message that holds all of `expect`."""

    expect: tuple[str, ...]
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TourConversation:
    """The replies to a task whose goal holds all of `goal`; those of the demo's `script` come first."""

    goal: tuple[str, ...]
    replies: tuple[TourReply, ...]
    script: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TourEntry:
    """One thing to try.

    Attributes:
        title: what it shows.
        about: the same in a sentence or two.
        thread: where: the demo's issue, the pull request that fixes it, or a thread of its own.
        comment: what to paste.
        then: what to do afterwards; may be empty.
        needs_network: whether commands must be able to reach something.
        conversations: what a scripted model says, the most specific first.
    """

    title: str
    about: str
    thread: Literal["issue", "pull"] | NewThread
    comment: str
    then: str = ""
    needs_network: bool = False
    conversations: tuple[TourConversation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTour:
    """The tour on the hub.

    Attributes:
        number: of the issue that lists the entries.
        threads: each entry with the number of its thread.
    """

    number: int
    threads: tuple[tuple[TourEntry, int], ...]


def read_tour() -> tuple[TourEntry, ...]:
    """The entries, in the order in which they are shown, each conversation with all of its replies."""

    def raw(name: str) -> object:
        return yaml.safe_load(files(__package__).joinpath(name).read_text(encoding="utf-8"))

    def whole(told: TourConversation) -> TourConversation:
        own = TypeAdapter(tuple[TourReply, ...]).validate_python(raw(told.script)) if told.script else ()
        return replace(told, replies=(*own, *told.replies))

    entries = TypeAdapter(tuple[TourEntry, ...]).validate_python(raw("tour.yaml"))
    return tuple(replace(each, conversations=tuple(map(whole, each.conversations))) for each in entries)


def open_tour(
    hub: LocalHub,
    repo: Repo,
    source: Path,
    entries: Sequence[TourEntry],
    *,
    author: str,
    known: dict[str, int],
    scripted: bool,
) -> OpenedTour:
    """Open the threads of the tour, and the issue that lists them.

    Args:
        hub: where.
        repo: the demo's repository.
        source: its files.
        entries: what to show; those in a thread that is not there are left out.
        author: who opens the threads.
        known: the numbers of the demo's own threads, `issue` and `pull`.
        scripted: whether the model is.
    """
    threads = []
    for entry in entries:
        thread = entry.thread
        if isinstance(thread, str):
            if thread in known:
                threads.append((entry, known[thread]))
            continue
        if thread.branch:
            changed = (source / thread.file).read_text(encoding="utf-8") + thread.appended
            hub.commit(repo, {thread.file: changed}, message=thread.title, author=author, branch=thread.branch)
            opened = hub.open_pull(repo, author=author, head=thread.branch, title=thread.title, body=thread.body)
        else:
            opened = hub.open_issue(repo, author=author, title=thread.title, body=thread.body, labels=thread.labels)
        threads.append((entry, opened.number))
    parts = [f"{_PASTE} {_ELSE[scripted]}"]
    for place, (entry, number) in enumerate(threads, start=1):
        link = f"{hub.url}/{repo.full_name}/issues/{number}?body={quote(entry.comment)}#comment"
        parts += [f"### {place}. {entry.title}", entry.about, f"```\n{entry.comment}\n```"]
        parts += [" ".join(filter(None, [f"[Open #{number} with this comment]({link}).", entry.then]))]
    listing = hub.open_issue(repo, author=author, title=_TITLE, body="\n\n".join(parts))
    return OpenedTour(number=listing.number, threads=tuple(threads))
