"""Permission levels, policies and networks of runs; start with `AccessRequest` and `decide_level`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from agent_runtime import Network, Policy, Rule, RunLimits
from bot.domain.access import Bounds, Level, Role, Tally, ThreadLabel, can_command, is_workflow_command, text_binding
from bot.domain.actions import Declaration
from bot.domain.commands import Command, CommentMode, Describe, RecipeBounds, recipe_path
from bot.domain.job import Job
from bot.github.types import RepoFacts
from bot.permissions.repo_config import PATH, RepoConfig

SIGNED_ONLY = (
    "Commits on this branch must be signed: new file modes, symbolic links and submodules cannot be published."
)
Publish = Literal["new_branch", "pull_branch", "review", "description", "nothing"]
"""A new branch and a pull request, the existing branch, review comments, the pull request's text, or a text only."""

_RANK: dict[Level, int] = {"read-only": 0, "ask": 1, "auto": 2}
_INDEX_TOOLS = ("semantic_search", "trace_callers", "trace_callees", "trace_graph")
_READ_TOOLS = ("read_file", "list_files", "find", *_INDEX_TOOLS)
_TERMINAL_TOOLS = ("execute", "read_output", "send_input", "terminate_terminal")
PROPOSE = "propose"
"""The tool for actions, which does nothing by itself."""
_FILE_TOOLS = ("read_file", "write_file", "list_files", "find", *_INDEX_TOOLS)

_ISOLATING = frozenset({"bubblewrap", "docker"})

BRANCH_PREFIX = "codepilot/"


def fallback_prefix(prefix: str) -> str:
    """Return the prefix for branches where one with a name above `prefix` exists, as git has no room for both."""
    return f"{prefix.strip('/-').replace('/', '-')}-bot/"


def own_prefixes(prefix: str) -> tuple[str, ...]:
    """Return the prefixes of the bot's branches: the configured one, and the one that replaces it."""
    return (prefix, fallback_prefix(prefix)) if "/" in prefix else (prefix,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """The current state of a thread and its repository; decisions see no text of it.

    Attributes:
        head_ref: the branch of that commit; for `undo`, of the commit to revert.
        head_repo_id: None for a deleted repository.
        continues: for an issue, the number of the bot's open pull request that `head_*` and `base_ref` describe; or 0.
    """

    repo: RepoFacts
    head_sha: str
    head_ref: str
    head_repo_id: int | None
    base_ref: str
    is_open: bool
    locked: bool
    author_id: int | None = None
    continues: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """The facts of a decision; `command` may be one to retry, `roles` are of the job's actor and its `other_actors`."""

    job: Job
    command: Command
    roles: tuple[Role, ...]
    facts: ThreadState
    labels: tuple[ThreadLabel, ...]
    config: RepoConfig
    bounds: Bounds
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The permissions of one job.

    Attributes:
        bound_to_sha: another head invalidates the grant.
        asks_first: whether a person must approve the pull request's new text.
        signed_only: whether only changes that GitHub signs can be published.
        replay: whether the change may be rebased; not if a label for one commit allowed the run.
        actions: the actions that the agent may propose.
        actions_level: `auto` applies them, `ask` waits for approval; both only of those that are not for anyone.
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
    asks_first: bool = False
    signed_only: bool = False
    replay: bool = False
    protected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    voided: tuple[str, ...] = ()
    actions: tuple[Declaration, ...] = ()
    actions_level: Level = "read-only"

    @property
    def can_execute(self) -> bool:
        """Whether the repository's code may run."""
        return "execute" in self.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The job may not run.

    Attributes:
        cause: id of the rule, for limiting repeated notices.
        silent: at most a 😕 reaction.
    """

    reason: str
    cause: str
    variant: str = ""
    silent: bool = False
    voided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDecision:
    """The level of one run. `bound` if a label raised it for one commit; `voided` labels are to be removed."""

    level: Level
    reason: str
    remedy: str
    bound: bool = False
    notes: tuple[str, ...] = ()
    voided: tuple[str, ...] = ()


def decide_level(request: AccessRequest) -> LevelDecision:
    """Return the level from the operator, the configuration and the labels.

    Anybody's label can lower it. A label raises it if its setter may write, for the head it was set on, and on a fork's
    pull request only if the setter is not the author. The lowest counting label wins. No label raises the operator's
    `read-only`, or the level of a workflow with unverified inputs.
    """
    default = _default_level(request)
    if request.bounds.level == "read-only" or request.job.origin.unverified is not None:
        return default
    counting: list[ThreadLabel] = []
    notes: list[str] = []
    voided: list[str] = []
    for label in request.labels:
        raises = _RANK[label.level] > _RANK[default.level]
        if raises and label.bound_to != label_binding(request):
            voided.append(label.name)
            notes.append(_voided_note(request, label))
        elif raises and (objection := _label_objection(request, label)):
            notes.append(f"The label `{label.name}` does not count: {objection}")
        else:
            counting.append(label)
    remove = "Remove it and give the command again."
    decisions = (
        LevelDecision(level=label.level, reason=f"the label `{label.name}` is set", remedy=remove) for label in counting
    )
    lowest = min(decisions, key=lambda decision: _RANK[decision.level], default=default)
    if _RANK[lowest.level] > _RANK[request.config.highest]:
        reason, remedy = "the repository's configuration is not valid", "Fix it on the base branch."
        lowest = LevelDecision(level=request.config.highest, reason=reason, remedy=remedy)
    bound = _RANK[lowest.level] > _RANK[default.level]
    return replace(lowest, bound=bound, notes=tuple(notes), voided=tuple(voided))


def apply_recipe(recipe: RecipeBounds | None, decision: LevelDecision) -> LevelDecision:
    if recipe is None or recipe.level is None or _RANK[recipe.level] >= _RANK[decision.level]:
        return decision
    remedy = f"Change it in `{recipe_path(recipe.name)}`."
    return replace(decision, level=recipe.level, reason=f"the recipe `{recipe.name}` sets it", remedy=remedy)


def _default_level(request: AccessRequest) -> LevelDecision:
    operator, configured = request.bounds.level, request.config.level
    if operator == "read-only":
        return LevelDecision(
            level=operator,
            reason="the operator of this bot allows only reading",
            remedy="The operator can change that (`CODEPILOT_LEVEL`).",
        )
    if is_started_by_stranger(request):
        return LevelDecision(
            level="read-only",
            reason=f"{request.job.actor.login}, whose action started this workflow, has no write access here",
            remedy="Use a command that only reads in the workflow: `command: ask`, `explain`, `plan` or `review`.",
        )
    if (unverified := request.job.origin.unverified) is not None:
        return LevelDecision(
            level="read-only",
            reason=unverified.because,
            remedy=unverified.remedy,
            notes=(f"The job only reads, because {unverified.because}. {unverified.remedy}",),
        )
    if is_fork(request) and not isinstance(request.command, Describe):  # which runs no code
        return LevelDecision(
            level="read-only",
            reason="this pull request comes from a fork, and code from forks requires permission to run",
            remedy="Somebody with write access other than its author can review the code, set the label "
            f"`{request.config.labels.ask}` and give the command again; the label applies to that commit only.",
        )
    if configured is not None:
        return LevelDecision(
            level=configured,
            reason=f"`level` in `{request.config.path}` on the base branch says so",
            remedy=f"Change it there, or set the label `{request.config.labels.ask}`.",
        )
    return LevelDecision(level=operator, reason="the operator of this bot sets it", remedy="")


def _voided_note(request: AccessRequest, label: ThreadLabel) -> str:
    if not label.bound_to:
        return (
            f"I removed the label `{label.name}`, because I have no record of who set it, or for which commit. Set it "
            f"again, or set `level` in `{request.config.path}` on the base branch."
        )
    if request.job.thread.kind == "issue":
        return (
            f"I removed the label `{label.name}`: this issue's text has changed since it was set. Review it, and set "
            "the label again if it should still apply."
        )
    return (
        f"I removed the label `{label.name}`: it was set on commit {label.bound_to[:10]}, and the head is "
        f"{request.facts.head_sha[:10]}. Review what was pushed, and set the label again if it should still apply."
    )


def _label_objection(request: AccessRequest, label: ThreadLabel) -> str:
    if label.labeller is None:
        return "I have no record of who set it. Remove it and set it again."
    if not can_command(label.role):
        return f"{label.labeller.login}, who set it, has no write access here. Somebody with write access must set it."
    if is_fork(request) and request.facts.author_id in {None, label.labeller.id}:
        return "on a pull request from a fork, somebody other than its author must set it."
    return ""


def is_fork(request: AccessRequest) -> bool:
    return request.job.thread.kind == "pull" and request.facts.head_repo_id != request.job.repo.id


def is_started_by_stranger(request: AccessRequest) -> bool:
    """Whether a user without write access started the workflow that gives the command."""
    return is_workflow_command(request.job) and not all(map(can_command, request.roles))


def label_binding(request: AccessRequest) -> str:
    """Return the commit or text digest that a raising label must match."""
    thread = request.job.thread
    return request.facts.head_sha if thread.kind == "pull" else text_binding(thread.title, thread.body)


def tools_for(level: Level, *, writes: bool, asks: bool = True, recipe: RecipeBounds | None = None) -> tuple[str, ...]:
    tools = _READ_TOOLS
    if level != "read-only":
        tools = (*(_FILE_TOOLS if writes else _READ_TOOLS), *_TERMINAL_TOOLS, *(("ask_user",) if asks else ()))
    return tools if recipe is None or recipe.tools is None else tuple(tool for tool in tools if tool in recipe.tools)


def build_policy(level: Level, *, limits: RunLimits, commands: tuple[str, ...], reason: str, reach: str) -> Policy:
    """Return the policy of a level.

    At level `ask`, `commands` and the built-in patterns need no approval, and no command does if `reach` is empty.
    """
    match level:
        case "auto":
            return Policy(limits=limits)
        case "ask":
            files = tuple(Rule(decision="allow", tool=tool) for tool in (*_FILE_TOOLS, PROPOSE))
            if not reach:
                execute = Rule(decision="allow", tool="execute")
                return Policy(rules=(*files, execute), default="ask", limits=limits)
            listed = Rule(decision="allow", tool="execute", commands=(*allowed_commands(), *commands))
            note = f"This command is not on the list of commands that need no approval, and it could reach {reach}."
            rest = Rule(decision="ask", tool="execute", reason=note)
            return Policy(rules=(*files, listed, rest), default="ask", limits=limits)
        case "read-only":
            reading = tuple(Rule(decision="allow", tool=tool) for tool in (*_READ_TOOLS, "read_skill", PROPOSE))
            rest = Rule(decision="deny", reason=f"this run may only read, because {reason}")
            return Policy(rules=(*reading, rest), default="deny", limits=limits)


@cache
def allowed_commands() -> tuple[str, ...]:
    listed: dict[str, list[str] | dict[str, list[str]]] = tomllib.loads(
        (files("bot.permissions") / "allowed_commands.toml").read_text("utf-8")
    )
    patterns: list[str] = []
    for section in listed.values():
        if isinstance(section, list):
            patterns += section
        else:
            words = ",".join(section["words"])
            starts = section.get("starts", [""])
            patterns += [f"{start}{command} {{{words}}}*" for start in starts for command in section["commands"]]
    return tuple(patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedNetwork:
    network: Network
    left_out: tuple[str, ...] = ()


def narrow_network(operator: Network, requested_hosts: str | Sequence[str] | None) -> NarrowedNetwork:
    """Intersect the operator's network with the repository's `network` setting, if any.

    Raises:
        ValueError: `wanted` is invalid; the text has the syntax.
    """
    if requested_hosts is None:
        return NarrowedNetwork(network=operator)
    requested = Network.of(*([requested_hosts] if isinstance(requested_hosts, str) else requested_hosts))
    network = operator.intersect(requested)
    left_out = sorted(requested.allowed - network.allowed)
    return NarrowedNetwork(network=network, left_out=tuple(map(str, left_out)))


def network_problem(level: str, networks: Mapping[str, Network | None]) -> str | None:
    names = [name for name, network in networks.items() if network]
    if level == "bubblewrap" or not names:
        return None
    return (
        f"The sandbox `{level}` cannot enforce {' and '.join(names)}: its commands have no network at all. Use "
        f"CODEPILOT_SANDBOX=bubblewrap, or turn the network off: {', '.join(f'{name}=off' for name in names)}"
    )


def describe_reach(sandbox: str, network: Network) -> str:
    if sandbox not in _ISOLATING:
        return "this machine, because no sandbox isolates them"
    return f"the network ({network})" if network else ""


def describe_network(network: Network) -> str:
    return f"network: {network}" if network else "no network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    branch_prefix: str = BRANCH_PREFIX
    repo_file: str = PATH
    working_directory: str = ""
    base: str = ""
    output_schema: Mapping[str, Any] | str | None = None
    comment: CommentMode | None = None
