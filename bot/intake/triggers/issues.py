"""What happens to an issue: labels, assignment, its end. Pure."""

from __future__ import annotations

from bot.gate.standing import text_binding
from bot.intake.asking import job_of, no_commander, other_action
from bot.intake.commands import Assigned, Closed, Command, Fix, Labelled
from bot.intake.deliveries import Delivery, Ignored
from bot.intake.listening import Listening
from bot.intake.payloads import Event, Issue, Label, Sender, read
from bot.jobs.job import Job, Origin, OriginKind, Thread

EVENT = "issues"

_ENDS = ("closed", "deleted", "transferred", "locked")


def job_from(delivery: Delivery, listening: Listening) -> Job | Ignored:
    """The job that a label or an assignment asks for, or what happened to the issue; or why there is nothing to do."""
    match delivery.action:
        case "labeled":
            return _labelled(delivery, listening)
        case "assigned":
            return _assigned(delivery, listening)
        case action if action in _ENDS:
            event = read(_Event, delivery)
            if isinstance(event, Ignored):
                return event
            return _job(delivery, listening, event, "event", Closed(how=action), event.issue.thread.wordless)
        case _:
            return other_action(delivery, "labeled", "assigned", *_ENDS)


def _labelled(delivery: Delivery, listening: Listening) -> Job | Ignored:
    event = read(_Labelled, delivery)
    if isinstance(event, Ignored):
        return event
    name = event.label.name
    if name.casefold() == listening.start_label.casefold():
        return no_commander(event.sender, listening) or _job(delivery, listening, event, "label", Fix())
    if event.sender.id in listening.own_ids:
        return Ignored(reason="the bot itself set the label")
    words = event.issue.thread
    bound_to = text_binding(words.title, words.body)
    labelled = Labelled(label=name, bound_to=bound_to, at=event.issue.updated_at)
    return _job(delivery, listening, event, "label", labelled, words.wordless)


def _assigned(delivery: Delivery, listening: Listening) -> Job | Ignored:
    event = read(_Assigned, delivery)
    if isinstance(event, Ignored):
        return event
    command: Command
    if event.assignee.id in listening.own_ids:
        command = Fix()
    elif event.assignee.is_bot and listening.own_app_id is not None:
        command = Assigned(assignee_id=event.assignee.id)
    else:
        return Ignored(reason="the issue was assigned to somebody else")
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


class _Event(Event):
    issue: Issue


class _Labelled(_Event):
    label: Label


class _Assigned(_Event):
    assignee: Sender
