"""Failed workflows and checks, and the buttons of the bot's check runs."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.access import BotProfile
from bot.domain.commands import Approve, ChecksFailed, Command, Deny, Retry, Stop
from bot.domain.job import Actor, Job, Origin, Thread
from bot.events.delivery import Delivery, IgnoredDelivery
from bot.events.triggers import job_from
from tests.payloads import HEAD, a_payload, job, read, reason

CHECK_RUN = "check_run"


@pytest.mark.parametrize(
    ("button", "command"),
    [
        ("stop", Stop()),
        ("retry", Retry(job_id="abcdefgh2345")),
        ("approve", Approve(request_id="7f3a9c21")),
        ("deny", Deny(request_id="7f3a9c21")),
    ],
)
def test_a_button_steers(button: str, command: Command) -> None:
    found = job(CHECK_RUN, requested_action__identifier=button)
    assert found.command == command
    assert found.lane == "steer"
    assert found.origin == Origin(kind="button", id=903)
    assert found.thread == Thread(kind="pull", number=8, title="", body="", author="")
    assert found.head_sha == HEAD


def test_the_external_id_says_where_the_job_is() -> None:
    found = job(CHECK_RUN, check_run__external_id="abcdefgh2345:issue:9:-")
    assert (found.thread.kind, found.thread.number, found.head_sha) == ("issue", 9, "")


@pytest.mark.parametrize("branch", ["main", "release/2.x", "a" * 244])
def test_the_external_id_of_a_branchs_job_brings_its_button_back_there(branch: str) -> None:
    thread = Thread.of_branch(branch)
    found = job(CHECK_RUN, check_run__external_id=f"abcdefgh2345:branch:{branch}:-")
    assert (found.thread, found.thread.key, found.head_sha) == (thread, thread.key, "")


def test_running_a_check_again_is_a_retry() -> None:
    assert job(CHECK_RUN, action="rerequested", requested_action=None).command == Retry(job_id="abcdefgh2345")


def test_a_button_that_names_its_request_means_that_one_whatever_waits_by_now() -> None:
    for external_id in ("abcdefgh2345:issue:9:-", "abcdefgh2345:issue:9:11111111"):
        found = job(CHECK_RUN, requested_action__identifier="approve 7f3a9c21", check_run__external_id=external_id)
        assert found.command == Approve(request_id="7f3a9c21")


@pytest.mark.parametrize("button", ["approve", "deny"])
def test_a_button_that_waited_for_nothing_approves_nothing(button: str) -> None:
    found = reason(CHECK_RUN, requested_action__identifier=button, check_run__external_id="abcdefgh2345:issue:9:-")
    assert "no request" in found


@pytest.mark.parametrize("button", ["", "merge", "STOP", "stop ", "approve 7F3A", "approve 7f3a 7f3b", "approve\n7f3a"])
def test_an_unknown_button_does_nothing(button: str) -> None:
    assert "no such button" in reason(CHECK_RUN, requested_action__identifier=button)


@pytest.mark.parametrize(
    "external_id",
    ["", "x", "abc:pull:0:-", "abc:pull:8", "abc:commit:8:-", "abc:pull:8:zz", "abc:pull:8:-\n", "a:pull:٣:-"],
)
def test_an_external_id_that_is_not_ours_does_nothing(external_id: str) -> None:
    assert "external id" in reason(CHECK_RUN, check_run__external_id=external_id)


@pytest.mark.parametrize("app", [{"id": 501}, None])
def test_the_check_runs_of_others_are_left_alone(app: dict[str, int] | None) -> None:
    assert "own" in reason(CHECK_RUN, check_run__app=app)


def test_a_bot_that_is_no_app_has_no_buttons() -> None:
    payload = a_payload(CHECK_RUN)
    delivery = Delivery(payload, event=CHECK_RUN, delivery_id="d")
    assert isinstance(job_from(delivery, BotProfile(own_app_id=None)), IgnoredDelivery)


def test_a_check_run_that_begins_asks_for_nothing() -> None:
    assert "created" in reason(CHECK_RUN, action="created")


def _check(**changes: object) -> dict[str, Any]:
    """A check of another App that failed on the head of a pull request."""
    where = {"sha": HEAD, "repo": {"id": 10}}
    check = {
        "id": 906,
        "name": "build",
        "head_sha": HEAD,
        "conclusion": "failure",
        "started_at": "2026-01-02T03:04:05Z",
        "html_url": "https://github.com/octo/calc/runs/906",
        "app": {"id": 600, "slug": "other-ci"},
        "check_suite": {"head_branch": "topic"},
        "pull_requests": [{"number": 8, "head": where, "base": where}],
    }
    payload = a_payload(CHECK_RUN, action="completed", check_run={**check, **changes})
    return {name: part for name, part in payload.items() if name != "requested_action"}


def test_a_failed_check_of_another_app_is_looked_at() -> None:
    found = read(CHECK_RUN, _check())
    assert isinstance(found, Job)
    assert found.command == ChecksFailed(
        run_id=0,
        name="build",
        conclusion="failure",
        url="https://github.com/octo/calc/runs/906",
        head_sha=HEAD,
        branch="topic",
        pull=8,
    )
    assert (found.lane, found.thread.number) == ("event", 8)


def test_a_failed_check_of_the_default_branch_is_looked_at() -> None:
    found = read(CHECK_RUN, _check(check_suite={"head_branch": "main"}, pull_requests=[]))
    assert isinstance(found, Job)
    assert found.thread == Thread.of_branch("main")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"conclusion": "success"}, "did not fail"),
        ({"conclusion": None}, "did not fail"),
        ({"app": {"id": 15368, "slug": "github-actions"}}, "workflow_run"),
        ({"app": {"id": 500, "slug": "codepilot"}}, "the bot's own"),
        ({"app": None}, "does not name"),
        ({"pull_requests": []}, "not of one"),
        ({"pull_requests": [], "check_suite": {"head_branch": None}}, "not of one"),
    ],
)
def test_other_checks_are_passed_over(changes: dict[str, object], why: str) -> None:
    found = read(CHECK_RUN, _check(**changes))
    assert isinstance(found, IgnoredDelivery)
    assert why in found.reason


WORKFLOW_RUN = "workflow_run"
HERE = {"sha": HEAD, "repo": {"id": 10}}


def _pulls(*numbers: int, **changes: dict[str, Any]) -> dict[str, object]:
    return {"workflow_run__pull_requests": [{"number": n, "head": HERE, "base": HERE, **changes} for n in numbers]}


def test_a_red_workflow_of_a_pull_request_is_looked_at() -> None:
    found = job(WORKFLOW_RUN)
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
    assert found.other_actors == ()


def test_a_red_workflow_of_the_default_branch_is_looked_at() -> None:
    found = job(WORKFLOW_RUN, workflow_run__pull_requests=[], workflow_run__head_branch="main")
    assert found.thread == Thread.of_branch("main")


def test_a_red_workflow_of_a_fork_is_looked_at_as_the_forks() -> None:
    home = {"id": 11, "full_name": "forker/calc"}
    found = job(WORKFLOW_RUN, workflow_run__pull_requests=[], workflow_run__head_repository=home)
    assert isinstance(found.command, ChecksFailed)
    assert (found.command.fork, found.command.fork_id, found.command.pull) == ("forker/calc", 11, 0)


def test_another_attempt_is_another_job() -> None:
    assert job(WORKFLOW_RUN).id != job(WORKFLOW_RUN, workflow_run__run_attempt=2).id


def test_who_ran_it_again_counts_too() -> None:
    found = job(WORKFLOW_RUN, workflow_run__triggering_actor={"id": 21, "login": "hubot", "type": "User"})
    assert (found.actor, found.other_actors) == (Actor(id=20, login="octo-owner"), (Actor(id=21, login="hubot"),))


def test_the_senders_word_is_not_asked_for() -> None:
    sender = {"id": 5, "login": "someone", "type": "User"}
    assert job(WORKFLOW_RUN, sender=sender).actor.id == 20


def test_a_run_on_the_bots_own_push_is_taken_for_the_gate_to_count() -> None:
    own = {"id": 77, "login": "codepilot[bot]", "type": "Bot"}
    assert job(WORKFLOW_RUN, workflow_run__actor=own, workflow_run__triggering_actor=own).actor.id == 77


@pytest.mark.parametrize("conclusion", ["success", "action_required", "stale", None])
def test_what_is_not_red_is_passed_over(conclusion: str | None) -> None:
    assert "did not fail" in reason(WORKFLOW_RUN, workflow_run__conclusion=conclusion)


@pytest.mark.parametrize("action", ["requested", "in_progress"])
def test_only_the_end_of_a_run_asks(action: str) -> None:
    assert action in reason(WORKFLOW_RUN, action=action)


@pytest.mark.parametrize("repository", [{"id": 11}, None])
def test_a_forks_run_asks_for_nothing(repository: dict[str, int] | None) -> None:
    assert "fork" in reason(WORKFLOW_RUN, workflow_run__head_repository=repository)


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
    assert "not of one" in reason(WORKFLOW_RUN, **pulls)


def test_an_older_pull_request_of_the_same_branch_is_passed_over() -> None:
    old = {"number": 7, "head": {"ref": "topic", "sha": "b" * 40, "repo": {"id": 10}}, "base": HERE}
    assert (
        job(WORKFLOW_RUN, workflow_run__pull_requests=[old, {"number": 8, "head": HERE, "base": HERE}]).thread.number
        == 8
    )
