"""All triggers alike; commands in descriptions; the end of an installation or a repository."""

from __future__ import annotations

from typing import Any

import pytest
from gidgethub.sansio import Event
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.commands import AccessLost, Ask, Fix
from bot.domain.job import Actor, Job, Origin, Repo
from bot.events.delivery import IgnoredDelivery
from bot.events.triggers import router
from tests.payloads import EVENTS, HEAD, a_payload, job, read, reason

COMMANDED = (
    "issue_comment",
    "pull_request_review_comment",
    "pull_request_review",
    "issues",
    "pull_request",
    "check_run",
)
NAMELESS = ("installation", "installation_repositories", "repository")


def test_there_is_a_payload_for_every_trigger() -> None:
    assert set(EVENTS) == set(router.actions)


def test_each_action_has_one_function() -> None:
    pairs = [(event, action) for event, actions in router.actions.items() for action in actions]
    assert len(pairs) == len(set(pairs))
    assert [len(router.fetch(Event({"action": action}, event=event, delivery_id=""))) for event, action in pairs] == [
        1
    ] * len(pairs)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("action", [None, [], {}, 3, True])
def test_an_action_that_is_no_text_is_reported_as_missing(event: str, action: object) -> None:
    assert "without an action" in reason(event, action=action)


@pytest.mark.parametrize("event", sorted(set(EVENTS) - set(NAMELESS)))
def test_a_job_says_who_and_where(event: str) -> None:
    found = job(event)
    assert found.repo == Repo(id=10, full_name="octo/calc", private=False)
    assert found.actor == Actor(id=20, login="octo-owner")
    assert found.thread.number in {7, 8}
    assert found.delivery_id == "d1"
    assert found.installation == 30
    assert found.trigger == "/codepilot"


@pytest.mark.parametrize("event", EVENTS)
def test_the_jobs_id_is_short_and_the_same_for_a_redelivery(event: str) -> None:
    first = job(event)
    assert first == job(event)
    assert len(first.id) == 12
    assert first.id.isalnum()
    assert first.id == first.id.lower()


def test_the_jobs_of_different_events_have_different_ids() -> None:
    assert len({job(event).id for event in EVENTS}) == len(EVENTS)


@pytest.mark.parametrize(
    "event", ["issue_comment", "pull_request_review_comment", "pull_request_review", "workflow_run"]
)
def test_what_has_a_number_of_its_own_is_the_same_job_under_another_guid(event: str) -> None:
    assert job(event).id == job(event, delivery_id="d2").id
    payload = a_payload(event, repository__id=11)
    if event == "workflow_run":
        run = payload["workflow_run"]
        for place in (run["head_repository"], *(run["pull_requests"][0][side]["repo"] for side in ("head", "base"))):
            place["id"] = 11
    elsewhere = read(event, payload)
    assert isinstance(elsewhere, Job)
    assert job(event).id != elsewhere.id


@pytest.mark.parametrize("event", ["issues", "pull_request", "check_run", *NAMELESS])
def test_what_happens_twice_is_two_jobs(event: str) -> None:
    assert job(event).id != job(event, delivery_id="d2").id


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("action", ["", "edited", "unheard_of"])
def test_another_action_asks_for_nothing_and_is_said(event: str, action: str) -> None:
    found = read(event, a_payload(event, action=action))
    assert isinstance(found, IgnoredDelivery)
    assert (action or "without an action") in found.reason


@pytest.mark.parametrize("event", COMMANDED)
def test_the_bot_itself_never_commands(event: str) -> None:
    found = read(event, _by(event, {"id": 77, "login": "codepilot[bot]"}, kind="Bot"))
    assert isinstance(found, IgnoredDelivery)
    assert "own" in found.reason


@pytest.mark.parametrize("event", COMMANDED)
@pytest.mark.parametrize(("login", "kind"), [("renovate[bot]", "Bot"), ("renovate[bot]", "User"), ("renovate", "Bot")])
def test_bots_do_not_command_except_those_listed_by_number(event: str, login: str, kind: str) -> None:
    found = read(event, _by(event, {"id": 99, "login": login}, kind=kind))
    assert isinstance(found, IgnoredDelivery)
    assert "99 in CODEPILOT_TRUSTED_BOTS" in found.reason
    listed = read(event, _by(event, {"id": 88, "login": login}, kind=kind))
    assert isinstance(listed, Job)
    assert listed.actor == Actor(id=88, login=login)


def _by(event: str, user: dict[str, object], *, kind: str) -> dict[str, Any]:
    """An event of another account's making."""
    payload = a_payload(event, sender={**user, "type": kind})
    for part in ("comment", "review"):
        if part in payload:
            payload[part]["user"] = user
    if "workflow_run" in payload:
        payload["workflow_run"] |= {name: {**user, "type": kind} for name in ("actor", "triggering_actor")}
    return payload


@pytest.mark.parametrize("event", EVENTS)
def test_a_missing_part_is_named(event: str) -> None:
    for part in set(a_payload(event)) - {"action", "installation"}:
        payload = a_payload(event)
        if part == "assignee" or (part == "repository" and event in {"installation", "installation_repositories"}):
            continue
        del payload[part]
        found = read(event, payload)
        assert isinstance(found, IgnoredDelivery)
        assert part in found.reason


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(EVENTS), st.data())
def test_no_payload_raises(event: str, data: st.DataObject) -> None:
    payload = a_payload(event)
    part = payload
    key = data.draw(st.sampled_from(sorted(part)))
    while isinstance(part[key], dict) and data.draw(st.booleans()):
        part = part[key]
        key = data.draw(st.sampled_from(sorted(part)))
    part[key] = data.draw(_JSON)
    read(event, payload)


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
    assert (found.lane, found.is_from_event) == ("work", False)


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


@pytest.mark.parametrize("action", ["deleted", "suspend"])
def test_all_of_an_installation_goes_with_it(action: str) -> None:
    found = job("installation", action=action)
    assert (found.command, found.lane, found.installation) == (AccessLost(), "event", 30)


def test_the_repositories_that_the_app_was_taken_off_go() -> None:
    assert job("installation_repositories").command == AccessLost(repo_ids=(10, 11))


def test_a_deleted_repository_goes() -> None:
    assert job("repository").command == AccessLost(repo_ids=(10,))


def test_no_repository_is_not_all_of_them() -> None:
    assert "no repository" in reason("installation_repositories", repositories_removed=[])


@pytest.mark.parametrize("action", ["created", "unsuspend", "new_permissions_accepted"])
def test_an_arrival_asks_for_nothing(action: str) -> None:
    assert action in reason("installation", action=action)
    assert "added" in reason("installation_repositories", action="added")


@pytest.mark.parametrize("action", ["renamed", "transferred", "archived"])
def test_a_changed_repository_is_looked_at_anew_later(action: str) -> None:
    assert f"was {action} " in reason("repository", action=action)


@pytest.mark.parametrize("event", ["installation", "installation_repositories", "repository"])
def test_a_delivery_without_an_installation_ends_nothing(event: str) -> None:
    found = read(event, a_payload(event), installation=None)
    assert isinstance(found, IgnoredDelivery)
    assert "names no installation" in found.reason
