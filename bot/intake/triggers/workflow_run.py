"""A workflow that ended red, on a pull request's head or on the default branch. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from bot.domain.commands import ChecksFailed
from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.intake.asking import no_commander, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import Id, PayloadPart, Sender, Sha, Text, read
from bot.intake.red_checks import RED, Conclusion, FailedPull, Home, RedEvent, named, page, pull_of, reddened

EVENT = "workflow_run"


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What a red workflow may ask for, or why it asks for nothing.

    Branch names prove nothing, for a fork's may be the same: the pull request is the one whose head is the run's commit
    in this very repository; that of a fork is looked for by the fork's number and the commit. Who started it is
    nobody who commands, a bot as often as not: the gate asks what they may do, and counts what follows upon the bot's
    own pushes.
    """
    if delivery.action != "completed":
        return other_action(delivery, "completed")
    event = read(_Event, delivery)
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
        command = _command(run, fork=home.full_name, fork_id=home.id)
    job = reddened(delivery, listening, event, command, at=run.created_at, unique=f"{run.id}:{run.run_attempt}")
    others = () if run.triggering_actor.id == run.actor.id else (run.triggering_actor.actor,)
    return replace(job, actor=run.actor.actor, others=others)


def _here(event: _Event, listening: Listening) -> ChecksFailed | IgnoredDelivery:
    run = event.workflow_run
    number = pull_of(event, run.head_sha, run.head_branch or "", run.pull_requests)
    if isinstance(number, IgnoredDelivery):
        return number
    for who in (run.actor, run.triggering_actor):
        # An App's account, ours among them, is known by its name, and the gate asks what it may do.
        refusal = None if who.login.endswith("[bot]") else no_commander(who, listening)
        if refusal is not None:
            return refusal
    return _command(run, pull=number)


def _command(run: _Run, *, pull: int = 0, fork: str = "", fork_id: int = 0) -> ChecksFailed:
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


class _Event(RedEvent):
    workflow_run: _Run
