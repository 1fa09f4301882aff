"""The parts shared by events about failed checks: the commit and the branch or pull request. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.domain.commands import ChecksFailed
from bot.domain.job import Job, Origin, Thread
from bot.domain.listening import Listening
from bot.intake.asking import job_of
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, Id, PayloadPart, Repository, Sha, Text

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
