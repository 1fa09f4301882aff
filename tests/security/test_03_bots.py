"""Threat 3 at the intake: a bot can give commands only if the operator lists it.

Workflow runs of Apps pass the intake, which cannot recognize the bot's own; the permission checks stop them:
`tests/bot/jobs/test_run_red_ci.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.access import TrustedBots
from bot.domain.job import Job
from bot.events.delivery import IgnoredDelivery
from bot.settings import parsing
from tests.payloads import OWN_ID, TRUSTED_ID, TRUSTED_NAME, a_payload, read

# Every way to ask for work, or to steer it.
WAYS: list[tuple[str, dict[str, object]]] = [
    ("issue_comment", {}),
    ("pull_request_review_comment", {}),
    ("pull_request_review", {}),
    ("issues", {"action": "opened", "issue__body": "/codepilot fix"}),
    ("pull_request", {"action": "opened", "pull_request__body": "/codepilot fix"}),
    ("issues", {"action": "labeled"}),
    ("issues", {"action": "assigned"}),
    ("pull_request", {"action": "labeled"}),
    ("pull_request", {"action": "ready_for_review"}),
    ("check_run", {"requested_action__identifier": "stop"}),
    ("check_run", {"requested_action__identifier": "retry"}),
    ("check_run", {"requested_action__identifier": "approve"}),
    ("check_run", {"requested_action__identifier": "deny"}),
    ("check_run", {"action": "rerequested"}),
]


def _by(event: str, changes: dict[str, object], account: dict[str, object]) -> dict[str, Any]:
    """The payload as if caused by this account."""
    payload = a_payload(event, **changes, sender=account)
    for part in ("comment", "review"):
        if part in payload:
            payload[part]["user"] = account
    for part in ("issue", "pull_request"):
        if payload["action"] == "opened" and part in payload:
            payload[part]["user"] = account
    return payload


@pytest.mark.parametrize(("event", "changes"), WAYS, ids=str)
@pytest.mark.parametrize(
    ("identity", "login", "kind"),
    [(5, "evil[bot]", "User"), (5, "evil", "Bot"), (5, "codepilot[bot]", "Bot"), (5, "trusted[bot]", "Bot")],
)
def test_a_bot_does_not_command(event: str, changes: dict[str, object], identity: int, login: str, kind: str) -> None:
    account: dict[str, object] = {"id": identity, "login": login, "type": kind}
    assert isinstance(read(event, _by(event, changes, account)), IgnoredDelivery)


@pytest.mark.parametrize(("event", "changes"), WAYS, ids=str)
def test_a_bot_on_the_list_is_known_by_its_number_and_not_by_its_name(event: str, changes: dict[str, object]) -> None:
    listed: dict[str, object] = {"id": TRUSTED_ID, "login": "ci[bot]", "type": "Bot"}
    assert isinstance(read(event, _by(event, changes, listed)), Job)
    namesake = {**listed, "id": 89}
    assert isinstance(read(event, _by(event, changes, namesake)), IgnoredDelivery)


@pytest.mark.parametrize(("event", "changes"), WAYS, ids=str)
def test_the_bot_itself_does_not_command(event: str, changes: dict[str, object]) -> None:
    for kind in ("Bot", "User"):
        account: dict[str, object] = {"id": OWN_ID, "login": "codepilot", "type": kind}
        assert isinstance(read(event, _by(event, changes, account)), IgnoredDelivery)


def test_a_machine_account_that_is_no_app_starts_nothing_by_a_workflow_run() -> None:
    account = {"id": 5, "login": "evil", "type": "Bot"}
    payload = a_payload("workflow_run", workflow_run__actor=account, workflow_run__triggering_actor=account)
    assert isinstance(read("workflow_run", payload), IgnoredDelivery)


@pytest.mark.parametrize(("event", "changes"), WAYS, ids=str)
def test_a_listed_name_is_an_app(event: str, changes: dict[str, object]) -> None:
    """GitHub gives no person a name with brackets; such a name without the type `Bot` is not trusted."""
    named: dict[str, object] = {"id": 5, "login": TRUSTED_NAME, "type": "Bot"}
    assert isinstance(read(event, _by(event, changes, named)), Job)
    assert isinstance(read(event, _by(event, changes, {**named, "login": "Dependabot[bot]"})), Job)
    for claim in ({"type": "User"}, {"type": "Organization"}, {"login": "dependabot"}, {"login": "xdependabot[bot]"}):
        found = read(event, _by(event, changes, {**named, **claim}))
        assert isinstance(found, IgnoredDelivery), claim


@pytest.mark.parametrize(
    "text", ["*", "88,*", "ci", "88 89", "*[bot]", "[bot]", "a,b[bot]", "ci[bot]x", "octo/ci[bot]"]
)
def test_the_list_takes_numbers_and_names_of_apps_only(text: str) -> None:
    with pytest.raises(ValueError, match="numeric user ids"):
        parsing.trusted_bots(text)
    assert parsing.trusted_bots("88, CI[bot]").has_account(1, "ci[bot]")
    assert not TrustedBots(ids=frozenset(), logins=frozenset({"ci"})).has_account(1, "ci")
