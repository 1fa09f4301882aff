"""One kind of event a file; each is named once, in `TRIGGERS`."""

from __future__ import annotations

from typing import Protocol

from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.triggers import (
    check_run,
    check_suite,
    installation,
    installation_repositories,
    issue_comment,
    issues,
    pull_request,
    pull_request_review,
    pull_request_review_comment,
    repository,
    workflow_run,
)


class Trigger(Protocol):
    """Turns one kind of event into a job, or says why it asks for none. Never raises for what a payload holds."""

    def __call__(self, delivery: Delivery, listening: Listening, /) -> Job | IgnoredDelivery:
        """See `job_from`."""


TRIGGERS: dict[str, Trigger] = {
    check_run.EVENT: check_run.job_from,
    check_suite.EVENT: check_suite.job_from,
    installation.EVENT: installation.job_from,
    installation_repositories.EVENT: installation_repositories.job_from,
    issue_comment.EVENT: issue_comment.job_from,
    issues.EVENT: issues.job_from,
    pull_request.EVENT: pull_request.job_from,
    pull_request_review.EVENT: pull_request_review.job_from,
    pull_request_review_comment.EVENT: pull_request_review_comment.job_from,
    repository.EVENT: repository.job_from,
    workflow_run.EVENT: workflow_run.job_from,
}
"""From an event's name to what reads it."""


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that a delivery asks for, or why it asks for none.

    Events that only narrow what the bot may do, such as a closed thread, count from everyone, bots too. All else
    is asked for by people, and by the bots that the operator lists.
    """
    read = TRIGGERS.get(delivery.event)
    if read is None:
        return IgnoredDelivery(reason=f"no trigger handles the event {delivery.event}")
    return read(delivery, listening)
