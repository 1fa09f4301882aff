"""Failed workflow runs, and the reasons to leave failed checks alone.

Texts in a `FailedRun` are untrusted and not yet cleaned. `skip_reason` applies the rules in order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bot.github.types import Annotation, JobFacts, RunFacts, StepFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """The definition of a step in the workflow's file.

    Attributes:
        run: with matrix values filled in; empty if undefined or not found.
    """

    run: str = ""
    shell: str = ""
    working_directory: str = ""
    uses: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A failed job of a workflow run.

    Attributes:
        definitions: of its steps, by number.
        environment: of the failed step; secrets only by name, `${{ secrets.NAME }}`.
        excerpt: the first failures in its log, or the log's end; plain and redacted.
    """

    facts: JobFacts
    definitions: Mapping[int, StepDefinition] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    container: str = ""
    excerpt: str = ""
    more: int = 0
    no_log: str = ""
    annotations: tuple[Annotation, ...] = ()

    @property
    def steps(self) -> tuple[tuple[StepFacts, StepDefinition], ...]:
        return tuple((step, self.definitions.get(step.number, StepDefinition())) for step in self.facts.steps)

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(definition.run for step, definition in self.steps if step.failed and definition.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    facts: RunFacts
    jobs: tuple[FailedJob, ...]
    unread: int = 0
    green_sha: str = ""
    changes: str = ""
    is_current: bool = True


MAX_ATTEMPTS = 2
"""Attempts to fix failed checks on consecutive commits."""

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
    """Decision to leave failed checks alone; reported once per commit and cause."""

    cause: str
    reason: str
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts:
    """Input of `skip_reason`.

    Attributes:
        attempts: number of the bot's fixes of this commit or its ancestors.
        red_on_base: names of jobs that also fail on the base branch; None if it is green, empty if unknown.
        is_from_fork: whether only a diagnosis is permitted.
    """

    subject: str
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
    is_from_fork: bool = False
    pull_url: str = ""
    unknown: str = ""


def skip_reason(facts: FailureFacts) -> Skip | None:
    """Return the reason to leave failed checks alone; None if a fix may start."""
    return next(filter(None, (rule(facts) for rule in _RULES)), None)


def _skip_outdated(facts: FailureFacts) -> Skip | None:
    if facts.head_sha == facts.now_sha:
        return None
    moved = f"the branch has moved on to {facts.now_sha[:10]}"
    reason = f"{_describe_failure(facts)}, but {moved}. The checks of that commit decide."
    return Skip(cause="moved", reason=reason, silent=facts.pushed_by_us or facts.conclusion == "cancelled")


def _skip_own_branch(facts: FailureFacts) -> Skip | None:
    if facts.own_branch:
        reason = f"{_describe_failure(facts)}. This is one of my own branches; a person decides what to do with it."
        return Skip(cause="own-branch", reason=reason, silent=True)
    if facts.pull_url:
        return Skip(
            cause="open-pull", reason=f"{_describe_failure(facts)}. {facts.pull_url} is already open for this branch."
        )
    return None


def _skip_after_attempts(facts: FailureFacts) -> Skip | None:
    if facts.attempts < MAX_ATTEMPTS:
        return None
    if facts.is_from_fork:
        reason = (
            f"{_describe_failure(facts)}. I have explained failed checks here {facts.attempts} times, and stop here."
        )
        return Skip(cause="attempts", reason=f"{reason} Somebody with write access can use `explain`.", silent=True)
    reason = (
        f"{_describe_failure(facts)}. I have tried {facts.attempts} times to make these checks pass, and stop here."
    )
    return Skip(cause="attempts", reason=f"{reason} Use `fix` to make me try again.")


def _skip_unreadable(facts: FailureFacts) -> Skip | None:
    if not facts.unknown:
        return None
    return Skip(cause="permission", reason=f"{_describe_failure(facts)}, and I did not start a fix. {facts.unknown}")


def _skip_infrastructure(facts: FailureFacts) -> Skip | None:
    if facts.conclusion == "cancelled":
        reason = f"{_describe_failure(facts)}, which the code did not cause. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    if why := infrastructure_cause(facts.jobs, facts.conclusion):
        reason = f"{_describe_failure(facts)} for a reason outside the code: {why}. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    return None


def _skip_flaky(facts: FailureFacts) -> Skip | None:
    if not facts.passed_before:
        return None
    reason = f"{_describe_failure(facts)}, but passed on the same commit before: it is flaky. I changed nothing."
    return Skip(cause="flaky", reason=reason)


def _skip_red_base(facts: FailureFacts) -> Skip | None:
    if facts.red_on_base is None:
        return None
    names = [job.facts.name for job in facts.jobs]
    if names and facts.red_on_base and not set(names) <= set(facts.red_on_base):
        return None
    which = f"the same jobs fail on `{facts.base}`" if names and facts.red_on_base else f"it fails on `{facts.base}`"
    reason = f"{_describe_failure(facts)}, and {which}, too: this pull request did not break it. I changed nothing."
    return Skip(cause="red-before", reason=reason)


_RULES = (
    _skip_outdated,
    _skip_own_branch,
    _skip_after_attempts,
    _skip_unreadable,
    _skip_infrastructure,
    _skip_flaky,
    _skip_red_base,
)


def _describe_failure(facts: FailureFacts) -> str:
    ended = {"cancelled": "was cancelled", "timed_out": "ran out of time"}.get(facts.conclusion, "failed")
    subject = facts.subject[:1].upper() + facts.subject[1:]
    return f"{subject} {ended} on {facts.head_sha[:10]}"


def infrastructure_cause(jobs: Sequence[FailedJob], conclusion: str = "failure") -> str:
    """Return the cause of a failure outside the code, as a clause; empty if a step of the project failed."""
    if conclusion == "cancelled":
        return "it was cancelled"
    if not jobs:
        return ""
    reasons = [_unrelated_cause(job) for job in jobs]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def _unrelated_cause(job: FailedJob) -> str:
    losses = [found for remark in job.annotations if (found := _LOST.search(remark.message))]
    failed = [step for step in job.facts.steps if step.conclusion == "failure"]
    if not all(_is_preparation(step, job.facts) for step in failed):
        # The project's own step failed; a runner that was lost in the middle of it left its word.
        return next((_LOST_WORDS["runner"] for found in losses if found.lastgroup == "runner"), "")
    if losses:
        return _LOST_WORDS[losses[0].lastgroup or "runner"]
    when = "after the tests" if failed and failed[0].name.startswith("Post ") else "before any test"
    return f"the step `{failed[0].name}` failed {when}" if failed else _early_end(job.facts)


def _is_preparation(step: StepFacts, job: JobFacts) -> bool:
    when, _, name = step.name.partition(" ")
    if when in {"Pre", "Post"}:
        return any(other.name == name for other in job.steps)
    return bool(_PREPARES.match(step.name))


def _early_end(job: JobFacts) -> str:
    """Return why a job ended without a failed step; empty if a test may have hung."""
    if job.conclusion == "cancelled":
        return f"the job `{job.name}` was cancelled"
    stopped = [step for step in job.steps if step.conclusion in _STOPPED]
    if job.conclusion == "timed_out" and all(_is_preparation(step, job) for step in stopped):
        return f"the job `{job.name}` ran out of time before any test"
    # A job of which no step began never had a runner.
    if job.steps and not any(step.conclusion in {"success", "failure", *_STOPPED} for step in job.steps):
        return f"no step of the job `{job.name}` began"
    return ""
