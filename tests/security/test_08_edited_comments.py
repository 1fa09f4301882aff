"""Threat 8 at the intake: a comment that is edited into a command later is none."""

from __future__ import annotations

import pytest

from bot.domain.job import Job
from bot.events.delivery import IgnoredDelivery
from tests.payloads import a_payload, read

FRESH = {
    "issue_comment": "created",
    "pull_request_review_comment": "created",
    "pull_request_review": "submitted",
}


@pytest.mark.parametrize("event", FRESH)
@pytest.mark.parametrize("action", ["edited", "deleted", "dismissed", "pinned", "unpinned", "Created", ""])
def test_only_fresh_words_command(event: str, action: str) -> None:
    assert isinstance(read(event, a_payload(event, action=action)), IgnoredDelivery)


@pytest.mark.parametrize("event", FRESH)
def test_the_same_words_said_freshly_do(event: str) -> None:
    found = read(event, a_payload(event, action=FRESH[event]))
    assert isinstance(found, Job)


@pytest.mark.parametrize(("event", "part"), [("issue_comment", "comment"), ("pull_request_review_comment", "comment")])
def test_the_job_knows_when_the_command_was_said_so_that_later_edits_can_be_told(event: str, part: str) -> None:
    found = read(event, a_payload(event, **{f"{part}__created_at": "2026-01-02T03:04:05Z"}))
    assert isinstance(found, Job)
    assert found.origin.at == "2026-01-02T03:04:05Z"
