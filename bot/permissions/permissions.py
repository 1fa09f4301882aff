"""Permission checks: decide the permissions of a job before any untrusted text is read.

`grant_for` is the single check that each job passes; `approver_refusal` checks an approval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_runtime import RunLimits
from bot.domain.access import Bounds, Level, Role, TrustedBots, can_command, is_app, is_unattended, is_workflow_command
from bot.domain.commands import (
    WORK_VERBS,
    Ask,
    BareCommand,
    Command,
    Describe,
    Edit,
    Explain,
    Fix,
    Options,
    Plan,
    Remember,
    Resolve,
    Review,
    Test,
    Undo,
    Work,
    is_safe_branch,
)
from bot.domain.grammar import parse_merge_request
from bot.domain.job import Actor, Job, ThreadKind
from bot.permissions.actions import grant_actions
from bot.permissions.levels import (
    AccessRequest,
    Grant,
    LevelDecision,
    Publish,
    Refusal,
    ThreadState,
    apply_recipe,
    build_policy,
    decide_level,
    describe_reach,
    is_fork,
    is_started_by_stranger,
    narrow_network,
    tools_for,
)
from bot.permissions.repo_config import RepoConfig


def grant_for(request: AccessRequest) -> Grant | Refusal:
    """Decide the permissions of a job, for each verb, trigger and entry point."""
    refusal = _people_refusal(request) or repository_refusal(request.job, request.facts)
    if refusal is not None:
        return refusal
    command = resolve_command(request.command, kind=request.job.thread.kind, config=request.config)
    match command:
        case Fix() | Review() | Describe() | Explain() | Plan() | Ask() | Test() | Resolve() | Undo():
            decision = decide_level(request)
            decided = (
                _work_refusal(request, command)
                or cap_refusal(request)
                or _decide_work(request, command, apply_recipe(request.job.recipe, decision))
            )
            if isinstance(decided, Grant):
                decided = _with_persona(request, command, decided)
            return decided if isinstance(decided, Refusal) else _with_actions(request, command, decided, decision.level)
        case _:
            is_rule = isinstance(command, Remember)
            if is_rule and (refusal := rule_refusal(request)) is not None:
                return refusal
            return Grant(
                policy=build_policy(
                    "read-only", limits=request.bounds.limits, commands=(), reason="it needs no agent", reach=""
                ),
                publish="new_branch" if is_rule else "nothing",
                bound_to_sha=request.facts.head_sha,
                level="read-only",
                dry_run=request.bounds.dry_run,
            )


def resolve_command(command: Command, *, kind: ThreadKind, config: RepoConfig) -> Command:
    """Return the command that is meant: of a text without a verb, and of a `fix` that asks for a merge."""
    if isinstance(command, BareCommand):
        verb = config.bare_pull if kind == "pull" else config.bare_issue
        command = WORK_VERBS[verb](goal=command.goal, options=command.options)
    if not isinstance(command, Fix) or kind != "pull" or (merge := parse_merge_request(command.goal)) is None:
        return command
    return replace(merge, options=command.options)


_TYPED = frozenset({"comment", "review_comment", "review", "description"})
"""Origins with a trigger word."""


def _people_refusal(request: AccessRequest) -> Refusal | None:
    """Refuse if a requester has no write access, or the trigger word is disabled here.

    A workflow's command has the authority of its file's author; see `is_started_by_stranger`.
    """
    job, words = request.job, request.config.triggers
    is_allowed = is_workflow_command(job) or all(map(can_command, request.roles))
    if len(request.roles) != 1 + len(job.other_actors) or not is_allowed:
        return NO_WRITE_ACCESS
    if words is None or job.origin.kind not in _TYPED or job.trigger.casefold() in map(str.casefold, words):
        return None
    return Refusal(
        cause="trigger",
        silent=True,
        reason=f"`{request.config.path}` lists {', '.join(words)} and not `{job.trigger}` in `triggers`.",
    )


def _work_refusal(request: AccessRequest, command: Work | Undo) -> Refusal | None:
    job, facts = request.job, request.facts
    if isinstance(command, Review | Describe) and job.thread.kind != "pull":
        where = "in an issue" if job.thread.kind == "issue" else f"on the branch `{job.thread.branch}` alone"
        verb = command.verb
        return Refusal(
            cause="no-pull",
            reason=f"There is nothing to {verb} {where}. Use `{verb}` on a pull request, or use `explain`.",
        )
    if isinstance(command, Resolve) and job.thread.kind != "pull":
        return Refusal(cause="no-pull", reason="There is nothing to merge here. Use `resolve` on a pull request.")
    if isinstance(command, Undo) and is_fork(request):
        return Refusal(cause="fork", reason="There is no commit of mine on a fork's branch: I never push to forks.")
    if isinstance(command, Resolve) and is_fork(request):
        remedy = f"Its author can run `git merge {facts.base_ref}` there."
        return Refusal(cause="fork", reason=f"I never push to forks, so I cannot merge into this branch. {remedy}")
    if isinstance(command, Resolve) and command.branch not in {"", facts.base_ref}:
        reason = f"I merge only the base branch of a pull request, and that is `{facts.base_ref}`."
        return Refusal(cause="merge-branch", reason=reason)
    has_branch = job.thread.kind == "pull" or facts.continues > 0
    pushes = isinstance(command, Undo) or (isinstance(command, Edit) and has_branch)
    return thread_refusal(job, facts, may_be_closed=isinstance(command, (Explain, Ask))) or branch_refusal(
        job, facts, pushes=pushes
    )


def rule_refusal(request: AccessRequest) -> Refusal | None:
    """Refuse a bot's rule, and one where nothing may change."""
    job, bounds = request.job, request.bounds
    if is_unattended(job, bounds.trusted_bots):
        return Refusal(cause="no-person", reason="Only a person can give me a rule for later runs.")
    places = ((bounds.level, "the operator of this bot"), (request.config.level, f"`level` in `{request.config.path}`"))
    if by := next((place for level, place in places if level == "read-only"), ""):
        return Refusal(
            cause="read-only", variant=by, reason=f"I change nothing here, because {by} allows only reading."
        )
    return thread_refusal(job, request.facts, may_be_closed=True)


_READING = (Review, Describe, Explain, Plan, Ask)


def _decide_work(request: AccessRequest, command: Work | Undo, decision: LevelDecision) -> Grant | Refusal:
    is_reading = isinstance(command, _READING)
    unverified = request.job.origin.unverified
    verb = (unverified.verb if unverified is not None and is_started_by_stranger(request) else "") or command.verb
    if decision.level == "read-only" and (not is_reading or verb in {"fix", "resolve", "test"}):
        consequence = "run nothing" if verb == "test" else "change nothing"
        notes = decision.notes if unverified is None else ()
        return Refusal(
            cause="read-only",
            variant=decision.reason,
            reason=" ".join([f"I {consequence} here, because {decision.reason}. {decision.remedy}", *notes]),
            # Report a stranger's workflow run to its author, in the run's summary, not in the stranger's thread.
            silent=is_started_by_stranger(request),
            voided=decision.voided,
        )
    options = Options() if isinstance(command, Undo) else command.options
    if request.job.thread.kind == "pull" and (options.base is not None or options.new):
        # Options about new pull requests do not apply.
        if options.base is not None:
            return Refusal(
                cause="base", reason="A pull request already has a base branch. Leave out `--base`, and try again."
            )
        return Refusal(
            cause="new",
            reason="On a pull request, a fix is a commit on its branch. Leave out `--new` here, or use it on the "
            "issue.",
        )
    resolved = resolve_options(command.verb, options, request.config, request.bounds)
    return resolved if isinstance(resolved, Refusal) else _build_grant(request, command, decision, resolved, options)


def _build_grant(
    request: AccessRequest, command: Work | Undo, decision: LevelDecision, resolved: EffectiveOptions, options: Options
) -> Grant:
    is_reading, recipe = isinstance(command, _READING), request.job.recipe
    level = "read-only" if is_reading else decision.level
    publish = _publish_target(request, command, decision)
    fork_notes = (
        ("Nothing is pushed to a fork: the patch is kept.",) if isinstance(command, Fix) and is_fork(request) else ()
    )
    number = request.facts.continues
    continues = (f"#{number} is open for this issue; I continue there. `--new` opens another.",) if number else ()
    return Grant(
        policy=build_policy(
            level,
            limits=resolved.limits,
            commands=(*request.bounds.commands, *request.config.allow),
            reason=f"`{command.verb}` only looks" if is_reading else decision.reason,
            reach=describe_reach(
                request.bounds.sandbox, narrow_network(request.bounds.network, request.config.network).network
            ),
        ),
        publish=publish,
        bound_to_sha=request.facts.head_sha,
        level=level,
        tools=()
        if isinstance(command, Undo)
        else tools_for(level, writes=isinstance(command, Edit), asks=request.job.thread.has_comments, recipe=recipe),
        servers=() if level == "read-only" or (recipe is not None and recipe.tools is not None) else resolved.servers,
        model=resolved.model,
        dry_run=options.dry_run or request.bounds.dry_run,
        candidates=resolved.candidates,
        asks_first=publish == "description" and decision.level == "ask",
        replay=publish == "pull_branch" and not decision.bound,
        protected=request.config.protected,
        notes=(*continues, *decision.notes, *resolved.notes, *fork_notes),
        voided=decision.voided,
    )


def _with_persona(request: AccessRequest, command: Work | Undo, grant: Grant) -> Grant | Refusal:
    """Restrict a grant to the tools of a persona."""
    persona = request.config.persona
    if persona is None:
        return grant
    tools = persona.select_tools(grant.tools)
    needed = "write_file" if isinstance(command, Edit) else "execute" if isinstance(command, Test) else ""
    if needed and needed not in tools:
        alias = "edit" if isinstance(command, Edit) else "execute"
        reason = f"`tools` in `{persona.path}` leaves out `{alias}`, without which this agent cannot `{command.verb}`."
        return Refusal(
            cause="persona-tools", variant=persona.path, reason=f"{reason} Choose another agent, or use `ask`."
        )
    return replace(grant, tools=tools, servers=persona.select_servers(grant.servers))


def _with_actions(request: AccessRequest, command: Work | Undo, grant: Grant, level: Level) -> Grant:
    """Add the actions that the agent may propose; `level` is the one before a recipe lowers it."""
    recipe, permitted = request.job.recipe, request.bounds.actions
    declared = request.config.actions.declarations if recipe is None else recipe.actions
    if isinstance(command, Undo | Plan) or not declared:  # the work on a plan has them
        return grant
    if grant.candidates > 1:
        note = "Several candidates propose no actions: leave out `--candidates` for those that are declared here."
        return replace(grant, notes=(*grant.notes, note))
    # A description of a fork's pull request may be written, since it runs no code; see `decide_level`.
    if isinstance(command, Describe) and is_fork(request):
        level = "read-only"
    off = ", ".join(f"`{entry.kind}`" for entry in declared if permitted is not None and entry.kind not in permitted)
    note = f"The operator of this bot turned off actions that are declared here: {off} (`CODEPILOT_ACTIONS`)."
    return replace(
        grant,
        actions=grant_actions(declared, level, permitted),
        actions_level=level,
        notes=(*grant.notes, note) if off else grant.notes,
    )


def _publish_target(request: AccessRequest, command: Work | Undo, decision: LevelDecision) -> Publish:
    match command:
        case Fix() if not is_fork(request):
            return "pull_branch" if request.job.thread.kind == "pull" or request.facts.continues else "new_branch"
        case Resolve() | Undo():
            return "pull_branch"
        case Review():
            return "review"
        case Describe() if decision.level != "read-only":
            return "description"
        case _:
            return "nothing"


def approver_refusal(
    job: Job,
    *,
    approver: Actor,
    role: Role,
    facts: ThreadState,
    author_id: int | None,
    bound_to_sha: str = "",
    trusted_bots: TrustedBots | None = None,
) -> Refusal | None:
    """Return why an approval does not count, or None.

    `facts` are of the pull request in which work on an issue continues. `author_id` is None for a deleted account.
    An empty `bound_to_sha` stands for the job's head. No bot may approve.
    """
    if not can_command(role):
        return NO_WRITE_ACCESS
    if is_app(approver.login) or (trusted_bots and trusted_bots.has_account(approver.id, approver.login)):
        return Refusal(cause="bot-approval", reason="Only a person can approve.", silent=True)
    pull = job.thread.kind == "pull"
    if pull and facts.head_repo_id != job.repo.id and author_id in {None, approver.id}:
        return Refusal(
            cause="own-fork",
            reason="This pull request comes from your own fork, so somebody else with write access has to approve.",
        )
    expected = bound_to_sha or job.head_sha
    if (pull or facts.continues) and expected and expected != facts.head_sha:
        return Refusal(
            cause="moved-head",
            reason=f"The request was made at commit {expected[:10]}, and the head is {facts.head_sha[:10]} now, so I "
            "dropped it. Review what was pushed, and give the command again.",
        )
    return repository_refusal(job, facts) or thread_refusal(job, facts)


NO_WRITE_ACCESS = Refusal(
    cause="no-write-access",
    reason="Only people with write access to this repository can give me commands.",
    silent=True,
)


def cap_refusal(request: AccessRequest) -> Refusal | None:
    """Refuse a job that exceeds an hourly limit, or the limit of unattended jobs in a thread."""
    is_automatic = request.job.origin.kind in {"ci", "recipe"}
    tally, caps, bounds = request.tally, request.bounds.caps, request.bounds
    scopes = (
        ("thread", tally.thread, caps.thread, "in this thread"),
        # The actor of automatic work is the bot, which has no limit of its own.
        ("user", 0 if is_automatic else tally.user, caps.user, f"for {request.job.actor.login}"),
        ("repository", tally.repository, caps.repository, "in this repository"),
        ("installation", tally.installation, caps.installation, "in this installation"),
    )
    for scope, done, most, words in scopes:
        if done >= most:
            return Refusal(
                cause=f"cap-{scope}",
                reason=f"I have started {done} jobs {words} in the last hour; the limit is {most}. Try again in an "
                f"hour. The operator can raise the limit (`CODEPILOT_CAPS={scope}=…`).",
            )
    # All work on a branch without a thread is automatic; the hourly limits apply to it.
    is_thread = request.job.thread.kind != "branch"
    if is_thread and is_unattended(request.job, bounds.trusted_bots) and tally.unattended >= caps.unattended:
        return Refusal(
            cause="breaker",
            reason=f"I have worked {tally.unattended} times in this thread without a command from a person, and stop "
            "here so that bots do not trigger each other endlessly. A person with write access can give the "
            "next command.",
        )
    return None


def repository_refusal(job: Job, facts: ThreadState) -> Refusal | None:
    """Refuse an archived repository, and one that was made public after the command."""
    if facts.repo.archived:
        return Refusal(
            cause="archived",
            reason="This repository is archived, so nothing in it can change. Unarchive it and try again.",
        )
    if job.repo.private and not facts.repo.private:
        return Refusal(
            cause="made-public",
            reason="This repository was private when you gave the command and is public now. If everyone may see the "
            "result, give the command again.",
        )
    return None


def thread_refusal(job: Job, facts: ThreadState, *, may_be_closed: bool = False) -> Refusal | None:
    """Refuse a locked thread, and a closed one unless the work only answers."""
    thread = "pull request" if job.thread.kind == "pull" else job.thread.kind
    if not facts.is_open and not may_be_closed:
        return Refusal(cause="closed", reason=f"This {thread} is closed. Reopen it and try again.")
    if facts.locked:
        return Refusal(cause="locked", reason=f"This {thread} is locked. Unlock the conversation and try again.")
    return None


def branch_refusal(job: Job, facts: ThreadState, *, pushes: bool) -> Refusal | None:
    """Refuse a missing or unsafe branch, and a push to a deleted or default branch."""
    if not facts.head_sha:
        reason = (
            f"The branch `{facts.base_ref}`, from which the work would start, does not exist: it was deleted or "
            "renamed, or the repository has no commit yet. Push it, or choose another default branch, and try again."
        )
        return Refusal(cause="no-commit", reason=reason)
    if pushes and facts.head_repo_id is None:
        return Refusal(
            cause="branch-gone", reason="The branch of this pull request was deleted. Restore it and try again."
        )
    if pushes and facts.head_repo_id == job.repo.id and facts.head_ref == facts.repo.default_branch:
        return Refusal(
            cause="default-branch",
            reason=f"This pull request's branch, `{facts.head_ref}`, is the default branch, and I never push to "
            "that one. Open the pull request from another branch.",
        )
    if not all(map(is_safe_branch, (facts.head_ref, facts.base_ref, facts.repo.default_branch))):
        return Refusal(
            cause="branch-name",
            reason="A branch has a name that is not supported: it begins with `-`, is too long, or is not valid in "
            "git. Rename the branch and try again.",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveOptions:
    """The resolved options of a run.

    Attributes:
        limits: of all candidates together.
    """

    model: str
    limits: RunLimits
    candidates: int = 1
    notes: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


def resolve_options(verb: str, options: Options, config: RepoConfig, bounds: Bounds) -> EffectiveOptions | Refusal:
    """Merge options of command, configuration and operator, in this order, within the operator's bounds."""
    models = tuple(dict.fromkeys((bounds.model, *bounds.models)))
    if options.model is not None and options.model not in models:
        return Refusal(
            cause="model",
            reason=f"The model `{options.model}` is not offered here. Use one of "
            f"{', '.join(f'`{server}`' for server in models)}, or leave out `--model`; the operator can offer "
            "more (`CODEPILOT_MODELS`).",
        )
    overrides = config.overrides(verb)
    notes: list[str] = []
    preferred = config.persona.models if config.persona else ()
    preferred_model = next((name for name in preferred if name in models), "")
    model = options.model or preferred_model or overrides.model or bounds.model
    if preferred and not preferred_model and config.persona:
        notes.append(f"No model that `{config.persona.path}` names is offered here.")
    if model not in models:
        notes.append(f"`{config.path}` names the model `{model}`, which is not offered here; I used `{bounds.model}`.")
        model = bounds.model
    limits = bounds.limits
    budget, cap = options.budget_usd or overrides.budget_usd, limits.max_cost_usd
    if budget is not None and cap is not None and budget > cap:
        notes.append(f"A budget of {budget:,.2f} USD exceeds the operator's limit; it was reduced to {cap:,.2f} USD.")
        budget = cap
    steps = options.max_steps or overrides.max_steps or limits.max_steps
    if steps > limits.max_steps:
        notes.append(f"{steps:,} steps exceed the operator's limit; they were reduced to {limits.max_steps:,}.")
        steps = limits.max_steps
    limits = replace(limits, max_cost_usd=cap if budget is None else budget, max_steps=steps)
    candidates = options.candidates or 1
    max_candidates = min(bounds.max_candidates, config.max_candidates or bounds.max_candidates)
    if candidates > 1 and verb != "fix":
        notes.append(f"`--candidates` has no effect on `{verb}`.")
        candidates = 1
    elif candidates > max_candidates:
        notes.append(f"{candidates:,} candidates exceed the limit here; they were reduced to {max_candidates}.")
        candidates = max_candidates
    servers = tuple(server for server in bounds.servers if config.mcp is None or server in config.mcp)
    if undefined := [server for server in config.mcp or () if server not in bounds.servers]:
        listed = ", ".join(f"`{server}`" for server in undefined)
        notes.append(f"`{config.path}` names MCP servers that the operator does not define: {listed}.")
    return EffectiveOptions(model=model, limits=limits, candidates=candidates, notes=tuple(notes), servers=servers)
