"""How much is done in an hour, and where machines stop answering machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime import RunLimits
from bot.gate.caps import RedRun, cap_refusal, red_run_refusal
from bot.gate.repo_config import RepoConfig
from bot.gate.standing import Bounds, Caps, Tally, is_unattended
from bot.intake.listening import TrustedBots
from bot.jobs.job import Actor, Job, OriginKind
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
    assert f"{most} is the most" in refusal.reason
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


RED = RedRun(attempts=0, own_branch=False, red_on_base=False)
AUTOMATIC = RepoConfig(automatic=frozenset({"fix_red_ci"}))


def test_a_red_ci_is_mended_where_the_repository_wants_it() -> None:
    assert red_run_refusal(RED, AUTOMATIC) is None
    assert red_run_refusal(replace(RED, attempts=1), AUTOMATIC) is None


@pytest.mark.parametrize(
    ("run", "config", "cause", "silent"),
    [
        (RED, RepoConfig(), "automatic-off", True),
        (RED, RepoConfig(review_on=frozenset({"ready"})), "automatic-off", True),
        (replace(RED, own_branch=True), AUTOMATIC, "own-branch", True),
        (replace(RED, red_on_base=True), AUTOMATIC, "red-on-base", True),
        (replace(RED, red_on_base=None), AUTOMATIC, "red-on-base", True),
        (replace(RED, attempts=2), AUTOMATIC, "attempts", False),
    ],
)
def test_a_red_ci_is_left_alone(run: RedRun, config: RepoConfig, cause: str, *, silent: bool) -> None:
    refusal = red_run_refusal(run, config)
    assert refusal is not None
    assert (refusal.cause, refusal.silent) == (cause, silent)
