"""Inputs of permission decisions: roles, trusted accounts, labels, counts, limits. Pure; `bot/permissions` decides."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime import Network, RunLimits
from bot.domain.commands import DEFAULT_TRIGGER, ReviewEvent, StartRecipe, Work
from bot.domain.job import Actor, Job
from bot.domain.spend import SpendCaps

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
"""GitHub's `role_name` of a collaborator, or `none`."""

Level = Literal["read-only", "ask", "auto"]
"""`read-only`: no changes; `ask`: write files, run commands without network; `auto`: anything in the sandbox."""

_MAY_WRITE: frozenset[Role] = frozenset({"admin", "maintain", "write"})


def can_command(role: Role) -> bool:
    return role in _MAY_WRITE


def is_workflow_command(job: Job) -> bool:
    """Whether a workflow file requests the work, regardless of who started the run."""
    return job.origin.kind == "workflow" and isinstance(job.command, Work | StartRecipe)


def is_app(login: str) -> bool:
    return login.endswith("[bot]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedBots:
    """Bots that the operator allows to give commands."""

    ids: frozenset[int] = frozenset()
    logins: frozenset[str] = frozenset()

    def has_account(self, account: int, login: str) -> bool:
        return account in self.ids or (is_app(login) and login.casefold() in self.logins)


def is_unattended(job: Job, trusted_bots: TrustedBots) -> bool:
    """Whether CI or a bot requested the job."""
    actor = job.actor
    # A schedule already limits a recipe's frequency, and recipes reply to nobody.
    if job.origin.kind == "recipe":
        return False
    return job.origin.kind == "ci" or is_app(actor.login) or trusted_bots.has_account(actor.id, actor.login)


@dataclass(frozen=True, slots=True, kw_only=True)
class BotProfile:
    """Trigger words and the bot's own identity.

    Attributes:
        triggers: at least one; the first stands for commands without one.
        own_login: for an unknown account id; else empty.
        own_app_id: None if the bot is no App.
    """

    triggers: tuple[str, ...] = (DEFAULT_TRIGGER,)
    own_ids: frozenset[int] = frozenset()
    own_login: str = ""
    own_app_id: int | None = None
    trusted_bots: TrustedBots = field(default_factory=TrustedBots)
    start_label: str = "codepilot"

    def __post_init__(self) -> None:
        if not all(self.triggers) or not self.triggers:
            raise ValueError("triggers needs at least one word, and none of them empty")

    def is_own(self, account: int, login: str) -> bool:
        return account in self.own_ids or (is_app(login) and login.casefold() == self.own_login)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelGrant:
    """A recorded setting of a permission label.

    Attributes:
        bound_to: the head commit at that time; for an issue a `text_binding`.
    """

    repo_id: int
    number: int
    name: str
    labeller: Actor
    bound_to: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadLabel:
    """A permission label on the thread now.

    Attributes:
        labeller: None if unknown; the label then raises nothing.
    """

    name: str
    level: Level
    labeller: Actor | None
    role: Role
    bound_to: str


def text_binding(title: str, body: str) -> str:
    """Return a fingerprint of an issue's text, which a label is bound to like a pull request's to its head."""
    # The length distinguishes ("ab", "c") from ("a", "bc").
    content = f"{len(title)}:{title}{body}".encode("utf-8", "surrogatepass")
    return f"text:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Numbers of jobs started in the last hour, without the job to decide about.

    Attributes:
        unattended: jobs in the thread since a person's last request, without time limit.
    """

    thread: int = 0
    user: int = 0
    repository: int = 0
    installation: int = 0
    unattended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    thread: int = 10
    user: int = 20
    repository: int = 50
    installation: int = 200
    unattended: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The operator's limits and defaults.

    Attributes:
        commands: patterns that need no approval, besides the built-in ones.
        allowed_users: lower-case logins; empty allows all users with write access.
        actions: the kinds of actions that repositories may declare; None allows all.
    """

    limits: RunLimits
    level: Level = "ask"
    models: tuple[str, ...] = ()
    model: str = ""
    commands: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)
    spend_caps: SpendCaps = field(default_factory=SpendCaps)
    approval_seconds: float = 72 * 3600.0
    sandbox: str = "none"
    network: Network = field(default_factory=Network)
    trusted_bots: TrustedBots = field(default_factory=TrustedBots)
    allowed_users: frozenset[str] = frozenset()
    review_on: frozenset[ReviewEvent] = frozenset()
    max_candidates: int = 3
    servers: tuple[str, ...] = ()
    actions: frozenset[str] | None = None
    start_label: str = "codepilot"
    dry_run: bool = False

    def is_allowed_user(self, login: str) -> bool:
        return not self.allowed_users or login.casefold() in self.allowed_users
