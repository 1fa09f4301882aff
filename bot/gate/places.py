"""Where work may happen at all: the repository, the thread, its branches. Pure."""

from __future__ import annotations

from bot.domain.job import Job
from bot.domain.options import is_safe_branch
from bot.gate.decision import Refusal, ThreadState


def repository_refusal(job: Job, facts: ThreadState) -> Refusal | None:
    """Why nothing is done in this repository now, or None."""
    if facts.archived:
        return Refusal(
            cause="archived",
            reason="This repository is archived, so nothing in it can change. Unarchive it and ask again.",
        )
    if job.repo.private and not facts.private:
        return Refusal(
            cause="made-public",
            reason="This repository was private when you asked and is public now. If everyone may see what I make of "
            "it, ask again.",
        )
    return None


def thread_refusal(job: Job, facts: ThreadState, *, may_be_closed: bool = False) -> Refusal | None:
    """Why no work is done in this thread now, or None.

    Args:
        job: where.
        facts: the thread now.
        may_be_closed: whether it is work that only ends in words.
    """
    thread = "pull request" if job.thread.kind == "pull" else job.thread.kind
    if not facts.is_open and not may_be_closed:
        return Refusal(cause="closed", reason=f"This {thread} is closed. Reopen it and ask again.")
    if facts.locked:
        return Refusal(cause="locked", reason=f"This {thread} is locked. Unlock the conversation and ask again.")
    return None


def branch_refusal(job: Job, facts: ThreadState, *, pushes: bool) -> Refusal | None:
    """Why no work is done on this branch, or None.

    Args:
        job: where.
        facts: the thread now.
        pushes: whether the work is to end in a commit on the branch that is there.
    """
    if not facts.head_sha:
        reason = (
            f"There is no branch `{facts.base_ref}`, at which the work would begin: it was deleted or renamed, or the "
            "repository has no commit yet. Push it, or choose another default branch, and ask again."
        )
        return Refusal(cause="no-commit", reason=reason)
    if pushes and facts.head_repo_id is None:
        return Refusal(cause="branch-gone", reason="The branch of this pull request is gone. Restore it and ask again.")
    if pushes and facts.head_repo_id == job.repo.id and facts.head_ref == facts.default_branch:
        return Refusal(
            cause="default-branch",
            reason=f"This pull request's branch, `{facts.default_branch}`, is the default branch, and I never push to "
            "that one. Open the pull request from another branch.",
        )
    if not all(map(is_safe_branch, (facts.head_ref, facts.base_ref, facts.default_branch))):
        return Refusal(
            cause="branch-name",
            reason="A branch involved here has a name that I do not handle: it begins with `-`, is too long, or git "
            "does not take it. Rename the branch and ask again.",
        )
    return None
