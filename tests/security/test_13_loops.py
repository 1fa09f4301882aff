"""Threats 13 and 14: caps an hour, a breaker between machines, and two attempts to fix a red CI."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_runtime import RunLimits
from bot.ci_logs.failed_run import FailureFacts, skip_reason
from bot.domain.access import Bounds, Caps, Tally, TrustedBots
from bot.domain.job import Actor, Job
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import grant_for
from tests.builders import a_job, a_request_for, thread_facts

BOUNDS = Bounds(limits=RunLimits(), caps=Caps(unattended=3), trusted_bots=TrustedBots(ids=frozenset({77})))
OTHER_BOT = replace(a_job(), actor=Actor(id=77, login="renovate[bot]"))


def _conversation(job: Job, rounds: int) -> list[str]:
    """Return how often the permission check lets a bot continue without a person."""
    ends = []
    for done in range(rounds):
        verdict = grant_for(a_request_for(job, bounds=BOUNDS, tally=Tally(thread=done, unattended=done)))
        ends.append(verdict.cause if isinstance(verdict, Refusal) else "works")
    return ends


def test_two_bots_that_answer_each_other_stop_after_three_rounds() -> None:
    assert _conversation(OTHER_BOT, 6) == ["works"] * 3 + ["breaker"] * 3


def test_a_person_is_stopped_by_the_hour_only() -> None:
    assert _conversation(a_job(), 12) == ["works"] * 10 + ["cap-thread"] * 2


def test_a_person_starts_the_count_anew() -> None:
    assert isinstance(grant_for(a_request_for(a_job(), bounds=BOUNDS, tally=Tally(unattended=3))), Grant)
    assert isinstance(grant_for(a_request_for(OTHER_BOT, bounds=BOUNDS, tally=Tally(unattended=0))), Grant)


@pytest.mark.parametrize("scope", ["thread", "user", "repository", "installation"])
def test_no_cap_is_passed_by_another_verb_or_by_more_rights(scope: str) -> None:
    full = replace(Tally(), **{scope: getattr(Caps(), scope)})
    for kind in ("issue", "pull"):
        verdict = grant_for(a_request_for(a_job(kind=kind), roles=("admin",), tally=full, facts=thread_facts()))
        assert isinstance(verdict, Refusal)
        assert verdict.cause == f"cap-{scope}"


def _red(**changes: Any) -> FailureFacts:  # noqa: ANN401 - whatever RedFacts takes
    usual: dict[str, Any] = {"subject": "the workflow `CI`", "head_sha": "a" * 40, "now_sha": "a" * 40, "base": "main"}
    return FailureFacts(**{**usual, "conclusion": "failure", **changes})


def test_a_red_ci_is_tried_twice_and_no_more() -> None:
    tried = [skip_reason(_red(attempts=n)) for n in range(4)]
    assert [skip and skip.cause for skip in tried] == [None, None, "attempts", "attempts"]


@pytest.mark.parametrize(
    "facts",
    [
        _red(own_branch=True),
        _red(red_on_base=frozenset()),
        _red(unknown="The App lacks it."),
        _red(own_branch=True, red_on_base=frozenset()),
    ],
    ids=["own", "base", "unknown", "both"],
)
def test_a_red_ci_of_its_own_branch_or_of_a_red_base_is_left_alone(facts: FailureFacts) -> None:
    assert skip_reason(facts) is not None
