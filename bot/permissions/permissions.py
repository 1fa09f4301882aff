"""Permission checks: decide what a job may do, before any text of strangers is read.

`grant_for` is the one place at which every job passes, for each verb, trigger and entry point. It returns a `Grant` or
the `Refusal` of the first check that fails. `approver_refusal` checks an approval. `settled` finds the model and the
limits of a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_runtime import RunLimits
from bot.domain.access import Bounds, Role, TrustedBots, can_command, is_app, is_unattended, is_workflow_command
from bot.domain.commands import (
    WORK_VERBS,
    Ask,
    BareCommand,
    Command,
    Explain,
    Fix,
    Options,
    Plan,
    Review,
    Test,
    Undo,
    Work,
    is_safe_branch,
)
from bot.domain.job import Actor, Job, ThreadKind
from bot.permissions.levels import (
    AccessRequest,
    Grant,
    LevelDecision,
    Publish,
    Refusal,
    ThreadState,
    is_fork,
    level_for,
    narrowed,
    narrowed_by,
    policy_for,
    reachable,
    started_by_stranger,
    tools_for,
)
from bot.permissions.repo_config import RepoConfig


def grant_for(request: AccessRequest) -> Grant | Refusal:
    """Decide what a job may do; the one choke point, for every verb, every trigger and both entry points."""
    refusal = _people_refusal(request) or repository_refusal(request.job, request.facts)
    if refusal is not None:
        return refusal
    command = resolved(request.command, kind=request.job.thread.kind, config=request.config)
    match command:
        case Fix() | Review() | Explain() | Plan() | Ask() | Test() | Undo():
            return (
                _work_refusal(request, command)
                or cap_refusal(request)
                or _work(request, command, narrowed_by(request.job.recipe, level_for(request)))
            )
        case _:
            nothing = policy_for(
                "read-only", limits=request.bounds.limits, commands=(), because="it needs no agent", reachable=""
            )
            return Grant(policy=nothing, publish="nothing", bound_to_sha=request.facts.head_sha, level="read-only")


def resolved(command: Command, *, kind: ThreadKind, config: RepoConfig) -> Command:
    """The command, with a verb: text without one means what the repository says it does.

    Args:
        command: what was asked.
        kind: of the thread.
        config: the repository's.
    """
    if not isinstance(command, BareCommand):
        return command
    verb = config.bare_pull if kind == "pull" else config.bare_issue
    return WORK_VERBS[verb](goal=command.goal, options=command.options)


_SPOKEN = frozenset({"comment", "review_comment", "review", "description"})
"""What a job comes from when somebody wrote a trigger word."""


def _people_refusal(request: AccessRequest) -> Refusal | None:
    """Everybody whose word a job rests on must have write access, and a word that counts here.

    A workflow's command has the authority of its file's author; see `levels` for who may have started it.
    """
    job, words = request.job, request.config.triggers
    may = is_workflow_command(job) or all(map(can_command, request.roles))
    if len(request.roles) != 1 + len(job.others) or not may:
        return NO_WRITE_ACCESS
    if words is None or job.origin.kind not in _SPOKEN or job.trigger.casefold() in map(str.casefold, words):
        return None
    return Refusal(
        cause="trigger",
        silent=True,
        reason=f"`{request.config.path}` lists {', '.join(words)} and not `{job.trigger}` in `triggers`.",
    )


def _work_refusal(request: AccessRequest, command: Work | Undo) -> Refusal | None:
    """Why this kind of work cannot be done here, no matter who asks."""
    job, facts = request.job, request.facts
    if isinstance(command, Review) and job.thread.kind != "pull":
        where = "in an issue" if job.thread.kind == "issue" else f"on the branch `{job.thread.branch}` alone"
        return Refusal(
            cause="no-pull",
            reason=f"There is nothing to review {where}. Use `review` on a pull request, or use `explain`.",
        )
    if isinstance(command, Undo) and is_fork(request):
        return Refusal(cause="fork", reason="There is no commit of mine on a fork's branch: I never push to forks.")
    on_a_branch = job.thread.kind == "pull" or facts.continues > 0
    pushes = isinstance(command, Undo) or (isinstance(command, Fix) and on_a_branch)
    return thread_refusal(job, facts, may_be_closed=isinstance(command, (Explain, Ask))) or branch_refusal(
        job, facts, pushes=pushes
    )


def _work(request: AccessRequest, command: Work | Undo, found: LevelDecision) -> Grant | Refusal:
    looks = isinstance(command, (Review, Explain, Plan, Ask))
    unverified = request.job.origin.unverified
    verb = (unverified.verb if unverified is not None and started_by_stranger(request) else "") or command.verb
    if found.level == "read-only" and (not looks or verb in {"fix", "test"}):
        does = "run nothing" if verb == "test" else "change nothing"
        notes = found.notes if unverified is None else ()
        return Refusal(
            cause="read-only",
            because=found.because,
            reason=" ".join([f"I {does} here, because {found.because}. {found.remedy}", *notes]),
            # Of a workflow that strangers start, its author reads in the run's summary, not they in their threads.
            silent=started_by_stranger(request),
            voided=found.voided,
        )
    options = Options() if isinstance(command, Undo) else command.options
    if request.job.thread.kind == "pull" and (options.base is not None or options.new):
        # Why an option that is about new pull requests means nothing in one.
        if options.base is not None:
            return Refusal(
                cause="base", reason="A pull request already has a base branch. Leave out `--base`, and try again."
            )
        return Refusal(
            cause="new",
            reason="On a pull request, a fix is a commit on its branch. Leave out `--new` here, or use it on the "
            "issue.",
        )
    made = settled(command.verb, options, request.config, request.bounds)
    return made if isinstance(made, Refusal) else _granted(request, command, found, made, options)


def _granted(
    request: AccessRequest, command: Work | Undo, found: LevelDecision, made: EffectiveOptions, options: Options
) -> Grant:
    looks, recipe = isinstance(command, (Review, Explain, Plan, Ask)), request.job.recipe
    level = "read-only" if looks else found.level
    publish = _publish(request, command)
    spared = (
        ("Nothing is pushed to a fork: the patch is kept.",) if isinstance(command, Fix) and is_fork(request) else ()
    )
    number = request.facts.continues
    continues = (f"#{number} is open for this issue; I continue there. `--new` opens another.",) if number else ()
    return Grant(
        policy=policy_for(
            level,
            limits=made.limits,
            commands=(*request.bounds.commands, *request.config.allow),
            because=f"`{command.verb}` only looks" if looks else found.because,
            reachable=reachable(
                request.bounds.sandbox, narrowed(request.bounds.network, request.config.network).network
            ),
        ),
        publish=publish,
        bound_to_sha=request.facts.head_sha,
        level=level,
        tools=()
        if isinstance(command, Undo)
        else tools_for(level, writes=isinstance(command, Fix), asks=request.job.thread.has_comments, recipe=recipe),
        servers=() if level == "read-only" or (recipe is not None and recipe.tools is not None) else made.servers,
        model=made.model,
        dry_run=options.dry_run or request.bounds.dry_run,
        candidates=made.candidates,
        replay=publish == "pull_branch" and not found.bound,
        protected=request.config.protected,
        notes=(*continues, *found.notes, *made.notes, *spared),
        voided=found.voided,
    )


def _publish(request: AccessRequest, command: Work | Undo) -> Publish:
    """Where what comes of it may go."""
    match command:
        case Fix() if not is_fork(request):
            return "pull_branch" if request.job.thread.kind == "pull" or request.facts.continues else "new_branch"
        case Undo():
            return "pull_branch"
        case Review():
            return "review"
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
    """Why somebody's approval of what a job waits for does not count, or None when it does.

    Args:
        job: the one that waits.
        approver: who says yes.
        role: the approver's, asked of GitHub now.
        facts: the thread now; where work on an issue goes on in a pull request, with the head of that.
        author_id: who opened the pull request; None when that account is gone.
        bound_to_sha: the commit that the request was made for; where it is empty, the head that the job names.
        trusted_bots: bots that may command; none of them may approve.
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
    meant = bound_to_sha or job.head_sha
    if (pull or facts.continues) and meant and meant != facts.head_sha:
        return Refusal(
            cause="moved-head",
            reason=f"The request was made at commit {meant[:10]}, and the head is {facts.head_sha[:10]} now, so I "
            "dropped it. Review what was pushed, and give the command again.",
        )
    return repository_refusal(job, facts) or thread_refusal(job, facts)


NO_WRITE_ACCESS = Refusal(
    cause="no-write-access",
    reason="Only people with write access to this repository can give me commands.",
    silent=True,
)


def cap_refusal(request: AccessRequest) -> Refusal | None:
    """Why this would be more than is done in an hour, or None."""
    unasked = request.job.origin.kind in {"ci", "recipe"}
    tally, caps, bounds = request.tally, request.bounds.caps, request.bounds
    scopes = (
        ("thread", tally.thread, caps.thread, "in this thread"),
        # When checks fail or a recipe is due nobody asks, and the bot itself stands for nobody over all repositories.
        ("user", 0 if unasked else tally.user, caps.user, f"for {request.job.actor.login}"),
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
    # On a branch alone no person ever asks; what machines do there ends in a pull request, and counts by the hour.
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
    """Why nothing is done in this repository now, or None."""
    if facts.archived:
        return Refusal(
            cause="archived",
            reason="This repository is archived, so nothing in it can change. Unarchive it and try again.",
        )
    if job.repo.private and not facts.private:
        return Refusal(
            cause="made-public",
            reason="This repository was private when you gave the command and is public now. If everyone may see the "
            "result, give the command again.",
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
        return Refusal(cause="closed", reason=f"This {thread} is closed. Reopen it and try again.")
    if facts.locked:
        return Refusal(cause="locked", reason=f"This {thread} is locked. Unlock the conversation and try again.")
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
            f"The branch `{facts.base_ref}`, from which the work would start, does not exist: it was deleted or "
            "renamed, or the repository has no commit yet. Push it, or choose another default branch, and try again."
        )
        return Refusal(cause="no-commit", reason=reason)
    if pushes and facts.head_repo_id is None:
        return Refusal(
            cause="branch-gone", reason="The branch of this pull request was deleted. Restore it and try again."
        )
    if pushes and facts.head_repo_id == job.repo.id and facts.head_ref == facts.default_branch:
        return Refusal(
            cause="default-branch",
            reason=f"This pull request's branch, `{facts.default_branch}`, is the default branch, and I never push to "
            "that one. Open the pull request from another branch.",
        )
    if not all(map(is_safe_branch, (facts.head_ref, facts.base_ref, facts.default_branch))):
        return Refusal(
            cause="branch-name",
            reason="A branch has a name that is not supported: it begins with `-`, is too long, or is not valid in "
            "git. Rename the branch and try again.",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveOptions:
    """What a run is made with.

    Attributes:
        model: which one works.
        limits: its bounds; of all attempts together, where there are several.
        candidates: how many attempts are made at the same time.
        notes: sentences about what was cut or left out.
        servers: the MCP servers whose tools the agent has, by name.
    """

    model: str
    limits: RunLimits
    candidates: int = 1
    notes: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


def settled(verb: str, options: Options, config: RepoConfig, bounds: Bounds) -> EffectiveOptions | Refusal:
    """The command's options first, then the configuration, then the operator; never more than the operator's bounds.

    Args:
        verb: of the command.
        options: the command's.
        config: the repository's.
        bounds: the operator's.
    """
    offered = tuple(dict.fromkeys((bounds.model, *bounds.models)))
    if options.model is not None and options.model not in offered:
        return Refusal(
            cause="model",
            reason=f"The model `{options.model}` is not offered here. Use one of "
            f"{', '.join(f'`{each}`' for each in offered)}, or leave out `--model`; the operator can offer "
            "more (`CODEPILOT_MODELS`).",
        )
    overrides = config.overrides(verb)
    notes: list[str] = []
    model = options.model or overrides.model or bounds.model
    if model not in offered:
        notes.append(f"`{config.path}` names the model `{model}`, which is not offered here; I used `{bounds.model}`.")
        model = bounds.model
    limits = bounds.limits
    budget, most = options.budget_usd or overrides.budget_usd, limits.max_cost_usd
    if budget is not None and most is not None and budget > most:
        notes.append(f"A budget of {budget:,.2f} USD exceeds the operator's limit; it was reduced to {most:,.2f} USD.")
        budget = most
    steps = options.max_steps or overrides.max_steps or limits.max_steps
    if steps > limits.max_steps:
        notes.append(f"{steps:,} steps exceed the operator's limit; they were reduced to {limits.max_steps:,}.")
        steps = limits.max_steps
    limits = replace(limits, max_cost_usd=most if budget is None else budget, max_steps=steps)
    candidates = options.candidates or 1
    most_candidates = min(bounds.max_candidates, config.max_candidates or bounds.max_candidates)
    if candidates > 1 and verb != "fix":
        notes.append(f"`--candidates` has no effect on `{verb}`.")
        candidates = 1
    elif candidates > most_candidates:
        notes.append(f"{candidates:,} candidates exceed the limit here; they were reduced to {most_candidates}.")
        candidates = most_candidates
    servers = tuple(each for each in bounds.servers if config.mcp is None or each in config.mcp)
    if unknown := [each for each in config.mcp or () if each not in bounds.servers]:
        listed = ", ".join(f"`{each}`" for each in unknown)
        notes.append(f"`{config.path}` names MCP servers that the operator does not define: {listed}.")
    return EffectiveOptions(model=model, limits=limits, candidates=candidates, notes=tuple(notes), servers=servers)
