"""Events of a pull request: a command that opens it, labels, pushes, readiness, its end. Pure."""

from __future__ import annotations

from bot.domain.access import text_binding
from bot.domain.commands import Closed, Command, Fix, Labelled, Pushed, Review
from bot.domain.job import Job, Origin, OriginKind, Thread
from bot.domain.listening import Listening
from bot.intake.asking import asked_in_description, job_of, no_commander, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, Label, PullRequest, read

EVENT = "pull_request"

_HEARD = ("opened", "synchronize", "ready_for_review", "closed", "locked")


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that its description, a label or readiness asks for, or what happened; or why there is nothing to do."""
    if delivery.action == "labeled":
        return _labelled(delivery, listening)
    if delivery.action not in _HEARD:
        return other_action(delivery, "labeled", *_HEARD)
    event = read(_Event, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    if delivery.action == "opened":
        # The command that it was opened with, or else the review that the repository may want of it.
        asked = asked_in_description(delivery, listening, event=event, about=event.pull_request)
        if isinstance(asked, Job) or event.pull_request.draft:
            return asked
    if delivery.action in {"opened", "ready_for_review"}:
        review = Review(on="opened" if delivery.action == "opened" else "ready")
        return no_commander(event.sender, listening) or _job(delivery, listening, event, "event", review)
    pushed = delivery.action == "synchronize"
    happened = Pushed(head_sha=event.pull_request.head.sha) if pushed else Closed(how=delivery.action)
    words = event.pull_request.thread
    # A review of what was pushed may follow.
    return _job(delivery, listening, event, "event", happened, words if pushed else words.wordless)


def _labelled(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Labelled, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    name = event.label.name
    if name.casefold() == listening.start_label.casefold():
        return no_commander(event.sender, listening) or _job(delivery, listening, event, "label", Fix())
    if listening.is_own(event.sender.id, event.sender.login):
        return IgnoredDelivery(reason="the bot itself set the label")
    pull = event.pull_request
    words = text_binding(pull.thread.title, pull.thread.body)
    labelled = Labelled(label=name, bound_to=pull.head.sha, words=words, at=pull.updated_at)
    return _job(delivery, listening, event, "label", labelled, pull.thread.wordless)


def _job(  # noqa: PLR0917 - what `job_of` takes
    delivery: Delivery,
    listening: Listening,
    event: _Event,
    kind: OriginKind,
    command: Command,
    thread: Thread | None = None,
) -> Job:
    return job_of(
        delivery,
        event=event,
        thread=thread or event.pull_request.thread,
        origin=Origin(kind=kind, id=0),
        command=command,
        trigger=listening.triggers[0],
        head_sha=event.pull_request.head.sha,
    )


class _Event(EventPayload):
    pull_request: PullRequest


class _Labelled(_Event):
    label: Label
