"""The commands that people give, and the events of a thread that the bot works in. Pure values.

People give three kinds of commands: work, which an agent does; steering, which changes other jobs; talk, which is
answered at once. GitHub reports events, which only ever narrow what the bot may do. `grammar.py` reads people's words.
A recipe is a file of the repository with a task; `RecipeBounds` narrows what its job may do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

DEFAULT_TRIGGER = "/codepilot"

ReviewEvent = Literal["opened", "ready", "push"]
"""What starts a review without a command: a pull request is opened, a draft becomes ready, commits are pushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one command may set for its own run; None leaves it to the configuration.

    Attributes:
        model: one of the models that the operator offers.
        budget_usd: US dollars the run may spend, at most the operator's bound.
        max_steps: steps it may take, at most the operator's bound.
        base: the branch that an issue's work begins at, and its pull request is for.
        dry_run: show what would be published, and publish nothing.
        new: open another pull request for an issue, where one of the bot's is open.
        candidates: how many attempts are made at the same time, of which the best is published.
    """

    model: str | None = None
    budget_usd: float | None = None
    max_steps: int | None = None
    base: str | None = None
    dry_run: bool = False
    new: bool = False
    candidates: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Change the code and publish the change.

    Attributes:
        goal: the free text after the verb; may be empty, as in all work.
        plan: the plan of an earlier `Plan` that somebody approved; an agent's words, so it is quoted to the next one.
    """

    goal: str = ""
    options: Options = field(default_factory=Options)
    plan: str = ""
    verb: Literal["fix"] = "fix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Comment on the lines of a pull request, with suggestions that can be committed; never approve.

    Attributes:
        on: what started it where nobody gave a command.
    """

    goal: str = ""
    options: Options = field(default_factory=Options)
    on: ReviewEvent | None = None
    verb: Literal["review"] = "review"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """Explain the code that the thread, or the commented lines, are about."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["explain"] = "explain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Say what would be changed and how; approving the plan starts the work."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["plan"] = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Answer a question about the code."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["ask"] = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """Run the tests and say what they show; nothing is published."""

    __test__ = False  # no test of ours: pytest collects classes of this name

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["test"] = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """Text without a verb; the repository's configuration says what it means in an issue and in a pull request."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["bare"] = "bare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Take the bot's own last commit of the thread back, by a new commit."""

    verb: Literal["undo"] = "undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecipe:
    """Start a recipe of the repository, as a job of its own.

    Attributes:
        name: the recipe's.
        words: what the agent is told beside the recipe's text.
        options: for that run.
    """

    name: str
    words: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["run"] = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """Tell the job that is under way something, for its next step; or answer the question it waits with."""

    message: str
    verb: Literal["continue"] = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """Let the call, the publication or the plan that waits go on.

    Attributes:
        request_id: which; empty for the only one that waits.
        like: whether further calls of the same run are approved with it, those that fit the pattern which was shown.
    """

    request_id: str = ""
    like: bool = False
    verb: Literal["approve"] = "approve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Refuse what waits; `why` is told to the agent."""

    request_id: str = ""
    why: str = ""
    verb: Literal["deny"] = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the job that is under way, and keep what it did."""

    verb: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Do a piece of work again, from its start.

    Attributes:
        job_id: which, as a check run names it; empty for the thread's last.
    """

    job_id: str = ""
    verb: Literal["retry"] = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStatus:
    """Say what is under way in the thread, and what waits."""

    verb: Literal["status"] = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """Say what the bot can do."""

    verb: Literal["help"] = "help"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A verb that does not exist, but is close to one that does.

    Attributes:
        word: what was written, at most 40 characters of it.
        nearest: the closest known verb, or None when nothing is close.
    """

    word: str
    nearest: str | None
    verb: Literal["unknown"] = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A verb that exists, written as it cannot be meant; `reason` says what is wrong and how to write it."""

    reason: str
    verb: Literal["malformed"] = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Somebody set a label; the thread's words are not kept with it, for most labels mean nothing to the bot.

    Attributes:
        label: its name.
        bound_to: the pull request's head commit at that moment; for an issue `text:` and a hash of title and body.
        words: for a pull request: the hash of its title and body at that moment.
        at: when, as GitHub writes it; empty where it does not say.
    """

    label: str
    bound_to: str
    words: str = ""
    at: str = ""
    verb: Literal["labelled"] = "labelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Somebody assigned the issue to an App's account; an entry point does not know whether it is the bot's own."""

    assignee_id: int
    verb: Literal["assigned"] = "assigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The pull request's head moved to `head_sha`."""

    head_sha: str
    verb: Literal["pushed"] = "pushed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The thread came to an end; what is under way in it has no purpose any more.

    Attributes:
        how: `closed`, `deleted`, `transferred` or `locked`.
    """

    how: str = "closed"
    verb: Literal["closed"] = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLost:
    """The App was taken off the account or the repository, or suspended: it may do nothing there any more.

    Attributes:
        repo_ids: numeric ids of the repositories it lost; empty for all of the installation.
    """

    repo_ids: tuple[int, ...] = ()
    verb: Literal["departed"] = "departed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDue:
    """A recipe's schedule says that it is time; the default branch's file is asked whether that is still so."""

    name: str
    verb: Literal["due"] = "due"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksFailed:
    """A check failed on a commit. Whether anything follows is for the repository's configuration, or a label, to say.

    Attributes:
        run_id: the workflow run's; 0 for a check of another App than GitHub Actions.
        attempt: which attempt of the run, from 1.
        name: the workflow's or the check's; a stranger may have chosen it.
        conclusion: in GitHub's words, e.g. `failure`.
        url: its page; empty where GitHub does not say.
        head_sha: the commit.
        branch: the branch that it ran on.
        pull: the number of the pull request whose head the commit is; 0 for the default branch and for a fork.
        fork: `owner/name` of the fork that the commit is in; empty for the repository itself.
        fork_id: the fork's numeric id; 0 for the repository itself.
    """

    run_id: int
    name: str
    conclusion: str
    head_sha: str
    branch: str
    attempt: int = 1
    url: str = ""
    pull: int = 0
    fork: str = ""
    fork_id: int = 0
    verb: Literal["reddened"] = "reddened"


Work = Fix | Review | Explain | Plan | Ask | Test
"""What an agent does."""

WORK_VERBS: Mapping[str, type[Work]] = {kind().verb: kind for kind in get_args(Work)}
"""The kinds of work by their verbs."""

Steering = Continue | Approve | Deny | Stop | Retry | ShowStatus
"""What changes, or reports, other jobs of the thread; never waits behind them."""

Talk = Help | Unknown | Malformed
"""What is answered at once."""

RepoEvent = Labelled | Assigned | Pushed | Closed | AccessLost | ChecksFailed | RecipeDue
"""What GitHub reports, and what is due."""

Command = Work | Bare | Undo | StartRecipe | Steering | Talk | RepoEvent
"""Everything a job can be about; unhandled kinds fail type checking."""

FOLDER = ".github/codepilot"
"""Where the recipes of a repository are, on its default branch."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def is_recipe_name(text: str) -> bool:
    """Whether a recipe can have this name: at most 40 lower-case letters, digits and `-`."""
    return _NAME.fullmatch(text) is not None


def path_of(name: str) -> str:
    """The file of a recipe."""
    return f"{FOLDER}/{name}.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBounds:
    """What a recipe takes away from the permissions of its job; it adds none.

    Attributes:
        name: the recipe's.
        level: the highest level of the run; None leaves it to operator, repository and labels.
        tools: the tools that the agent may have; None for all that the level gives.
    """

    name: str
    level: Literal["read-only", "ask", "auto"] | None = None
    tools: tuple[str, ...] | None = None


# What git-check-ref-format(1) allows, without a leading dash. No shell reads these names: they reach git as whole
# arguments after `refs/heads/`, GitHub as quoted parts of addresses, and people as code.
_BRANCH = re.compile(
    r"(?![-./]|@$)(?:(?!\.\.|//|@\{|/\.|\.lock(?:/|$))[^\x00-\x20~^:?*\[\\\x7f\ud800-\udfff])+(?<![./])"
)
_BRANCH_BYTES = 244
"""With `refs/heads/` before it, a name of a file that every file system takes."""


def is_safe_branch(name: str) -> bool:
    """Whether the bot handles branches of this name: those of every name that git takes."""
    return _BRANCH.fullmatch(name) is not None and len(name.encode()) <= _BRANCH_BYTES
