"""Reasons to leave failed checks alone: one sentence for the thread, or none where nobody should be told. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bot.red_ci.failed import FailedJob, Step

MOST_ATTEMPTS = 2
"""To fix failing checks, on commits that follow from one another."""

_LOST = re.compile(
    r"(?P<runner>runner has received a shutdown signal|lost communication with the server|not acquired by Runner"
    r"|runner (?:is|was) (?:offline|lost)|hosted runner encountered an error|No hosted runners? (?:is|are) available)"
    r"|(?P<disk>No space left on device)"
    r"|(?P<limit>rate limit|secondary limit|Too Many Requests|toomanyrequests)"
    r"|(?P<paid>spending limit|recent account payments have failed|billing)",
    re.IGNORECASE,
)
_LOST_WORDS = {
    "runner": "the runner was lost",
    "disk": "the runner's disk was full",
    "limit": "a rate limit was hit",
    "paid": "GitHub did not run it because of a billing problem",
}
# What GitHub's runner does by itself, or an action that fetches what the job needs, before any command of the project.
_PREPARES = re.compile(
    r"(?:Set up job|Initialize containers|Pull \S+$|Build .*@|Stop containers|Complete job)"
    r"|(?:Run )?(?:actions/(?:checkout|setup-[a-z]+|cache|download-artifact)|docker/login-action)@",
)
_STOPPED = frozenset({"timed_out", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Failing checks are left alone.

    Attributes:
        cause: names the rule, so that it is told once for each commit.
        reason: a sentence or two for the thread.
        silent: whether nobody is told.
    """

    cause: str
    reason: str
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedFacts:
    """What is known of failing checks before anybody works on them.

    Attributes:
        what: the workflow or the check that failed, as the comment names it, e.g. "the workflow `CI`".
        head_sha: the commit that it ran on.
        now_sha: where the branch is now.
        pushed_by_us: whether that is a commit of the bot's.
        conclusion: in GitHub's words; of the run.
        jobs: those that went red, as far as they are known; without logs.
        own_branch: whether the branch is one that the bot made.
        attempts: how often the bot worked on this commit, or on one that it follows from, because checks failed.
        passed_before: whether the same workflow passed on the same commit before.
        red_on_base: the names of the jobs that fail on the base branch, too; None when the base is green, and empty
            when it is red and no jobs are known.
        base: the base branch; empty for a failure on the branch itself.
        of_fork: whether it ran for a fork's pull request, where only a diagnosis is given.
        pull_url: the bot's open pull request that is to fix this branch; empty for none.
        unknown: what could not be read, with the remedy; empty when everything could.
    """

    what: str
    head_sha: str
    now_sha: str
    conclusion: str
    pushed_by_us: bool = False
    jobs: tuple[FailedJob, ...] = ()
    own_branch: bool = False
    attempts: int = 0
    passed_before: bool = False
    red_on_base: Collection[str] | None = None
    base: str = ""
    of_fork: bool = False
    pull_url: str = ""
    unknown: str = ""


def skip_reason(facts: RedFacts) -> Skip | None:
    """Why failing checks are left alone; None when they are worked on."""
    for rule in (_moved, _ours, _tried, _unknown, _infrastructure, _flaky, _red_before):
        if (skip := rule(facts)) is not None:
            return skip
    return None


def infrastructure(jobs: Sequence[FailedJob], conclusion: str = "failure") -> str:
    """Why a failure is none of the code's, as a clause; empty when a step of the project's own failed.

    Args:
        jobs: those that went red.
        conclusion: the run's.
    """
    if conclusion == "cancelled":
        return "it was cancelled"
    if not jobs:
        return ""
    reasons = [_unrelated(job) for job in jobs]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def _unrelated(job: FailedJob) -> str:
    """Why one job's failure is none of the code's; empty when it may be."""
    said = [found for each in job.annotations if (found := _LOST.search(each.message))]
    failed = [step for step in job.steps if step.conclusion == "failure"]
    if not all(_prepares(step, job) for step in failed):
        # The project's own step failed; a runner that was lost in the middle of it left its word.
        return next((_LOST_WORDS["runner"] for found in said if found.lastgroup == "runner"), "")
    if said:
        return _LOST_WORDS[said[0].lastgroup or "runner"]
    when = "after the tests" if failed and failed[0].name.startswith("Post ") else "before any test"
    return f"the step `{failed[0].name}` failed {when}" if failed else _ended_early(job)


def _prepares(step: Step, job: FailedJob) -> bool:
    """Whether a step is GitHub's: what it does before or after another step has that step's name."""
    when, _, name = step.name.partition(" ")
    return any(each.name == name for each in job.steps) if when in {"Pre", "Post"} else bool(_PREPARES.match(step.name))


def _ended_early(job: FailedJob) -> str:
    """Why a job ended of which no step failed; empty when a test may have been what hung."""
    if job.conclusion == "cancelled":
        return f"the job `{job.name}` was cancelled"
    stopped = [step for step in job.steps if step.conclusion in _STOPPED]
    if job.conclusion == "timed_out" and all(_prepares(step, job) for step in stopped):
        return f"the job `{job.name}` ran out of time before any test"
    # A job of which no step began never had a runner.
    if job.steps and not any(step.conclusion in {"success", "failure", *_STOPPED} for step in job.steps):
        return f"no step of the job `{job.name}` began"
    return ""


def _moved(facts: RedFacts) -> Skip | None:
    if facts.head_sha == facts.now_sha:
        return None
    reason = f"{_failed(facts)}, but the branch has moved on to {facts.now_sha[:10]}. The checks of that commit decide."
    return Skip(cause="moved", reason=reason, silent=facts.pushed_by_us or facts.conclusion == "cancelled")


def _ours(facts: RedFacts) -> Skip | None:
    if facts.own_branch:
        reason = f"{_failed(facts)}. This is one of my own branches; a person decides what to do with it."
        return Skip(cause="own-branch", reason=reason, silent=True)
    if facts.pull_url:
        return Skip(cause="open-pull", reason=f"{_failed(facts)}. {facts.pull_url} is already open for this branch.")
    return None


def _tried(facts: RedFacts) -> Skip | None:
    if facts.attempts < MOST_ATTEMPTS:
        return None
    if facts.of_fork:
        reason = f"{_failed(facts)}. I have explained failed checks here {facts.attempts} times, and stop here."
        return Skip(cause="attempts", reason=f"{reason} Somebody with write access can use `explain`.", silent=True)
    reason = f"{_failed(facts)}. I have tried {facts.attempts} times to make these checks pass, and stop here."
    return Skip(cause="attempts", reason=f"{reason} Use `fix` to make me try again.")


def _unknown(facts: RedFacts) -> Skip | None:
    if not facts.unknown:
        return None
    return Skip(cause="permission", reason=f"{_failed(facts)}, and I did not start a fix. {facts.unknown}")


def _infrastructure(facts: RedFacts) -> Skip | None:
    if facts.conclusion == "cancelled":
        reason = f"{_failed(facts)}, which the code did not cause. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    if why := infrastructure(facts.jobs, facts.conclusion):
        reason = f"{_failed(facts)} for a reason outside the code: {why}. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    return None


def _flaky(facts: RedFacts) -> Skip | None:
    if not facts.passed_before:
        return None
    reason = f"{_failed(facts)}, but passed on the same commit before: it is flaky. I changed nothing."
    return Skip(cause="flaky", reason=reason)


def _red_before(facts: RedFacts) -> Skip | None:
    if facts.red_on_base is None:
        return None
    names = [job.name for job in facts.jobs]
    if names and facts.red_on_base and not set(names) <= set(facts.red_on_base):
        return None
    which = f"the same jobs fail on `{facts.base}`" if names and facts.red_on_base else f"it fails on `{facts.base}`"
    reason = f"{_failed(facts)}, and {which}, too: this pull request did not break it. I changed nothing."
    return Skip(cause="red-before", reason=reason)


def _failed(facts: RedFacts) -> str:
    ended = {"cancelled": "was cancelled", "timed_out": "ran out of time"}.get(facts.conclusion, "failed")
    what = facts.what[:1].upper() + facts.what[1:]
    return f"{what} {ended} on {facts.head_sha[:10]}"
