"""Commands of people, and the repository events that the bot handles. Pure values; `grammar.py` parses commands.

Work runs an agent, steering changes other jobs, talk is answered immediately.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from bot.domain.actions import Declaration

DEFAULT_TRIGGER = "/codepilot"

ReviewEvent = Literal["opened", "ready", "push"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one command; None leaves the value to the configuration.

    Attributes:
        new: open another pull request even if the bot has one open for the issue.
        candidates: number of parallel attempts, of which the best is published.
        agent: a persona of the repository.
    """

    model: str | None = None
    budget_usd: float | None = None
    max_steps: int | None = None
    base: str | None = None
    dry_run: bool = False
    new: bool = False
    candidates: int | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Change the code and publish the change.

    Attributes:
        plan: an approved plan, written by an agent and therefore quoted to the next one.
    """

    goal: str = ""
    options: Options = field(default_factory=Options)
    plan: str = ""
    verb: Literal["fix"] = "fix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    goal: str = ""
    options: Options = field(default_factory=Options)
    on: ReviewEvent | None = None
    verb: Literal["review"] = "review"


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Write a pull request's title and description."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["describe"] = "describe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["explain"] = "explain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["plan"] = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["ask"] = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    __test__ = False  # pytest collects classes of this name

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["test"] = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Merge the base branch into a pull request, and resolve the conflicts.

    Attributes:
        branch: as the user names it; empty for the base branch.
    """

    goal: str = ""
    options: Options = field(default_factory=Options)
    branch: str = ""
    verb: Literal["resolve"] = "resolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class BareCommand:
    """Text without a verb; the repository's configuration selects the verb."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["bare"] = "bare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Revert the bot's last commit; `why` is for the agent that works on the thread next."""

    why: str = ""
    verb: Literal["undo"] = "undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Add a rule for later runs; an empty one is the last offer."""

    rule: str = ""
    verb: Literal["remember"] = "remember"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecipe:
    name: str
    words: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["run"] = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """Send a message to the running job, or answer its question."""

    message: str
    verb: Literal["continue"] = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """Approve a pending call, publication or plan.

    Attributes:
        request_id: empty for the only pending request.
        like: also approve the run's further calls that match the displayed pattern.
        word: the word in place of the verb, such as `yes`; it answers a question.
    """

    request_id: str = ""
    like: bool = False
    word: str = ""
    verb: Literal["approve"] = "approve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Deny a pending call, publication or plan; `word` is as of `Approve`."""

    request_id: str = ""
    why: str = ""
    word: str = ""
    verb: Literal["deny"] = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop the jobs of the thread; `word` is as of `Approve`."""

    word: str = ""
    verb: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Run a job again from its start.

    Attributes:
        job_id: empty for the thread's last job.
    """

    job_id: str = ""
    verb: Literal["retry"] = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStatus:
    verb: Literal["status"] = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    verb: Literal["help"] = "help"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownVerb:
    """A verb that does not exist.

    Attributes:
        word: at most 40 characters.
    """

    word: str
    nearest: str | None
    verb: Literal["unknown"] = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadUsage:
    reason: str
    verb: Literal["malformed"] = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """Words that may be an answer, a stop or work.

    Attributes:
        words: at most 40 characters.
    """

    words: str
    verb: Literal["unclear"] = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEvent:
    """A label was set. The thread's text is not stored with it, because most labels mean nothing to the bot.

    Attributes:
        at: ISO 8601; empty if GitHub sends none.
    """

    label: str
    bound_to: str
    words: str = ""
    at: str = ""
    verb: Literal["labelled"] = "labelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignEvent:
    """An App's account was assigned to the issue; it need not be this bot's."""

    assignee_id: int
    verb: Literal["assigned"] = "assigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEvent:
    head_sha: str
    verb: Literal["pushed"] = "pushed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEvent:
    """A comment without a command, which may answer a question of the agent.

    Attributes:
        quoted: quoted lines and the old mail, to find out what the comment replies to.
    """

    message: str
    quoted: str = ""
    verb: Literal["replied"] = "replied"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseEvent:
    """The thread ended, so its jobs have no purpose.

    Attributes:
        merged_into: the branch that a pull request was merged into; else empty.
    """

    how: str = "closed"
    merged_into: str = ""
    verb: Literal["closed"] = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLost:
    """The App was uninstalled, suspended or removed from repositories.

    Attributes:
        repo_ids: empty for the whole installation.
    """

    repo_ids: tuple[int, ...] = ()
    verb: Literal["departed"] = "departed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDue:
    """A recipe's scheduled time; the default branch's file decides whether it still applies."""

    name: str
    verb: Literal["due"] = "due"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksFailed:
    """A check failed on a commit; the repository's configuration or a label decides about a fix.

    Attributes:
        run_id: the workflow run; 0 for a check that is not from GitHub Actions.
        attempt: from 1.
        name: of the workflow or check; a stranger may have chosen it.
        pull: the number of the pull request with this head; 0 for the default branch and for a fork.
        fork: `owner/name` of the commit's fork; empty for the repository itself.
        fork_id: 0 for the repository itself.
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


Work = Fix | Review | Describe | Explain | Plan | Ask | Test | Resolve
"""Commands that run an agent."""

Edit = Fix | Resolve
"""Work whose change becomes a commit."""

WORK_VERBS: Mapping[str, type[Work]] = {kind().verb: kind for kind in get_args(Work)}
"""Work commands by verb."""

Steering = Continue | Approve | Deny | Stop | Retry | ShowStatus
"""Commands that change or report other jobs of the thread; they never wait for them."""

Talk = Help | UnknownVerb | BadUsage | Unclear
"""Commands that are answered immediately."""

RepoEvent = LabelEvent | AssignEvent | PushEvent | CloseEvent | AccessLost | ChecksFailed | RecipeDue
"""Events from GitHub and schedules."""

Event = ReplyEvent | RepoEvent

Command = Work | BareCommand | Undo | Remember | StartRecipe | Steering | Talk | Event
"""The content of a job; unhandled types fail type checking."""


def persona_of(command: Command) -> str:
    """Return the name of the persona that a command asks for; else an empty text."""
    return (command.options.agent or "") if isinstance(command, Work | BareCommand) else ""


RECIPE_DIR = ".github/codepilot"
"""The recipes' folder on the default branch."""

_RECIPE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def is_recipe_name(text: str) -> bool:
    return _RECIPE_NAME.fullmatch(text) is not None


def recipe_path(name: str) -> str:
    return f"{RECIPE_DIR}/{name}.md"


CommentMode = Literal["always", "on-change", "never"]
"""When a job writes comments of its own in its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBounds:
    """Restrictions of a recipe on its job."""

    name: str
    level: Literal["read-only", "ask", "auto"] | None = None
    tools: tuple[str, ...] | None = None
    comment: CommentMode | None = None
    actions: tuple[Declaration, ...] = ()


# git-check-ref-format(1), without a leading dash. No shell parses these names: they are whole arguments of git after
# `refs/heads/`, quoted parts of GitHub's addresses, and code in comments.
_BRANCH = re.compile(
    r"(?![-./]|@$)(?:(?!\.\.|//|@\{|/\.|\.lock(?:/|$))[^\x00-\x20~^:?*\[\\\x7f\ud800-\udfff])+(?<![./])"
)
_BRANCH_BYTES = 244
"""With `refs/heads/` before it, a file name that every file system accepts."""


def is_safe_branch(name: str) -> bool:
    """Whether the bot accepts a branch name: any that git does, up to a length."""
    return _BRANCH.fullmatch(name) is not None and len(name.encode()) <= _BRANCH_BYTES
