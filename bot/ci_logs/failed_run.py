"""Failed workflow runs as values, and the reasons to leave failed checks alone.

The texts in a `FailedRun` were written by strangers; the code that shows one cleans it. `skip_reason` applies the rules
that keep the bot from working on failed checks, in order; the first one that applies gives the sentence for the thread.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """An annotation of a failing check: a message about a line of a file."""

    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a job: its result, and its definition in the workflow's file.

    Attributes:
        number: GitHub's, from 1.
        name: as GitHub shows it.
        conclusion: in GitHub's words, e.g. `success`, `failure`, `skipped`; empty while it is under way.
        run: the commands of its `run:`, matrix values filled in; empty for a step that is none, or was not found.
        shell: its `shell:`; empty for the runner's own.
        working_directory: its `working-directory:`; empty for the repository's root.
        uses: the action of its `uses:`, e.g. `actions/setup-python@v6`.
        inputs: its `with:`.
    """

    number: int
    name: str
    conclusion: str
    run: str = ""
    shell: str = ""
    working_directory: str = ""
    uses: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Return whether the step failed or was stopped."""
        return self.conclusion in {"failure", "timed_out", "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A failed job of a workflow run.

    Attributes:
        id: GitHub's.
        name: as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        url: its page.
        steps: all of them, in order.
        runs_on: the runner's labels.
        environment: the variables of the failed step: workflow, job and step, one over the other. A secret is named
            and never had: `${{ secrets.NAME }}`.
        services: names of the job's services and their images.
        container: the image that it runs in; empty for none.
        excerpt: the first failures in its log, or the log's end; no colours, no times. Redacted.
        more: the number of failures in the log that are not in the excerpt.
        no_log: the reason that there is no excerpt, in one sentence; else empty.
        annotations: its remarks.
    """

    id: int
    name: str
    conclusion: str
    url: str = ""
    steps: tuple[Step, ...] = ()
    runs_on: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    container: str = ""
    excerpt: str = ""
    more: int = 0
    no_log: str = ""
    annotations: tuple[Remark, ...] = ()

    @property
    def failed_steps(self) -> tuple[Step, ...]:
        """Return the steps that failed; none for a job that never began."""
        return tuple(each for each in self.steps if each.failed)

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the `run:` of the steps that failed."""
        return tuple(each.run for each in self.failed_steps if each.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A failed workflow run.

    Attributes:
        id: GitHub's.
        attempt: which attempt of it, from 1.
        name: the workflow's.
        path: the workflow's file.
        event: the event that started it, e.g. `push`.
        conclusion: in GitHub's words.
        url: its page.
        head_sha: the commit that it ran on.
        head_branch: the branch that it ran on.
        jobs: the failed jobs that were read, in GitHub's order.
        unread: the number of failed jobs that were not read.
        green_sha: the commit of the workflow's last successful run on this branch; empty for none.
        changes: the diff between that commit and `head_sha`.
        is_current: whether `head_sha` is the commit that is worked on.
    """

    id: int
    attempt: int = 1
    name: str
    path: str = ""
    event: str = ""
    conclusion: str = ""
    url: str
    head_sha: str
    head_branch: str = ""
    jobs: tuple[FailedJob, ...]
    unread: int = 0
    green_sha: str = ""
    changes: str = ""
    is_current: bool = True


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
    """The decision to leave failing checks alone.

    Attributes:
        cause: names the rule, so that it is reported once for each commit.
        reason: a sentence or two for the thread.
        silent: whether it is not reported.
    """

    cause: str
    reason: str
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedFacts:
    """The facts about failing checks by which `skip_reason` decides.

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
    """Return the reason to leave failing checks alone; None if a fix may start."""
    return next(filter(None, (rule(facts) for rule in _RULES)), None)


def _skip_outdated(facts: RedFacts) -> Skip | None:
    if facts.head_sha == facts.now_sha:
        return None
    moved = f"the branch has moved on to {facts.now_sha[:10]}"
    reason = f"{_describe_failure(facts)}, but {moved}. The checks of that commit decide."
    return Skip(cause="moved", reason=reason, silent=facts.pushed_by_us or facts.conclusion == "cancelled")


def _skip_own_branch(facts: RedFacts) -> Skip | None:
    if facts.own_branch:
        reason = f"{_describe_failure(facts)}. This is one of my own branches; a person decides what to do with it."
        return Skip(cause="own-branch", reason=reason, silent=True)
    if facts.pull_url:
        return Skip(
            cause="open-pull", reason=f"{_describe_failure(facts)}. {facts.pull_url} is already open for this branch."
        )
    return None


def _skip_after_attempts(facts: RedFacts) -> Skip | None:
    if facts.attempts < MOST_ATTEMPTS:
        return None
    if facts.of_fork:
        reason = (
            f"{_describe_failure(facts)}. I have explained failed checks here {facts.attempts} times, and stop here."
        )
        return Skip(cause="attempts", reason=f"{reason} Somebody with write access can use `explain`.", silent=True)
    reason = (
        f"{_describe_failure(facts)}. I have tried {facts.attempts} times to make these checks pass, and stop here."
    )
    return Skip(cause="attempts", reason=f"{reason} Use `fix` to make me try again.")


def _skip_unreadable(facts: RedFacts) -> Skip | None:
    if not facts.unknown:
        return None
    return Skip(cause="permission", reason=f"{_describe_failure(facts)}, and I did not start a fix. {facts.unknown}")


def _skip_infrastructure(facts: RedFacts) -> Skip | None:
    if facts.conclusion == "cancelled":
        reason = f"{_describe_failure(facts)}, which the code did not cause. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    if why := infrastructure_cause(facts.jobs, facts.conclusion):
        reason = f"{_describe_failure(facts)} for a reason outside the code: {why}. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    return None


def _skip_flaky(facts: RedFacts) -> Skip | None:
    if not facts.passed_before:
        return None
    reason = f"{_describe_failure(facts)}, but passed on the same commit before: it is flaky. I changed nothing."
    return Skip(cause="flaky", reason=reason)


def _skip_red_base(facts: RedFacts) -> Skip | None:
    if facts.red_on_base is None:
        return None
    names = [job.name for job in facts.jobs]
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


def _describe_failure(facts: RedFacts) -> str:
    ended = {"cancelled": "was cancelled", "timed_out": "ran out of time"}.get(facts.conclusion, "failed")
    what = facts.what[:1].upper() + facts.what[1:]
    return f"{what} {ended} on {facts.head_sha[:10]}"


def infrastructure_cause(jobs: Sequence[FailedJob], conclusion: str = "failure") -> str:
    """Return the cause of a failure outside the code, as a clause; empty if a step of the project's own failed.

    Args:
        jobs: those that went red.
        conclusion: the run's.
    """
    if conclusion == "cancelled":
        return "it was cancelled"
    if not jobs:
        return ""
    reasons = [_unrelated_cause(job) for job in jobs]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def _unrelated_cause(job: FailedJob) -> str:
    """Return the cause of a job's failure outside the code; empty if the code may be the cause."""
    losses = [found for each in job.annotations if (found := _LOST.search(each.message))]
    failed = [step for step in job.steps if step.conclusion == "failure"]
    if not all(_is_preparation(step, job) for step in failed):
        # The project's own step failed; a runner that was lost in the middle of it left its word.
        return next((_LOST_WORDS["runner"] for found in losses if found.lastgroup == "runner"), "")
    if losses:
        return _LOST_WORDS[losses[0].lastgroup or "runner"]
    when = "after the tests" if failed and failed[0].name.startswith("Post ") else "before any test"
    return f"the step `{failed[0].name}` failed {when}" if failed else _early_end(job)


def _is_preparation(step: Step, job: FailedJob) -> bool:
    """Return whether a step is GitHub's own; one before or after another step has that step's name."""
    when, _, name = step.name.partition(" ")
    return any(each.name == name for each in job.steps) if when in {"Pre", "Post"} else bool(_PREPARES.match(step.name))


def _early_end(job: FailedJob) -> str:
    """Return the cause for which a job ended though no step failed; empty if a test may have hung."""
    if job.conclusion == "cancelled":
        return f"the job `{job.name}` was cancelled"
    stopped = [step for step in job.steps if step.conclusion in _STOPPED]
    if job.conclusion == "timed_out" and all(_is_preparation(step, job) for step in stopped):
        return f"the job `{job.name}` ran out of time before any test"
    # A job of which no step began never had a runner.
    if job.steps and not any(step.conclusion in {"success", "failure", *_STOPPED} for step in job.steps):
        return f"no step of the job `{job.name}` began"
    return ""
