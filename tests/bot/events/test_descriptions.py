"""Commands in the description that an issue or a pull request is opened with."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.commands import Ask, Fix
from bot.domain.job import Job, Origin
from bot.events.delivery import IgnoredDelivery
from tests.payloads import HEAD, a_payload, read

PLACES = [("issues", "issue"), ("pull_request", "pull_request")]


def opened(event: str, part: str, body: str | None, **changes: object) -> dict[str, Any]:
    """Somebody opened a thread with these words."""
    payload = a_payload(event, action="opened", **changes)
    payload[part] |= {"body": body, "user": {"id": 20, "login": "octo-owner"}, "created_at": "2026-01-02T03:04:05Z"}
    return payload


@pytest.mark.parametrize(("event", "part"), PLACES)
def test_a_command_that_opens_a_thread_is_heard(event: str, part: str) -> None:
    found = read(event, opened(event, part, "/codepilot fix --max-steps 5 the sum\r\n\r\nIt is one too high."))
    assert isinstance(found, Job)
    assert isinstance(found.command, Fix)
    assert found.command.goal == "the sum\n\nIt is one too high."
    assert found.origin == Origin(kind="description", id=0, at="2026-01-02T03:04:05Z")
    assert (found.actor.login, found.thread.author) == ("octo-owner", "octo-owner")
    assert found.thread.body.startswith("/codepilot fix --max-steps 5")
    assert found.head_sha == (HEAD if part == "pull_request" else "")
    assert (found.lane, found.is_unasked) == ("work", False)


@pytest.mark.parametrize(("event", "part"), PLACES)
def test_a_thread_is_opened_once_however_often_that_is_delivered(event: str, part: str) -> None:
    payload = opened(event, part, "/codepilot ask why?")
    first, again = read(event, payload, delivery_id="d1"), read(event, payload, delivery_id="d2")
    assert isinstance(first, Job)
    assert isinstance(again, Job)
    assert first.id == again.id
    assert first.command == Ask(goal="why?")
    payload[part]["number"] = 9
    other = read(event, payload)
    assert isinstance(other, Job)
    assert other.id != first.id


@pytest.mark.parametrize(("event", "part"), PLACES)
@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "It is broken. /codepilot fix",
        "### What is wrong\n\n/codepilot fix",
        "> /codepilot fix",
        "<!-- Write\n/codepilot fix\nhere to have it fixed. -->\nIt is broken.",
        "```\n/codepilot fix\n```\n",
        "    /codepilot fix",
    ],
)
def test_a_description_that_only_mentions_a_command_holds_none(event: str, part: str, body: str | None) -> None:
    payload = opened(event, part, body)
    payload[part]["draft"] = True  # else a review may be wanted
    found = read(event, payload)
    assert isinstance(found, IgnoredDelivery)
    assert "no command" in found.reason


@pytest.mark.parametrize(("event", "part"), PLACES)
@pytest.mark.parametrize("action", ["edited", "reopened"])
def test_a_description_that_is_there_already_is_no_command_again(event: str, part: str, action: str) -> None:
    payload = opened(event, part, "/codepilot fix")
    payload["action"] = action
    assert isinstance(read(event, payload), IgnoredDelivery)


@pytest.mark.parametrize(("event", "part"), PLACES)
def test_nobody_commands_in_words_of_another(event: str, part: str) -> None:
    payload = opened(event, part, "/codepilot fix")
    payload[part] |= {"user": {"id": 21, "login": "somebody"}, "draft": True}
    found = read(event, payload)
    assert isinstance(found, IgnoredDelivery)
    assert "not the sender" in found.reason
    payload[part]["user"] = None
    assert isinstance(read(event, payload), IgnoredDelivery)


def test_an_issue_that_is_moved_here_commands_nothing() -> None:
    """GitHub opens it once more in the repository that it is transferred to."""
    payload = opened("issues", "issue", "/codepilot fix")
    payload["changes"] = {"old_issue": {"number": 3}, "old_repository": {"id": 11}}
    found = read("issues", payload)
    assert isinstance(found, IgnoredDelivery)
    assert "transferred" in found.reason
    payload["changes"] = {}
    assert isinstance(read("issues", payload), Job)
