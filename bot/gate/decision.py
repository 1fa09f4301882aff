"""Questions to the gate and its answers. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_runtime import Policy
from bot.domain.access import Bounds, Level, Role, SetLabel, Tally
from bot.domain.commands import Command
from bot.domain.job import Job
from bot.gate.repo_config import RepoConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """The thread and its repository as GitHub has them now; text is left out on purpose.

    Attributes:
        default_branch: the repository's default branch.
        head_sha: the commit to work on: the pull request's head, for an issue the default branch's, else the branch's;
            empty when there is no such commit.
        head_ref: the branch of that commit; for `undo`, the branch of the commit that is taken back.
        head_repo_id: the numeric id of the repository that branch lives in, or None when it is gone.
        base_ref: where a pull request goes: the pull request's base, for an issue the default branch, else the branch.
        is_open: whether the issue or pull request is open.
        locked: whether its conversation is locked.
        archived: whether the repository is archived.
        private: whether it is private.
        author_id: who opened the issue or pull request; None when that account is gone.
        continues: for an issue: the number of the bot's own open pull request in which the work continues, whose ends
            `head_sha`, `head_ref` and `base_ref` are then; 0 for none.
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
    author_id: int | None = None
    continues: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """Everything that a decision rests on.

    Attributes:
        job: what was asked, where, by whom.
        command: the job's, or for `retry` the one that is done again.
        roles: asked of GitHub now, of the job's actor and then of each of its `others`; `none` when GitHub could not
            say.
        facts: the thread now.
        labels: the permission labels that stand on it now.
        config: the base branch's, merged over the organisation's.
        bounds: the operator's.
        tally: how much was done lately.
    """

    job: Job
    command: Command
    roles: tuple[Role, ...]
    facts: ThreadState
    labels: tuple[SetLabel, ...]
    config: RepoConfig
    bounds: Bounds
    tally: Tally


Publish = Literal["new_branch", "pull_branch", "review", "nothing"]
"""Where a result may go: a new branch and a pull request, the branch that is there, a review's comments, only words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What one job may do.

    Attributes:
        policy: what the agent may call, and its limits.
        publish: where the result may go.
        bound_to_sha: the commit the grant was given for; another head invalidates it.
        level: how much the run may do unasked.
        tools: what the agent has; none where no agent is needed.
        servers: the operator's MCP servers whose tools it has, by name.
        model: which one works; empty for the operator's.
        dry_run: whether everything is made and nothing sent.
        candidates: how many attempts are made at the same time, of which the best is published.
        replay: whether the change may follow a head that moved meanwhile: not where a label bound to a commit, and so
            to its code, allowed the run.
        protected: globs of files that are published only when a person approves it, beside the built-in ones.
        notes: sentences for the comment, about what was cut, left out or void.
        voided: names of labels that count no more and are to be taken off.
    """

    policy: Policy
    publish: Publish
    bound_to_sha: str
    level: Level = "ask"
    tools: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    model: str = ""
    dry_run: bool = False
    candidates: int = 1
    replay: bool = False
    protected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    voided: tuple[str, ...] = ()

    @property
    def executes(self) -> bool:
        """Whether any code of the repository may run, its setup included."""
        return "execute" in self.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The job may not run.

    Attributes:
        reason: for the person who asked, with what to do.
        cause: names the rule, so that the same is not told again and again.
        because: tells one remedy from another of the same rule, which may come one after the other: each is told.
        silent: True when nobody is owed an answer: no write access, or nobody asked. At most one 😕 reaction.
        voided: names of labels that count no more and are to be taken off.
    """

    reason: str
    cause: str
    because: str = ""
    silent: bool = False
    voided: tuple[str, ...] = ()
