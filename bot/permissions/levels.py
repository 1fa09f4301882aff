"""Permission levels, the policy and the network of a run, and the values that permission checks work with.

`AccessRequest` holds the facts of a decision; `Grant` and `Refusal` are its results. `level_for` finds the level from
the operator, the configuration and the labels; `tools_for` and `policy_for` give the tools and the rules of that level.
A repository's settings can only narrow the operator's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from agent_runtime import Network, Policy, Rule, RunLimits
from bot.domain.access import Bounds, Level, Role, Tally, ThreadLabel, can_command, is_workflow_command, text_binding
from bot.domain.commands import Command, RecipeBounds, recipe_path
from bot.domain.job import Job
from bot.permissions.repo_config import PATH, RepoConfig

Publish = Literal["new_branch", "pull_branch", "review", "nothing"]
"""Where a result may go: a new branch and a pull request, the branch that is there, a review's comments, only words."""

_RANK: dict[Level, int] = {"read-only": 0, "ask": 1, "auto": 2}
_INDEX = ("semantic_search", "trace_callers", "trace_callees", "trace_graph")
_LOOKING = ("read_file", "list_files", "find", *_INDEX)
_RUNNING = ("execute", "read_output", "send_input", "terminate_terminal")
_FILES = ("read_file", "write_file", "list_files", "find", *_INDEX)

_CLOSED = frozenset({"bubblewrap", "docker"})
"""The sandboxes that hold a command, whatever it does."""

OWN_PREFIX = "codepilot/"
"""What the names of the bot's own branches begin with, where nobody says otherwise."""


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
    labels: tuple[ThreadLabel, ...]
    config: RepoConfig
    bounds: Bounds
    tally: Tally


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDecision:
    """The level of one run.

    Attributes:
        level: how much it may do unasked.
        because: what decided it, as the end of a sentence.
        remedy: what lets a run do more, as a sentence.
        bound: whether a label allowed more than would hold without it, and so only for the commit it was set on.
        notes: sentences about labels that do not count.
        voided: names of labels that were set for another commit.
    """

    level: Level
    because: str
    remedy: str
    bound: bool = False
    notes: tuple[str, ...] = ()
    voided: tuple[str, ...] = ()


def level_for(request: AccessRequest) -> LevelDecision:
    """The level that operator, fork, configuration and labels come to.

    A label that lowers it counts no matter who set it. One that raises it counts if its setter may write, for the head
    it was set on; in a pull request from a fork, not when its author did. The lowest of those that count wins. Nothing
    raises what the operator has set to `read-only`, nor the level of a workflow whose inputs may be a stranger's.
    """
    usual = _usual(request)
    if request.bounds.level == "read-only" or request.job.origin.unverified is not None:
        return usual
    counting: list[ThreadLabel] = []
    notes: list[str] = []
    voided: list[str] = []
    for label in request.labels:
        raises = _RANK[label.level] > _RANK[usual.level]
        if raises and label.bound_to != binding(request):
            voided.append(label.name)
            notes.append(_void(request, label))
        elif raises and (objection := _objection(request, label)):
            notes.append(f"The label `{label.name}` does not count: {objection}")
        else:
            counting.append(label)
    remove = "Remove it and give the command again."
    by_label = (
        LevelDecision(level=each.level, because=f"the label `{each.name}` is set", remedy=remove) for each in counting
    )
    lowest = min(by_label, key=lambda each: _RANK[each.level], default=usual)
    if _RANK[lowest.level] > _RANK[request.config.highest]:
        broken, remedy = "the repository's configuration is not valid", "Fix it on the base branch."
        lowest = LevelDecision(level=request.config.highest, because=broken, remedy=remedy)
    bound = _RANK[lowest.level] > _RANK[usual.level]
    return replace(lowest, bound=bound, notes=tuple(notes), voided=tuple(voided))


def narrowed_by(recipe: RecipeBounds | None, found: LevelDecision) -> LevelDecision:
    """The level under a recipe, which raises none."""
    if recipe is None or recipe.level is None or _RANK[recipe.level] >= _RANK[found.level]:
        return found
    remedy = f"Change it in `{recipe_path(recipe.name)}`."
    return replace(found, level=recipe.level, because=f"the recipe `{recipe.name}` sets it", remedy=remedy)


def _usual(request: AccessRequest) -> LevelDecision:
    """What holds without any label."""
    operator, own = request.bounds.level, request.config.level
    if operator == "read-only":
        return LevelDecision(
            level=operator,
            because="the operator of this bot allows only reading",
            remedy="The operator can change that (`CODEPILOT_LEVEL`).",
        )
    if started_by_stranger(request):
        return LevelDecision(
            level="read-only",
            because=f"{request.job.actor.login}, whose action started this workflow, has no write access here",
            remedy="Use a command that only reads in the workflow: `command: ask`, `explain`, `plan` or `review`.",
        )
    if (unverified := request.job.origin.unverified) is not None:
        return LevelDecision(
            level="read-only",
            because=unverified.because,
            remedy=unverified.remedy,
            notes=(f"The job only reads, because {unverified.because}. {unverified.remedy}",),
        )
    if is_fork(request):
        return LevelDecision(
            level="read-only",
            because="this pull request comes from a fork, and code from forks requires permission to run",
            remedy="Somebody with write access other than its author can review the code, set the label "
            f"`{request.config.labels.ask}` and give the command again; the label applies to that commit only.",
        )
    if own is not None:
        return LevelDecision(
            level=own,
            because=f"`level` in `{request.config.path}` on the base branch says so",
            remedy=f"Change it there, or set the label `{request.config.labels.ask}`.",
        )
    return LevelDecision(level=operator, because="the operator of this bot sets it", remedy="")


def _void(request: AccessRequest, label: ThreadLabel) -> str:
    if not label.bound_to:
        return f"I removed the label `{label.name}`, because I do not know who set it on what. Set it again."
    if request.job.thread.kind == "issue":
        return (
            f"I removed the label `{label.name}`: this issue's text has changed since it was set. Review it, and set "
            "the label again if it should still apply."
        )
    return (
        f"I removed the label `{label.name}`: it was set on commit {label.bound_to[:10]}, and the head is "
        f"{request.facts.head_sha[:10]}. Review what was pushed, and set the label again if it should still apply."
    )


def _objection(request: AccessRequest, label: ThreadLabel) -> str:
    """Why somebody's label allows nothing, with what to do; empty when it does."""
    if label.labeller is None:
        return "I do not know who set it. Remove it and set it again."
    if not can_command(label.role):
        return f"{label.labeller.login}, who set it, has no write access here. Somebody with write access must set it."
    if is_fork(request) and request.facts.author_id in {None, label.labeller.id}:
        return "on a pull request from a fork, somebody other than its author must set it."
    return ""


def is_fork(request: AccessRequest) -> bool:
    """Whether the thread is a pull request whose branch does not live in this repository."""
    return request.job.thread.kind == "pull" and request.facts.head_repo_id != request.job.repo.id


def started_by_stranger(request: AccessRequest) -> bool:
    """Whether a workflow's command was started by somebody who may not command, whose words it is about."""
    return is_workflow_command(request.job) and not all(map(can_command, request.roles))


def binding(request: AccessRequest) -> str:
    """What a label has to be bound to, to allow anything here and now."""
    thread = request.job.thread
    return request.facts.head_sha if thread.kind == "pull" else text_binding(thread.title, thread.body)


def tools_for(level: Level, *, writes: bool, asks: bool = True, recipe: RecipeBounds | None = None) -> tuple[str, ...]:
    """What the agent has.

    Args:
        level: the run's.
        writes: whether its verb is one that changes files.
        asks: whether there is a thread in which somebody can answer its questions.
        recipe: what it carries out, which may take tools away.
    """
    given = _LOOKING
    if level != "read-only":
        given = (*(_FILES if writes else _LOOKING), *_RUNNING, *(("ask_user",) if asks else ()))
    return given if recipe is None or recipe.tools is None else tuple(each for each in given if each in recipe.tools)


def policy_for(level: Level, *, limits: RunLimits, commands: tuple[str, ...], because: str, reachable: str) -> Policy:
    """What the agent may call.

    Args:
        level: the run's.
        limits: the run's.
        commands: patterns of commands that need no approval at the level `ask`, beside the built-in ones.
        because: why the level is what it is, for the model.
        reachable: what commands can reach beside the workspace. Where that is nothing, none needs an approval.
    """
    match level:
        case "auto":
            return Policy(limits=limits)
        case "ask":
            files = tuple(Rule(decision="allow", tool=tool) for tool in _FILES)
            if not reachable:
                anything = Rule(decision="allow", tool="execute")
                return Policy(rules=(*files, anything), default="ask", limits=limits)
            listed = Rule(decision="allow", tool="execute", commands=(*allowed_commands(), *commands))
            off = f"This command is not on the list of commands that need no approval, and it could reach {reachable}."
            rest = Rule(decision="ask", tool="execute", reason=off)
            return Policy(rules=(*files, listed, rest), default="ask", limits=limits)
        case "read-only":
            looking = tuple(Rule(decision="allow", tool=tool) for tool in (*_LOOKING, "read_skill"))
            rest = Rule(decision="deny", reason=f"this run may only read, because {because}")
            return Policy(rules=(*looking, rest), default="deny", limits=limits)


@cache
def allowed_commands() -> tuple[str, ...]:
    """Patterns of commands that look, test, build or check, from `allowed_commands.toml`, which says what belongs."""
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
class Narrowed:
    """The network of one job.

    Attributes:
        network: what its commands may reach.
        left_out: what the repository wants and the operator does not allow, for the report.
    """

    network: Network
    left_out: tuple[str, ...] = ()


def narrowed(operator: Network, wanted: str | Sequence[str] | None) -> Narrowed:
    """Keep of the operator's network what the repository's own settings ask for; they never add to it.

    Args:
        operator: the most that may be reached, and the bounds.
        wanted: `off`, `registries` or a host, or several of them; None when the repository says nothing.

    Raises:
        ValueError: `wanted` cannot be understood; the text says what it must be.
    """
    if wanted is None:
        return Narrowed(network=operator)
    asked = Network.of(*([wanted] if isinstance(wanted, str) else wanted))
    network = operator.intersect(asked)
    left_out = sorted(asked.allowed - network.allowed)
    return Narrowed(network=network, left_out=tuple(map(str, left_out)))


def unkept(level: str, networks: Mapping[str, Network | None]) -> str | None:
    """Why a sandbox cannot keep commands to the operator's networks, and what to do; None when it can, or has none to.

    Args:
        level: of the sandbox.
        networks: the settings that name hosts, by their names; None for one that is not set.
    """
    names = [name for name, network in networks.items() if network]
    if level == "bubblewrap" or not names:
        return None
    return (
        f"The sandbox `{level}` cannot enforce {' and '.join(names)}: its commands have no network at all. Use "
        f"CODEPILOT_SANDBOX=bubblewrap, or turn the network off: {', '.join(f'{name}=off' for name in names)}"
    )


def reachable(sandbox: str, network: Network) -> str:
    """What the commands of a run can reach beside the files of its workspace, in words; empty for nothing.

    Args:
        sandbox: its level.
        network: what the sandbox lets them reach.
    """
    if sandbox not in _CLOSED:
        return "this machine, because no sandbox isolates them"
    return f"the network ({network})" if network else ""


def reach(network: Network) -> str:
    """What a network is, for the comment: `no network`, or `network: registries`."""
    return f"network: {network}" if network else "no network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """How all jobs of a process name and place things.

    Attributes:
        branch_prefix: what the names of new branches begin with.
        repo_file: the path of the repository's own file.
        working_directory: the directory below the repository's root in which commands start; empty for the root.
        output_schema: what results must fit: a JSON schema, or the path of one in the repository; None for words.
        base: where new pull requests are for where no command says so; empty for the repository's own choice.
    """

    branch_prefix: str = OWN_PREFIX
    repo_file: str = PATH
    working_directory: str = ""
    base: str = ""
    output_schema: Mapping[str, Any] | str | None = None
