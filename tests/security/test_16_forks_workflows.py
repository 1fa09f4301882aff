"""Threat 16: a fork's red workflow is never taken for one of the repository's own, whatever its branch is called."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.commands import ChecksFailed
from bot.events.delivery import IgnoredDelivery
from tests.payloads import HEAD, a_payload, job, read

EVENT = "workflow_run"


def _is_ignored(payload: dict[str, Any]) -> bool:
    return isinstance(read(EVENT, payload), IgnoredDelivery)


@pytest.mark.parametrize("branch", ["topic", "main", "codepilot/fix-7", "refs/heads/topic"])
def test_a_branch_of_the_same_name_in_a_fork_is_another(branch: str) -> None:
    payload = a_payload(EVENT, workflow_run__head_repository__id=11, workflow_run__head_branch=branch)
    assert _is_ignored(payload)


@pytest.mark.parametrize("repository", [None, {}, {"id": "10"}])
def test_a_run_without_a_repository_is_ignored(repository: object) -> None:
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
    for branch in ("another", "main"):
        found = job(EVENT, workflow_run__head_branch=branch)
        assert (found.thread, found.head_sha) == (job(EVENT).thread, HEAD)


@pytest.mark.parametrize("branch", ["topic", "main", "codepilot/fix-7"])
def test_a_forks_run_names_no_pull_request_and_no_branch_of_the_repository(branch: str) -> None:
    home = {"id": 11, "full_name": "forker/calc"}
    found = job(EVENT, workflow_run__head_repository=home, workflow_run__head_branch=branch)
    assert found.thread.kind == "pull"
    assert found.thread.number == 0
    assert isinstance(found.command, ChecksFailed)
    assert (found.command.pull, found.command.fork_id) == (0, 11)
