"""Reasons to leave failed checks alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.ci_logs.failed_run import FailedJob, FailureFacts, infrastructure_cause, skip_reason
from bot.github.types import JobFacts, StepFacts
from tests.builders import an_annotation

A, B = "a" * 40, "b" * 40
SET_UP = StepFacts(number=1, name="Set up job", conclusion="success")
CHECKOUT = StepFacts(number=2, name="Run actions/checkout@v5", conclusion="success")
TESTS = StepFacts(number=3, name="Run pytest -q", conclusion="failure")
JOB = FailedJob(facts=JobFacts(id=1, name="test", conclusion="failure", steps=(SET_UP, CHECKOUT, TESTS)))
RED = FailureFacts(subject="the workflow `CI`", head_sha=A, now_sha=A, conclusion="failure", jobs=(JOB,), base="main")


def with_annotation(job: FailedJob, message: str) -> FailedJob:
    return replace(job, annotations=(an_annotation(message),))


def test_a_failure_in_a_step_of_the_project_is_fixed() -> None:
    assert skip_reason(RED) is None
    assert skip_reason(replace(RED, attempts=1, red_on_base=None)) is None


@pytest.mark.parametrize(
    ("facts", "cause", "said"),
    [
        (
            replace(RED, now_sha=B),
            "moved",
            (", but the branch has moved on to bbbbbbbbbb. The checks of that commit decide."),
        ),
        (
            replace(RED, pull_url="https://github.com/o/r/pull/3"),
            "open-pull",
            ". https://github.com/o/r/pull/3 is already open for this branch.",
        ),
        (
            replace(RED, attempts=2),
            "attempts",
            (". I have tried 2 times to make these checks pass, and stop here. Use `fix` to make me try again."),
        ),
        (
            replace(RED, unknown="The App is missing the permission *Actions: read-only*."),
            "permission",
            (", and I did not start a fix. The App is missing the permission *Actions: read-only*."),
        ),
        (
            replace(RED, conclusion="cancelled"),
            "infrastructure",
            (", which the code did not cause. Re-run it; I changed nothing."),
        ),
        (
            replace(RED, passed_before=True),
            "flaky",
            (", but passed on the same commit before: it is flaky. I changed nothing."),
        ),
        (
            replace(RED, red_on_base=frozenset({"test", "lint"})),
            "red-before",
            (", and the same jobs fail on `main`, too: this pull request did not break it. I changed nothing."),
        ),
        (
            replace(RED, jobs=(), red_on_base=frozenset()),
            "red-before",
            (", and it fails on `main`, too: this pull request did not break it. I changed nothing."),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_each_no_is_one_line(facts: FailureFacts, cause: str, said: str) -> None:
    skip = skip_reason(facts)
    assert skip is not None
    begins = f"The workflow `CI` {'was cancelled' if facts.conclusion == 'cancelled' else 'failed'} on {A[:10]}"
    assert (skip.cause, skip.reason, skip.silent) == (cause, begins + said, False)


@pytest.mark.parametrize(
    "facts",
    [
        replace(RED, own_branch=True),
        replace(RED, now_sha=B, pushed_by_us=True),
        replace(RED, now_sha=B, conclusion="cancelled"),
    ],
    ids=["own branch", "our own push", "cancelled by the next push"],
)
def test_an_outdated_failure_is_silent(facts: FailureFacts) -> None:
    skip = skip_reason(facts)
    assert skip is not None
    assert skip.silent


def test_a_job_that_passes_on_the_base_is_fixed() -> None:
    lint = replace(JOB, facts=JOB.facts.model_copy(update={"id": 2, "name": "lint"}))
    assert skip_reason(replace(RED, jobs=(JOB, lint), red_on_base=frozenset({"lint"}))) is None


def ended(*steps: tuple[str, str], conclusion: str = "failure") -> FailedJob:
    numbered = tuple(StepFacts(number=n, name=name, conclusion=how) for n, (name, how) in enumerate(steps, 1))
    return FailedJob(facts=JobFacts(id=1, name="test", conclusion=conclusion, steps=numbered))


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (ended(("Set up job", "failure")), "the step `Set up job` failed before any test"),
        (
            ended(("Set up job", "success"), ("Run actions/checkout@v5", "failure"), ("Run pytest", "skipped")),
            "the step `Run actions/checkout@v5` failed before any test",
        ),
        (
            ended(("Save it", "success"), ("Run pytest", "success"), ("Post Save it", "failure")),
            "the step `Post Save it` failed after the tests",
        ),
        (ended(("Pull ghcr.io/a/b:1", "failure")), "the step `Pull ghcr.io/a/b:1` failed before any test"),
        (ended(("Initialize containers", "failure")), "the step `Initialize containers` failed before any test"),
        (
            ended(("Set up job", "success"), ("Run actions/setup-node@v6", "cancelled"), conclusion="timed_out"),
            "the job `test` ran out of time before any test",
        ),
        (ended(("Run pytest", "cancelled"), conclusion="cancelled"), "the job `test` was cancelled"),
        (ended(("Run pytest", "skipped")), "no step of the job `test` began"),
        (
            with_annotation(
                JOB, "The runner has received a shutdown signal. This can happen when the runner service is stopped."
            ),
            "the runner was lost",
        ),
        (
            with_annotation(ended(), "The hosted runner: GitHub Actions 3 lost communication with the server."),
            "the runner was lost",
        ),
        (with_annotation(ended(), "API rate limit exceeded for installation ID 1."), "a rate limit was hit"),
        (with_annotation(ended(), "System.IO.IOException: No space left on device"), "the runner's disk was full"),
        (
            with_annotation(ended(), "The job was not started because recent account payments have failed"),
            "GitHub did not run it because of a billing problem",
        ),
    ],
)
def test_failures_outside_the_code(job: FailedJob, why: str) -> None:
    assert infrastructure_cause((job,)) == why


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        # A test that prints these words is no lost runner.
        with_annotation(JOB, "AssertionError: rate limit of 5 expected, got No space left on device"),
        ended(("Set up job", "success"), ("Run pytest", "cancelled"), conclusion="timed_out"),
        ended(),
        ended(("Set up job", "success"), ("Pull request checks", "failure")),
        ended(("Set up job", "success"), ("Post coverage", "failure")),
        ended(("Set up job", "success"), ("Pre build checks", "cancelled"), conclusion="timed_out"),
    ],
    ids=["own step", "own words", "a test that hangs", "nothing known", "own Pull", "own Post", "own Pre"],
)
def test_failures_possibly_in_the_code(job: FailedJob) -> None:
    assert infrastructure_cause((job,)) == ""


def test_one_job_that_failed_by_itself_is_enough() -> None:
    assert infrastructure_cause((ended(("Set up job", "failure")), JOB)) == ""
    assert infrastructure_cause(()) == ""
    assert infrastructure_cause((), "cancelled") == "it was cancelled"
