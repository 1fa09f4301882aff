"""Carry out the actions that an agent proposed: judge them by GitHub's present state, ask, and apply each once.

Start with `plan_actions`. The results are stored in the job's record, and a mark in each new text finds what a request
with a lost answer created.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import yaml

from agent_runtime import Outcome, Status
from bot.domain.actions import (
    Action,
    AddLabels,
    AddSubIssue,
    Close,
    CloseReason,
    Comment,
    CommentDiscussion,
    CreateDiscussion,
    CreateIssue,
    Declaration,
    MissingInformation,
    Notice,
    Proposal,
    RemoveLabels,
    Reopen,
    RequestReviewers,
    SetAssignees,
    SetDraft,
    SetFields,
    SetMilestone,
    SetType,
    StartWorkflow,
    UpdateBody,
    name_created,
    replace_targets,
    targets_of,
)
from bot.github.actions import Reason, StateList
from bot.github.types import CommentTarget, GitHubError, RepoState, TargetFacts, thread_not_found
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext
from bot.jobs.faults import public_text
from bot.jobs.record import ActionResult, ActionsRecord, Request
from bot.jobs.repo_settings import cached_default_settings
from bot.permissions.actions import ActionFacts, Subject, complete, judge
from bot.permissions.levels import Grant, Refusal
from bot.publishing.actions import LIST_BREAK, clean_texts, merge_body, show_proposals, sign_body
from bot.publishing.markers import sign_marker
from bot.publishing.outcome import ActionState, ActionView

_NO_FINISH = "The run did not finish."
_NOT_LISTED = "The approved list did not have it in this form. Give the command again for a new list."
_MAX_WORKFLOW_BYTES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPlan:
    """The proposals of a run, with the texts that are sent.

    Attributes:
        declarations: of the accepted proposals, by number.
        objections: to the others.
        asking: numbers of accepted proposals that a person must approve.
        state: of GitHub, when they were judged.
        is_dry: whether none is applied.
    """

    thread: int
    proposals: tuple[Proposal, ...] = ()
    declarations: Mapping[int, Declaration] = field(default_factory=dict)
    objections: Mapping[int, str] = field(default_factory=dict)
    asking: frozenset[int] = frozenset()
    record: ActionsRecord = field(default_factory=ActionsRecord)
    state: RepoState = field(default_factory=RepoState)
    is_dry: bool = False

    @property
    def waiting(self) -> tuple[Proposal, ...]:
        """The proposals that wait for a person's answer."""
        if self.record.denial is not None or self.is_dry:
            return ()
        open_numbers = self.asking.difference(self.denied_numbers, self.record.results)
        return tuple(proposal for proposal in self.proposals if proposal.number in open_numbers)

    @property
    def denied_numbers(self) -> frozenset[int]:
        """The numbers that a person denied one by one, and of the proposals about an issue that is so not created."""
        struck, proposals = self.record.struck, self.proposals
        handles = {proposal.handle for proposal in proposals if proposal.number in struck and proposal.handle}
        return frozenset(struck) | {
            proposal.number for proposal in proposals if handles.intersection(map(str, targets_of(proposal.action)))
        }

    def created(self, handle: str) -> int:
        """Return the number of the issue with this handle; 0 before it is created."""
        number = next((proposal.number for proposal in self.proposals if proposal.handle == handle), 0)
        result = self.record.results.get(number)
        return 0 if result is None else result.created

    def number_of(self, target: int | str) -> int:
        return self.created(target) if isinstance(target, str) else target or self.thread

    def show(self, proposal: Proposal) -> str:
        """Return an accepted proposal as a person approves it."""
        return show_proposals((proposal,), self.thread, self.declarations[proposal.number].allowed.get("labels", ()))

    @property
    def ready(self) -> tuple[Proposal, ...]:
        """The proposals to apply now."""
        return tuple(proposal for proposal in self.proposals if self._judge(proposal)[0] == "proposed")

    @property
    def views(self) -> tuple[ActionView, ...]:
        return tuple(map(self._view, self.proposals))

    def _view(self, proposal: Proposal) -> ActionView:
        state, note = self._judge(proposal)
        result = self.record.results.get(proposal.number)
        url = result.url if result else ""
        action = replace_targets(proposal.action, lambda target: self.created(target) or target)
        shown = replace(proposal, action=action, handle="" if url else proposal.handle)
        sentence = shown.sentence(self.thread)
        if state == "proposed" and self.is_dry:
            note = "not applied in a dry run"
        return ActionView(number=proposal.number, sentence=sentence, state=state, note=note, url=url)

    def _judge(self, proposal: Proposal) -> tuple[ActionState, str]:
        """Return the state of a proposal, and the reason."""
        number, record = proposal.number, self.record
        result = record.results.get(number)
        if result is not None and result.state != "requested":
            return result.state, result.note
        if number in self.denied_numbers:
            return "denied", "" if number in record.struck else "its issue was denied"
        if number in self.objections:
            return "refused", self.objections[number]
        if record.denial and (number in self.asking or number in record.listed):
            return "denied", record.denial
        return ("waiting" if proposal in self.waiting else "proposed"), ""


async def plan_actions(
    context: JobContext, assignment: Assignment, decision: Grant | Refusal, run: Outcome
) -> ActionPlan:
    """Judge the proposals of a run.

    Raises:
        GitHubError: the present state cannot be read.
    """
    job, proposals = context.job, context.state.progress.proposals
    plan = ActionPlan(thread=job.thread.number, proposals=proposals, is_dry=assignment.grant.dry_run)
    if not proposals:
        return plan
    plan = replace(plan, record=await context.record.actions.read())
    stop_reason = context.state.inbox.stop_reason
    if run.status is not Status.FINISHED or assignment.closing or stop_reason or isinstance(decision, Refusal):
        reason = decision.reason if isinstance(decision, Refusal) else stop_reason or _NO_FINISH
        return replace(plan, objections={proposal.number: reason for proposal in proposals})
    declared = {declaration.kind: declaration for declaration in decision.actions}
    allowed, redact = context.services.allowed(job), context.github.redact_text
    cleaned = await asyncio.to_thread(
        lambda: tuple(
            replace(proposal, action=clean_texts(complete_titles(proposal.action, declared), allowed, redact))
            for proposal in proposals
        )
    )
    state = await read_objects(context, cleaned, declared)
    facts = await gather_facts(context, assignment, cleaned, state, declared)
    plan = replace(plan, proposals=cleaned, state=state)
    return judge_proposals(context, plan, declared, facts, decision)


def complete_titles(action: Action, declared: Mapping[str, Declaration]) -> Action:
    return complete(action, declared[action.kind]) if action.kind in declared else action


def judge_proposals(
    context: JobContext, plan: ActionPlan, declared: Mapping[str, Declaration], facts: ActionFacts, grant: Grant
) -> ActionPlan:
    objections, accepted = dict[int, str](), dict[int, Declaration]()
    asking, absent = set[int](), set[str]()
    for position, proposal in enumerate(plan.proposals):
        number, declaration = proposal.number, declared.get(proposal.action.kind)
        earlier = plan.record.results.get(number)
        if earlier is not None and (declaration is not None or earlier.state != "requested"):
            objection = ""  # its own effect must not refuse it
        elif declaration is None:
            objection = f"`{proposal.action.kind}` is not allowed in this run any more"
        elif missing := absent.intersection(map(str, targets_of(proposal.action))):
            objection = f"{min(missing)} is not created"
        else:
            objection = judge(proposal.action, declaration, facts, plan.proposals[:position])
        if declaration is not None and not objection:
            accepted[number] = declaration
            is_free = declaration.is_for_anyone or grant.actions_level == "auto"
            if declaration.always_asks or not is_free:
                asking.add(number)
                objection = "" if context.can_ask or plan.is_dry else explain_unanswerable(declaration, is_free=is_free)
                entry = _digest(replace(plan, declarations=accepted).show(proposal))
                if plan.record.denial == "" and earlier is None and plan.record.listed.get(number) != entry:
                    objection = _NOT_LISTED
        if objection:
            objections[number] = objection
            absent |= {proposal.handle} - {""}
    asking.difference_update(objections)
    return replace(plan, declarations=accepted, objections=objections, asking=frozenset(asking))


def _digest(entry: str) -> str:
    return hashlib.sha256(entry.encode("utf-8", "replace")).hexdigest()


def explain_unanswerable(declaration: Declaration, *, is_free: bool) -> str:
    remedy = "Set the level `auto`, where it needs none."
    if declaration.kind != "start-workflow":  # which has no `from`
        remedy = "Declare it with `from: anyone` to apply it without approval, or set the level `auto`."
    if declaration.always_asks:
        remedy = f"{'Remove `approval: always`, or start' if is_free else 'Start'} it where people can answer."
    return f"Nobody can approve it in this run. {remedy}"


async def request_actions(context: JobContext, plan: ActionPlan, *, bound_to: str) -> Request | None:
    """Store the request for the proposals that wait, and return it; None if none does."""
    waiting = plan.waiting
    if not waiting:
        return None
    entries = [plan.show(proposal) for proposal in waiting]
    earlier = (await context.record.read()).approvals.open_request
    # An answer to a list is none to a longer one.
    if earlier is None or earlier.kind != "actions" or not set(entries) <= set(earlier.preview.split(LIST_BREAK)):
        earlier = Request(
            kind="actions",
            request_id=secrets.token_hex(4),
            reason="",
            preview="",
            bound_to=bound_to,
            until=time.time() + context.services.bounds.approval_seconds,
        )
    request = replace(earlier, preview=LIST_BREAK.join(entries), numbers=tuple(proposal.number for proposal in waiting))
    await context.record.update(lambda record: replace(record, approvals=replace(record.approvals, waiting=request)))
    return request


async def list_results(context: JobContext) -> tuple[ActionView, ...]:
    """Return the proposals with results, of a job that failed while it applied them."""
    plan = ActionPlan(
        thread=context.job.thread.number,
        proposals=context.state.progress.proposals,
        record=await context.record.actions.read(),
    )
    return tuple(view for view in plan.views if view.number in plan.record.results)


async def record_answer(context: JobContext, request: Request, denial: str) -> None:
    """Store the answer to a list; an empty `denial` approves it."""
    listed = dict(zip(request.numbers, map(_digest, request.preview.split(LIST_BREAK)), strict=True))
    await context.record.actions.update(lambda record: replace(record, denial=denial, listed=listed))


async def apply_actions(context: JobContext, plan: ActionPlan) -> ActionPlan:
    """Apply the proposals that are ready, in their order, and return the plan with their results.

    Raises:
        GitHubError: a request failed in a way that a later attempt may not.
    """
    for proposal in () if plan.is_dry else plan.ready:
        number, earlier = proposal.number, plan.record.results.get(proposal.number)
        absent = [name for name in targets_of(proposal.action) if isinstance(name, str) and not plan.created(name)]
        if absent and plan.waiting:  # which may create it
            continue
        if absent:
            plan = await _store(
                context, plan, number, ActionResult(state="refused", note=f"{absent[0]} is not created")
            )
            continue
        attempt = earlier or ActionResult(state="requested", at=time.time())
        plan = await _store(context, plan, number, attempt)
        try:
            result = await _apply(context, plan, proposal, attempted_at=attempt.at, is_first=earlier is None)
        except GitHubError as error:
            if error.certainty != "definite":
                raise
            result = ActionResult(state="failed", note=public_text(error))
        plan = await _store(context, plan, number, result)
    return plan


async def _store(context: JobContext, plan: ActionPlan, number: int, result: ActionResult) -> ActionPlan:
    record = await context.record.actions.update(
        lambda record: replace(record, results={**record.results, number: result})
    )
    return replace(plan, record=record)


async def _apply(
    context: JobContext, plan: ActionPlan, proposal: Proposal, *, attempted_at: float, is_first: bool
) -> ActionResult:
    """Apply one action; unless `is_first`, an earlier attempt may have done so."""
    action = proposal.action
    if isinstance(action, Notice | MissingInformation):  # the status comment has it
        return ActionResult(state="applied")
    if isinstance(action, StartWorkflow):
        earlier_urls = [result.url for result in plan.record.results.values()]
        return await start_workflow(context, action, earlier_urls, attempted_at=attempted_at, is_first=is_first)
    if isinstance(action, CreateIssue | Comment | CreateDiscussion | CommentDiscussion):
        return await write_text(context, plan, proposal, action, is_first=is_first)
    await _change(context, plan, action)
    return ActionResult(state="applied")


async def _change(context: JobContext, plan: ActionPlan, action: Action) -> None:
    """Change a thread; a repetition changes nothing more."""
    repo, client, target = context.job.repo.full_name, context.github.actions, plan.number_of(targets_of(action)[0])
    match action:
        case AddLabels():
            await client.add_labels(repo, target, action.labels)
        case RemoveLabels():
            for label in action.labels:
                await context.github.threads.remove_label(repo, target, label)
        case SetType():
            await client.set_type(repo, target, action.type)
        case SetAssignees():  # GitHub would remove the others
            present = (await client.read_state(repo, numbers=[target])).threads.get(target)
            others = [account.login for account in present.assignees] if present is not None else []
            await client.set_assignees(repo, target, [*dict.fromkeys((*others, *action.assignees))])
        case SetMilestone():
            await client.set_milestone(repo, target, action.milestone)
        case SetFields():
            await client.set_fields(repo, target, action.fields)
        case _:
            await _move(context, plan, action, target)


async def _move(context: JobContext, plan: ActionPlan, action: Action, target: int) -> None:
    """Change the state, the links or the text of a thread."""
    repo, client, present = context.job.repo.full_name, context.github.actions, plan.state.threads.get(target)
    match action:
        case Close(reason=reason):
            code = None if present is not None and present.kind == "pull" else _REASONS[reason]
            await client.close(repo, target, code, duplicate_of=plan.number_of(action.duplicate_of))
        case Reopen():
            await client.reopen(repo, target)
        case AddSubIssue():
            await client.add_sub_issue(repo, target, plan.number_of(action.sub_issue))
        case RequestReviewers():
            await client.request_reviewers(repo, target, action.reviewers)
        case UpdateBody():  # the publication may have changed it, or this run created it
            present = (await client.read_state(repo, numbers=[target])).threads.get(target)
            if present is None:
                raise thread_not_found(repo, target)
            action = replace(action, body=name_created(action.body, plan.created))
            body = await asyncio.to_thread(merge_body, action, present, context.services.allowed(context.job))
            await client.update_body(repo, target, body)
        case SetDraft():
            await client.set_draft(repo, target, draft=action.draft)
        case _:
            raise TypeError(f"{action.kind} changes no thread")  # a bug of ours


_REASONS: Mapping[CloseReason, Reason] = {
    "completed": "completed",
    "not-planned": "not_planned",
    "duplicate": "duplicate",
}


async def write_text(
    context: JobContext,
    plan: ActionPlan,
    proposal: Proposal,
    action: CreateIssue | Comment | CreateDiscussion | CommentDiscussion,
    *,
    is_first: bool,
) -> ActionResult:
    """Create an issue, a discussion or a comment, or find the one of an earlier attempt by its mark."""
    job, client, repo = context.job, context.github.actions, context.job.repo.full_name
    key, me = context.services.marker_key, await context.github.accounts.me()
    mark = sign_marker(f"action-{proposal.number}-{job.id}", job.repo.id, job.thread.number, key=key)
    allowed = context.services.allowed(job)
    folder = "pull" if job.thread.kind == "pull" else "issues"
    origin = f"{allowed.server}/{repo}/{folder}/{job.thread.number}" if job.thread.has_comments else ""
    text = name_created(action.body, plan.created)
    body = await asyncio.to_thread(sign_body, text, allowed, mark, origin=origin)
    match action:
        case CreateIssue():
            labels = plan.declarations[proposal.number].allowed.get("labels", ())
            issue = None if is_first else await client.find_issue(repo, me, mark)
            issue = issue or await client.create_issue(repo, title=action.title, body=body, labels=labels)
            return ActionResult(state="applied", url=issue.html_url, created=issue.number, note=f"#{issue.number}")
        case Comment():
            thread = CommentTarget(kind="thread", number=plan.number_of(action.issue))
            earlier = () if is_first else await context.github.comments.find(repo, thread, mark, me.id)
            comment = earlier[0] if earlier else await context.github.comments.create(repo, thread, body)
            return ActionResult(state="applied", url=comment.html_url)
        case CreateDiscussion():
            entry = None if is_first else await client.find_discussion(repo, me.id, mark)
            entry = entry or await client.create_discussion(
                repo, category=action.category, title=action.title, body=body
            )
            return ActionResult(state="applied", url=entry.html_url)
        case CommentDiscussion(discussion=number):
            entry = None if is_first else await client.find_discussion_comment(repo, number, me.id, mark)
            entry = entry or await client.comment_discussion(repo, number, body)
            return ActionResult(state="applied", url=entry.html_url)


async def start_workflow(
    context: JobContext, action: StartWorkflow, earlier_urls: Collection[str], *, attempted_at: float, is_first: bool
) -> ActionResult:
    repo, client = context.job.repo.full_name, context.github.actions
    run = None
    if not is_first:
        since = datetime.fromtimestamp(attempted_at - _CLOCK_SECONDS, UTC)
        me = await context.github.accounts.me()
        run = await client.find_dispatched_run(
            repo, action.workflow, branch=action.ref, author=me, since=since, earlier_urls=earlier_urls
        )
    run = run or await client.start_workflow(repo, action.workflow, branch=action.ref, inputs=action.inputs)
    return ActionResult(state="applied", url=run.html_url)


_CLOCK_SECONDS = 60.0
"""GitHub's clock may be behind ours."""


async def read_objects(
    context: JobContext, proposals: Collection[Proposal], declared: Mapping[str, Declaration]
) -> RepoState:
    """Read the existing objects on GitHub that the proposals name."""
    wanted: dict[str, set[Any]] = {name: set() for name in ("numbers", "discussions", "labels", "logins", "branches")}
    lists = set[StateList]()
    for proposal in proposals:
        action = proposal.action
        numbers = [target or context.job.thread.number for target in targets_of(action)]
        wanted["numbers"].update(number for number in numbers if isinstance(number, int) and number)
        match action:
            case AddLabels() | RemoveLabels():
                wanted["labels"].update(action.labels)
            case CreateIssue() if action.kind in declared:
                wanted["labels"].update(declared[action.kind].allowed.get("labels", ()))
            case SetAssignees(assignees=people) | RequestReviewers(reviewers=people):
                wanted["logins"].update(login for login in people if "/" not in login)
            case StartWorkflow():
                wanted["branches"].add(action.ref)
            case CommentDiscussion():
                wanted["discussions"].add(action.discussion)
            case _:
                lists.update(_LISTS.get(action.kind, ()))
    return await context.github.actions.read_state(context.job.repo.full_name, **wanted, lists=lists)


_LISTS: Mapping[str, tuple[StateList, ...]] = {
    "set-type": ("types",),
    "set-milestone": ("milestones",),
    "set-fields": ("fields",),
    "create-discussion": ("categories",),
}


async def gather_facts(
    context: JobContext,
    assignment: Assignment,
    proposals: Sequence[Proposal],
    state: RepoState,
    declared: Mapping[str, Declaration],
) -> ActionFacts:
    """Return the state for the judgement, with the labels that only people set."""
    repo, me = context.job.repo.full_name, await context.github.accounts.me()
    # The recipes and their labels are the default branch's.
    configs = (assignment.settings.config, await cached_default_settings(context))
    start = context.services.bounds.start_label
    workflows = {proposal.action.workflow for proposal in proposals if isinstance(proposal.action, StartWorkflow)}
    listed = declared["start-workflow"].allowed["workflows"] if "start-workflow" in declared else ()
    people = {login for proposal in proposals for login in getattr(proposal.action, "reviewers", ())}
    owner = repo.partition("/")[0].casefold()
    return ActionFacts(
        thread=context.job.thread.number,
        subjects={number: describe_subject(thread, me.id) for number, thread in state.threads.items()},
        labels=state.labels,
        level_labels=frozenset[str]().union(*(config.labels.level_labels for config in configs)),
        start_labels=frozenset[str]().union(*(config.start_labels(start) for config in configs)),
        types=frozenset(state.types),
        milestones=frozenset(state.milestones),
        # GitHub says whether a team can review.
        people=state.assignable | {team for team in people if team.casefold().startswith(f"{owner}/")},
        fields={entry.name: entry.options for entry in state.fields},
        workflows={
            name: inputs
            for name in workflows.intersection(listed)
            if (inputs := await read_inputs(context, name)) is not None
        },
        branches=state.branches,
        categories=frozenset(state.categories),
        discussions={number: discussion.locked for number, discussion in state.discussions.items()},
    )


def describe_subject(thread: TargetFacts, own_id: int) -> Subject:
    return Subject(
        is_pull=thread.kind == "pull",
        is_open=thread.state == "open",
        is_locked=thread.locked,
        is_own=thread.author.id == own_id,
        is_draft=thread.draft,
        is_merged=thread.merged,
        author=thread.author.login,
    )


async def read_inputs(context: JobContext, name: str) -> tuple[str, ...] | None:
    """Return the inputs of a workflow on the default branch; None if it cannot be started by hand."""
    data = await context.github.repos.read_file(context.job.repo.full_name, f".github/workflows/{name}")
    if data is None or len(data) > _MAX_WORKFLOW_BYTES:
        return None
    return await asyncio.to_thread(list_inputs, data)


def list_inputs(data: bytes) -> tuple[str, ...] | None:
    """Return the names of a workflow's inputs; None if it has no `workflow_dispatch`, or is no workflow."""
    try:
        # Texts, lists and mappings alone; `on` stays a text.
        root = yaml.load(data.decode(), Loader=yaml.BaseLoader)  # noqa: S506 - see above
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return None
    events = root.get("on") if isinstance(root, dict) else None
    if isinstance(events, str | list):
        return () if "workflow_dispatch" in ([events] if isinstance(events, str) else events) else None
    if not isinstance(events, dict) or "workflow_dispatch" not in events:
        return None
    dispatch = events["workflow_dispatch"]
    inputs = dispatch.get("inputs") if isinstance(dispatch, dict) else None
    return tuple(map(str, inputs)) if isinstance(inputs, dict) else ()
