"""Labels, assignments, pushes and the end of issues and pull requests."""

from __future__ import annotations

import pytest

from bot.domain.access import text_binding
from bot.domain.commands import AssignEvent, CloseEvent, Fix, LabelEvent, PushEvent, Review
from bot.domain.job import Actor, Origin, Thread
from tests.payloads import HEAD, job, reason

PULL_REQUEST = "pull_request"


@pytest.mark.parametrize("name", ["codepilot", "CODEPILOT"])
def test_the_start_label_on_a_pull_request_asks_for_a_fix(name: str) -> None:
    found = job(PULL_REQUEST, label__name=name)
    assert found.command == Fix()
    assert found.origin == Origin(kind="label", id=0)
    assert found.thread == Thread(kind="pull", number=8, title="Add it up", body="As said.", author="mona")
    assert found.head_sha == HEAD


def test_any_other_label_has_the_commit_that_it_is_bound_to() -> None:
    found = job(PULL_REQUEST, label__name="codepilot:auto")
    assert found.command == LabelEvent(
        label="codepilot:auto", bound_to=HEAD, words=text_binding("Add it up", "As said.")
    )
    assert found.lane == "event"
    assert found.thread == Thread(kind="pull", number=8, title="", body="", author="")


def test_a_label_on_a_pull_request_is_heard_from_other_bots_but_not_from_the_bot_itself() -> None:
    other = {"id": 99, "login": "labeler[bot]", "type": "Bot"}
    assert job(PULL_REQUEST, label__name="codepilot:auto", sender=other).actor.id == 99
    own = {"id": 77, "login": "codepilot[bot]", "type": "Bot"}
    assert "itself" in reason(PULL_REQUEST, label__name="codepilot:auto", sender=own)


def test_a_push_is_told_with_the_new_head_whoever_pushed() -> None:
    for identity in (20, 77):
        found = job(PULL_REQUEST, action="synchronize", sender__id=identity, pull_request__head__sha="d" * 40)
        assert found.command == PushEvent(head_sha="d" * 40)
        assert found.head_sha == "d" * 40
        assert (found.lane, found.thread.body) == ("event", "As said.")


def test_readiness_asks_for_a_review() -> None:
    found = job(PULL_REQUEST, action="ready_for_review")
    assert (found.command, found.origin) == (Review(on="ready"), Origin(kind="event", id=0))
    assert (found.lane, found.is_from_event) == ("work", True)


def test_an_opened_pull_request_asks_for_a_review_when_it_is_no_draft() -> None:
    found = job(PULL_REQUEST, action="opened")
    assert (found.command, found.origin, found.head_sha) == (Review(on="opened"), Origin(kind="event", id=0), HEAD)
    assert (found.lane, found.is_from_event) == ("work", True)
    assert job(PULL_REQUEST, action="opened", pull_request__draft=False).command == Review(on="opened")
    assert reason(PULL_REQUEST, action="opened", pull_request__draft=True)


def test_a_command_in_the_description_goes_before_the_review() -> None:
    author = {"id": 20, "login": "octo-owner"}
    found = job(PULL_REQUEST, action="opened", pull_request__body="/codepilot fix", pull_request__user=author)
    assert found.command == Fix()


@pytest.mark.parametrize("action", ["closed", "locked"])
def test_the_end_of_a_pull_request_is_told(action: str) -> None:
    assert job(PULL_REQUEST, action=action).command == CloseEvent(how=action)


@pytest.mark.parametrize("action", ["reopened", "converted_to_draft", "edited", "unlabeled", "review_requested"])
def test_nothing_else_is_asked_for_on_a_pull_request(action: str) -> None:
    assert action in reason(PULL_REQUEST, action=action)


@pytest.mark.parametrize("sha", ["", "HEAD", "a" * 39, "A" * 40, f"{'a' * 40}\n", None])
def test_a_head_that_is_no_commit_is_named(sha: str | None) -> None:
    assert "pull_request.head.sha" in reason(PULL_REQUEST, pull_request__head__sha=sha)


ISSUES = "issues"


@pytest.mark.parametrize("name", ["codepilot", "CodePilot"])
def test_the_start_label_on_an_issue_asks_for_a_fix(name: str) -> None:
    found = job(ISSUES, label__name=name)
    assert found.command == Fix()
    assert found.lane == "work"
    assert found.origin == Origin(kind="label", id=0)
    assert found.thread == Thread(kind="issue", number=7, title="Adding is off by one", body="It is.", author="mona")


@pytest.mark.parametrize("name", ["codepilot:auto", "bug"])
@pytest.mark.parametrize("body", ["It is.", "", None])
def test_any_other_label_is_told_with_the_words_it_is_bound_to(name: str, body: str | None) -> None:
    found = job(ISSUES, label__name=name, issue__body=body, issue__updated_at="2026-01-02T03:04:05Z")
    bound_to = text_binding("Adding is off by one", body or "")
    assert found.command == LabelEvent(label=name, bound_to=bound_to, at="2026-01-02T03:04:05Z")
    assert found.lane == "event"
    assert found.thread == Thread(kind="issue", number=7, title="", body="", author="")
    assert found.actor == Actor(id=20, login="octo-owner")


def test_a_label_on_an_issue_is_heard_from_other_bots_but_not_from_the_bot_itself() -> None:
    other = {"id": 99, "login": "labeler[bot]", "type": "Bot"}
    assert job(ISSUES, label__name="codepilot:auto", sender=other).actor.id == 99
    own = {"id": 77, "login": "codepilot[bot]", "type": "Bot"}
    assert "itself" in reason(ISSUES, label__name="codepilot:auto", sender=own)


def test_an_assignment_to_the_bot_asks_for_a_fix() -> None:
    found = job(ISSUES, action="assigned")
    assert (found.command, found.origin) == (Fix(), Origin(kind="assignment", id=0))
    assert "somebody else" in reason(ISSUES, action="assigned", assignee__id=78)


def test_an_assignment_to_some_app_is_told_to_the_worker_which_knows_the_bots_own_account() -> None:
    found = job(ISSUES, action="assigned", assignee={"id": 78, "login": "codepilot[bot]", "type": "Bot"})
    assert (found.command, found.lane) == (AssignEvent(assignee_id=78), "event")


@pytest.mark.parametrize("action", ["closed", "deleted", "transferred", "locked"])
def test_the_end_of_an_issue_is_told_whoever_made_it(action: str) -> None:
    for sender in ({"id": 99, "login": "stale[bot]", "type": "Bot"}, {"id": 20, "login": "octo", "type": "User"}):
        found = job(ISSUES, action=action, sender=sender)
        assert (found.command, found.lane) == (CloseEvent(how=action), "event")


@pytest.mark.parametrize("action", ["reopened", "edited", "unlabeled", "unassigned", "unlocked", "pinned"])
def test_nothing_else_is_asked_for_on_an_issue(action: str) -> None:
    assert action in reason(ISSUES, action=action)
