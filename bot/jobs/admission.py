"""The decision about a job, and its commit, branch and pull request.

Start with `decide`; an `Assignment` is its result. All attempts of a job have the same commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from agent_runtime import SessionError, Usage
from bot.domain.access import LabelGrant, Tally, ThreadLabel, text_binding
from bot.domain.branch_rules import RULE_KINDS
from bot.domain.commands import BareCommand, Fix, Remember, Undo, Work
from bot.domain.errors import QueueError
from bot.domain.grammar import parse_command
from bot.domain.job import Job
from bot.domain.spend import UNKNOWN_PRICE, budget_note, caps_for, exhausted_reason, warnings_about
from bot.events.delivery import job_id
from bot.git.change import Change
from bot.git.merge import Merge
from bot.git.mirror import Source
from bot.github.types import PullFacts
from bot.jobs.access import PhaseReader, ThreadSnapshot, branch_head
from bot.jobs.context import JobContext
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import SIGNED_ONLY, AccessRequest, Grant, Publish, Refusal, fallback_prefix
from bot.permissions.permissions import grant_for, resolve_command
from bot.permissions.repo_config import PATH, RepoConfig
from bot.publishing.commit_format import CommitFormat, choose_format
from bot.publishing.markdown import one_line
from bot.publishing.outcome import Published
from bot.publishing.plan import branch_name, branch_prefix, commit_body, is_named_by_run, job_title, merge_title
from bot.queue.protocols import BudgetRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A granted command with its inputs.

    Attributes:
        merge: the merge that the workspace holds, unless the job makes none.
        closing: why an interrupted job is only ended and not published; else empty.
    """

    command: Work
    snapshot: ThreadSnapshot
    grant: Grant
    settings: RepoSettings
    source: Source
    merge: Merge | None = None
    closing: str = ""
    output_schema: dict[str, Any] | None = None

    @property
    def base(self) -> Source:
        """The commit of the base branch."""
        return replace(self.source, ref=f"refs/heads/{self.snapshot.thread.base_ref}", sha=self.settings.base_sha)


async def decide(
    context: JobContext, snapshot: ThreadSnapshot | Refusal, config: RepoConfig, *, is_resumed: bool = False
) -> Grant | Refusal:
    """Decide the permissions of a job; `is_resumed` work counts against no limit."""
    if isinstance(snapshot, Refusal):
        return snapshot
    merging, base_ref = (await context.record.read()).merging, snapshot.thread.base_ref
    if merging is not None and merging.branch != base_ref:
        reason = f"The base branch is now `{base_ref}`, not `{merging.branch}`. Give the command again to merge that."
        return Refusal(cause="merge-branch", reason=reason)
    # The permission labels of the thread, with the present roles of their setters.
    records = await context.ledger.labels(snapshot.repo.id, context.job.thread.key)
    stored = {label.name.casefold(): label for label in records}
    labels = []
    for name in snapshot.labels:
        level = config.labels.level_of(name)
        if level is None:
            continue
        grant = stored.get(name.casefold())
        if grant is None and level != "read-only":
            grant = await _read_label(context, snapshot, name)
        labeller = grant.labeller if grant else None
        known = labeller if labeller and context.services.bounds.is_allowed_user(labeller.login) else None
        role = await snapshot.reader.role_of(snapshot.repo.full_name, known.id, known.login) if known else "none"
        labels.append(
            ThreadLabel(name=name, level=level, labeller=labeller, role=role, bound_to=grant.bound_to if grant else "")
        )
    return grant_for(
        AccessRequest(
            job=context.job,
            command=context.job.command,
            roles=snapshot.roles,
            facts=snapshot.thread,
            labels=tuple(labels),
            config=config,
            bounds=context.services.bounds,
            tally=Tally() if is_resumed else await context.ledger.tally(context.job),
        )
    )


async def _read_label(context: JobContext, snapshot: ThreadSnapshot, name: str) -> LabelGrant | None:
    """Return who set a label for which commit or text, and store it; None unless GitHub's own times prove it."""
    job, repo, reader = context.job, snapshot.repo, snapshot.reader
    if job.origin.unverified is not None:  # no label raises it
        return None
    history = await reader.label_history(repo.full_name, job.thread.number)
    setting, bound_to = history.last_setting(name), ""
    if setting is None or setting.actor is None:
        return None
    if snapshot.facts.pull is not None:
        own, stamps = frozenset[str](), context.services.stamps
        if stamps is not None:
            comments = await reader.comments(repo.full_name, job.thread.number)
            own = stamps.read_commits(comments, (await reader.me()).id, repo.id, job.thread.number)
        bound_to = await reader.head_at(snapshot.facts.pull, repo.id, setting.at, own)
    elif history.is_text_older_than(setting.at):
        bound_to = text_binding(history.title, history.body)
    if not bound_to:
        return None
    grant = LabelGrant(
        repo_id=repo.id,
        number=job.thread.number,
        name=name,
        labeller=setting.actor,
        bound_to=bound_to,
        at=setting.at.timestamp(),
    )
    await context.ledger.save_label(grant)
    return grant


async def resume_base(context: JobContext) -> str | None:
    """Return the commit of an earlier attempt that can be continued, or None."""
    record = await context.record.read()
    can_resume = (
        record.approvals.waiting is not None
        or await context.services.work.find(context.job.id, context.record) is not None
        or await asyncio.to_thread(context.services.has_session, context.job)
    )
    return record.base_sha if can_resume else None


_EDITED_AWAY = (
    "The command was edited before its work began, and the new text is no task with the same trigger word. "
    "Write another command in a new comment."
)


class CommandEditedError(Exception):
    """The stored job has the newest text of its command."""


async def follow_edit(context: JobContext, reader: PhaseReader) -> str:
    """Store the newest text of a comment that its author edited before the agent began, once; or return why to stop.

    An edit by somebody else changes nothing.

    Raises:
        CommandEditedError: the job begins again with the newest text.
    """
    job, is_read = context.job, (await context.record.read()).is_edit_read
    # Other jobs of the comment, such as a `retry`, came later.
    if is_read or job.id != job_id("issue_comment", job.repo.id, str(job.origin.id)):
        return ""
    newest = await _read_newest(context, reader)
    if newest is None or newest == job:
        await context.record.update(lambda record: replace(record, is_edit_read=True))
        return "" if newest else _EDITED_AWAY
    await context.queue.amend(newest)
    # The comment shows the old command.
    await context.record.update(lambda record: replace(record, is_edit_read=True, greeted_at=None))
    raise CommandEditedError


async def _read_newest(context: JobContext, reader: PhaseReader) -> Job | None:
    """Return the job with the newest text of its author; None if that starts no work."""
    job = context.job
    comments = await reader.comments(job.repo.full_name, job.thread.number)
    comment = next((comment for comment in comments if comment.id == job.origin.id), None)
    if comment is None or _with_text(job, comment.body) == job:
        return job
    edit = await context.github.comments.read_edit(job.repo.full_name, comment.node_id)
    return _with_text(job, edit.body) if {edit.author_id, edit.editor_id} == {job.actor.id} else job


def _with_text(job: Job, text: str) -> Job | None:
    # Also the trigger of a second command, or an unchanged text has another goal.
    parsed = parse_command(text, triggers=(job.trigger, *job.left_out.split()[:1]))
    if parsed is None or not isinstance(parsed.command, Work | BareCommand | Undo):
        return None
    return replace(job, command=parsed.command, left_out=parsed.left_out)


async def pin_base(context: JobContext, grant: Grant) -> Grant:
    """Bind the grant to the commit of an earlier attempt, or store its own.

    Work under a label for one commit never follows another commit, not even in a later attempt.
    """
    earlier = await resume_base(context)
    base = earlier or grant.bound_to_sha
    bound = not grant.replay or (earlier is not None and (await context.record.read()).bound)
    await context.record.update(lambda record: replace(record, base_sha=base, bound=bound))
    return replace(grant, bound_to_sha=base, replay=not bound)


async def head_source(context: JobContext, snapshot: ThreadSnapshot) -> Source:
    thread = context.job.thread
    ref = f"refs/pull/{thread.number}/head" if thread.kind == "pull" else f"refs/heads/{snapshot.thread.head_ref}"
    token = await context.github.tokens.for_clone(snapshot.repo.full_name)
    return Source(url=snapshot.repo.clone_url, token=token, ref=ref, sha=snapshot.thread.head_sha)


async def base_source(context: JobContext, snapshot: ThreadSnapshot, source: Source) -> Source:
    """Return the current commit of the pull request's base branch, else `source`."""
    if context.job.thread.kind != "pull":
        return source
    branch = snapshot.thread.base_ref
    return replace(source, ref=f"refs/heads/{branch}", sha=await branch_head(context.github, snapshot, branch))


def requested_base(context: JobContext, settings: RepoSettings) -> str | None:
    """Return the branch for new pull requests; None for the default."""
    command = context.job.command
    if context.job.thread.kind == "branch":  # `base` of the file is for issues
        return None
    chosen = command.options.base if isinstance(command, Work | BareCommand) else None
    return chosen or context.services.conventions.base or settings.config.base


async def move_to_base(context: JobContext, snapshot: ThreadSnapshot, base: str | None) -> ThreadSnapshot:
    if base is None or context.job.thread.kind != "issue" or isinstance(context.job.command, Undo):
        return snapshot
    sha = await branch_head(context.github, snapshot, base)
    return replace(snapshot, thread=replace(snapshot.thread, head_sha=sha, head_ref=base, base_ref=base))


_MAX_PULLS = 20


async def continue_pull(context: JobContext, snapshot: ThreadSnapshot, config: RepoConfig) -> ThreadSnapshot | Refusal:
    """Continue a fix of an issue in the bot's newest open pull request.

    Refuse if an earlier attempt continued in one that is closed now.
    """
    job = context.job
    command = resolve_command(job.command, kind=job.thread.kind, config=config)
    if job.thread.kind != "issue" or not isinstance(command, Fix) or command.options.new:
        return snapshot
    number = (await context.record.read()).continues
    if number is not None and await resume_base(context) is not None:
        return await refresh_pull(context, snapshot, number)
    # The newest open pull request, into `base` if a command names one.
    base = command.options.base or context.services.conventions.base or None
    pulls: list[PullFacts] = []
    for branch in (await context.github.repos.list_branches(snapshot.repo.full_name, _prefix(context)))[:_MAX_PULLS]:
        pulls += await context.github.pulls.list_from(snapshot.repo.full_name, branch)
    own = [pull for pull in pulls if await _is_own(context, snapshot, pull)]
    newest = max((pull for pull in own if base in {None, pull.base_ref}), key=lambda pull: pull.number, default=None)
    number = newest.number if newest else 0
    await context.record.update(lambda record: replace(record, continues=number))
    return _move_to_pull(snapshot, newest) if newest else snapshot


async def refresh_pull(context: JobContext, snapshot: ThreadSnapshot, number: int) -> ThreadSnapshot | Refusal:
    """Fetch the pull request's current branches; return the snapshot unchanged for the number 0."""
    if not number:
        return snapshot
    pull = await context.github.pulls.get(snapshot.repo.full_name, number)
    if await _is_own(context, snapshot, pull):
        return _move_to_pull(snapshot, pull)
    state = "merged" if pull.merged else "closed, or its branch changed,"
    reason = (
        f"#{number} was {state} in the meantime, so the work cannot continue there. Give the command again to open a "
        "new pull request."
    )
    return Refusal(cause="pull-closed", reason=reason)


async def add_pull(context: JobContext, snapshot: ThreadSnapshot, published: Published, change: Change) -> Published:
    """Add the continued pull request to a publication, unless its change was not pushed."""
    link = snapshot.pull_link
    if link is None or published.pull is not None or (change and published.commit is None):
        return published
    await context.record.published.update(lambda stored: replace(stored, pull=link))
    return replace(published, pull=link)


async def _is_own(context: JobContext, snapshot: ThreadSnapshot, pull: PullFacts) -> bool:
    is_author = pull.author.id == (await context.github.accounts.me()).id and context.services.is_own(pull, context.job)
    is_open = pull.state == "open" and pull.head_repo_id == snapshot.repo.id
    return is_author and is_open and pull.head_ref.startswith(_prefix(context))


def _prefix(context: JobContext) -> str:
    return branch_prefix(context.job, prefix=context.branch_prefix)


async def choose_prefix(context: JobContext, repo: str, config: RepoConfig) -> Refusal | None:
    """Choose the prefix of new branches for all attempts of a job.

    A branch `codepilot` leaves no room for `codepilot/…`: another prefix is used then, with a warning.
    """
    configured = config.branch_prefix or context.services.conventions.branch_prefix
    above, other = _names_above(configured), fallback_prefix(configured)
    prefix = (await context.record.read()).branch_prefix
    command = resolve_command(context.job.command, kind=context.job.thread.kind, config=config)
    if (
        not prefix and above and isinstance(command, Fix | Remember)
    ):  # others create no branch, and need not pay the request
        existing = await context.github.repos.find_branches(repo, [*above, *_names_above(other)])
        if not existing.isdisjoint(above):
            if not existing.isdisjoint(_names_above(other)):
                names = " and ".join(f"`{name}`" for name in sorted(existing))
                reason = (
                    f"Git has no room for my branches, `{configured}…` or `{other}…`, beside {names}. Rename one of "
                    f"these branches, or set another `branch_prefix` in `{PATH}`."
                )
                return Refusal(cause="branch-prefix", reason=reason)
            prefix = other
            await context.record.update(lambda record: replace(record, branch_prefix=other))
    if prefix and prefix != configured:
        names = " or ".join(f"`{name}`" for name in above)
        context.state.warn(f"A branch {names} leaves no room for branches `{configured}…`; mine are `{prefix}…`.")
    context.state.branch_prefix = prefix or configured
    return None


def _names_above(prefix: str) -> list[str]:
    parts = prefix.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


async def find_branch(context: JobContext, snapshot: ThreadSnapshot, config: RepoConfig) -> ThreadSnapshot | Refusal:
    """Return the snapshot of the branch that the work starts from, or why there can be none."""
    if (refusal := await choose_prefix(context, snapshot.repo.full_name, config)) is not None:
        return refusal
    return await continue_pull(context, await move_to_base(context, snapshot, config.base), config)


async def read_format(context: JobContext, settings: RepoSettings) -> CommitFormat:
    keys, sign_off = settings.config.commit, ""
    if keys.sign_off:
        me = await context.github.accounts.me()
        sign_off = f"{me.login} <{me.id}+{me.login}@users.noreply.github.com>"
    return choose_format(keys, settings.titles, sign_off)


async def pin_format(context: JobContext, settings: RepoSettings) -> CommitFormat:
    """Return the format of the job's first attempt to publish: a later one knows its commit by the message."""
    chosen = await read_format(context, settings)
    record = await context.record.update(lambda record: replace(record, commit_format=record.commit_format or chosen))
    return record.commit_format or chosen


async def check_rules(
    context: JobContext, snapshot: ThreadSnapshot, grant: Grant, commit_format: CommitFormat, *, merges: bool
) -> Grant | Refusal:
    """Refuse work whose commit the rules of its branch certainly forbid; unknown rules forbid nothing."""
    if grant.publish not in {"new_branch", "pull_branch"} or await resume_base(context) is not None:
        return grant
    repo, is_new = snapshot.repo.full_name, grant.publish == "new_branch"
    branch = branch_name(context.job, prefix=context.branch_prefix) if is_new else snapshot.thread.head_ref
    pairs = [(branch, rule) for rule in await context.github.repos.read_rules(repo, branch, is_new=is_new)]
    base_ref = snapshot.thread.base_ref
    me, notes = await context.github.accounts.me(), list[str]()
    title = commit_format.commit_title("", fallback=job_title(context.job), number=context.job.thread.number)
    title = merge_title(base_ref, branch) if merges else title
    texts = {
        "branch_name_pattern": branch if is_new else None,
        "commit_message_pattern": f"{title}\n\n{commit_body(context.job, commit_format=commit_format)}",
        "commit_author_email_pattern": f"{me.id}+{me.login}@users.noreply.github.com",
    }
    forbidden = {"update", "pull_request"} | ({"creation"} if is_new else set())
    if merges:
        forbidden |= {"required_signatures", "required_linear_history"}
        # The base branch takes no unsigned commit either, by whom it may be merged.
        of_base = await context.github.repos.read_rules(repo, base_ref, is_new=False)
        pairs += [(base_ref, rule) for rule in of_base if rule.type == "required_signatures"]
    for branch, rule in pairs:
        text, kind = texts.get(rule.type), RULE_KINDS.get(rule.type)
        is_noted = rule.type == "required_signatures" and not merges
        if kind is None or not (rule.type in forbidden or is_noted or (text is not None and rule.pattern)):
            continue
        words = f"{kind.words} {rule.requirement}" if rule.pattern else kind.words
        is_unknown = (
            commit_format.has_types and rule.type == "commit_message_pattern" and rule.operator == "starts_with"
        )
        if text is not None and (is_unknown or rule.operator == "regex"):
            notes.append(f"A rule for `{branch}` is for GitHub to check: {words}.")
        elif (text is None or rule.refuses(text)) and (
            rule.ruleset_id is None or await context.github.repos.is_bound_by(repo, rule.ruleset_id)
        ):
            if is_noted:
                grant = replace(grant, signed_only=True)
                continue
            reason = f"A rule of this repository forbids my commit on `{branch}`: {words}. I have not started."
            return Refusal(cause="branch-rules", variant=words, reason=f"{reason} {kind.remedy}")
    notes += [SIGNED_ONLY] if grant.signed_only else []
    return replace(grant, notes=(*grant.notes, *notes))


_NEEDS: Mapping[Publish, tuple[str, ...]] = {
    "new_branch": ("contents", "pull_requests"),
    "pull_branch": ("contents",),
    "review": ("pull_requests",),
    "description": ("pull_requests",),
}


async def check_permissions(context: JobContext, repo: str, grant: Grant) -> tuple[str, str] | None:
    """Return why the result surely could not be published, and the remedy; None if it may."""
    names = () if grant.dry_run or await resume_base(context) is not None else _NEEDS.get(grant.publish, ())
    missing = [f"`{name.replace('_', '-')}: write`" for name in await context.github.tokens.find_missing(repo, names)]
    if not missing:
        return None
    if context.services.is_long_running:
        words = f"Grant the App {' and '.join(missing)} in its settings, then accept it in the installation."
    else:
        words = f"Add {' and '.join(missing)} to `permissions:` of the workflow's job."
    return f"The token lacks {' and '.join(missing)}, so nothing could be published. I have not started.", words


def _move_to_pull(snapshot: ThreadSnapshot, pull: PullFacts) -> ThreadSnapshot:
    thread = replace(
        snapshot.thread,
        head_sha=pull.head_sha,
        head_ref=pull.head_ref,
        base_ref=pull.base_ref,
        continues=pull.number,
    )
    return replace(snapshot, thread=thread)


async def branch_number(context: JobContext, repo: str) -> int:
    """Return the first free number for `branch_name`, and store it for later attempts."""
    if not is_named_by_run(context.job):
        return 1
    stored = (await context.record.read()).branch_number
    if stored is not None:
        return stored
    prefix = context.branch_prefix
    taken = set(await context.github.repos.list_branches(repo, branch_name(context.job, prefix=prefix)))
    for number in count(1):
        names = {branch_name(context.job, prefix=prefix, number=number, unfinished=wip) for wip in (False, True)}
        if taken.isdisjoint(names):
            break
    # Stored before the first push, so that a later attempt finds its branch.
    await context.record.update(lambda record: replace(record, branch_number=number))
    return number


_LABEL_CHARS = 50


async def reserve_budget(
    context: JobContext, grant: Grant, config: RepoConfig, command: Work, labels: tuple[str, ...]
) -> Grant | Refusal:
    """Reserve the budget that the caps leave, and return the grant with it; or refuse."""
    spending, state, limits = context.services.spending, context.state, grant.policy.limits
    if spending is None:
        if config.spend.model_fields_set:
            state.warn(f"`spend` in `{config.path}` has no effect in a workflow, which knows no earlier runs.")
        return grant
    keys, operator = config.spend, context.services.bounds.spend_caps
    state.caps = caps_for(operator, file=config.path, day=keys.day_usd, month=keys.month_usd)
    # The agent's own limit counts from the start of its session; an earlier session was discarded.
    stored = (await context.record.read()).progress
    used, discarded = state.progress.usage, Usage() if stored is None else stored.usage
    in_session = max(0.0, used.estimated_cost_usd - discarded.estimated_cost_usd)
    budget = None if limits.max_cost_usd is None else max(0.0, limits.max_cost_usd - in_session)
    if budget == 0.0:  # the agent itself says that its limit is reached
        return grant
    names = [one_line(label, _LABEL_CHARS) for label in labels]
    request = BudgetRequest(
        job=context.job, verb=command.verb, labels=names, caps=state.caps, budget_usd=budget, used=used
    )
    reservation = await spending.reserve(request)
    fitted = reservation.budget_usd
    if fitted == 0.0:
        state.caps = ()  # the reason says all
        return Refusal(cause="spend-cap", reason=exhausted_reason(reservation.uses))
    if fitted is None:
        return grant
    note = budget_note(budget, fitted, reservation.uses)
    limits = replace(limits, max_cost_usd=in_session + fitted)
    return replace(grant, policy=replace(grant.policy, limits=limits), notes=(*grant.notes, *filter(None, [note])))


@asynccontextmanager
async def settled(context: JobContext) -> AsyncIterator[None]:
    """Settle the job's cost after the body; a cancelled job goes on elsewhere, and keeps its reservation."""
    try:
        yield
    except Exception:  # each of them ends the attempt
        await settle(context)
        raise


async def settle(context: JobContext) -> tuple[str, ...]:
    """Store the usage of the job, end its reservation, and return the warnings about its caps."""
    spending, state = context.services.spending, context.state
    if spending is None or context.job.lane != "work":
        return ()
    used = state.progress.usage
    try:
        if not used.requests:  # this attempt ended before it read the session of an earlier one
            earlier = (await context.record.read()).progress or state.progress
            events = context.services.session_events
            used = await asyncio.to_thread(lambda: earlier.replay_log(events(context.job)).usage)
        uses = await spending.settle(context.job, used, state.caps)
    except (QueueError, SessionError) as error:  # the reservation counts as spent
        log.warning("the cost of the run is not stored: %s", error)
        return ()
    is_unknown = used.cost_usd is None
    return (*warnings_about(uses), *([UNKNOWN_PRICE] if uses and is_unknown else []))
