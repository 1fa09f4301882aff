"""Who may do what, decided before any hostile text is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_runtime import Policy

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
"""GitHub's `role_name` of a collaborator, or `none`."""


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
