"""Run the agent on a job: in a workspace, through pauses, to a publishable result.

Start with `run_agent`. A run that needs a user or waits for the model ends as a waiting job.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from agent_runtime import (
    AsyncRuntime,
    ChildWatched,
    CommandRunner,
    Event,
    HookSystem,
    Network,
    NetworkUsed,
    NoAnswer,
    Outcome,
    PendingCall,
    Policy,
    ResumeError,
    Session,
    SessionInUseError,
    SessionUnavailableError,
    Status,
    exact_patterns,
    is_covered,
    select_files,
)
from bot.domain.commands import Edit, Review
from bot.domain.errors import QueueError, StorageError
from bot.git.agent_repository import Refs
from bot.git.change import Change
from bot.git.errors import MissingDirectoryError, WorkspaceGoneError
from bot.git.tree import Tree
from bot.git.workspace import WorkspaceRef
from bot.jobs import material as material_module
from bot.jobs import waiting
from bot.jobs.actions import record_answer
from bot.jobs.admission import Assignment, follow_edit, reserve_budget
from bot.jobs.candidates import Candidates
from bot.jobs.context import AgentSpec, JobContext
from bot.jobs.faults import classify
from bot.jobs.material import gather
from bot.jobs.merges import object_to_merge
from bot.jobs.propose import propose_tool
from bot.jobs.record import ApprovalAnswer, Request, RunResult, StoredRecord
from bot.jobs.results import continue_plan, deliver, find_denial, wait_for
from bot.jobs.setup import SetupResult
from bot.jobs.state import RunState
from bot.jobs.storage import open_session
from bot.permissions.levels import PROPOSE, SIGNED_ONLY, Grant, Refusal, describe_network, narrow_network
from bot.prompt.brief import Brief, brief_for
from bot.publishing.checks import Check, Rerun, find_reproduction, is_unrelated
from bot.publishing.markdown import one_line
from bot.publishing.outcome import JobOutcome, Stopped, Waiting
from bot.publishing.review import list_output
from bot.publishing.screening import deny_unshowable_calls
from bot.publishing.status_view import Activity, DeniedCall, Progress
from bot.queue.protocols import JobRecords

log = logging.getLogger(__name__)

_BRANCH_CHARS = 200
Segment = Callable[[AsyncRuntime], Coroutine[Any, Any, Outcome]]


async def run_agent(context: JobContext, assignment: Assignment) -> JobOutcome:
    """Start, continue or publish the agent's work, depending on the stored state."""
    record, prepared = context.record, context.state.progress
    approvals = (await record.read()).approvals
    request = approvals.waiting
    result = await context.services.work.find(context.job.id, record)
    if result is not None:
        return await _publish_stored(context, assignment, result[0], result[1], request)
    if request is None:
        return await _start_or_resume(context, assignment, prepared)
    await load_progress(context)
    answer, stop_reason = approvals.answers.get(request.request_id), context.state.inbox.stop_reason
    if stop_reason:
        return await _stop_waiting(context, assignment, stop_reason)
    if answer is not None:
        return await _resume(context, assignment, request, answer, prepared)
    if request.until <= time.time():
        return await _stop_waiting(context, assignment, waiting.describe_timeout(request))
    # Its worker died before it reported the request.
    return await wait_for(context, request)


async def abandon_run(context: JobContext, assignment: Assignment, status: Status) -> JobOutcome:
    """End an interrupted job for `Assignment.closing`, and keep its work.

    Raises:
        WorkspaceError: its files are lost.
    """
    reason = assignment.closing
    await load_progress(context)
    result = await context.services.work.find(context.job.id, context.record)
    if result is not None:
        abandoned = replace(result[0], outcome=replace(result[0].outcome, status=status, reason=reason))
        return await _publish_stored(context, assignment, abandoned, result[1], None)
    return await _stop_waiting(context, assignment, reason, status)


async def load_progress(context: JobContext) -> None:
    """Restore the progress of an earlier attempt or segment.

    Raises:
        SessionError: its session cannot be read.
    """
    record, state = await context.record.read(), context.state
    progress = record.progress or state.progress
    progress = replace(progress, denied=record.denied or progress.denied)

    def replay() -> Progress:
        events = context.services.session_events(context.job)
        for event in events:
            state.inbox.record_event(event)
        return progress.replay_log(events)

    state.progress = await asyncio.to_thread(replay)  # long logs take a while


async def _start_or_resume(context: JobContext, assignment: Assignment, prepared: Progress) -> JobOutcome:
    progress = (await context.record.read()).progress
    await load_progress(context)
    is_lost = progress is not None and progress.run_id and progress.run_id == context.state.progress.run_id
    if not is_lost and await asyncio.to_thread(context.services.has_session, context.job):
        try:
            async with _reopen(context, assignment) as tree:
                return await _finish(context, assignment, tree, await _run(context, assignment, tree, continue_segment))
        except (WorkspaceGoneError, ResumeError) as error:
            log.warning("restarted from the beginning: %s", error)
    return await _start_over(context, assignment, prepared)


async def _start_over(context: JobContext, assignment: Assignment, prepared: Progress) -> JobOutcome:
    state = context.state
    state.phases.begin("prepare")
    # Keep the cost and the log of the earlier attempt.
    state.progress = replace(prepared, usage=state.progress.usage, run_id=state.progress.run_id)
    if state.progress.usage.requests:
        await state.save_progress()
    await context.services.store_log(context.job)
    await asyncio.to_thread(context.services.forget_session, context.job)
    state.inbox.delivered.clear()
    async with open_workspace(context, assignment) as tree:
        with _keeping_files(state):
            await record_generation(context, tree)
            inputs = await state.inbox.unless_stopped(_prepare(context, assignment, tree))
            if inputs is None:
                return await _finish(context, assignment, tree, Outcome(status=Status.STOPPED))
            if reason := await follow_edit(context, assignment.snapshot.reader):
                return Stopped(reason=reason)
            await state.save_progress()
            run = await _run(context, assignment, tree, partial(_start, context, assignment, tree, inputs))
            return await _finish(context, assignment, tree, run)


async def _resume(
    context: JobContext, assignment: Assignment, request: Request, answer: ApprovalAnswer, prepared: Progress
) -> JobOutcome:
    if not await asyncio.to_thread(context.services.has_session, context.job):
        return await _start_over(context, assignment, prepared)  # a worker died before the first step

    def segment(agent: AsyncRuntime) -> Coroutine[Any, Any, Outcome]:
        pending = agent.pending
        if pending is None or pending.request_id != request.request_id:
            return continue_segment(agent)  # an earlier attempt has processed the answer
        return agent.resume(approve=answer.approved, note=answer.note, request_id=request.request_id)

    try:
        async with _reopen(context, assignment) as tree:
            try:
                run = await _run(context, assignment, tree, segment)
            except ResumeError as error:
                run = Outcome(status=Status.STOPPED, reason=str(error))
            return await _finish(context, assignment, tree, run)
    except WorkspaceGoneError as error:
        log.warning("restarted, because the job's files are gone: %s", error)
        return await _start_over(context, assignment, prepared)


async def _stop_waiting(
    context: JobContext, assignment: Assignment, reason: str, status: Status = Status.STOPPED
) -> JobOutcome:
    async with _reopen(context, assignment) as tree:
        run = Outcome(status=status, reason=reason, usage=context.state.progress.usage)
        return await _finish(context, assignment, tree, run)


@asynccontextmanager
async def _reopen(context: JobContext, assignment: Assignment) -> AsyncIterator[Tree]:
    context.state.phases.begin("prepare")
    async with reopen_workspace(context, assignment) as tree:
        if assignment.merge is not None and tree.base_sha != assignment.merge.commit:  # git was updated meanwhile
            raise WorkspaceGoneError("The merge begins again, since git merges differently now.", "No action needed.")
        with _keeping_files(context.state):
            await record_generation(context, tree)
            yield tree


@contextmanager
def _keeping_files(state: RunState) -> Iterator[None]:
    """Keep the workspace for a later attempt if this one is interrupted."""
    try:
        yield
    except (asyncio.CancelledError, QueueError, SessionInUseError, SessionUnavailableError):
        state.keeps_files = True
        raise
    except Exception as error:  # any of them may have a fault behind it that is not the job's
        state.keeps_files = state.keeps_files or classify(error) is not None
        raise


async def _prepare(context: JobContext, assignment: Assignment, tree: Tree) -> tuple[Brief, SetupResult]:
    start_in = context.services.conventions.working_directory
    if start_in and not any(path.startswith(f"{start_in}/") for path in tree.blobs):
        raise MissingDirectoryError(start_in, tree.base_sha)
    network = describe_network(agent_network(context, assignment))
    setup = await run_setup(context, assignment, tree)
    material = await gather(context, assignment)
    conflict = await asyncio.to_thread(assignment.settings.conflict_note, tree.blobs)
    warnings = (conflict, setup.warning, material.unread)
    state = context.state
    state.warn("\n\n".join(filter(None, warnings)))
    state.progress = replace(state.progress, reach=network, setup_failed=setup.failed, failing=material.failing)
    # Hostile threads cost seconds to clean.
    return await asyncio.to_thread(brief_for, context.job, assignment.command, material), setup


async def _start(
    context: JobContext, assignment: Assignment, tree: Tree, inputs: tuple[Brief, SetupResult], agent: AsyncRuntime
) -> Outcome:
    brief, setup = inputs
    inbox, repo = context.state.inbox, assignment.snapshot.repo.full_name
    task = await inbox.unless_stopped(
        material_module.fetch_pictures(context, repo, brief, sees_images=agent.agent.provider.sees_images)
    )
    if task is None:
        return Outcome(status=Status.STOPPED)
    branch = one_line(assignment.snapshot.thread.head_ref, _BRANCH_CHARS)  # of a fork: named by a stranger
    head, merge = f"HEAD: {assignment.grant.bound_to_sha[:10]} on {branch}", assignment.merge
    if merge is not None:
        head += f", with the merge of {merge.label} at {merge.base[:10]} under way"
    if tree.repository is not None:
        head += f", in a git repository with {tree.repository.summary}. Commits there are not published, the files are"
    signed = (SIGNED_ONLY,) if assignment.grant.signed_only else ()
    facts = (head, *signed, *setup.facts, *(() if can_ask(context, assignment) else (NO_USER,)))
    task = replace(task, quotes=(*task.quotes, *setup.quotes), output_schema=assignment.output_schema)
    if assignment.grant.candidates == 1:
        return await agent.run(task, facts=facts)
    candidates = Candidates(agent, context.state, assignment.grant.candidates, tree.blobs)
    inbox.connect(candidates, candidates.stop)
    outcome = await candidates.run_best(task, facts)
    if outcome is None:
        inbox.connect(agent, agent.abort)
        outcome = await agent.run(task, facts=facts)
    return outcome


async def _run(context: JobContext, assignment: Assignment, tree: Tree, segment: Segment) -> Outcome:
    """Run a segment; the outcome includes the cost of earlier ones."""
    state = context.state
    progress = (await context.record.read()).progress
    grant = await reserve_budget(
        context, assignment.grant, assignment.settings.config, assignment.command, assignment.snapshot.labels
    )
    if isinstance(grant, Refusal):
        return Outcome(status=Status.STOPPED, reason=grant.reason, usage=state.progress.usage)
    state.grant = grant
    session = context.services.sessions.get(context.job.id) if context.services.sessions is not None else None
    spec = await build_spec(context, assignment, grant, tree, session)
    state.phases.begin("run")

    def listen(event: Event) -> None:
        state.process_event(event)
        inner = event.event if isinstance(event, ChildWatched) else event
        if isinstance(inner, NetworkUsed):
            log.info("network: %s", inner.connection)

    listeners = (listen, *context.services.listeners)
    async with open_session(session), context.services.agent(spec, listeners) as agent:
        if can_ask(context, assignment):
            agent.hooks.register("permission_request", deny_unshowable_calls(context.github.redact_text))
            agent.hooks.register("permission_request", approve_similar(context, assignment))
        else:
            deny_unanswerable(agent.hooks, state, assignment)
        if assignment.grant.actions:
            tool = propose_tool(
                assignment.grant.actions, thread=context.job.thread.number, earlier=lambda: state.progress.proposals
            )
            agent.register_tool(PROPOSE, tool)
        if assignment.merge is not None:
            agent.hooks.register("completion", object_to_merge(assignment.merge, tree))
        state.inbox.connect(agent, agent.abort, agent.session.events)
        try:
            outcome = Outcome(status=Status.STOPPED) if state.inbox.stop_reason else await segment(agent)
            state.events = agent.session.events
            # Closing the agent ends all programs before anything reads its files.
            state.progress = replace(state.progress, ended_programs=await agent.list_programs())
        finally:
            state.inbox.disconnect()
    return outcome if progress is None else replace(outcome, usage=progress.usage + outcome.usage)


async def build_spec(
    context: JobContext, assignment: Assignment, grant: Grant, tree: Tree, session: Session | None
) -> AgentSpec:
    """Return the configuration of a segment's agent; `grant` has what the caps leave of its budget."""
    config = assignment.settings.config
    files = select_files(
        assignment.settings.instructions, "code-review" if isinstance(assignment.command, Review) else "coding-agent"
    )
    personas = (config.persona,) if config.persona is not None else ()
    instructions = {persona.path: persona.text for persona in personas} | {config.path: config.instructions, **files}
    # Elsewhere the failures are the task, or the pull request's own.
    is_on_base = context.job.thread.kind != "pull" and not assignment.snapshot.thread.continues
    is_plain_edit = isinstance(assignment.command, Edit) and context.job.origin.kind != "ci"
    return AgentSpec(
        work_dir=tree.path,
        policy=await effective_policy(context, grant.policy),
        tools=assignment.grant.tools,
        model=assignment.grant.model,
        network=agent_network(context, assignment),
        instructions={name: text for name, text in instructions.items() if text.strip()},
        session=session,
        skills=assignment.settings.skills,
        start_in=context.services.conventions.working_directory,
        index_file=tree.code_index,
        attended=can_ask(context, assignment),
        servers=assignment.grant.servers,
        readable=tree.readable,
        excuses_failures=is_plain_edit and is_on_base,
    )


async def _finish(context: JobContext, assignment: Assignment, tree: Tree, run: Outcome) -> JobOutcome:
    state = context.state
    state.phases.begin("publish")
    await state.save_denied()
    parked = await park(context, run, stop_reason=assignment.closing or state.inbox.stop_reason)
    if isinstance(parked, Waiting):
        state.keeps_files = True
        return parked
    run = parked
    if parked.output_json and parked.summary and not isinstance(assignment.command, Review):
        run = replace(parked, summary=await asyncio.to_thread(list_output, parked.summary, parked.output_json))
    if run.pending is not None and context.can_ask:
        until = time.time() + context.services.bounds.approval_seconds
        request = waiting.build_request(run.pending, assignment.grant, until=until)
        await waiting.store_request(context.record, request)
        state.keeps_files = True
        return await wait_for(context, request)
    place, summary = f"{context.services.setup.sandbox.inner_path(tree.path)}/", run.summary or ""
    written = {path.removeprefix(place) for path in state.progress.written}
    change = await tree.change(lambda path: path in written or is_named(path, summary))
    # A candidate was judged in its copy, which its files came from.
    if not state.progress.attempts and change.touched is not None:
        state.add_edits(*change.touched)
    if run.status is Status.FINISHED and change and (rerun := choose_rerun(context, assignment)) is not None:
        is_done = await state.inbox.unless_stopped(rerun(context, assignment, tree, change))
        run = run if is_done else replace(run, status=Status.STOPPED, reason=state.inbox.stop_reason)
    if run.status is Status.FINISHED:
        unread = await material_module.measure_reading(context, assignment)
        state.progress = replace(state.progress, unread=unread)
    await store_result(context, run, change, ends=bool(state.inbox.stop_reason or assignment.closing))
    return await deliver(context, assignment, tree, run, change)


async def _publish_stored(
    context: JobContext, assignment: Assignment, result: RunResult, patch: Path, request: Request | None
) -> JobOutcome:
    log.info("the work is already finished; publishing it")
    context.state.phases.begin("publish")
    context.state.progress = result.progress
    context.state.inbox.delivered.update(result.messages)
    if request is not None and request.kind == "plan":
        return await continue_plan(context, assignment, result.outcome, request)
    approved_tree = denial = ""
    if request is not None and request.kind == "publication":
        answer = await find_denial(context, request, assignment.closing or context.state.inbox.stop_reason)
        if answer is None:
            stored_patch = await asyncio.to_thread(context.services.work.excerpt, context.job.id)
            return await wait_for(context, request, completion=result.outcome.summary, patch=stored_patch)
        approved_tree, denial = "" if answer else request.tree_sha, answer
    if request is not None and request.kind == "actions":
        answer = await find_denial(context, request, assignment.closing or context.state.inbox.stop_reason)
        if answer is not None:
            await record_answer(context, request, answer)
        denial = context.state.inbox.stop_reason  # which is for the change, too
    repo_id, source = assignment.snapshot.repo.id, assignment.source
    async with context.services.workspaces.open(context.job.id, repo_id, source) as tree:
        restored = await tree.restore(patch, expect=result.tree_sha)
        change = replace(restored, notes=result.notes, exclusions=result.exclusions)
        return await deliver(
            context, assignment, tree, result.outcome, change, approved_tree=approved_tree, denial=denial
        )


def agent_network(context: JobContext, assignment: Assignment) -> Network:
    """Return the network of the agent's commands: the operator's, narrowed by the repository."""
    return narrow_network(context.services.bounds.network, assignment.settings.config.network).network


def can_ask(context: JobContext, assignment: Assignment) -> bool:
    """Whether users are asked; parallel candidates never wait."""
    return context.can_ask and assignment.grant.candidates == 1


def open_workspace(context: JobContext, assignment: Assignment) -> AbstractAsyncContextManager[Tree]:
    """Open a new workspace at the commit; it stays if `RunState.keeps_files` at exit."""
    workspaces, current = context.services.workspaces, partial(is_current, context.queue)
    repo_id, keep = assignment.snapshot.repo.id, partial(_keeps_files, context)
    refs = repository_refs(context, assignment)
    return workspaces.open(context.job.id, repo_id, assignment.source, refs=refs, keep=keep, current=current)


def repository_refs(context: JobContext, assignment: Assignment) -> Refs:
    """Return the names of the commits in the agent's repository."""
    thread, merge, base = assignment.snapshot.thread, assignment.merge, None
    if context.job.thread.kind == "pull" or thread.continues:
        base = replace(assignment.source, ref=f"refs/heads/{thread.base_ref}", sha=assignment.settings.base_sha)
        base = base if merge is None else replace(base, sha=merge.base)
    return Refs(branch=thread.head_ref, base=base, is_of_fork=thread.head_repo_id != thread.repo.id, merge=merge)


def _keeps_files(context: JobContext) -> bool:
    return context.state.keeps_files


@asynccontextmanager
async def reopen_workspace(context: JobContext, assignment: Assignment) -> AsyncIterator[Tree]:
    """Reopen the files of an earlier attempt or segment.

    Raises:
        WorkspaceGoneError: they are lost.
        StorageError: the store cannot be reached.
        ChangeError: the saved change does not apply.
    """
    handover, job_id = context.services.handover, context.job.id
    saved = handover.saved if handover is not None else {}
    if job_id not in saved:
        generation = (await context.record.read()).generation or ""
        ref = WorkspaceRef(generation=generation, repo_id=assignment.snapshot.repo.id, source=assignment.source)
        current, keep = partial(is_current, context.queue), partial(_keeps_files, context)
        refs = repository_refs(context, assignment)
        async with context.services.workspaces.reopen(job_id, ref, refs=refs, keep=keep, current=current) as tree:
            yield tree
        return
    async with open_workspace(context, assignment) as tree:
        # Ignored files were not saved; the setup creates its own again.
        await run_setup(context, assignment, tree)
        await tree.restore_carried(saved[job_id].work)
        # Only now: a failed attempt leaves it to the next one.
        del saved[job_id]
        yield tree


async def record_generation(context: JobContext, tree: Tree) -> None:
    """Store the workspace's generation before any write: older files of the job become invalid."""
    await context.record.update(lambda record: waiting.end_service_outage(replace(record, generation=tree.generation)))


async def is_current(records: JobRecords, job_id: str, generation: str) -> bool:
    return (await StoredRecord(records, job_id).read()).generation == generation


async def run_setup(context: JobContext, assignment: Assignment, tree: Tree) -> SetupResult:
    if not assignment.grant.can_execute:
        return SetupResult()
    return await context.services.setup.run(
        tree,
        assignment.settings,
        repo_id=assignment.snapshot.repo.id,
        report=context.state.add_activity,
        start_in=context.services.conventions.working_directory,
    )


async def park(context: JobContext, outcome: Outcome, *, stop_reason: str) -> Waiting | Outcome:
    """Let a job wait if its model was unavailable, else return the outcome; `stop_reason` replaces its reason."""
    if stop_reason and outcome.status in {Status.STOPPED, Status.MODEL_UNAVAILABLE}:
        return replace(outcome, status=Status.STOPPED, reason=stop_reason)
    if outcome.status is not Status.MODEL_UNAVAILABLE:
        return outcome
    if not context.services.is_long_running:  # nobody tries again later
        return outcome
    patience = context.services.model_patience
    outage = await waiting.record_outage(context.record, outcome, patience=patience)
    if outage is None:
        return replace(outcome, reason=waiting.describe_exhausted_patience(outcome, patience))
    context.state.progress = replace(context.state.progress, awaits="")
    reason = waiting.describe_outage(outage, outcome.reason or "", patience=patience)
    return Waiting(until=outage.until, service="the model service", reason=reason)


async def effective_policy(context: JobContext, policy: Policy) -> Policy:
    """Return the policy; a run that waited for the model before does not wait in a worker again."""
    if (await context.record.read()).outage is None:
        return policy
    return replace(policy, limits=replace(policy.limits, outage_seconds=0.0))


async def continue_segment(agent: AsyncRuntime) -> Outcome:
    """Continue after a crash or an outage, unless the outcome is already known."""
    outcome = agent.outcome
    if outcome is None or outcome.status is Status.MODEL_UNAVAILABLE:
        return await agent.resume()
    return outcome


def approve_similar(context: JobContext, assignment: Assignment) -> Callable[..., Awaitable[bool | None]]:
    """Return a hook that approves calls matching a pattern approved in this run.

    Reads the patterns for each call: a push invalidates them during the run, and they survive the process.
    """
    grant = assignment.grant
    moved = context.job.thread.kind == "pull" and assignment.snapshot.thread.head_sha != grant.bound_to_sha

    async def approve(pending: PendingCall, **_: object) -> bool | None:
        patterns = () if moved else (await context.record.read()).approvals.approved_patterns
        return True if is_covered(grant.policy, patterns, pending) else None

    return approve


NO_USER = "Nobody can be asked in this run: decide for yourself, and say in the completion what you decided."
_CALL_CHARS = 2_000
_NO_ANSWER = "nobody can be asked in this run"
_DECIDE = f"{_NO_ANSWER}; decide for yourself, and say in the completion what you decided"
_ALTERNATIVES = (
    "Allowed without asking: reading and writing files, and the usual tests, builds and linters as plain commands, "
    "without substitution, variables or redirection into files"
)


def deny_unanswerable(hooks: HookSystem, state: RunState, assignment: Assignment) -> None:
    """Deny each approval request and question of a run that no user can answer."""

    async def add_denial(call: DeniedCall) -> None:
        """Add and store a denied call; the session does not record it."""
        state.progress = state.progress.with_denied_call(call)
        try:
            await state.save_denied()
        except QueueError as error:  # the run's end stores it, or fails
            log.warning("a denied call is not stored yet: %s", error)

    # Async, so that both run on the event loop, which alone changes the progress.
    async def deny(pending: PendingCall, **_: object) -> str:
        setting, value = _allowing_setting(assignment, pending)
        request = str(pending.args.get("command") or pending.preview)[:_CALL_CHARS]
        await add_denial(
            DeniedCall(tool=pending.tool, request=request, reason=pending.reason, setting=setting, value=value)
        )
        return f"{_NO_ANSWER}. {pending.reason.rstrip('. ')}. {_ALTERNATIVES}"

    async def decline(question: str, **_: object) -> NoAnswer:
        await add_denial(DeniedCall(tool="ask_user", request=question[:_CALL_CHARS], reason="It is a question."))
        return NoAnswer(why=_DECIDE)

    # By arguments even for long calls: no user sees them.
    hooks.register("permission_request", deny, by_arguments=True)
    hooks.register("ask_user", decline)


def _allowing_setting(
    assignment: Assignment, pending: PendingCall
) -> tuple[Literal["allow-commands", "level", "label", "label-off"], str]:
    """Return the setting that would allow a call, and its value."""
    if patterns := exact_patterns(assignment.grant.policy, pending):
        return "allow-commands", "; ".join(patterns)
    thread, repo, names = assignment.snapshot.thread, assignment.snapshot.repo, assignment.settings.config.labels
    if thread.head_repo_id != repo.id:  # of a fork neither input nor file can raise the level
        return "label", names.auto
    # The lowest of label, file and input holds.
    if lowering := next((name for name in assignment.snapshot.labels if names.level_of(name) == "ask"), ""):
        return "label-off", lowering
    return "level", "auto"


RERUN_SECONDS = 600.0
_MAX_RERUNS = 3
_PLAIN_NAME = re.compile(r"\w+")
_CACHES = frozenset({".pytest_cache/", ".mypy_cache/", ".ruff_cache/"})


def is_named(path: str, completion: str) -> bool:
    """Whether a completion names a file; a plain word must be set as code."""
    if path not in completion or _PLAIN_NAME.fullmatch(path):  # a pattern for each of 20,000 files takes seconds
        return f"`{path}`" in completion
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])", completion) is not None


def choose_rerun(
    context: JobContext, assignment: Assignment
) -> Callable[[JobContext, Assignment, Tree, Change], Coroutine[Any, Any, bool]] | None:
    """Return the host's own run of checks: of the failed command for a fix for failed checks, or of a merge's."""
    if not assignment.grant.can_execute or not isinstance(assignment.command, Edit):
        return None
    if context.job.origin.kind == "ci":
        return prove
    return check_merge if assignment.merge is not None else None


async def prove(context: JobContext, assignment: Assignment, tree: Tree, change: Change) -> bool:
    """Rerun the failed command on the agent's files, and record the result.

    Raises:
        SandboxError: the sandbox cannot be started.
    """
    unpublished = tuple(path for path in await tree.list_unpublished(change) if path not in _CACHES)
    state = context.state
    progress = state.progress
    failed = find_reproduction(progress.checks, progress.edits, progress.failing)
    if failed is None:
        state.progress = replace(progress, rerun=Rerun(ignored_files=unpublished))
        return True
    [run] = await _rerun_checks(context, assignment, tree, change, [failed])
    rerun = Rerun(
        command=failed.command,
        before=failed.exit_code or 0,
        after=run.exit_code,
        seconds=run.seconds,
        is_unrelated=is_unrelated(failed, progress.failing),
        passed_there=any(check.passed and check.command == failed.command for check in progress.checks),
        ignored_files=unpublished,
    )
    state.progress = replace(state.progress, rerun=rerun, checks=(*state.progress.checks, run))
    return True


async def check_merge(context: JobContext, assignment: Assignment, tree: Tree, change: Change) -> bool:
    """Rerun the checks that passed on a resolved merge; these runs count instead.

    Raises:
        SandboxError: the sandbox cannot be started.
    """
    state = context.state
    passed = [check for check in state.progress.judged_checks if check.passed and check.standing == "counts"]
    known = [check for check in passed if not check.is_ad_hoc] or passed
    runs = await _rerun_checks(context, assignment, tree, change, known[-_MAX_RERUNS:])
    state.progress = replace(state.progress, checks=(*state.progress.checks, *runs))
    return True


async def _rerun_checks(
    context: JobContext, assignment: Assignment, tree: Tree, change: Change, checks: Sequence[Check]
) -> list[Check]:
    """Rerun checks on the agent's files in a fresh sandbox.

    HEAD of the repository there has the change, as after its publication. No variables, background processes or home
    of the agent's terminals exist there.
    """
    if not checks:
        return []
    runs, deadline, report = list[Check](), time.monotonic() + RERUN_SECONDS, context.state.add_activity
    await tree.commit_in_repository(change)
    async with CommandRunner(
        context.services.setup.sandbox.showing(tree.readable),
        tree.path,
        network=agent_network(context, assignment),
        start_in=context.services.conventions.working_directory,
        on_connection=lambda connection: log.info("proof: network: %s", connection),
    ) as runner:
        for check in checks:
            # On its own line: if the directory is missing, no part of the command runs.
            change_directory = f"cd {shlex.quote(check.directory)}\n" if check.directory else ""
            activity = Activity(label=f"proof: {one_line(check.command, 200)}", state="doing")
            report(activity)
            end = await runner.run(f"{change_directory}{check.command}", seconds=max(0.0, deadline - time.monotonic()))
            report(replace(activity, state="done" if end.ok else "failed"))
            log.info("proof: exit code %s after %.1f s; it wrote:\n%s", end.exit_code, end.seconds, end.output)
            facts: dict[str, Any] = {"exit_code": end.exit_code, "seconds": end.seconds, "ended": time.time()}
            runs.append(replace(check, declared=True, by_host=True, failed_before=(), **facts))
    return runs


async def store_result(context: JobContext, run: Outcome, change: Change, *, ends: bool = False) -> None:
    """Store the result before it is published, and delete the session; one that ends the job does not wait for it."""
    state = context.state
    result = RunResult(
        outcome=run,
        progress=state.progress,
        base_sha=change.base_sha,
        tree_sha=change.tree_sha,
        messages=tuple(sorted(state.inbox.delivered)),
        notes=change.notes,
        exclusions=change.exclusions,
    )
    try:
        await context.services.work.save(context.job.id, context.record, result, change)
    except StorageError as error:
        if not ends:
            raise
        log.warning("the work of the job is only published, and not stored: %s", error)
        return
    await context.services.store_log(context.job)
    await asyncio.to_thread(context.services.forget_session, context.job)
