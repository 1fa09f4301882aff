"""Run the agent on a job: in a workspace, through pauses, to a publishable result.

Start with `AgentRun.go`. A run that needs a user or waits for the model ends as a waiting job.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from agent_runtime import (
    AsyncRuntime,
    ChildWatched,
    CommandRunner,
    Event,
    HookSystem,
    MessageInjected,
    NetworkUsed,
    NoAnswer,
    Outcome,
    PendingCall,
    Policy,
    ResumeError,
    SessionInUseError,
    SessionUnavailableError,
    Status,
    exact_patterns,
    is_covered,
)
from bot.domain.commands import Fix
from bot.domain.errors import QueueError, StorageError
from bot.domain.job import JobState
from bot.git.change import Change
from bot.git.errors import MissingDirectoryError, WorkspaceGoneError
from bot.git.tree import Tree
from bot.git.workspace import WorkspaceRef
from bot.jobs import material as material_module
from bot.jobs import waiting
from bot.jobs.admission import Assignment
from bot.jobs.candidates import Candidates
from bot.jobs.context import AgentSpec, Ending, JobContext
from bot.jobs.material import gather
from bot.jobs.record import ApprovalAnswer, Request, RunResult, StoredRecord
from bot.jobs.results import ResultDelivery
from bot.jobs.setup import SetupResult
from bot.jobs.status import StatusReporter
from bot.jobs.storage import open_session
from bot.permissions.levels import describe_network, narrow_network
from bot.prompt.brief import Brief, brief_for
from bot.publishing.checks import Rerun, find_reproduction, is_unrelated
from bot.publishing.markdown import fence, one_line
from bot.publishing.screening import deny_unshowable_calls
from bot.publishing.status_view import Activity, DeniedCall
from bot.queue.protocols import JobRecords
from bot.queue.records import Signal

log = logging.getLogger(__name__)

_BRANCH_CHARS = 200
T = TypeVar("T")
Segment = Callable[[AsyncRuntime], Coroutine[Any, Any, Outcome]]


class AgentRun:
    """Run one assignment to its end, or until a user must answer."""

    def __init__(self, context: JobContext, reporter: StatusReporter, assignment: Assignment) -> None:
        self._context, self._reporter, self._assignment = context, reporter, assignment
        self._delivery = ResultDelivery(context, reporter, assignment)
        self._interrupt: Callable[[], object] = _no_op
        self._messages = Messages()
        self._stopped = ""
        self._keep = False
        self._initial_progress = reporter.progress

    def handle_signal(self, signal: Signal) -> None:
        if signal.kind == "stop":
            self._stopped = signal.text
            self._interrupt()
            return
        self._messages.deliver(signal)

    @property
    def undelivered(self) -> tuple[Signal, ...]:
        return self._messages.undelivered

    async def go(self) -> Ending:
        """Start, continue or publish, depending on the stored state."""
        record, work = self._context.record, self._context.services.work
        request = await waiting.latest(record)
        result = await work.find(self._context.job.id, record)
        if result is not None:
            return await self._publish_stored(result[0], result[1], request)
        if request is None:
            return await self._start_or_resume()
        await self._reporter.load()
        answer = await waiting.find_answer(record, request)
        if answer is not None and not self._stopped:
            return await self._resume(request, answer)
        if self._stopped:
            return await self._stop_waiting(self._stopped)
        if request.until <= time.time():
            return await self._stop_waiting(waiting.describe_timeout(request))
        # Its worker died before it reported the request.
        return await self._delivery.wait_for(request)

    async def abandon(self, status: Status) -> Ending:
        """End an interrupted job for `Assignment.closing`, and keep its work.

        Raises:
            WorkspaceError: its files are lost.
        """
        reason = self._assignment.closing
        self._stopped = reason
        await self._reporter.load()
        result = await self._context.services.work.find(self._context.job.id, self._context.record)
        if result is not None:
            abandoned = replace(result[0], outcome=replace(result[0].outcome, status=status, reason=reason))
            return await self._publish_stored(abandoned, result[1], None)
        return await self._stop_waiting(reason, status)

    async def _start_or_resume(self) -> Ending:
        progress = (await self._context.record.read()).progress
        await self._reporter.load()
        is_lost = progress is not None and progress.run_id and progress.run_id == self._reporter.progress.run_id
        if not is_lost and await asyncio.to_thread(self._context.services.has_session, self._context.job):
            try:
                async with self._reopen() as tree:
                    return await self._finish(tree, await self._run(tree, continue_segment))
            except (WorkspaceGoneError, ResumeError) as error:
                log.warning("restarted from the beginning: %s", error)
        return await self._start_over()

    async def _start_over(self) -> Ending:
        self._context.phases.begin("prepare")
        # Keep the cost and the log of the earlier attempt.
        progress = self._reporter.progress
        self._reporter.progress = replace(self._initial_progress, usage=progress.usage, run_id=progress.run_id)
        if progress.usage.requests:
            await self._reporter.save()
        await self._context.services.store_log(self._context.job)
        await asyncio.to_thread(self._context.services.forget_session, self._context.job)
        async with open_workspace(self._context, self._assignment, keep=lambda: self._keep) as tree:
            with self._keep_if_interrupted():
                await record_generation(self._context, tree)
                prepared = await self._unless_stopped(self._prepare(tree))
                if prepared is None:
                    return await self._finish(tree, Outcome(status=Status.STOPPED))
                await self._reporter.save()
                brief, ready = prepared
                return await self._finish(
                    tree, await self._run(tree, lambda runtime: self._start(runtime, brief, ready, tree))
                )

    async def _resume(self, request: Request, answer: ApprovalAnswer) -> Ending:
        if not await asyncio.to_thread(self._context.services.has_session, self._context.job):
            return await self._start_over()  # a worker died before the first step

        def segment(runtime: AsyncRuntime) -> Coroutine[Any, Any, Outcome]:
            pending = runtime.pending
            if pending is None or pending.request_id != request.request_id:
                return continue_segment(runtime)  # an earlier attempt has processed the answer
            return runtime.resume(approve=answer.approved, note=answer.note, request_id=request.request_id)

        try:
            async with self._reopen() as tree:
                try:
                    outcome = await self._run(tree, segment)
                except ResumeError as error:
                    outcome = Outcome(status=Status.STOPPED, reason=str(error))
                return await self._finish(tree, outcome)
        except WorkspaceGoneError as error:
            log.warning("restarted, because the job's files are gone: %s", error)
            return await self._start_over()

    async def _stop_waiting(self, reason: str, status: Status = Status.STOPPED) -> Ending:
        async with self._reopen() as tree:
            return await self._finish(tree, Outcome(status=status, reason=reason, usage=self._reporter.progress.usage))

    @asynccontextmanager
    async def _reopen(self) -> AsyncIterator[Tree]:
        self._context.phases.begin("prepare")
        async with reopen_workspace(self._context, self._reporter, self._assignment, keep=lambda: self._keep) as tree:
            with self._keep_if_interrupted():
                await record_generation(self._context, tree)
                yield tree

    async def _prepare(self, tree: Tree) -> tuple[Brief, SetupResult]:
        context, assignment, reporter = self._context, self._assignment, self._reporter
        start_in = context.services.conventions.working_directory
        if start_in and not any(path.startswith(f"{start_in}/") for path in tree.blobs):
            raise MissingDirectoryError(start_in, tree.base_sha)
        network = describe_network(narrow_network(context.services.network, assignment.settings.config.network).network)
        ready = await run_setup(context, reporter, assignment, tree)
        material = await gather(context, assignment)
        warnings = (assignment.settings.conflict_note(tree.blobs), ready.warning, material.unread)
        reporter.warn("\n\n".join(filter(None, warnings)))
        reporter.set_prepared(network, setup_failed=ready.failed, failing=material.failing)
        # Hostile threads cost seconds to clean.
        return await asyncio.to_thread(brief_for, context.job, assignment.command, material), ready

    async def _start(self, runtime: AsyncRuntime, brief: Brief, ready: SetupResult, tree: Tree) -> Outcome:
        assignment, sees = self._assignment, runtime.agent.provider.sees_images
        task = await self._unless_stopped(
            material_module.fetch_pictures(self._context, assignment.snapshot.repo.full_name, brief, sees_images=sees)
        )
        if task is None:
            return Outcome(status=Status.STOPPED)
        self._interrupt = runtime.abort
        branch = one_line(assignment.snapshot.thread.head_ref, _BRANCH_CHARS)  # of a fork: named by a stranger
        head = f"HEAD: {assignment.grant.bound_to_sha[:10]} on {branch}, nothing uncommitted (git is not needed)"
        facts = (head, *ready.facts, *(() if self._can_ask else (NO_USER,)))
        task = replace(task, quotes=(*task.quotes, *ready.quotes), output_schema=assignment.output_schema)
        if assignment.grant.candidates == 1:
            return await runtime.run(task, facts=facts)
        candidates = Candidates(runtime, self._reporter, assignment.grant.candidates, tree.blobs)
        self._interrupt = candidates.stop
        self._messages.set_agent(candidates)
        outcome = await candidates.run_best(task, facts)
        if outcome is None:
            self._interrupt = runtime.abort
            self._messages.set_agent(runtime)
            outcome = await runtime.run(task, facts=facts)
        return outcome

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`, or None if the job is stopped meanwhile."""
        task = asyncio.ensure_future(work)
        self._interrupt = task.cancel
        try:
            if self._stopped:
                task.cancel()
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not self._stopped or (current is not None and current.cancelling()):
                raise
            return None
        finally:
            self._interrupt = _no_op

    async def _run(self, tree: Tree, segment: Segment) -> Outcome:
        """Run a segment; the outcome includes the cost of earlier ones."""
        context, assignment = self._context, self._assignment
        progress = (await context.record.read()).progress
        config = assignment.settings.config
        instructions = {config.path: config.instructions, **assignment.settings.instructions}
        session = context.services.sessions.get(context.job.id) if context.services.sessions is not None else None
        spec = AgentSpec(
            work_dir=tree.path,
            policy=await effective_policy(context, assignment.grant.policy),
            tools=assignment.grant.tools,
            model=assignment.grant.model,
            network=narrow_network(context.services.network, config.network).network,
            instructions={name: text for name, text in instructions.items() if text.strip()},
            session=session,
            skills=assignment.settings.skills,
            start_in=context.services.conventions.working_directory,
            index_file=tree.code_index,
            servers=assignment.grant.servers,
        )
        context.phases.begin("run")
        listeners = (self._listen, *context.services.listeners)
        async with open_session(session), context.services.agent(spec, listeners) as runtime:
            self._messages.set_agent(runtime)
            if self._can_ask:
                runtime.hooks.register("permission_request", deny_unshowable_calls(self._context.github.redact_text))
                runtime.hooks.register("permission_request", approve_similar(context, assignment))
            else:
                deny_unanswerable(runtime.hooks, self._reporter, assignment)
            self._interrupt = runtime.abort
            try:
                outcome = Outcome(status=Status.STOPPED) if self._stopped else await segment(runtime)
            finally:
                self._messages.set_agent(None)
                self._interrupt = _no_op
        return outcome if progress is None else replace(outcome, usage=progress.usage + outcome.usage)

    async def _finish(self, tree: Tree, outcome: Outcome) -> Ending:
        context = self._context
        context.phases.begin("publish")
        await self._reporter.save_denied()
        waiting_or_outcome = await park(context, self._reporter, outcome, stopped=self._stopped)
        if isinstance(waiting_or_outcome, Ending):
            self._keep = True
            return waiting_or_outcome
        outcome = fence_json(waiting_or_outcome)
        if outcome.pending is not None and context.can_ask:
            until = time.time() + context.services.bounds.approval_seconds
            request = waiting.build_request(outcome.pending, self._assignment.grant, until=until)
            await waiting.store_request(context.record, request)
            self._keep = True
            return await self._delivery.wait_for(request)
        change = await tree.change(unfinished=outcome.status is not Status.FINISHED)
        if not self._reporter.progress.attempts:  # a candidate was judged in its copy, which its files came from
            self._reporter.add_edits(change)
        if outcome.status is Status.FINISHED and change and needs_proof(context, self._assignment):
            proven = await self._unless_stopped(prove(context, self._reporter, self._assignment, tree, change))
            outcome = outcome if proven else replace(outcome, status=Status.STOPPED, reason=self._stopped)
        await store_result(context, self._reporter, outcome, change)
        return await self._delivery.deliver(tree, outcome, change)

    async def _publish_stored(self, result: RunResult, patch: Path, request: Request | None) -> Ending:
        context, assignment = self._context, self._assignment
        log.info("the work is already finished; publishing it")
        context.phases.begin("publish")
        self._reporter.progress = result.progress
        if request is not None and request.kind == "plan":
            return await self._delivery.continue_plan(result.outcome, request, self._stopped)
        verdict = None
        approval = request if request is not None and request.kind == "publication" else None
        if approval is not None and (verdict := await self._delivery.find_verdict(approval, self._stopped)) is None:
            stored_patch = await asyncio.to_thread(context.services.work.excerpt, context.job.id)
            return await self._delivery.wait_for(approval, patch=stored_patch, completion=result.outcome.summary)
        repo_id, source = assignment.snapshot.repo.id, assignment.source
        async with context.services.workspaces.open(context.job.id, repo_id, source) as tree:
            change = await tree.restore(patch, expect=result.tree_sha)
            return await self._delivery.deliver(tree, result.outcome, change, verdict=verdict)

    @property
    def _can_ask(self) -> bool:
        """Whether users are asked; parallel candidates never wait."""
        return self._context.can_ask and self._assignment.grant.candidates == 1

    @contextmanager
    def _keep_if_interrupted(self) -> Iterator[None]:
        try:
            yield
        except (asyncio.CancelledError, QueueError, StorageError, SessionInUseError, SessionUnavailableError):
            self._keep = True
            raise

    def _listen(self, event: Event) -> None:
        self._reporter.process_event(event)
        inner = event.event if isinstance(event, ChildWatched) else event
        self._messages.record_event(inner)
        if isinstance(inner, NetworkUsed):
            log.info("network: %s", inner.connection)


def _no_op() -> None: ...


def open_workspace(
    context: JobContext, assignment: Assignment, *, keep: Callable[[], bool]
) -> AbstractAsyncContextManager[Tree]:
    """Open a new workspace at the commit; `keep` decides at exit whether it stays."""
    workspaces, current = context.services.workspaces, partial(is_current, context.queue)
    return workspaces.open(context.job.id, assignment.snapshot.repo.id, assignment.source, keep=keep, current=current)


@asynccontextmanager
async def reopen_workspace(
    context: JobContext, reporter: StatusReporter, assignment: Assignment, *, keep: Callable[[], bool]
) -> AsyncIterator[Tree]:
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
        current = partial(is_current, context.queue)
        async with context.services.workspaces.reopen(job_id, ref, keep=keep, current=current) as tree:
            yield tree
        return
    async with open_workspace(context, assignment, keep=keep) as tree:
        # Ignored files were not saved; the setup creates its own again.
        await run_setup(context, reporter, assignment, tree)
        await tree.restore_carried(saved[job_id].work)
        # Only now: a failed attempt leaves it to the next one.
        del saved[job_id]
        yield tree


async def record_generation(context: JobContext, tree: Tree) -> None:
    """Store the workspace's generation before any write: older files of the job become invalid."""
    await context.record.update(lambda record: replace(record, generation=tree.generation))


async def is_current(records: JobRecords, job_id: str, generation: str) -> bool:
    return (await StoredRecord(records, job_id).read()).generation == generation


async def run_setup(context: JobContext, reporter: StatusReporter, assignment: Assignment, tree: Tree) -> SetupResult:
    if not assignment.grant.can_execute:
        return SetupResult()
    return await context.services.setup.run(
        tree,
        assignment.settings,
        repo_id=assignment.snapshot.repo.id,
        report=reporter.add_activity,
        start_in=context.services.conventions.working_directory,
    )


class Messages:
    """The user messages of one job, across segments."""

    def __init__(self) -> None:
        self._signals: dict[str, Signal] = {}
        self._delivered: set[str] = set()
        self._agent: AsyncRuntime | Candidates | None = None

    def deliver(self, signal: Signal) -> None:
        self._signals[signal.id] = signal
        if self._agent is not None:
            _send(self._agent, signal)

    def set_agent(self, agent: AsyncRuntime | Candidates | None) -> None:
        """Send undelivered messages to an agent or candidates; None ends delivery."""
        for event in agent.session.events if isinstance(agent, AsyncRuntime) else ():
            self.record_event(event)
        self._agent = agent
        if agent is not None:
            for signal in self.undelivered:
                _send(agent, signal)

    def record_event(self, event: Event) -> None:
        if isinstance(event, MessageInjected):
            self._delivered.add(event.id)

    @property
    def undelivered(self) -> tuple[Signal, ...]:
        return tuple(signal for signal in self._signals.values() if signal.id not in self._delivered)


def _send(agent: AsyncRuntime | Candidates, signal: Signal) -> None:
    # By id: people repeat themselves, and a redactor may change the text on its way.
    agent.send_message(f"@{signal.by} says, while you work: {signal.text}", id=signal.id)


async def park(context: JobContext, reporter: StatusReporter, outcome: Outcome, *, stopped: str) -> Ending | Outcome:
    """Let a job wait if its model was unavailable, else return the outcome; `stopped` replaces its reason."""
    if stopped and outcome.status in {Status.STOPPED, Status.MODEL_UNAVAILABLE}:
        return replace(outcome, status=Status.STOPPED, reason=stopped)
    if outcome.status is not Status.MODEL_UNAVAILABLE:
        return outcome
    if not context.services.is_long_running:  # nobody tries again later
        return outcome
    patience = context.services.model_patience
    outage = await waiting.record_outage(context.record, outcome, patience=patience)
    if outage is None:
        return replace(outcome, reason=waiting.describe_exhausted_patience(outcome, patience))
    reporter.progress = replace(reporter.progress, awaits="")
    reason = waiting.describe_outage(outage, outcome.reason or "", patience=patience)
    view = reporter.view(state="parked", reason=reason)
    return Ending(state=JobState.WAITING, reason=outcome.reason or "", view=view, until=outage.until)


async def effective_policy(context: JobContext, policy: Policy) -> Policy:
    """Return the policy; a run that waited for the model before does not wait in a worker again."""
    if await waiting.last_outage(context.record) is None:
        return policy
    return replace(policy, limits=replace(policy.limits, outage_seconds=0.0))


async def continue_segment(runtime: AsyncRuntime) -> Outcome:
    """Continue after a crash or an outage, unless the outcome is already known."""
    outcome = runtime.outcome
    if outcome is None or outcome.status is Status.MODEL_UNAVAILABLE:
        return await runtime.resume()
    return outcome


def approve_similar(context: JobContext, assignment: Assignment) -> Callable[..., Awaitable[bool | None]]:
    """Return a hook that approves calls matching a pattern approved in this run.

    Reads the patterns for each call: a push invalidates them during the run, and they survive the process.
    """
    grant = assignment.grant
    moved = context.job.thread.kind == "pull" and assignment.snapshot.thread.head_sha != grant.bound_to_sha

    async def approve(pending: PendingCall, **_: object) -> bool | None:
        patterns = () if moved else await waiting.approved_patterns(context.record)
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


def deny_unanswerable(hooks: HookSystem, reporter: StatusReporter, assignment: Assignment) -> None:
    """Deny each approval request and question of a run that no user can answer."""

    # Async, so that both run on the event loop, which alone changes the progress.
    async def deny(pending: PendingCall, **_: object) -> str:
        setting, value = _allowing_setting(assignment, pending)
        request = str(pending.args.get("command") or pending.preview)[:_CALL_CHARS]
        await reporter.add_denial(
            DeniedCall(tool=pending.tool, request=request, reason=pending.reason, setting=setting, value=value)
        )
        return f"{_NO_ANSWER}. {pending.reason.rstrip('. ')}. {_ALTERNATIVES}"

    async def decline(question: str, **_: object) -> NoAnswer:
        await reporter.add_denial(
            DeniedCall(tool="ask_user", request=question[:_CALL_CHARS], reason="It is a question.")
        )
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


def fence_json(outcome: Outcome) -> Outcome:
    """Fence a summary that is only JSON."""
    if not outcome.output_json or not outcome.summary or "```" in outcome.summary:
        return outcome
    return replace(outcome, summary=fence(outcome.summary, "json"))


RERUN_SECONDS = 600.0
_CACHES = frozenset({".pytest_cache/", ".mypy_cache/", ".ruff_cache/"})


def needs_proof(context: JobContext, assignment: Assignment) -> bool:
    """Whether a change needs a passing rerun of the failed command: a fix for failed checks."""
    return context.job.origin.kind == "ci" and isinstance(assignment.command, Fix) and assignment.grant.can_execute


async def prove(
    context: JobContext, reporter: StatusReporter, assignment: Assignment, tree: Tree, change: Change
) -> bool:
    """Rerun the failed command on the agent's files in a fresh sandbox, and record the result.

    No variables, background processes or home of the agent's terminals exist there.

    Raises:
        SandboxError: the sandbox cannot be started.
    """
    unpublished = tuple(path for path in await tree.list_unpublished(change) if path not in _CACHES)
    progress, report = reporter.progress, reporter.add_activity
    failed = find_reproduction(progress.checks, progress.edits, progress.failing)
    if failed is None:
        reporter.progress = replace(progress, rerun=Rerun(ignored_files=unpublished))
        return True
    # On its own line: if the directory is missing, no part of the command runs.
    change_directory = f"cd {shlex.quote(failed.directory)}\n" if failed.directory else ""
    activity = Activity(label=f"proof: {one_line(failed.command, 200)}", state="doing")
    report(activity)
    async with CommandRunner(
        context.services.setup.sandbox,
        tree.path,
        network=narrow_network(context.services.network, assignment.settings.config.network).network,
        start_in=context.services.conventions.working_directory,
        on_connection=lambda connection: log.info("proof: network: %s", connection),
    ) as runner:
        end = await runner.run(f"{change_directory}{failed.command}", seconds=RERUN_SECONDS)
    report(replace(activity, state="done" if end.ok else "failed"))
    log.info(
        "proof: exit code %s after %.1f s; it wrote:\n%s",
        end.exit_code,
        end.seconds,
        end.output,
    )
    run = replace(failed, exit_code=end.exit_code, seconds=end.seconds, ended=time.time(), declared=True, by_host=True)
    rerun = Rerun(
        command=failed.command,
        before=failed.exit_code or 0,
        after=end.exit_code,
        seconds=end.seconds,
        is_unrelated=is_unrelated(failed, progress.failing),
        passed_there=any(check.passed and check.command == failed.command for check in progress.checks),
        ignored_files=unpublished,
    )
    reporter.progress = replace(reporter.progress, rerun=rerun, checks=(*reporter.progress.checks, run))
    return True


async def store_result(context: JobContext, reporter: StatusReporter, outcome: Outcome, change: Change) -> None:
    """Store the result before it is published, and delete the session."""
    result = RunResult(outcome=outcome, progress=reporter.progress, base_sha=change.base_sha, tree_sha=change.tree_sha)
    await context.services.work.save(context.job.id, context.record, result, change)
    await context.services.store_log(context.job)
    await asyncio.to_thread(context.services.forget_session, context.job)
