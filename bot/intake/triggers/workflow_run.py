"""A workflow that ended red on a pull request's head. Pure."""

from __future__ import annotations

from bot.intake.asking import job_of, no_commander, other_action
from bot.intake.commands import Fix
from bot.intake.deliveries import Delivery, Ignored
from bot.intake.listening import Listening
from bot.intake.payloads import Event, Id, Part, Sender, Sha, Text, read
from bot.jobs.job import Job, Origin, Thread

EVENT = "workflow_run"


def job_from(delivery: Delivery, listening: Listening) -> Job | Ignored:
    """The fix that a red workflow may ask for, or why it asks for none.

    Branch names prove nothing, for a fork's may be the same: the pull request is the one whose head is the run's commit
    in this very repository. Whoever made it run is nobody who commands, a bot as often as not: the gate asks what they
    may do, and counts what follows upon the bot's own pushes.
    """
    if delivery.action != "completed":
        return other_action(delivery, "completed")
    event = read(_Event, delivery)
    if isinstance(event, Ignored):
        return event
    if event.workflow_run.conclusion != "failure":
        return Ignored(reason="the workflow did not fail")
    number = _pull_request(event)
    if isinstance(number, Ignored):
        return number
    for who in (event.workflow_run.actor, event.workflow_run.triggering_actor):
        # An App's account, ours among them, is known by its name, and the gate asks what it may do.
        refusal = None if who.login.endswith("[bot]") else no_commander(who, listening)
        if refusal is not None:
            return refusal
    return _job(delivery, listening, event, number)


def _pull_request(event: _Event) -> int | Ignored:
    """The number of the one pull request here whose head is the run's commit."""
    run, here = event.workflow_run, event.repository.id
    if run.head_repository is None or run.head_repository.id != here:
        return Ignored(reason="the workflow ran for a fork")
    numbers = {
        pull.number
        for pull in run.pull_requests
        if pull is not None and (pull.head.sha, pull.head.repo.id, pull.base.repo.id) == (run.head_sha, here, here)
    }
    if len(numbers) != 1:
        return Ignored(reason=f"the workflow's commit is the head of {len(numbers)} pull requests here, not of one")
    return numbers.pop()


def _job(delivery: Delivery, listening: Listening, event: _Event, number: int) -> Job:
    run = event.workflow_run
    return job_of(
        delivery,
        event=event,
        # A workflow run knows no words of its pull request.
        thread=Thread(kind="pull", number=number, title="", body="", author=""),
        origin=Origin(kind="ci", id=run.id, at=run.created_at),
        command=Fix(),
        trigger=listening.triggers[0],
        head_sha=run.head_sha,
        actor=run.actor.actor,
        others=() if run.triggering_actor.id == run.actor.id else (run.triggering_actor.actor,),
        unique=f"{run.id}:{run.run_attempt}",
    )


class _RepoId(Part):
    id: Id


class _Branch(Part):
    sha: Sha
    repo: _RepoId


class _Pull(Part):
    number: Id
    head: _Branch
    base: _Branch


class _Run(Part):
    id: Id
    run_attempt: Id
    conclusion: str | None
    created_at: Text = ""
    head_sha: Sha
    head_repository: _RepoId | None
    actor: Sender
    triggering_actor: Sender
    pull_requests: list[_Pull | None]


class _Event(Event):
    workflow_run: _Run
