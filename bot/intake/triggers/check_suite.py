"""The checks of another App than GitHub Actions ended red on a commit. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.domain.commands import ChecksFailed
from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.intake.asking import other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import Id, PayloadPart, Sha, Text, read
from bot.intake.red_checks import CheckApp, Conclusion, FailedPull, RedEvent, named, not_looked_at, pull_of, reddened

EVENT = "check_suite"


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that failed checks may start, or why they start none; `workflow_run` reports those of workflows."""
    if delivery.action != "completed":
        return other_action(delivery, "completed")
    event = read(_Event, delivery)
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


class _Suite(PayloadPart):
    id: Id
    head_sha: Sha
    head_branch: Annotated[Text, Field(max_length=500)] | None = None
    conclusion: Conclusion
    created_at: Text | None = None
    app: CheckApp | None
    pull_requests: list[FailedPull | None]


class _Event(RedEvent):
    check_suite: _Suite
