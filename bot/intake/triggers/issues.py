"""Events of an issue: a command that opens it, labels, assignment, its end. Pure."""

from __future__ import annotations

from bot.domain.access import text_binding
from bot.domain.commands import Assigned, Closed, Command, Fix, Labelled
from bot.domain.job import Job, Origin, OriginKind, Thread
from bot.domain.listening import Listening
from bot.intake.asking import asked_in_description, job_of, no_commander, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, Issue, Label, PayloadPart, Sender, read

EVENT = "issues"

_ENDS = ("closed", "deleted", "transferred", "locked")


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that an issue asks for as it is opened, labelled or assigned, or what happened to it; or why none."""
    match delivery.action:
        case "opened":
            return _opened(delivery, listening)
        case "labeled":
            return _labelled(delivery, listening)
        case "assigned":
            return _assigned(delivery, listening)
        case action if action in _ENDS:
            event = read(_Event, delivery)
            if isinstance(event, IgnoredDelivery):
                return event
            return _job(delivery, listening, event, "event", Closed(how=action), event.issue.thread.wordless)
        case _:
            return other_action(delivery, "opened", "labeled", "assigned", *_ENDS)


def _opened(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Opened, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    if event.changes is not None and event.changes.old_issue is not None:
        return IgnoredDelivery(
            reason="the issue was transferred here: its description was written in another repository"
        )
    return asked_in_description(delivery, listening, event=event, about=event.issue)


def _labelled(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Labelled, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    name = event.label.name
    if name.casefold() == listening.start_label.casefold():
        return no_commander(event.sender, listening) or _job(delivery, listening, event, "label", Fix())
    if listening.is_own(event.sender.id, event.sender.login):
        return IgnoredDelivery(reason="the bot itself set the label")
    words = event.issue.thread
    bound_to = text_binding(words.title, words.body)
    labelled = Labelled(label=name, bound_to=bound_to, at=event.issue.updated_at)
    return _job(delivery, listening, event, "label", labelled, words.wordless)


def _assigned(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Assigned, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    command: Command
    if listening.is_own(event.assignee.id, event.assignee.login):
        command = Fix()
    elif event.assignee.is_bot and listening.own_app_id is not None:
        command = Assigned(assignee_id=event.assignee.id)
    else:
        return IgnoredDelivery(reason="the issue was assigned to somebody else")
    return no_commander(event.sender, listening) or _job(delivery, listening, event, "assignment", command)


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
        thread=thread or event.issue.thread,
        origin=Origin(kind=kind, id=0),
        command=command,
        trigger=listening.triggers[0],
    )


class _Event(EventPayload):
    issue: Issue


class _Changes(PayloadPart):
    old_issue: dict[str, object] | None = None


class _Opened(_Event):
    changes: _Changes | None = None


class _Labelled(_Event):
    label: Label


class _Assigned(_Event):
    assignee: Sender
