from __future__ import annotations

import pytest

from bot.intake.commands import Approve, Command, Deny, Retry, Stop
from bot.intake.deliveries import Delivery, Ignored
from bot.intake.listening import Listening
from bot.intake.triggers import job_from
from bot.jobs.job import Origin, Thread
from tests.payloads import HEAD, a_payload, job, reason

EVENT = "check_run"


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
    found = job(EVENT, requested_action__identifier=button)
    assert found.command == command
    assert found.lane == "steer"
    assert found.origin == Origin(kind="button", id=903)
    assert found.thread == Thread(kind="pull", number=8, title="", body="", author="")
    assert found.head_sha == HEAD


def test_the_external_id_says_where_the_job_is() -> None:
    found = job(EVENT, check_run__external_id="abcdefgh2345:issue:9:-")
    assert (found.thread.kind, found.thread.number, found.head_sha) == ("issue", 9, "")


@pytest.mark.parametrize("branch", ["main", "release/2.x", "a" * 244])
def test_the_external_id_of_a_branchs_job_brings_its_button_back_there(branch: str) -> None:
    thread = Thread.of_branch(branch)
    found = job(EVENT, check_run__external_id=f"abcdefgh2345:branch:{branch}:-")
    assert (found.thread, found.thread.key, found.head_sha) == (thread, thread.key, "")


def test_running_a_check_again_is_a_retry() -> None:
    assert job(EVENT, action="rerequested", requested_action=None).command == Retry(job_id="abcdefgh2345")


def test_a_button_that_names_its_request_means_that_one_whatever_waits_by_now() -> None:
    for external_id in ("abcdefgh2345:issue:9:-", "abcdefgh2345:issue:9:11111111"):
        found = job(EVENT, requested_action__identifier="approve 7f3a9c21", check_run__external_id=external_id)
        assert found.command == Approve(request_id="7f3a9c21")


@pytest.mark.parametrize("button", ["approve", "deny"])
def test_a_button_that_waited_for_nothing_approves_nothing(button: str) -> None:
    found = reason(EVENT, requested_action__identifier=button, check_run__external_id="abcdefgh2345:issue:9:-")
    assert "nothing waited" in found


@pytest.mark.parametrize("button", ["", "merge", "STOP", "stop ", "approve 7F3A", "approve 7f3a 7f3b", "approve\n7f3a"])
def test_an_unknown_button_does_nothing(button: str) -> None:
    assert "no such button" in reason(EVENT, requested_action__identifier=button)


@pytest.mark.parametrize(
    "external_id",
    ["", "x", "abc:pull:0:-", "abc:pull:8", "abc:commit:8:-", "abc:pull:8:zz", "abc:pull:8:-\n", "a:pull:٣:-"],
)
def test_an_external_id_that_is_not_ours_does_nothing(external_id: str) -> None:
    assert "external id" in reason(EVENT, check_run__external_id=external_id)


@pytest.mark.parametrize("app", [{"id": 501}, None])
def test_the_check_runs_of_others_are_left_alone(app: dict[str, int] | None) -> None:
    assert "not the bot's own" in reason(EVENT, check_run__app=app)


def test_a_bot_that_is_no_app_has_no_buttons() -> None:
    payload = a_payload(EVENT)
    delivery = Delivery(id="d", event=EVENT, action="requested_action", payload=payload, installation=None)
    assert isinstance(job_from(delivery, Listening(own_app_id=None)), Ignored)


@pytest.mark.parametrize("action", ["created", "completed"])
def test_a_check_runs_life_is_not_asked_for(action: str) -> None:
    assert action in reason(EVENT, action=action)
