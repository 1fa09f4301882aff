"""Turn a payload into a job: check who may ask, and fill in what all jobs have in common. Pure."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from bot.domain.commands import AccessLost, Command
from bot.domain.job import Job, Origin, Repo, Thread
from bot.domain.listening import Listening, is_app
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.grammar import parse_command
from bot.intake.payloads import EventPayload, Issue, PullRequest, Sender, User


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadText:
    """What somebody wrote in a thread.

    Attributes:
        text: the words.
        author: whose they are.
        origin: what they are on GitHub.
        head_sha: the pull request's head at that moment, or empty.
        unique: what holds the words, unique for the event and repository.
    """

    text: str
    author: User
    origin: Origin
    head_sha: str = ""
    unique: str


def other_action(delivery: Delivery, *wanted: str) -> IgnoredDelivery:
    """Why a delivery with another action than the wanted ones asks for nothing."""
    return IgnoredDelivery(
        reason=f"{delivery.event} is handled if its action is {', '.join(wanted)}; this one is "
        f"{delivery.action or 'without an action'}"
    )


def no_commander(sender: Sender, listening: Listening) -> IgnoredDelivery | None:
    """Why an account commands nothing, no matter which; None when the gate may decide about it.

    Bots do not command, except those that the operator lists; the bot itself never does.
    """
    if listening.is_own(sender.id, sender.login):
        return IgnoredDelivery(reason="the sender is the bot's own account, whose text is never a command")
    bots = listening.trusted_bots
    # A name is worth something only with GitHub's word that it is an App's.
    listed = sender.id in bots.ids or (sender.type == "Bot" and bots.hold(sender.id, sender.login))
    if sender.is_bot and not listed:
        names = f"{sender.login} or its user id {sender.id}" if is_app(sender.login) else f"the user id {sender.id}"
        return IgnoredDelivery(reason=f"bots cannot give commands; list {names} in CODEPILOT_TRUSTED_BOTS to allow it")
    return None


def asked_in_words(
    delivery: Delivery, listening: Listening, *, event: EventPayload, thread: Thread, words: ThreadText
) -> Job | IgnoredDelivery:
    """The job that somebody's words ask for, or why they ask for none.

    Only the authenticated sender commands, in words of their own. The job's id comes from what holds the words, so that
    another delivery of them is the same job.
    """
    refusal = no_commander(event.sender, listening)
    if refusal is not None:
        return refusal
    if words.author.id != event.sender.id:
        return IgnoredDelivery(reason="the author of this text is not the sender of the delivery")
    parsed = parse_command(words.text, triggers=listening.triggers)
    if parsed is None:
        return IgnoredDelivery(reason=f"the {words.origin.kind.replace('_', ' ')} contains no command")
    return job_of(
        delivery,
        event=event,
        thread=thread,
        origin=words.origin,
        command=parsed.command,
        trigger=parsed.trigger,
        head_sha=words.head_sha,
        unique=words.unique,
    )


def asked_in_description(
    delivery: Delivery, listening: Listening, *, event: EventPayload, about: Issue | PullRequest
) -> Job | IgnoredDelivery:
    """The job that the description of a thread asks for, which was just opened; or why it asks for none."""
    if about.user is None:
        return IgnoredDelivery(reason="the author of the description is unknown")
    words = ThreadText(
        text=about.body or "",
        author=about.user,
        origin=Origin(kind="description", id=0, at=about.created_at),
        head_sha=about.head.sha if isinstance(about, PullRequest) else "",
        unique=f"description:{about.number}",
    )
    return asked_in_words(delivery, listening, event=event, thread=about.thread, words=words)


def job_of(
    delivery: Delivery,
    *,
    event: EventPayload,
    thread: Thread,
    origin: Origin,
    command: Command,
    trigger: str,
    head_sha: str = "",
    unique: str = "",
) -> Job:
    """A job in the delivery's repository.

    Args:
        delivery: what brought it.
        event: its repository and sender.
        thread: where.
        origin: what it came from.
        command: what is asked, or happened.
        trigger: see `Job`, as for the next.
        head_sha: see `Job`.
        unique: what it came from, unique for this event and repository; the delivery's id when empty, for what happens
            has no number of its own.
    """
    return Job(
        id=job_id(delivery.event, event.repository.id, unique or delivery.id),
        delivery_id=delivery.id,
        repo=event.repository.repo,
        thread=thread,
        actor=event.sender.actor,
        origin=origin,
        command=command,
        installation=delivery.installation,
        trigger=trigger,
        head_sha=head_sha,
    )


def departed(
    delivery: Delivery, listening: Listening, *, sender: Sender, repo_ids: tuple[int, ...] = ()
) -> Job | IgnoredDelivery:
    """The job of ending what has no purpose any more; it is in no repository and no thread."""
    if delivery.installation is None:
        return IgnoredDelivery(reason=f"the event {delivery.event} names no installation of the App")
    return Job(
        id=job_id(delivery.event, delivery.installation, delivery.id),
        delivery_id=delivery.id,
        repo=Repo(id=0, full_name="", private=True),
        thread=Thread.numbered("issue", 0),
        actor=sender.actor,
        origin=Origin(kind="event", id=0),
        command=AccessLost(repo_ids=repo_ids),
        installation=delivery.installation,
        trigger=listening.triggers[0],
    )


def job_id(event: str, place: int, unique: str) -> str:
    """Twelve characters, 60 bits: a clash among a million jobs has a chance of one in two million.

    Args:
        event: the event's name.
        place: numeric id of the repository, or of the installation.
        unique: what the job came from, unique for the event and place.
    """
    digest = hashlib.sha256(f"{event}:{place}:{unique}".encode()).digest()
    return base64.b32encode(digest[:10])[:12].decode().lower()
