"""Threats 13 and 14: caps an hour, a breaker between machines, and two attempts to mend a red CI."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime import RunLimits
from bot.gate.caps import RedRun, red_run_refusal
from bot.gate.permissions import Grant, Refusal, grant_for
from bot.gate.repo_config import RepoConfig
from bot.gate.standing import Bounds, Caps, Tally
from bot.intake.listening import TrustedBots
from bot.jobs.job import Actor, Job
from tests.builders import a_job, a_request_for, thread_facts

BOUNDS = Bounds(limits=RunLimits(), caps=Caps(unattended=3), trusted_bots=TrustedBots(ids=frozenset({77})))
OTHER_BOT = replace(a_job(), actor=Actor(id=77, login="renovate[bot]"))


def _conversation(job: Job, rounds: int) -> list[str]:
    """How often the gate lets the same asker ask again, when each time is one more without a person."""
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


def test_a_red_ci_is_tried_twice_and_no_more() -> None:
    wanted = RepoConfig(automatic=frozenset({"fix_red_ci"}))
    tried = [red_run_refusal(RedRun(attempts=n, own_branch=False, red_on_base=False), wanted) for n in range(4)]
    assert [refusal and refusal.cause for refusal in tried] == [None, None, "attempts", "attempts"]


@pytest.mark.parametrize(("own", "base"), [(True, False), (False, True), (False, None), (True, True)])
def test_a_red_ci_of_its_own_branch_or_of_a_red_base_is_left_alone(own: bool, base: bool | None) -> None:  # noqa: FBT001 - the cases
    wanted = RepoConfig(automatic=frozenset({"fix_red_ci"}))
    assert red_run_refusal(RedRun(attempts=0, own_branch=own, red_on_base=base), wanted) is not None
