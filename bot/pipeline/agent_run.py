"""One piece of work: the agent's run in a workspace, its stops on the way, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from agent_runtime import (
    AsyncRuntime,
    ChildWatched,
    Event,
    NetworkUsed,
    Outcome,
    ResumeError,
    SessionInUseError,
    SessionUnavailableError,
    Status,
)
from bot.domain.errors import QueueError, StorageError
from bot.engine.approvals import ApprovalAnswer, Waiting
from bot.engine.job_record import RunResult
from bot.engine.records import Signal
from bot.gate.brief import Brief, brief_for
from bot.gate.network import narrowed, reach
from bot.jobs import approvals
from bot.jobs.assignment import Assignment
from bot.jobs.context import Ending, JobContext
from bot.jobs.run_logs import keep_log
from bot.jobs.services import AgentSpec
from bot.jobs.sessions import opened
from bot.jobs.setup import SetupResult
from bot.pipeline import pictures
from bot.pipeline.candidates import Candidates
from bot.pipeline.deliver import ResultDelivery
from bot.pipeline.denied_calls import NOBODY_ANSWERS, deny_unanswerable
from bot.pipeline.host_check import is_to_be_proven, keep, prove
from bot.pipeline.material import gather
from bot.pipeline.messages import Messages
from bot.pipeline.parking import parked, policy_of, taken_up
from bot.pipeline.reopening import opened_anew, record_generation, reopened, set_up
from bot.pipeline.similar_calls import approves_alike
from bot.pipeline.structured_output import readable
from bot.publishing.showing import denies_unshowable
from bot.reporting.reporter import StatusReporter
from bot.workspace import MissingDirectoryError, Tree, WorkspaceGoneError

log = logging.getLogger(__name__)

T = TypeVar("T")
Leg = Callable[[AsyncRuntime], Coroutine[Any, Any, Outcome]]


class AgentRun:
    """Sees one piece of work through, or to the point where a person must answer."""

    def __init__(self, context: JobContext, reporter: StatusReporter, assignment: Assignment) -> None:
        self._context, self._reporter, self._assignment = context, reporter, assignment
        self._delivery = ResultDelivery(context, reporter, assignment)
        self._interrupt: Callable[[], object] = _nothing
        self._messages = Messages()
        self._stopped = ""
        self._parked = False
        self._fresh = reporter.progress

    def hear(self, signal: Signal) -> None:
        """Take in what somebody says to the job while it runs."""
        if signal.kind == "stop":
            self._stopped = signal.text
            self._interrupt()
            return
        self._messages.hear(signal)

    @property
    def untold(self) -> tuple[Signal, ...]:
        """The messages that came too late for the agent."""
        return self._messages.untold

    async def go(self) -> Ending:
        """Begin, go on, or publish, whatever comes next."""
        record, work = self._context.record, self._context.services.work
        asked = await approvals.asked(record)
        done = await work.find(self._context.job.id, record)
        if done is not None:
            return await self._publish_again(done[0], done[1], asked)
        if asked is None:
            return await self._begin()
        await self._reporter.recall()
        answer = await approvals.answered(record, asked)
        if answer is not None and not self._stopped:
            return await self._go_on(asked, answer)
        if self._stopped:
            return await self._stop_waiting(self._stopped)
        if asked.until <= time.time():
            return await self._stop_waiting(approvals.unanswered(asked))
        # Its worker died before it could tell that it waits.
        return await self._delivery.waits(asked)

    async def give_up(self, status: Status) -> Ending:
        """End a job that was begun, as the assignment says why, and keep what it did.

        Raises:
            WorkspaceError: its files are gone.
        """
        why = self._assignment.closing
        self._stopped = why
        await self._reporter.recall()
        done = await self._context.services.work.find(self._context.job.id, self._context.record)
        if done is not None:
            ended = replace(done[0], outcome=replace(done[0].outcome, status=status, reason=why))
            return await self._publish_again(ended, done[1], None)
        return await self._stop_waiting(why, status)

    async def _begin(self) -> Ending:
        """Start, or go on where an attempt before this was cut off with its process."""
        kept = (await self._context.record.read()).progress
        await self._reporter.recall()
        is_given_up = kept is not None and kept.run_id and kept.run_id == self._reporter.progress.run_id
        if not is_given_up and await asyncio.to_thread(self._context.services.has_session, self._context.job):
            try:
                async with self._reopened() as tree:
                    return await self._end(tree, await self._run(tree, taken_up))
            except (WorkspaceGoneError, ResumeError) as error:
                log.warning("restarted from the beginning: %s", error)
        return await self._begin_anew()

    async def _begin_anew(self) -> Ending:
        self._context.phases.begin("prepare")
        # What the attempt before it has cost counts, and its log is kept.
        lost = self._reporter.progress
        self._reporter.progress = replace(self._fresh, usage=lost.usage, run_id=lost.run_id)
        if lost.usage.requests:
            await self._reporter.keep()
        await keep_log(self._context.services, self._context.job)
        await asyncio.to_thread(self._context.services.forget_session, self._context.job)
        async with opened_anew(self._context, self._assignment, keep=self._is_to_stay) as tree:
            with self._staying_when_interrupted():
                await record_generation(self._context, tree)
                prepared = await self._unless_stopped(self._prepare(tree))
                if prepared is None:
                    return await self._end(tree, Outcome(status=Status.STOPPED))
                await self._reporter.keep()
                brief, ready = prepared
                return await self._end(
                    tree, await self._run(tree, lambda runtime: self._start(runtime, brief, ready, tree))
                )

    async def _go_on(self, asked: Waiting, answer: ApprovalAnswer) -> Ending:
        """Continue at the call that waited, in the files as they were left."""
        if not await asyncio.to_thread(self._context.services.has_session, self._context.job):
            return await self._begin_anew()  # as an attempt did that was cut off before its first step

        def leg(runtime: AsyncRuntime) -> Coroutine[Any, Any, Outcome]:
            pending = runtime.pending
            if pending is None or pending.request_id != asked.request_id:
                return taken_up(runtime)  # the answer was heard already, by an attempt that was cut off
            return runtime.resume(approve=answer.approved, note=answer.note, request_id=asked.request_id)

        try:
            async with self._reopened() as tree:
                try:
                    outcome = await self._run(tree, leg)
                except ResumeError as error:
                    outcome = Outcome(status=Status.STOPPED, reason=str(error))
                return await self._end(tree, outcome)
        except WorkspaceGoneError as error:
            log.warning("restarted, because the job's files are gone: %s", error)
            return await self._begin_anew()

    async def _stop_waiting(self, why: str, status: Status = Status.STOPPED) -> Ending:
        async with self._reopened() as tree:
            return await self._end(tree, Outcome(status=status, reason=why, usage=self._reporter.progress.usage))

    @asynccontextmanager
    async def _reopened(self) -> AsyncIterator[Tree]:
        """The files as an earlier attempt, or an earlier leg, left them."""
        self._context.phases.begin("prepare")
        async with reopened(self._context, self._reporter, self._assignment, keep=self._is_to_stay) as tree:
            with self._staying_when_interrupted():
                await record_generation(self._context, tree)
                yield tree

    async def _prepare(self, tree: Tree) -> tuple[Brief, SetupResult]:
        """Everything that is there before the agent starts."""
        context, begun, reporter = self._context, self._assignment, self._reporter
        start_in = context.services.conventions.working_directory
        if start_in and not any(path.startswith(f"{start_in}/") for path in tree.blobs):
            raise MissingDirectoryError(start_in, tree.base_sha)
        reached = reach(narrowed(context.services.network, begun.asked.config.network).network)
        ready = await set_up(context, reporter, begun, tree)
        material = await gather(context, begun)
        reporter.warn("\n\n".join(filter(None, (begun.asked.ignored(tree.blobs), ready.warning, material.unread))))
        reporter.prepared(reached, setup_failed=ready.failed, failing=material.failing)
        # Hostile threads cost seconds to clean.
        return await asyncio.to_thread(brief_for, context.job, begun.command, material), ready

    async def _start(self, runtime: AsyncRuntime, brief: Brief, ready: SetupResult, tree: Tree) -> Outcome:
        """Show the agent its task, with pictures where its model sees."""
        begun, sees = self._assignment, runtime.agent.provider.sees_images
        task = await self._unless_stopped(pictures.shown(self._context, begun.here.repo.full_name, brief, sees=sees))
        if task is None:
            return Outcome(status=Status.STOPPED)
        self._interrupt = runtime.abort
        facts = (begun.head_fact, *ready.facts, *(() if self._asks else (NOBODY_ANSWERS,)))
        task = replace(task, quotes=(*task.quotes, *ready.quotes), output_schema=begun.output_schema)
        if begun.grant.candidates == 1:
            return await runtime.run(task, facts=facts)
        candidates = Candidates(runtime, self._reporter, begun.grant.candidates, tree.blobs)
        self._interrupt = candidates.stop
        self._messages.go_on_to(candidates)
        outcome = await candidates.best(task, facts)
        if outcome is None:
            self._interrupt = runtime.abort
            self._messages.go_on_to(runtime)
            outcome = await runtime.run(task, facts=facts)
        return outcome

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` gives, or None when somebody stops the job meanwhile."""
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
            self._interrupt = _nothing

    async def _run(self, tree: Tree, leg: Leg) -> Outcome:
        """Run a leg; its outcome has the cost of attempts before this one, too."""
        context, begun = self._context, self._assignment
        kept = (await context.record.read()).progress
        config = begun.asked.config
        instructions = {config.path: config.instructions, **begun.asked.instructions}
        session = context.services.sessions.of(context.job.id) if context.services.sessions is not None else None
        order = AgentSpec(
            work_dir=tree.path,
            policy=await policy_of(context, begun.grant.policy),
            tools=begun.grant.tools,
            model=begun.grant.model,
            network=narrowed(context.services.network, config.network).network,
            instructions={name: text for name, text in instructions.items() if text.strip()},
            session=session,
            skills=begun.asked.skills,
            start_in=context.services.conventions.working_directory,
            kept_index=tree.kept_index,
            servers=begun.grant.servers,
        )
        context.phases.begin("run")
        listeners = (self._listen, *context.services.listeners)
        async with opened(session), context.services.agent(order, listeners) as runtime:
            self._messages.go_to(runtime)
            if self._asks:
                runtime.hooks.register("permission_request", denies_unshowable(self._context.github.redacted))
                runtime.hooks.register("permission_request", approves_alike(context, begun))
            else:
                deny_unanswerable(runtime.hooks, self._reporter, begun)
            self._interrupt = runtime.abort
            try:
                outcome = Outcome(status=Status.STOPPED) if self._stopped else await leg(runtime)
            finally:
                self._messages.go_to(None)
                self._interrupt = _nothing
        # An earlier version kept what the session tells, too, when a run came to wait.
        return replace(outcome, usage=kept.usage + outcome.usage) if kept is not None and not kept.steps else outcome

    async def _end(self, tree: Tree, outcome: Outcome) -> Ending:
        """Wait for a person, or keep what the run came to and publish it."""
        context = self._context
        context.phases.begin("publish")
        await self._reporter.keep_denied()
        settled = await parked(context, self._reporter, outcome, stopped=self._stopped)
        if isinstance(settled, Ending):
            self._parked = True
            return settled
        outcome = readable(settled)
        if outcome.pending is not None and context.can_ask:
            until = time.time() + context.services.bounds.approval_seconds
            asked = approvals.request_for(outcome.pending, self._assignment.grant, until=until)
            await approvals.ask(context.record, asked)
            self._parked = True
            return await self._delivery.waits(asked)
        change = await tree.change(unfinished=outcome.status is not Status.FINISHED)
        if not self._reporter.progress.attempts:  # a candidate was judged in its copy, which its files came from
            self._reporter.edited(change)
        if outcome.status is Status.FINISHED and change and is_to_be_proven(context, self._assignment):
            proven = await self._unless_stopped(prove(context, self._reporter, self._assignment, tree, change))
            outcome = outcome if proven else replace(outcome, status=Status.STOPPED, reason=self._stopped)
        await keep(context, self._reporter, outcome, change)
        return await self._delivery.deliver(tree, outcome, change)

    async def _publish_again(self, done: RunResult, patch: Path, asked: Waiting | None) -> Ending:
        """Publish what an earlier attempt kept, once it may be published."""
        context, begun = self._context, self._assignment
        log.info("the work is already finished; publishing it")
        context.phases.begin("publish")
        self._reporter.progress = done.progress
        if asked is not None and asked.kind == "plan":
            return await self._delivery.planned(done.outcome, asked, self._stopped)
        verdict = None
        held = asked if asked is not None and asked.kind == "publication" else None
        if held is not None and (verdict := await self._delivery.verdict(held, self._stopped)) is None:
            kept = await asyncio.to_thread(context.services.work.patch, context.job.id)
            return await self._delivery.waits(held, patch=kept, completion=done.outcome.summary)
        async with context.services.workspaces.open(context.job.id, begun.here.repo.id, begun.source) as tree:
            change = await tree.restore(patch, expect=done.tree_sha)
            return await self._delivery.deliver(tree, done.outcome, change, verdict=verdict)

    @property
    def _asks(self) -> bool:
        """Whether people are asked; of several candidates none waits for an answer."""
        return self._context.can_ask and self._assignment.grant.candidates == 1

    def _is_to_stay(self) -> bool:
        """Whether the files are needed once more."""
        return self._parked

    @contextmanager
    def _staying_when_interrupted(self) -> Iterator[None]:
        """Keep the files for the next worker: this one has to stop, or cannot keep its log, and releases the job."""
        try:
            yield
        except (asyncio.CancelledError, QueueError, StorageError, SessionInUseError, SessionUnavailableError):
            self._parked = True
            raise

    def _listen(self, event: Event) -> None:
        self._reporter.listen(event)
        inner = event.event if isinstance(event, ChildWatched) else event
        self._messages.note(inner)
        if isinstance(inner, NetworkUsed):
            log.info("network: %s", inner.connection)


def _nothing() -> None:
    """Nothing is under way that could be interrupted."""
