"""Facts that decide about a job: roles, the accounts and triggers to listen to, labels, counts, limits. Pure.

`bot/permissions` makes the decisions. GitHub's answers become `Role` and `SetLabel`, the operator's settings become
`Listening` and `Bounds`, and the queue's records become `LabelGrant` and `Tally`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime import Network, RunLimits
from bot.domain.commands import DEFAULT_TRIGGER, ReviewEvent, StartRecipe, Work
from bot.domain.job import Actor, Job

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
"""GitHub's `role_name` of a collaborator, or `none`."""

Level = Literal["read-only", "ask", "auto"]
"""How much a run may do unasked: look only; write files, and run what reaches no network; anything in the sandbox."""

_MAY_WRITE: frozenset[Role] = frozenset({"admin", "maintain", "write"})


def may_command(role: Role) -> bool:
    """Whether someone of this role may ask the bot for anything at all."""
    return role in _MAY_WRITE


def commanded_by_workflow(job: Job) -> bool:
    """Whether a workflow's file asks for work, no matter who started it; nothing else can be asked for like that."""
    return job.origin.kind == "workflow" and isinstance(job.command, Work | StartRecipe)


def is_app(login: str) -> bool:
    """Whether an account is an App's: GitHub gives these names, and takes square brackets from nobody else."""
    return login.endswith("[bot]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedBots:
    """The bots that the operator lets command.

    Attributes:
        ids: numeric user ids.
        logins: names of Apps' accounts, in lower case, each ending in `[bot]`.
    """

    ids: frozenset[int] = frozenset()
    logins: frozenset[str] = frozenset()

    def hold(self, account: int, login: str) -> bool:
        """Whether an account is one of them."""
        return account in self.ids or (is_app(login) and login.casefold() in self.logins)


def is_unattended(job: Job, trusted_bots: TrustedBots) -> bool:
    """Whether no person asked for a job: CI went red, or a bot commanded."""
    who = job.actor
    # A recipe's schedule bounds how often it runs, and it answers nobody.
    if job.origin.kind == "recipe":
        return False
    return job.origin.kind == "ci" or is_app(who.login) or trusted_bots.hold(who.id, who.login)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """What the triggers need to know of the operator's settings and of the bot itself.

    Attributes:
        triggers: the words that start a command, at least one; the first stands for commands that come without one.
        own_ids: numeric user ids of the bot itself.
        own_login: the name of its App's account, where the id is not known; empty where it is.
        own_app_id: numeric id of the App, whose check runs have buttons; None when the bot is no App.
        trusted_bots: other bots that may command.
        start_label: the label that asks for a fix, in any case, as GitHub compares labels.
    """

    triggers: tuple[str, ...] = (DEFAULT_TRIGGER,)
    own_ids: frozenset[int] = frozenset()
    own_login: str = ""
    own_app_id: int | None = None
    trusted_bots: TrustedBots = field(default_factory=TrustedBots)
    start_label: str = "codepilot"

    def __post_init__(self) -> None:
        """Refuse to listen for nothing."""
        if not all(self.triggers) or not self.triggers:
            raise ValueError("Listening.triggers needs at least one word, and none of them empty")

    def is_own(self, account: int, login: str) -> bool:
        """Whether an account is the bot's own."""
        return account in self.own_ids or (is_app(login) and login.casefold() == self.own_login)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelGrant:
    """A label of ours that somebody set, as it is kept.

    Attributes:
        repo_id: GitHub's numeric id of the repository.
        number: of the issue or pull request.
        name: of the label.
        labeller: who set it.
        bound_to: the head commit at that moment; for an issue a `text_binding`.
        at: when, in seconds since the epoch.
    """

    repo_id: int
    number: int
    name: str
    labeller: Actor
    bound_to: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLabel:
    """A permission label that stands on the thread now.

    Attributes:
        name: as it is written on the thread.
        level: what it stands for.
        labeller: who set it; None when nobody can tell, and then it raises nothing.
        role: the labeller's role now.
        bound_to: see `LabelGrant`; empty when nothing is known of it.
    """

    name: str
    level: Level
    labeller: Actor | None
    role: Role
    bound_to: str


def text_binding(title: str, body: str) -> str:
    """What a label on an issue is bound to, as a pull request's is to its head: `text:` and a hash of its words."""
    # The length keeps ("ab", "c") and ("a", "bc") apart, whatever the texts hold.
    words = f"{len(title)}:{title}{body}".encode("utf-8", "surrogatepass")
    return f"text:{hashlib.sha256(words).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many pieces of work were begun in the last hour, the one that is decided about left out.

    Attributes:
        thread: in this issue or pull request.
        user: asked for by this actor.
        repository: in this repository.
        installation: in this installation.
        unattended: in this thread since a person last asked for one, however long ago.
    """

    thread: int = 0
    user: int = 0
    repository: int = 0
    installation: int = 0
    unattended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most of each kind of `Tally`; the next one after that is refused."""

    thread: int = 10
    user: int = 20
    repository: int = 50
    installation: int = 200
    unattended: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most that the operator allows, and what holds where nobody says anything.

    Attributes:
        limits: bounds of one run; a repository and a command may only lower them.
        level: what a run may do where neither configuration nor label says more or less.
        models: what may be asked for beside `model`.
        model: what a run uses when nothing else is asked for.
        commands: patterns of commands that need no approval, beside the built-in ones.
        caps: how much work an hour.
        approval_seconds: how long a run waits for an answer.
        sandbox: the level of the sandbox that commands run in; `none` where nothing holds them.
        network: what commands may reach.
        trusted_bots: bots that may command; they are no persons.
        allowed_users: logins, in lower case, of the people who may command, of those with write access; empty for all.
        review_on: what starts a review without a command, where a repository does not say.
        servers: the MCP servers that the operator defines, by name.
        max_candidates: how many attempts at one fix may be made at the same time.
        dry_run: whether everything is made and nothing published, whatever a command says.
    """

    limits: RunLimits
    level: Level = "ask"
    models: tuple[str, ...] = ()
    model: str = ""
    commands: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)
    approval_seconds: float = 72 * 3600.0
    sandbox: str = "none"
    network: Network = field(default_factory=Network)
    trusted_bots: TrustedBots = field(default_factory=TrustedBots)
    allowed_users: frozenset[str] = frozenset()
    review_on: frozenset[ReviewEvent] = frozenset()
    max_candidates: int = 3
    servers: tuple[str, ...] = ()

    dry_run: bool = False

    def hears(self, login: str) -> bool:
        """Whether somebody with write access may command."""
        return not self.allowed_users or login.casefold() in self.allowed_users
