"""From an outcome and a change to everything that will be sent, complete before anything is sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime import Outcome, Status
from bot.gate.permissions import Grant
from bot.jobs.job import Job
from bot.publishing.screening import cautions, is_large, objections
from bot.publishing.wording import branch_name, commit_body, commit_title, pull_body
from bot.workspace.change import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit to make.

    Attributes:
        branch: where it goes.
        expected_head: the branch must stand here, else nothing is written.
        create_branch: whether the branch is made first, at `expected_head`.
        title: the commit's first line, at most 72 characters.
        body: the rest of the message.
        change: what it holds.
    """

    branch: str
    expected_head: str
    create_branch: bool
    title: str
    body: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull request to open from the commit's branch."""

    base: str
    title: str
    body: str
    draft: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Everything that one job sends, besides the comment, which needs what GitHub answers to these.

    Attributes:
        commit: the commit, or None when nothing changed or nothing may be published.
        pull_request: the pull request, or None.
        withheld: what was not published and why, for the comment; empty when nothing was.
    """

    commit: Commit | None
    pull_request: PullRequest | None
    withheld: str = ""


_UNFINISHED = {
    Status.PAUSED: "the run waits for a person",
    Status.STOPPED: "the run was stopped",
    Status.MAX_STEPS: "the run reached its step limit",
    Status.MAX_TOKENS: "the run reached its token budget",
    Status.MAX_COST: "the run reached its budget",
    Status.TIMEOUT: "the run reached its time limit",
    Status.REPEATED_CALLS: "the run went in circles",
    Status.FORMAT_ERRORS: "the model's replies could not be understood",
    Status.FAILED: "the run failed",
    Status.ANSWERED: "the run ended in an answer, not in a finished task",
}


def plan(
    job: Job,
    grant: Grant,
    outcome: Outcome,
    change: Change,
    *,
    base_branch: str,
    head_branch: str | None = None,
    server: str,
) -> Publication:
    """Decide what leaves the house.

    Args:
        job: who asked for it, and where.
        grant: where a change may go, and the commit that this was decided for.
        outcome: how the run ended.
        change: what the agent changed.
        base_branch: what a new pull request is to be merged into.
        head_branch: the branch of the pull request that the job belongs to; None for an issue.
        server: the GitHub server's address, e.g. `https://github.com`; links to it may stay.

    Raises:
        ValueError: the grant is for the pull request's branch and there is none (a bug of ours).
    """
    if not change:
        return Publication(commit=None, pull_request=None)
    reason = _reason_to_withhold(grant, outcome, change)
    if reason:
        return Publication(commit=None, pull_request=None, withheld=reason)
    new = grant.publish == "new_branch"
    branch = branch_name(job) if new else head_branch
    if branch is None:
        raise ValueError(f"job {job.id} may write to its pull request's branch, but has none")
    summary = outcome.summary or ""
    title = commit_title(summary, fallback=f"Address {job.thread.kind} {job.thread.number}")
    commit = Commit(
        branch=branch,
        expected_head=change.base_sha,
        create_branch=new,
        title=title,
        body=commit_body(job),
        change=change,
    )
    if not new:
        return Publication(commit=commit, pull_request=None)
    body = pull_body(job, summary, server=server, notes=cautions(change))
    return Publication(
        commit=commit, pull_request=PullRequest(base=base_branch, title=title, body=body, draft=is_large(change))
    )


def _reason_to_withhold(grant: Grant, outcome: Outcome, change: Change) -> str:
    if grant.publish == "nothing":
        return "This command may read, not write."
    if outcome.status is not Status.FINISHED:
        return f"Nothing was published, because {_UNFINISHED[outcome.status]}. The patch so far is kept."
    if change.base_sha != grant.bound_to_sha:
        meant, done = grant.bound_to_sha[:10], change.base_sha[:10]
        return f"The permission was given for commit {meant}, but the work was done on {done}."
    found = objections(change)
    return " ".join([*found, "The patch is kept; a person has to apply it."]) if found else ""
