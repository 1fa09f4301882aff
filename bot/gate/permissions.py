"""Who may do what, decided before any hostile text is read. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, assert_never

from agent_runtime import Policy, RunLimits
from bot.intake.commands import Fix, Help, Unknown
from bot.jobs.job import Job

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
"""GitHub's `role_name` of a collaborator, or `none`."""

_MAY_WRITE: frozenset[Role] = frozenset({"admin", "maintain", "write"})

# An allow-list far narrower than git's own rules: these names reach command lines, URLs and Markdown.
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@#=,-]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What one job may do.

    Attributes:
        policy: what the agent may call, and its limits.
        publish: where the change may go: a new branch with a pull request, the pull request's own branch, nowhere.
        bound_to_sha: the commit the grant was given for; another head voids it.
    """

    policy: Policy
    publish: Literal["new_branch", "pull_branch", "nothing"]
    bound_to_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The job may not run.

    Attributes:
        reason: for the person who asked, with what to do.
        silent: True when the person has no right to an answer (no write access): one 😕 reaction, no comment.
    """

    reason: str
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """The thread and its repository as GitHub has them now; text is left out on purpose.

    Attributes:
        default_branch: the repository's default branch.
        head_sha: the commit to work on: the pull request's head, or for an issue the default branch's; empty when the
            repository has no commit.
        head_ref: the branch of that commit.
        head_repo_id: the numeric id of the repository that branch lives in, or None when it is gone.
        base_ref: where a pull request goes: the pull request's base, or for an issue the default branch.
        is_open: whether the issue or pull request is open.
        locked: whether its conversation is locked.
        archived: whether the repository is archived.
        private: whether it is private.
    """

    default_branch: str
    head_sha: str
    head_ref: str
    head_repo_id: int | None
    base_ref: str
    is_open: bool
    locked: bool
    archived: bool
    private: bool


def may_command(role: Role) -> bool:
    """Whether someone of this role may ask the bot for anything at all."""
    return role in _MAY_WRITE


def grant_for(job: Job, *, role: Role, facts: ThreadFacts, limits: RunLimits) -> Grant | Refusal:
    """Decide what a job may do; the one choke point, for every verb and both doors.

    Args:
        job: what was asked.
        role: the role of `job.actor`, asked of GitHub now; `none` when GitHub could not say.
        facts: the thread now.
        limits: the operator's bounds of a run.
    """
    if not may_command(role):
        return Refusal(reason="Only people with write access to this repository can ask me for work.", silent=True)
    if facts.archived:
        return Refusal(reason="This repository is archived, so nothing in it can change. Unarchive it and ask again.")
    if job.repo.private and not facts.private:
        return Refusal(
            reason="This repository was private when you asked and is public now. If everyone may see what I make of "
            "it, ask again."
        )
    match job.command:
        case Help() | Unknown():
            return Grant(policy=Policy(limits=limits), publish="nothing", bound_to_sha=facts.head_sha)
        case Fix():
            refusal = _thread_refusal(job, facts) or _branch_refusal(job, facts)
            if refusal is not None:
                return refusal
            publish: Literal["new_branch", "pull_branch"] = (
                "new_branch" if job.thread.kind == "issue" else "pull_branch"
            )
            return Grant(policy=Policy(limits=limits), publish=publish, bound_to_sha=facts.head_sha)
        case other:
            assert_never(other)


def _thread_refusal(job: Job, facts: ThreadFacts) -> Refusal | None:
    thread = "issue" if job.thread.kind == "issue" else "pull request"
    if not facts.is_open:
        return Refusal(reason=f"This {thread} is closed. Reopen it and ask again.")
    if facts.locked:
        return Refusal(reason=f"This {thread} is locked. Unlock the conversation and ask again.")
    return None


def _branch_refusal(job: Job, facts: ThreadFacts) -> Refusal | None:
    if job.thread.kind == "pull":
        if facts.head_repo_id is None:
            return Refusal(reason="The branch of this pull request is gone. Restore it and ask again.")
        if facts.head_repo_id != job.repo.id:
            return Refusal(
                reason="This pull request comes from a fork, and forks are read-only to me by default: I neither run "
                "their code nor push to them. Ask for the fix in an issue, or push the branch to this repository."
            )
        if facts.head_ref == facts.default_branch:
            return Refusal(
                reason=f"This pull request's branch, `{facts.default_branch}`, is the default branch, and I never push "
                "to that one. Open the pull request from another branch."
            )
    if not facts.head_sha:
        return Refusal(reason="This repository has no commit yet. Push a first one and ask again.")
    if not all(map(_is_safe_branch, (facts.head_ref, facts.base_ref, facts.default_branch))):
        return Refusal(
            reason="A branch involved here has a name I do not handle: only ASCII letters, digits and `_./+@#=,-` are "
            "taken, without a leading `-` and without `..`. Rename the branch and ask again."
        )
    return None


def _is_safe_branch(name: str) -> bool:
    return _BRANCH.fullmatch(name) is not None and ".." not in name
