from __future__ import annotations

import pytest

from bot.domain.access import text_binding
from bot.domain.commands import Assigned, Closed, Fix, Labelled
from bot.domain.job import Actor, Origin, Thread
from tests.payloads import job, reason

EVENT = "issues"


@pytest.mark.parametrize("name", ["codepilot", "CodePilot"])
def test_the_start_label_asks_for_a_fix(name: str) -> None:
    found = job(EVENT, label__name=name)
    assert found.command == Fix()
    assert found.lane == "work"
    assert found.origin == Origin(kind="label", id=0)
    assert found.thread == Thread(kind="issue", number=7, title="Adding is off by one", body="It is.", author="mona")


@pytest.mark.parametrize("name", ["codepilot:auto", "bug"])
@pytest.mark.parametrize("body", ["It is.", "", None])
def test_any_other_label_is_told_with_the_words_it_is_bound_to(name: str, body: str | None) -> None:
    found = job(EVENT, label__name=name, issue__body=body, issue__updated_at="2026-01-02T03:04:05Z")
    bound_to = text_binding("Adding is off by one", body or "")
    assert found.command == Labelled(label=name, bound_to=bound_to, at="2026-01-02T03:04:05Z")
    assert found.lane == "event"
    assert found.thread == Thread(kind="issue", number=7, title="", body="", author="")
    assert found.actor == Actor(id=20, login="octo-owner")


def test_a_label_is_heard_from_other_bots_but_not_from_the_bot_itself() -> None:
    other = {"id": 99, "login": "labeler[bot]", "type": "Bot"}
    assert job(EVENT, label__name="codepilot:auto", sender=other).actor.id == 99
    own = {"id": 77, "login": "codepilot[bot]", "type": "Bot"}
    assert "itself" in reason(EVENT, label__name="codepilot:auto", sender=own)


def test_an_assignment_to_the_bot_asks_for_a_fix() -> None:
    found = job(EVENT, action="assigned")
    assert (found.command, found.origin) == (Fix(), Origin(kind="assignment", id=0))
    assert "somebody else" in reason(EVENT, action="assigned", assignee__id=78)


def test_an_assignment_to_some_app_is_told_to_the_worker_which_knows_the_bots_own_account() -> None:
    found = job(EVENT, action="assigned", assignee={"id": 78, "login": "codepilot[bot]", "type": "Bot"})
    assert (found.command, found.lane) == (Assigned(assignee_id=78), "event")


@pytest.mark.parametrize("action", ["closed", "deleted", "transferred", "locked"])
def test_the_end_of_an_issue_is_told_whoever_made_it(action: str) -> None:
    for sender in ({"id": 99, "login": "stale[bot]", "type": "Bot"}, {"id": 20, "login": "octo", "type": "User"}):
        found = job(EVENT, action=action, sender=sender)
        assert (found.command, found.lane) == (Closed(how=action), "event")


@pytest.mark.parametrize("action", ["reopened", "edited", "unlabeled", "unassigned", "unlocked", "pinned"])
def test_nothing_else_is_asked_for(action: str) -> None:
    assert action in reason(EVENT, action=action)
