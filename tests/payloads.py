"""Payloads of GitHub's events for tests, each complete as far as the bot reads it, and any part replaceable."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from bot.domain.access import BotProfile, TrustedBots
from bot.domain.job import Job
from bot.events.delivery import Delivery, IgnoredDelivery
from bot.events.triggers import job_from
from tests.builders import a_comment_event, changed

OWN_ID, TRUSTED_ID, OWN_APP_ID = 77, 88, 500
TRUSTED_NAME = "dependabot[bot]"
LISTENING = BotProfile(
    own_ids=frozenset({OWN_ID}),
    own_app_id=OWN_APP_ID,
    trusted_bots=TrustedBots(ids=frozenset({TRUSTED_ID}), logins=frozenset({TRUSTED_NAME})),
    start_label="codepilot",
)
HEAD = "a" * 40

_WHERE: dict[str, Any] = {
    "repository": {"id": 10, "full_name": "octo/calc", "private": False, "default_branch": "main"},
    "sender": {"id": 20, "login": "octo-owner", "type": "User"},
    "installation": {"id": 30},
}
_OWNER = {"id": 20, "login": "octo-owner"}
_ISSUE = {"number": 7, "title": "Adding is off by one", "body": "It is.", "user": {"id": 3, "login": "mona"}}
_PULL = {
    "number": 8,
    "title": "Add it up",
    "body": "As said.",
    "user": {"id": 3, "login": "mona"},
    "head": {"sha": HEAD},
}
_PERSON = {"id": 20, "login": "octo-owner", "type": "User"}

_PAYLOADS: dict[str, dict[str, Any]] = {
    "pull_request_review_comment": {
        "action": "created",
        "pull_request": _PULL,
        "comment": {
            "id": 901,
            "created_at": "2026-01-02T03:04:05Z",
            "body": "/codepilot fix it",
            "user": _OWNER,
            "path": "calc.py",
            "line": 3,
            "start_line": 2,
            "side": "LEFT",
            "diff_hunk": "@@ -1,3 +1,3 @@\n a\n-b",
            "commit_id": HEAD,
            "original_commit_id": "b" * 40,
            "in_reply_to_id": 890,
        },
    },
    "pull_request_review": {
        "action": "submitted",
        "pull_request": _PULL,
        "review": {"id": 902, "submitted_at": "2026-01-02T03:04:05Z", "body": "/codepilot fix it", "user": _OWNER},
    },
    "issues": {
        "action": "labeled",
        "issue": _ISSUE,
        "label": {"name": "codepilot"},
        "assignee": {"id": 77, "login": "x", "type": "User"},
    },
    "pull_request": {"action": "labeled", "pull_request": _PULL, "label": {"name": "codepilot"}},
    "check_run": {
        "action": "requested_action",
        "requested_action": {"identifier": "stop"},
        "check_run": {"id": 903, "head_sha": HEAD, "external_id": "abcdefgh2345:pull:8:7f3a9c21", "app": {"id": 500}},
    },
    "check_suite": {
        "action": "completed",
        "check_suite": {
            "id": 905,
            "head_branch": "topic",
            "head_sha": HEAD,
            "conclusion": "failure",
            "created_at": "2026-01-02T03:04:05Z",
            "app": {"id": 600, "slug": "other-ci"},
            "pull_requests": [
                {
                    "number": 8,
                    "head": {"ref": "topic", "sha": HEAD, "repo": {"id": 10}},
                    "base": {"ref": "main", "sha": "c" * 40, "repo": {"id": 10}},
                }
            ],
        },
    },
    "workflow_run": {
        "action": "completed",
        "workflow_run": {
            "id": 904,
            "name": "CI",
            "html_url": "https://github.com/octo/calc/actions/runs/904",
            "run_attempt": 1,
            "conclusion": "failure",
            "created_at": "2026-01-02T03:04:05Z",
            "head_branch": "topic",
            "head_sha": HEAD,
            "head_repository": {"id": 10},
            "actor": _PERSON,
            "triggering_actor": _PERSON,
            "pull_requests": [
                {
                    "number": 8,
                    "head": {"ref": "topic", "sha": HEAD, "repo": {"id": 10}},
                    "base": {"ref": "main", "sha": "c" * 40, "repo": {"id": 10}},
                }
            ],
        },
    },
    "installation": {"action": "deleted"},
    "installation_repositories": {"action": "removed", "repositories_removed": [{"id": 10}, {"id": 11}]},
    "repository": {"action": "deleted"},
}

EVENTS = ("issue_comment", *_PAYLOADS)


def a_payload(event: str, /, **changes: object) -> dict[str, Any]:
    """The payload of an event that asks for something; changes as for `a_comment_event`."""
    if event == "issue_comment":
        return a_comment_event(**changes)
    return changed(copy.deepcopy({**_WHERE, **_PAYLOADS[event]}), changes)


def read(
    event: str, payload: Mapping[str, Any], *, delivery_id: str = "d1", installation: int | None = 30
) -> Job | IgnoredDelivery:
    """What the triggers make of a payload."""
    data = {**payload, "installation": {"id": installation}}
    return job_from(Delivery(data, event=event, delivery_id=delivery_id), LISTENING)


def job(event: str, /, *, delivery_id: str = "d1", **changes: object) -> Job:
    """The job of a payload that asks for one."""
    found = read(event, a_payload(event, **changes), delivery_id=delivery_id)
    assert isinstance(found, Job), found
    return found


def reason(event: str, /, **changes: object) -> str:
    """Why a payload asks for nothing."""
    found = read(event, a_payload(event, **changes))
    assert isinstance(found, IgnoredDelivery), found
    return found.reason
