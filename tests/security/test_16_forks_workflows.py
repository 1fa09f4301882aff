"""Threat 16: a fork's red workflow asks for nothing, whatever its branch is called."""

from __future__ import annotations

from typing import Any

import pytest

from bot.intake.deliveries import Ignored
from tests.payloads import HEAD, a_payload, job, read

EVENT = "workflow_run"


def _is_ignored(payload: dict[str, Any]) -> bool:
    return isinstance(read(EVENT, payload), Ignored)


@pytest.mark.parametrize("branch", ["topic", "main", "codepilot/fix-7", "refs/heads/topic"])
def test_a_branch_of_the_same_name_in_a_fork_is_another(branch: str) -> None:
    payload = a_payload(EVENT, workflow_run__head_repository__id=11, workflow_run__head_branch=branch)
    assert _is_ignored(payload)


@pytest.mark.parametrize("repository", [None, {}, {"id": "10"}])
def test_a_run_whose_repository_is_not_told_is_nobodys(repository: object) -> None:
    assert _is_ignored(a_payload(EVENT, workflow_run__head_repository=repository))


@pytest.mark.parametrize("pulls", [[], None, [None], [{"number": 8}]])
def test_without_a_pull_request_none_is_looked_for_by_name(pulls: object) -> None:
    assert _is_ignored(a_payload(EVENT, workflow_run__pull_requests=pulls))


@pytest.mark.parametrize(
    ("side", "part", "value"), [("head", "sha", "b" * 40), ("head", "repo", {"id": 11}), ("base", "repo", {"id": 11})]
)
def test_a_pull_request_with_another_head_is_not_taken_for_it(side: str, part: str, value: object) -> None:
    payload = a_payload(EVENT)
    payload["workflow_run"]["pull_requests"][0][side][part] = value
    assert _is_ignored(payload)


def test_the_branchs_name_has_no_say_at_all() -> None:
    found = job(EVENT, workflow_run__head_branch="another")
    assert (found.thread.number, found.head_sha) == (8, HEAD)
    assert "another" not in repr(found)
