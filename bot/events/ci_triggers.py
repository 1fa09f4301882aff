"""The parts shared by events about failed checks: the commit and the branch or pull request. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from bot.domain.access import Listening
from bot.domain.commands import Approve, ChecksFailed, Command, Deny, Retry, Stop
from bot.domain.job import Job, Origin, Thread
from bot.events.delivery import (
    Delivery,
    EventPayload,
    Id,
    IgnoredDelivery,
    PayloadPart,
    Repository,
    Sender,
    Sha,
    Text,
    job_of,
    no_commander,
    other_action,
    read,
)

FAILED = frozenset({"failure", "timed_out", "startup_failure"})
"""Conclusions of what went wrong by itself."""
RED = FAILED | {"cancelled"}
"""Conclusions that are looked at; what was cancelled is told at most."""

ACTIONS = "github-actions"
"""The App whose checks `workflow_run` reports, with the run that they belong to."""

_NAME_CHARS, _URL_CHARS = 200, 500


class RepoId(PayloadPart):
    """A repository, named by its number alone."""

    id: Id


class Home(RepoId):
    """The repository that a commit is in."""

    full_name: Text = ""


class Branch(PayloadPart):
    """One end of a pull request."""

    sha: Sha
    repo: RepoId


class FailedPull(PayloadPart):
    """A pull request as events about checks name it; GitHub leaves those from forks out."""

    number: Id
    head: Branch
    base: Branch


class HereRepository(Repository):
    """The repository of an event, with its default branch."""

    default_branch: Text = ""


class RedEvent(EventPayload):
    """An event about checks."""

    repository: HereRepository


class CheckApp(PayloadPart):
    """Whose check it is."""

    id: Id
    slug: Text = ""


Conclusion = Annotated[str, Field(max_length=40)] | None


def not_looked_at(conclusion: str | None, app: CheckApp | None, listening: Listening) -> IgnoredDelivery | None:
    """Why a check of an App is passed over, or None."""
    if conclusion not in RED:
        return IgnoredDelivery(reason="the check did not fail")
    if app is None:
        return IgnoredDelivery(reason="the event does not name the check's App")
    if app.id == listening.own_app_id:
        return IgnoredDelivery(reason="the check is the bot's own")
    if app.slug == ACTIONS:
        return IgnoredDelivery(reason="the workflow_run event reports this check")
    return None


def pull_of(event: RedEvent, head_sha: str, branch: str, pulls: list[FailedPull | None]) -> int | IgnoredDelivery:
    """The number of the one pull request here whose head is the commit; 0 for a commit of the default branch.

    Branch names prove nothing about pull requests, for a fork's may be the same.
    """
    here = event.repository.id
    numbers = {
        pull.number
        for pull in pulls
        if pull is not None and (pull.head.sha, pull.head.repo.id, pull.base.repo.id) == (head_sha, here, here)
    }
    if not numbers and branch and branch == event.repository.default_branch:
        return 0
    if len(numbers) != 1:
        return IgnoredDelivery(
            reason=f"the commit is the head of {len(numbers)} pull requests here, not of one, and its branch is not "
            "the default branch"
        )
    return numbers.pop()


def reddened(
    delivery: Delivery, listening: Listening, event: RedEvent, command: ChecksFailed, *, at: str = "", unique: str = ""
) -> Job:
    """The job of looking at checks that failed; the sender is its actor.

    Args:
        delivery: what brought it.
        listening: the operator's settings.
        event: its repository and sender.
        command: what failed, where.
        at: when it began, as GitHub writes it.
        unique: see `job_of`.
    """
    # A fork's pull request is not known yet.
    on_branch = not command.pull and not command.fork
    return job_of(
        delivery,
        event=event,
        thread=Thread.of_branch(command.branch) if on_branch else Thread.numbered("pull", command.pull),
        origin=Origin(kind="event", id=command.run_id, at=at),
        command=command,
        trigger=listening.triggers[0],
        head_sha=command.head_sha,
        unique=unique,
    )


def named(name: str | None, otherwise: str) -> str:
    """A name of bounded length."""
    return (name or otherwise)[:_NAME_CHARS]


def page(url: str | None) -> str:
    """An address of bounded length, or none."""
    return url if url is not None and len(url) <= _URL_CHARS else ""


# ---- A button of one of our check runs, or a check of another App that failed. Pure.


EVENT_CHECK_RUN = "check_run"

_EXTERNAL_ID = re.compile(
    r"(?P<job>[a-z0-9]{1,40}):(?:(?P<kind>issue|pull):(?P<number>[1-9][0-9]{0,17})|branch:(?P<branch>[^:\s]{1,250}))"
    r":(?P<request>-|[0-9a-f]{4,64})"
)

_BUTTON = re.compile(r"(?P<name>[a-z]{1,10})(?: (?P<request>[0-9a-f]{4,8}))?")
"""`approve 7f3a91c0` names the request that the button was drawn for, which may not be the one that waits by now."""


def job_from_check_run(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What a button or a red check asks for, or why it asks for nothing.

    GitHub shows buttons to everyone who may write to the repository; the gate still decides about the sender.
    """
    if delivery.action == "completed":
        return _completed(delivery, listening)
    if delivery.action not in ("requested_action", "rerequested"):
        return other_action(delivery, "requested_action", "rerequested", "completed")
    event = read(_EventCheckRun if delivery.action == "rerequested" else _Pressed, delivery)
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


def _pressed(delivery: Delivery, listening: Listening, event: _EventCheckRun, button: str) -> Job | IgnoredDelivery:
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


class _EventCheckRun(EventPayload):
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


class _Pressed(_EventCheckRun):
    requested_action: _Action


# ---- The checks of another App than GitHub Actions ended red on a commit. Pure.


EVENT_CHECK_SUITE = "check_suite"


def job_from_check_suite(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that failed checks may start, or why they start none; `workflow_run` reports those of workflows."""
    if delivery.action != "completed":
        return other_action(delivery, "completed")
    event = read(_EventCheckSuite, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    suite = event.check_suite
    branch = suite.head_branch or ""
    number = not_looked_at(suite.conclusion, suite.app, listening) or pull_of(
        event, suite.head_sha, branch, suite.pull_requests
    )
    if isinstance(number, IgnoredDelivery):
        return number
    command = ChecksFailed(
        run_id=0,
        name=named(suite.app.slug if suite.app else None, "CI"),
        conclusion=suite.conclusion or "",
        head_sha=suite.head_sha,
        branch=branch,
        pull=number,
    )
    return reddened(delivery, listening, event, command, at=suite.created_at or "")


class _SuiteCheckSuite(PayloadPart):
    id: Id
    head_sha: Sha
    head_branch: Annotated[Text, Field(max_length=500)] | None = None
    conclusion: Conclusion
    created_at: Text | None = None
    app: CheckApp | None
    pull_requests: list[FailedPull | None]


class _EventCheckSuite(RedEvent):
    check_suite: _SuiteCheckSuite


# ---- A workflow that ended red, on a pull request's head or on the default branch. Pure.


EVENT_WORKFLOW_RUN = "workflow_run"


def job_from_workflow_run(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What a red workflow may ask for, or why it asks for nothing.

    Branch names prove nothing, for a fork's may be the same: the pull request is the one whose head is the run's commit
    in this very repository; that of a fork is looked for by the fork's number and the commit. Who started it is
    nobody who commands, a bot as often as not: the gate asks what they may do, and counts what follows upon the bot's
    own pushes.
    """
    if delivery.action != "completed":
        return other_action(delivery, "completed")
    event = read(_EventWorkflowRun, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    run = event.workflow_run
    if run.conclusion not in RED:
        return IgnoredDelivery(reason="the workflow did not fail")
    home = run.head_repository
    if home is not None and home.id == event.repository.id:
        command = _here(event, listening)
        if isinstance(command, IgnoredDelivery):
            return command
    elif home is None or not home.full_name or not run.head_branch:
        return IgnoredDelivery(
            reason="the workflow ran for a fork, and the event does not say for which one, or for which branch"
        )
    else:
        command = _command_workflow_run(run, fork=home.full_name, fork_id=home.id)
    job = reddened(delivery, listening, event, command, at=run.created_at, unique=f"{run.id}:{run.run_attempt}")
    others = () if run.triggering_actor.id == run.actor.id else (run.triggering_actor.actor,)
    return replace(job, actor=run.actor.actor, others=others)


def _here(event: _EventWorkflowRun, listening: Listening) -> ChecksFailed | IgnoredDelivery:
    run = event.workflow_run
    number = pull_of(event, run.head_sha, run.head_branch or "", run.pull_requests)
    if isinstance(number, IgnoredDelivery):
        return number
    for who in (run.actor, run.triggering_actor):
        # An App's account, ours among them, is known by its name, and the gate asks what it may do.
        refusal = None if who.login.endswith("[bot]") else no_commander(who, listening)
        if refusal is not None:
            return refusal
    return _command_workflow_run(run, pull=number)


def _command_workflow_run(run: _Run, *, pull: int = 0, fork: str = "", fork_id: int = 0) -> ChecksFailed:
    return ChecksFailed(
        run_id=run.id,
        attempt=run.run_attempt,
        name=named(run.name, "CI"),
        conclusion=run.conclusion or "",
        url=page(run.html_url),
        head_sha=run.head_sha,
        branch=run.head_branch or "",
        pull=pull,
        fork=fork,
        fork_id=fork_id,
    )


class _Run(PayloadPart):
    id: Id
    run_attempt: Id
    name: Text | None = None
    conclusion: Conclusion
    created_at: Text = ""
    html_url: Text | None = None
    head_sha: Sha
    head_branch: Annotated[Text, Field(max_length=500)] | None = None
    head_repository: Home | None
    actor: Sender
    triggering_actor: Sender
    pull_requests: list[FailedPull | None]


class _EventWorkflowRun(RedEvent):
    workflow_run: _Run
