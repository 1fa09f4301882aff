"""Functions that turn events about checks into jobs: failed workflows and checks, and buttons of check runs.

A failed check becomes a job if its commit is the head of one pull request or of the default branch. Branch names prove
nothing: a fork can have the same.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from bot.domain.access import BotProfile
from bot.domain.commands import Approve, ChecksFailed, Command, Deny, Retry, Stop
from bot.domain.job import Job, Origin, Thread
from bot.events.delivery import (
    Delivery,
    EventPayload,
    Id,
    IgnoredDelivery,
    JobRouter,
    ObjectId,
    PayloadPart,
    Repository,
    Sender,
    Sha,
    Text,
    make_job,
    reject_sender,
)

FAILED = frozenset({"failure", "timed_out", "startup_failure"})
"""Conclusions of a failed check."""
RED = FAILED | {"cancelled"}
"""Conclusions that are handled; a cancelled check is only reported."""

router = JobRouter()

_ACTIONS = "github-actions"
"""The App whose checks `workflow_run` reports."""
_NAME_CHARS, _URL_CHARS = 200, 500
_EXTERNAL_ID = re.compile(
    r"(?P<job>[a-z0-9]{1,40}):(?:(?P<kind>issue|pull):(?P<number>[1-9][0-9]{0,17})|branch:(?P<branch>[^:\s]{1,250}))"
    r":(?P<request>-|[0-9a-f]{4,64})"
)
_BUTTON = re.compile(r"(?P<name>[a-z]{1,10})(?: (?P<request>[0-9a-f]{4,8}))?")
"""`approve 7f3a91c0` names the request that the button was shown for; another one may wait now."""

_BranchName = Annotated[Text, Field(max_length=500)] | None
_Conclusion = Annotated[str, Field(max_length=40)] | None


class _HeadRepository(ObjectId):
    full_name: Text = ""


class _Branch(PayloadPart):
    sha: Sha
    repo: ObjectId


class _PullRequest(PayloadPart):
    """A pull request in an event about checks; GitHub omits those of forks."""

    number: Id
    head: _Branch
    base: _Branch


class _EventRepository(Repository):
    default_branch: Text = ""


class _CheckPayload(EventPayload):
    repository: _EventRepository


class _App(ObjectId):
    slug: Text = ""


class _OwnCheckRun(ObjectId):
    head_sha: Sha
    external_id: Annotated[str, Field(max_length=400)]
    app: ObjectId | None


class OwnCheckRunPayload(EventPayload):
    """A rerun request for a check run of the bot."""

    check_run: _OwnCheckRun


class _Action(PayloadPart):
    identifier: Annotated[str, Field(max_length=100)]


class ButtonPayload(OwnCheckRunPayload):
    """A button of a check run was pressed."""

    requested_action: _Action


class _CheckSuiteBranch(PayloadPart):
    head_branch: _BranchName = None


class _CheckRun(ObjectId):
    name: Text
    head_sha: Sha
    conclusion: _Conclusion
    started_at: Text | None = None
    html_url: Text | None = None
    app: _App | None
    check_suite: _CheckSuiteBranch
    pull_requests: list[_PullRequest | None]


class CheckRunPayload(_CheckPayload):
    check_run: _CheckRun


class _CheckSuite(ObjectId):
    head_sha: Sha
    head_branch: _BranchName = None
    conclusion: _Conclusion
    created_at: Text | None = None
    app: _App | None
    pull_requests: list[_PullRequest | None]


class CheckSuitePayload(_CheckPayload):
    check_suite: _CheckSuite


class _WorkflowRun(ObjectId):
    run_attempt: Id
    name: Text | None = None
    conclusion: _Conclusion
    created_at: Text = ""
    html_url: Text | None = None
    head_sha: Sha
    head_branch: _BranchName = None
    head_repository: _HeadRepository | None
    actor: Sender
    triggering_actor: Sender
    pull_requests: list[_PullRequest | None]


class WorkflowRunPayload(_CheckPayload):
    workflow_run: _WorkflowRun


@router.register("check_run", ButtonPayload, action="requested_action")
@router.register("check_run", OwnCheckRunPayload, action="rerequested")
def job_from_button(delivery: Delivery, profile: BotProfile, payload: OwnCheckRunPayload) -> Job | IgnoredDelivery:
    run = payload.check_run
    if run.app is None or run.app.id != profile.own_app_id:
        return IgnoredDelivery(reason="the check run is not the bot's own")
    if (refusal := reject_sender(payload.sender, profile)) is not None:
        return refusal
    external_id = _EXTERNAL_ID.fullmatch(run.external_id)
    if external_id is None:
        return IgnoredDelivery(reason="the check run's external id is not one of the bot's")
    button = _BUTTON.fullmatch(payload.requested_action.identifier if isinstance(payload, ButtonPayload) else "retry")
    command = _button_command(button, external_id) if button is not None else None
    if command is None:
        return IgnoredDelivery(reason="the bot's check runs have no such button")
    if isinstance(command, IgnoredDelivery):
        return command
    # A check run does not contain the thread's text.
    if external_id["branch"]:
        thread = Thread.of_branch(external_id["branch"])
    else:
        thread = Thread.from_number("issue" if external_id["kind"] == "issue" else "pull", int(external_id["number"]))
    return make_job(
        delivery,
        profile,
        payload,
        thread=thread,
        origin=Origin(kind="button", id=run.id),
        command=command,
        head_sha=run.head_sha if external_id["kind"] == "pull" else "",
    )


def _button_command(button: re.Match[str], external_id: re.Match[str]) -> Command | IgnoredDelivery | None:
    request = button["request"] or external_id["request"]
    match button["name"]:
        case "stop":
            return Stop()
        case "retry":
            return Retry(job_id=external_id["job"])
        # Without an id, the request that waits now may not be the one that was shown.
        case "approve" | "deny" if request == "-":
            return IgnoredDelivery(reason=f"no request was waiting when the button {button['name']} was pressed")
        case "approve":
            return Approve(request_id=request)
        case "deny":
            return Deny(request_id=request)
        case _:
            return None


@router.register("check_run", CheckRunPayload, action="completed")
def job_from_check_run(delivery: Delivery, profile: BotProfile, payload: CheckRunPayload) -> Job | IgnoredDelivery:
    """Return the job for a failed check of another App."""
    run = payload.check_run
    failure = ChecksFailed(
        run_id=0,
        name=run.name[:_NAME_CHARS] or "CI",
        conclusion=run.conclusion or "",
        url=_short_url(run.html_url),
        head_sha=run.head_sha,
        branch=run.check_suite.head_branch or "",
    )
    return _job_from_check(delivery, profile, payload, run, failure, at=run.started_at or "", unique=f"red:{run.id}")


@router.register("check_suite", CheckSuitePayload, action="completed")
def job_from_check_suite(delivery: Delivery, profile: BotProfile, payload: CheckSuitePayload) -> Job | IgnoredDelivery:
    suite = payload.check_suite
    failure = ChecksFailed(
        run_id=0,
        name=(suite.app.slug if suite.app else "")[:_NAME_CHARS] or "CI",
        conclusion=suite.conclusion or "",
        head_sha=suite.head_sha,
        branch=suite.head_branch or "",
    )
    return _job_from_check(delivery, profile, payload, suite, failure, at=suite.created_at or "")


def _job_from_check(
    delivery: Delivery,
    profile: BotProfile,
    payload: _CheckPayload,
    check: _CheckRun | _CheckSuite,
    failure: ChecksFailed,
    *,
    at: str,
    unique: str = "",
) -> Job | IgnoredDelivery:
    if check.conclusion not in RED:
        return IgnoredDelivery(reason="the check did not fail")
    if check.app is None:
        return IgnoredDelivery(reason="the event does not name the check's App")
    if check.app.id == profile.own_app_id:
        return IgnoredDelivery(reason="the check is the bot's own")
    if check.app.slug == _ACTIONS:
        return IgnoredDelivery(reason="the workflow_run event reports this check")
    pull = _find_pull_request(payload, failure, check.pull_requests)
    if isinstance(pull, IgnoredDelivery):
        return pull
    return _failure_job(delivery, profile, payload, replace(failure, pull=pull), at=at, unique=unique)


@router.register("workflow_run", WorkflowRunPayload, action="completed")
def job_from_workflow_run(
    delivery: Delivery, profile: BotProfile, payload: WorkflowRunPayload
) -> Job | IgnoredDelivery:
    """Return the job for a failed workflow run; a fork's pull request is searched later."""
    run = payload.workflow_run
    if run.conclusion not in RED:
        return IgnoredDelivery(reason="the workflow did not fail")
    failure = ChecksFailed(
        run_id=run.id,
        attempt=run.run_attempt,
        name=(run.name or "CI")[:_NAME_CHARS],
        conclusion=run.conclusion or "",
        url=_short_url(run.html_url),
        head_sha=run.head_sha,
        branch=run.head_branch or "",
    )
    head_repository = run.head_repository
    if head_repository is not None and head_repository.id == payload.repository.id:
        pull = _find_pull_request(payload, failure, run.pull_requests)
        if isinstance(pull, IgnoredDelivery):
            return pull
        for account in (run.actor, run.triggering_actor):
            # An App's account, the bot's own included, is known by its name, and its access is checked later.
            refusal = None if account.login.endswith("[bot]") else reject_sender(account, profile)
            if refusal is not None:
                return refusal
        failure = replace(failure, pull=pull)
    elif head_repository is None or not head_repository.full_name or not run.head_branch:
        return IgnoredDelivery(
            reason="the workflow ran for a fork, and the event does not say for which one, or for which branch"
        )
    else:
        failure = replace(failure, fork=head_repository.full_name, fork_id=head_repository.id)
    unique = f"{run.id}:{run.run_attempt}"
    job = _failure_job(delivery, profile, payload, failure, at=run.created_at, unique=unique)
    others = () if run.triggering_actor.id == run.actor.id else (run.triggering_actor.actor,)
    return replace(job, actor=run.actor.actor, other_actors=others)


def _find_pull_request(
    payload: _CheckPayload, failure: ChecksFailed, pulls: list[_PullRequest | None]
) -> int | IgnoredDelivery:
    """Return the number of the one pull request with this head; 0 for the default branch."""
    repo_id = payload.repository.id
    head = (failure.head_sha, repo_id, repo_id)
    numbers = {
        pull.number
        for pull in pulls
        if pull is not None and (pull.head.sha, pull.head.repo.id, pull.base.repo.id) == head
    }
    if not numbers and failure.branch and failure.branch == payload.repository.default_branch:
        return 0
    if len(numbers) != 1:
        return IgnoredDelivery(
            reason=f"the commit is the head of {len(numbers)} pull requests here, not of one, and its branch is not "
            "the default branch"
        )
    return numbers.pop()


def _failure_job(
    delivery: Delivery, profile: BotProfile, payload: _CheckPayload, failure: ChecksFailed, *, at: str, unique: str
) -> Job:
    # The pull request of a fork is not known yet.
    on_branch = not failure.pull and not failure.fork
    return make_job(
        delivery,
        profile,
        payload,
        thread=Thread.of_branch(failure.branch) if on_branch else Thread.from_number("pull", failure.pull),
        origin=Origin(kind="event", id=failure.run_id, at=at),
        command=failure,
        head_sha=failure.head_sha,
        unique=unique,
    )


def _short_url(url: str | None) -> str:
    return url if url is not None and len(url) <= _URL_CHARS else ""
