"""What happens to a pull request: labels, pushes, its readiness, its end. Pure."""

from __future__ import annotations

from bot.intake.asking import job_of, no_commander, other_action
from bot.intake.commands import Closed, Command, Fix, Labelled, Pushed, Review
from bot.intake.deliveries import Delivery, Ignored
from bot.intake.listening import Listening
from bot.intake.payloads import Event, Label, PullRequest, read
from bot.jobs.job import Job, Origin, OriginKind

EVENT = "pull_request"


def job_from(delivery: Delivery, listening: Listening) -> Job | Ignored:
    """The job that a label or readiness asks for, or what happened; or why there is nothing to do."""
    if delivery.action == "labeled":
        return _labelled(delivery, listening)
    if delivery.action not in ("synchronize", "ready_for_review", "closed", "locked"):
        return other_action(delivery, "labeled", "synchronize", "ready_for_review", "closed", "locked")
    event = read(_Event, delivery)
    if isinstance(event, Ignored):
        return event
    if delivery.action == "ready_for_review":
        return no_commander(event.sender, listening) or _job(delivery, listening, event, "event", Review())
    pushed = delivery.action == "synchronize"
    happened = Pushed(head_sha=event.pull_request.head.sha) if pushed else Closed(how=delivery.action)
    return _job(delivery, listening, event, "event", happened)


def _labelled(delivery: Delivery, listening: Listening) -> Job | Ignored:
    event = read(_Labelled, delivery)
    if isinstance(event, Ignored):
        return event
    name = event.label.name
    if name.casefold() == listening.start_label.casefold():
        return no_commander(event.sender, listening) or _job(delivery, listening, event, "label", Fix())
    if event.sender.id in listening.own_ids:
        return Ignored(reason="the bot itself set the label")
    labelled = Labelled(label=name, bound_to=event.pull_request.head.sha)
    return _job(delivery, listening, event, "label", labelled)


def _job(delivery: Delivery, listening: Listening, event: _Event, kind: OriginKind, command: Command) -> Job:
    return job_of(
        delivery,
        event=event,
        thread=event.pull_request.thread,
        origin=Origin(kind=kind, id=0),
        command=command,
        trigger=listening.triggers[0],
        head_sha=event.pull_request.head.sha,
    )


class _Event(Event):
    pull_request: PullRequest


class _Labelled(_Event):
    label: Label
