"""A button of one of our check runs, or a check of another App that failed. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from bot.domain.commands import Approve, ChecksFailed, Command, Deny, Retry, Stop
from bot.domain.job import Job, Origin, Thread
from bot.domain.listening import Listening
from bot.intake.asking import job_of, no_commander, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, Id, PayloadPart, Sha, Text, read
from bot.intake.red_checks import (
    CheckApp,
    Conclusion,
    FailedPull,
    RedEvent,
    named,
    not_looked_at,
    page,
    pull_of,
    reddened,
)

EVENT = "check_run"

_EXTERNAL_ID = re.compile(
    r"(?P<job>[a-z0-9]{1,40}):(?:(?P<kind>issue|pull):(?P<number>[1-9][0-9]{0,17})|branch:(?P<branch>[^:\s]{1,250}))"
    r":(?P<request>-|[0-9a-f]{4,64})"
)

_BUTTON = re.compile(r"(?P<name>[a-z]{1,10})(?: (?P<request>[0-9a-f]{4,8}))?")
"""`approve 7f3a91c0` names the request that the button was drawn for, which may not be the one that waits by now."""


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What a button or a red check asks for, or why it asks for nothing.

    GitHub shows buttons to everyone who may write to the repository; the gate still decides about the sender.
    """
    if delivery.action == "completed":
        return _completed(delivery, listening)
    if delivery.action not in ("requested_action", "rerequested"):
        return other_action(delivery, "requested_action", "rerequested", "completed")
    event = read(_Event if delivery.action == "rerequested" else _Pressed, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    app = event.check_run.app
    if app is None or app.id != listening.own_app_id:
        return IgnoredDelivery(reason="the check run is not the bot's own")
    refusal = no_commander(event.sender, listening)
    button = event.requested_action.identifier if isinstance(event, _Pressed) else "retry"
    return refusal or _pressed(delivery, listening, event, button)


def _completed(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Completed, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    run = event.check_run
    branch = run.check_suite.head_branch or ""
    number = not_looked_at(run.conclusion, run.app, listening) or pull_of(
        event, run.head_sha, branch, run.pull_requests
    )
    if isinstance(number, IgnoredDelivery):
        return number
    command = ChecksFailed(
        run_id=0,
        name=named(run.name, "CI"),
        conclusion=run.conclusion or "",
        url=page(run.html_url),
        head_sha=run.head_sha,
        branch=branch,
        pull=number,
    )
    return reddened(delivery, listening, event, command, at=run.started_at or "", unique=f"red:{run.id}")


def _pressed(delivery: Delivery, listening: Listening, event: _Event, button: str) -> Job | IgnoredDelivery:
    place = _EXTERNAL_ID.fullmatch(event.check_run.external_id)
    if place is None:
        return IgnoredDelivery(reason="the check run's external id is not one of the bot's")
    pressed = _BUTTON.fullmatch(button)
    if pressed is None:
        return IgnoredDelivery(reason="the bot's check runs have no such button")
    command = _command(pressed["name"], pressed["request"] or place["request"], job_id=place["job"])
    if isinstance(command, IgnoredDelivery):
        return command
    # Where the check run's job is; a check run knows no words of a thread.
    if place["branch"]:
        thread = Thread.of_branch(place["branch"])
    else:
        thread = Thread.numbered("issue" if place["kind"] == "issue" else "pull", int(place["number"]))
    return job_of(
        delivery,
        event=event,
        thread=thread,
        origin=Origin(kind="button", id=event.check_run.id),
        command=command,
        trigger=listening.triggers[0],
        head_sha=event.check_run.head_sha if place["kind"] == "pull" else "",
    )


def _command(button: str, request: str, *, job_id: str) -> Command | IgnoredDelivery:
    match button:
        case "stop":
            return Stop()
        case "retry":
            return Retry(job_id=job_id)
        # "The only one that waits" may be another by now than the one that was looked at.
        case "approve" | "deny" if request == "-":
            return IgnoredDelivery(reason=f"no request was waiting when the button {button} was pressed")
        case "approve":
            return Approve(request_id=request)
        case "deny":
            return Deny(request_id=request)
        case _:
            return IgnoredDelivery(reason="the bot's check runs have no such button")


class _App(PayloadPart):
    id: Id


class _CheckRun(PayloadPart):
    id: Id
    head_sha: Sha
    external_id: Annotated[str, Field(max_length=400)]
    app: _App | None


class _Action(PayloadPart):
    identifier: Annotated[str, Field(max_length=100)]


class _Event(EventPayload):
    check_run: _CheckRun


class _Suite(PayloadPart):
    head_branch: Annotated[Text, Field(max_length=500)] | None = None


class _RedRun(PayloadPart):
    id: Id
    name: Text
    head_sha: Sha
    conclusion: Conclusion
    started_at: Text | None = None
    html_url: Text | None = None
    app: CheckApp | None
    check_suite: _Suite
    pull_requests: list[FailedPull | None]


class _Completed(RedEvent):
    check_run: _RedRun


class _Pressed(_Event):
    requested_action: _Action
