from __future__ import annotations

from typing import Any

import pytest

from bot.domain.commands import ChecksFailed
from bot.domain.job import Actor, Origin, Thread
from tests.payloads import HEAD, job, reason

EVENT = "workflow_run"
HERE = {"sha": HEAD, "repo": {"id": 10}}


def _pulls(*numbers: int, **changes: dict[str, Any]) -> dict[str, object]:
    return {"workflow_run__pull_requests": [{"number": n, "head": HERE, "base": HERE, **changes} for n in numbers]}


def test_a_red_workflow_of_a_pull_request_is_looked_at() -> None:
    found = job(EVENT)
    assert found.command == ChecksFailed(
        run_id=904,
        name="CI",
        conclusion="failure",
        url="https://github.com/octo/calc/actions/runs/904",
        head_sha=HEAD,
        branch="topic",
        pull=8,
    )
    assert found.thread == Thread(kind="pull", number=8, title="", body="", author="")
    assert found.origin == Origin(kind="event", id=904, at="2026-01-02T03:04:05Z")
    assert (found.head_sha, found.lane) == (HEAD, "event")
    assert found.others == ()


def test_a_red_workflow_of_the_default_branch_is_looked_at() -> None:
    found = job(EVENT, workflow_run__pull_requests=[], workflow_run__head_branch="main")
    assert found.thread == Thread.of_branch("main")


def test_a_red_workflow_of_a_fork_is_looked_at_as_the_forks() -> None:
    home = {"id": 11, "full_name": "forker/calc"}
    found = job(EVENT, workflow_run__pull_requests=[], workflow_run__head_repository=home)
    assert isinstance(found.command, ChecksFailed)
    assert (found.command.fork, found.command.fork_id, found.command.pull) == ("forker/calc", 11, 0)


def test_another_attempt_is_another_job() -> None:
    assert job(EVENT).id != job(EVENT, workflow_run__run_attempt=2).id


def test_who_ran_it_again_counts_too() -> None:
    found = job(EVENT, workflow_run__triggering_actor={"id": 21, "login": "hubot", "type": "User"})
    assert (found.actor, found.others) == (Actor(id=20, login="octo-owner"), (Actor(id=21, login="hubot"),))


def test_the_senders_word_is_not_asked_for() -> None:
    sender = {"id": 5, "login": "someone", "type": "User"}
    assert job(EVENT, sender=sender).actor.id == 20


def test_a_run_on_the_bots_own_push_is_taken_for_the_gate_to_count() -> None:
    own = {"id": 77, "login": "codepilot[bot]", "type": "Bot"}
    assert job(EVENT, workflow_run__actor=own, workflow_run__triggering_actor=own).actor.id == 77


@pytest.mark.parametrize("conclusion", ["success", "action_required", "stale", None])
def test_what_is_not_red_is_passed_over(conclusion: str | None) -> None:
    assert "did not fail" in reason(EVENT, workflow_run__conclusion=conclusion)


@pytest.mark.parametrize("action", ["requested", "in_progress"])
def test_only_the_end_of_a_run_asks(action: str) -> None:
    assert action in reason(EVENT, action=action)


@pytest.mark.parametrize("repository", [{"id": 11}, None])
def test_a_forks_run_asks_for_nothing(repository: dict[str, int] | None) -> None:
    assert "fork" in reason(EVENT, workflow_run__head_repository=repository)


@pytest.mark.parametrize(
    "pulls",
    [
        {"workflow_run__pull_requests": []},
        {"workflow_run__pull_requests": [None]},
        _pulls(8, head={**HERE, "sha": "b" * 40}),
        _pulls(8, head={**HERE, "repo": {"id": 11}}),
        _pulls(8, base={**HERE, "repo": {"id": 11}}),
        _pulls(8, 9),
    ],
)
def test_the_pull_request_must_be_the_one_with_that_head(pulls: dict[str, object]) -> None:
    assert "not of one" in reason(EVENT, **pulls)


def test_an_older_pull_request_of_the_same_branch_is_passed_over() -> None:
    old = {"number": 7, "head": {"ref": "topic", "sha": "b" * 40, "repo": {"id": 10}}, "base": HERE}
    assert job(EVENT, workflow_run__pull_requests=[old, {"number": 8, "head": HERE, "base": HERE}]).thread.number == 8
