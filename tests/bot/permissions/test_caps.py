"""How much is done in an hour, and where machines stop answering machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds, Caps, Tally, TrustedBots, is_unattended
from bot.domain.job import Actor, Job, OriginKind, Thread
from bot.permissions.permissions import cap_refusal
from tests.builders import a_job, a_request_for

CAPS = Caps(thread=2, user=3, repository=4, installation=5, unattended=1)
BOUNDS = Bounds(limits=RunLimits(), caps=CAPS, trusted_bots=TrustedBots(ids=frozenset({77})))


def _from(kind: OriginKind) -> Job:
    job = a_job()
    return replace(job, origin=replace(job.origin, kind=kind))


@pytest.mark.parametrize("scope", ["thread", "user", "repository", "installation"])
def test_the_last_one_under_a_cap_is_done_and_the_next_is_refused(scope: str) -> None:
    most = getattr(CAPS, scope)
    assert cap_refusal(a_request_for(a_job(), bounds=BOUNDS, tally=replace(Tally(), **{scope: most - 1}))) is None
    refusal = cap_refusal(a_request_for(a_job(), bounds=BOUNDS, tally=replace(Tally(), **{scope: most})))
    assert refusal is not None
    assert refusal.cause == f"cap-{scope}"
    assert f"the limit is {most}" in refusal.reason
    assert f"`CODEPILOT_CAPS={scope}=…`" in refusal.reason


def test_a_person_is_worked_for_however_often_machines_asked() -> None:
    assert cap_refusal(a_request_for(a_job(), bounds=BOUNDS, tally=Tally(unattended=9))) is None


@pytest.mark.parametrize(
    "job",
    [
        _from("ci"),
        replace(a_job(), actor=Actor(id=77, login="dependabot[bot]")),
        replace(a_job(), actor=Actor(id=77, login="plain-name")),
        replace(a_job(), actor=Actor(id=1, login="stranger[bot]")),
    ],
    ids=["ci", "trusted bot", "trusted account", "any bot"],
)
def test_after_so_many_runs_without_a_person_machines_are_refused(job: Job) -> None:
    assert is_unattended(job, BOUNDS.trusted_bots)
    assert cap_refusal(a_request_for(job, bounds=BOUNDS)) is None
    refusal = cap_refusal(a_request_for(job, bounds=BOUNDS, tally=Tally(unattended=1)))
    assert refusal is not None
    assert refusal.cause == "breaker"
    assert "A person with write access" in refusal.reason


@pytest.mark.parametrize("kind", ["comment", "review_comment", "review", "label", "assignment", "button"])
def test_what_a_person_does_is_attended(kind: OriginKind) -> None:
    assert not is_unattended(_from(kind), BOUNDS.trusted_bots)


def test_when_checks_fail_nobody_asks_and_no_users_hour_is_counted() -> None:
    assert cap_refusal(a_request_for(_from("ci"), bounds=BOUNDS, tally=Tally(user=9))) is None


def test_on_a_branch_alone_machines_are_counted_by_the_hour_only() -> None:
    job = replace(_from("ci"), thread=Thread.of_branch("main"))
    assert cap_refusal(a_request_for(job, bounds=BOUNDS, tally=Tally(unattended=9))) is None
    refusal = cap_refusal(a_request_for(job, bounds=BOUNDS, tally=Tally(thread=2)))
    assert refusal is not None
    assert refusal.cause == "cap-thread"
