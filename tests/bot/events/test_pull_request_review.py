from __future__ import annotations

import pytest

from bot.domain.commands import Fix
from bot.domain.job import Origin, Thread
from tests.payloads import HEAD, job, reason

EVENT = "pull_request_review"


def test_a_command_in_a_reviews_words_becomes_a_job() -> None:
    found = job(EVENT)
    assert found.command == Fix(goal="it")
    assert found.thread == Thread(kind="pull", number=8, title="Add it up", body="As said.", author="mona")
    assert found.origin == Origin(kind="review", id=902, at="2026-01-02T03:04:05Z")
    assert found.head_sha == HEAD


@pytest.mark.parametrize("body", [None, "", "LGTM"])
def test_a_review_without_a_command_is_ignored(body: str | None) -> None:
    # GitHub makes an empty review of every single comment on a line, and sends both.
    assert "no command" in reason(EVENT, review__body=body)


@pytest.mark.parametrize("action", ["edited", "dismissed"])
def test_only_a_new_review_acts(action: str) -> None:
    assert action in reason(EVENT, action=action)


def test_only_the_author_of_the_words_commands() -> None:
    assert "not the sender" in reason(EVENT, review__user={"id": 21, "login": "someone"})
