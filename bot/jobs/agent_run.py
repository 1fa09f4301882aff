"""The agent's run on a job: in a workspace, through its pauses, up to a result that can be published.

`AgentRun.go` begins the work, continues it after a pause or the end of a process, or publishes a result that an earlier
attempt has kept. A run that needs a person or waits for the model service ends as a job that waits. People's messages
reach the agent while it works. Where nobody can be asked, a call that needs a person is denied with the reason.
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
from bot.jobs.results import ResultDelivery
from bot.jobs.setup import SetupResult
from bot.jobs.status import StatusReporter
from bot.jobs.storage import opened
from bot.permissions.levels import describe_network, narrow_network
from bot.prompt.brief import Brief, brief_for
from bot.publishing.checks import Rerun, find_reproduction, is_unrelated
from bot.publishing.markdown import fence, one_line
from bot.publishing.screening import deny_unshowable_calls
from bot.publishing.status_view import Activity, DeniedCall
from bot.queue.records import ApprovalAnswer, JobRecords, RunResult, Signal, Waiting

log = logging.getLogger(__name__)

_BRANCH_CHARS = 200
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

    def handle_signal(self, signal: Signal) -> None:
        """Take in what somebody says to the job while it runs."""
        if signal.kind == "stop":
            self._stopped = signal.text
            self._interrupt()
            return
        self._messages.deliver(signal)

    @property
    def undelivered(self) -> tuple[Signal, ...]:
        """The messages that came too late for the agent."""
        return self._messages.undelivered

    async def go(self) -> Ending:
        """Begin, go on, or publish, whatever comes next."""
        record, work = self._context.record, self._context.services.work
        asked = await waiting.asked(record)
        done = await work.find(self._context.job.id, record)
        if done is not None:
            return await self._publish_again(done[0], done[1], asked)
        if asked is None:
            return await self._begin()
        await self._reporter.recall()
        answer = await waiting.answered(record, asked)
        if answer is not None and not self._stopped:
            return await self._go_on(asked, answer)
        if self._stopped:
            return await self._stop_waiting(self._stopped)
        if asked.until <= time.time():
            return await self._stop_waiting(waiting.unanswered(asked))
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
                    return await self._end(tree, await self._run(tree, continue_leg))
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
        await self._context.services.keep_log(self._context.job)
        await asyncio.to_thread(self._context.services.forget_session, self._context.job)
        async with opened_anew(self._context, self._assignment, keep=lambda: self._parked) as tree:
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
                return continue_leg(runtime)  # the answer was heard already, by an attempt that was cut off
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
        async with reopened(self._context, self._reporter, self._assignment, keep=lambda: self._parked) as tree:
            with self._staying_when_interrupted():
                await record_generation(self._context, tree)
                yield tree

    async def _prepare(self, tree: Tree) -> tuple[Brief, SetupResult]:
        """Everything that is there before the agent starts."""
        context, begun, reporter = self._context, self._assignment, self._reporter
        start_in = context.services.conventions.working_directory
        if start_in and not any(path.startswith(f"{start_in}/") for path in tree.blobs):
            raise MissingDirectoryError(start_in, tree.base_sha)
        reached = describe_network(narrow_network(context.services.network, begun.asked.config.network).network)
        ready = await set_up(context, reporter, begun, tree)
        material = await gather(context, begun)
        reporter.warn("\n\n".join(filter(None, (begun.asked.ignored(tree.blobs), ready.warning, material.unread))))
        reporter.prepared(reached, setup_failed=ready.failed, failing=material.failing)
        # Hostile threads cost seconds to clean.
        return await asyncio.to_thread(brief_for, context.job, begun.command, material), ready

    async def _start(self, runtime: AsyncRuntime, brief: Brief, ready: SetupResult, tree: Tree) -> Outcome:
        """Show the agent its task, with pictures where its model sees."""
        begun, sees = self._assignment, runtime.agent.provider.sees_images
        task = await self._unless_stopped(
            material_module.shown(self._context, begun.here.repo.full_name, brief, sees=sees)
        )
        if task is None:
            return Outcome(status=Status.STOPPED)
        self._interrupt = runtime.abort
        branch = one_line(begun.here.thread.head_ref, _BRANCH_CHARS)  # of a fork: named by a stranger
        head = f"HEAD: {begun.grant.bound_to_sha[:10]} on {branch}, nothing uncommitted (git is not needed)"
        facts = (head, *ready.facts, *(() if self._asks else (NOBODY_ANSWERS,)))
        task = replace(task, quotes=(*task.quotes, *ready.quotes), output_schema=begun.output_schema)
        if begun.grant.candidates == 1:
            return await runtime.run(task, facts=facts)
        candidates = Candidates(runtime, self._reporter, begun.grant.candidates, tree.blobs)
        self._interrupt = candidates.stop
        self._messages.go_to(candidates)
        outcome = await candidates.best(task, facts)
        if outcome is None:
            self._interrupt = runtime.abort
            self._messages.go_to(runtime)
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
            network=narrow_network(context.services.network, config.network).network,
            instructions={name: text for name, text in instructions.items() if text.strip()},
            session=session,
            skills=begun.asked.skills,
            start_in=context.services.conventions.working_directory,
            kept_index=tree.code_index,
            servers=begun.grant.servers,
        )
        context.phases.begin("run")
        listeners = (self._listen, *context.services.listeners)
        async with opened(session), context.services.agent(order, listeners) as runtime:
            self._messages.go_to(runtime)
            if self._asks:
                runtime.hooks.register("permission_request", deny_unshowable_calls(self._context.github.redacted))
                runtime.hooks.register("permission_request", approves_alike(context, begun))
            else:
                deny_unanswerable(runtime.hooks, self._reporter, begun)
            self._interrupt = runtime.abort
            try:
                outcome = Outcome(status=Status.STOPPED) if self._stopped else await leg(runtime)
            finally:
                self._messages.go_to(None)
                self._interrupt = _nothing
        return outcome if kept is None else replace(outcome, usage=kept.usage + outcome.usage)

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
            asked = waiting.request_for(outcome.pending, self._assignment.grant, until=until)
            await waiting.ask(context.record, asked)
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


def opened_anew(
    context: JobContext, begun: Assignment, *, keep: Callable[[], bool]
) -> AbstractAsyncContextManager[Tree]:
    """The files of the commit.

    Args:
        context: the job.
        begun: what it may do, and where.
        keep: asked as the body ends: whether the files stay.
    """
    workspaces, current = context.services.workspaces, partial(is_current, context.queue)
    return workspaces.open(context.job.id, begun.here.repo.id, begun.source, keep=keep, current=current)


@asynccontextmanager
async def reopened(
    context: JobContext, reporter: StatusReporter, begun: Assignment, *, keep: Callable[[], bool]
) -> AsyncIterator[Tree]:
    """The files as an earlier attempt, or an earlier leg, left them.

    Args:
        context: the job.
        reporter: reports it.
        begun: what it may do, and where.
        keep: asked as the body ends: whether the files stay.

    Raises:
        WorkspaceGoneError: they are not there any more.
        StorageError: they may be stored, but the store cannot be reached.
        ChangeError: what was saved does not fit.
    """
    handover, job_id = context.services.handover, context.job.id
    saved = handover.saved if handover is not None else {}
    if job_id not in saved:
        generation = (await context.record.read()).generation or ""
        left = WorkspaceRef(generation=generation, repo_id=begun.here.repo.id, source=begun.source)
        current = partial(is_current, context.queue)
        async with context.services.workspaces.reopen(job_id, left, keep=keep, current=current) as tree:
            yield tree
        return
    async with opened_anew(context, begun, keep=keep) as tree:
        # Files that git ignores were not saved; what of them set-up makes, it makes again.
        await set_up(context, reporter, begun, tree)
        await tree.restore_carried(saved[job_id].work)
        # An attempt that could not put it back leaves it to the next one.
        del saved[job_id]
        yield tree


async def record_generation(context: JobContext, tree: Tree) -> None:
    """Before anything writes to the files: from now on only these are the job's, wherever older ones are."""
    await context.record.update(lambda record: replace(record, generation=tree.generation))


async def is_current(records: JobRecords, job_id: str, generation: str) -> bool:
    """Whether a job's files are still those of a generation; see `IsCurrent`."""
    return (await records.record(job_id)).generation == generation


async def set_up(context: JobContext, reporter: StatusReporter, begun: Assignment, tree: Tree) -> SetupResult:
    """Have the repository's set-up run, where a job may execute anything."""
    if not begun.grant.can_execute:
        return SetupResult()
    return await context.services.setup.run(
        tree,
        begun.asked,
        repo_id=begun.here.repo.id,
        tell=reporter.tell,
        start_in=context.services.conventions.working_directory,
    )


class Messages:
    """The messages of one job, over all the legs of its run."""

    def __init__(self) -> None:
        self._signals: dict[str, Signal] = {}
        self._told: set[str] = set()
        self._agent: AsyncRuntime | Candidates | None = None

    def deliver(self, signal: Signal) -> None:
        """Pass a message on, at once when the agent is at work."""
        self._signals[signal.id] = signal
        if self._agent is not None:
            _send(self._agent, signal)

    def go_to(self, agent: AsyncRuntime | Candidates | None) -> None:
        """Pass on the messages that an agent, or several at once, have not been told; None when they have ended."""
        for event in agent.session.events if isinstance(agent, AsyncRuntime) else ():
            self.note(event)
        self._agent = agent
        if agent is not None:
            for signal in self.undelivered:
                _send(agent, signal)

    def note(self, event: Event) -> None:
        """Take in an event of the run."""
        if isinstance(event, MessageInjected):
            self._told.add(event.id)

    @property
    def undelivered(self) -> tuple[Signal, ...]:
        """Those that came too late for the agent."""
        return tuple(signal for signal in self._signals.values() if signal.id not in self._told)


def _send(agent: AsyncRuntime | Candidates, signal: Signal) -> None:
    # By id: people repeat themselves, and a redactor may change the text on its way.
    agent.send_message(f"@{signal.by} says, while you work: {signal.text}", id=signal.id)


async def parked(context: JobContext, reporter: StatusReporter, outcome: Outcome, *, stopped: str) -> Ending | Outcome:
    """Let a job wait when its run ended for the model's sake.

    Args:
        context: the job.
        reporter: reports it.
        outcome: how its run ended its leg.
        stopped: who has stopped the job, as a sentence; empty when nobody has.

    Returns:
        That the job waits; or how its run ended for good, which of a job that was stopped says who has.
    """
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
    view = reporter.now(state="parked", reason=reason)
    return Ending(state=JobState.WAITING, reason=outcome.reason or "", view=view, until=outage.until)


async def policy_of(context: JobContext, policy: Policy) -> Policy:
    """What a run may do and spend; one that waited for the model before does not hold a worker up by waiting again."""
    if await waiting.last_outage(context.record) is None:
        return policy
    return replace(policy, limits=replace(policy.limits, outage_seconds=0.0))


async def continue_leg(runtime: AsyncRuntime) -> Outcome:
    """The leg after a process that ended at any moment, or after an outage: what it came to stands, else it goes on."""
    outcome = runtime.outcome
    if outcome is None or outcome.status is Status.MODEL_UNAVAILABLE:
        return await runtime.resume()
    return outcome


def approves_alike(context: JobContext, assignment: Assignment) -> Callable[..., Awaitable[bool | None]]:
    """A handler of requests for permission that approves what fits a pattern which was approved in this run.

    What was approved is looked up for each call: a push invalidates it during the run, and it survives the process.

    Args:
        context: the job.
        assignment: what it may do, and where.
    """
    grant = assignment.grant
    moved = context.job.thread.kind == "pull" and assignment.here.thread.head_sha != grant.bound_to_sha

    async def approve(pending: PendingCall, **_: object) -> bool | None:
        patterns = () if moved else await waiting.approved_alike(context.record)
        return True if is_covered(grant.policy, patterns, pending) else None

    return approve


NOBODY_ANSWERS = "Nobody can be asked in this run: decide for yourself, and say in the completion what you decided."
"""The agent's instructions about it, before it starts."""
_ASKED_CHARS = 2_000
_NOBODY = "nobody can be asked in this run"
_DECIDE = f"{_NOBODY}; decide for yourself, and say in the completion what you decided"
_INSTEAD = (
    "Allowed without asking: reading and writing files, and the usual tests, builds and linters as plain commands, "
    "without substitution, variables or redirection into files"
)


def deny_unanswerable(hooks: HookSystem, reporter: StatusReporter, assignment: Assignment) -> None:
    """Answer all that a runtime asks, in the place of people who are not there.

    Args:
        hooks: the runtime's.
        reporter: keeps what was denied.
        assignment: says what would have allowed it.
    """

    # Async, so that both run on the event loop, which alone changes the progress.
    async def deny(pending: PendingCall, **_: object) -> str:
        setting, value = _allowing(assignment, pending)
        asked = str(pending.args.get("command") or pending.preview)[:_ASKED_CHARS]
        await reporter.denied(
            DeniedCall(tool=pending.tool, asked=asked, reason=pending.reason, setting=setting, value=value)
        )
        return f"{_NOBODY}. {pending.reason.rstrip('. ')}. {_INSTEAD}"

    async def decline(question: str, **_: object) -> NoAnswer:
        await reporter.denied(DeniedCall(tool="ask_user", asked=question[:_ASKED_CHARS], reason="It is a question."))
        return NoAnswer(why=_DECIDE)

    # By arguments also for what is too long to be shown: nobody is shown anything.
    hooks.register("permission_request", deny, by_arguments=True)
    hooks.register("ask_user", decline)


def _allowing(
    begun: Assignment, pending: PendingCall
) -> tuple[Literal["allow-commands", "level", "label", "label-off"], str]:
    """The setting that would have allowed a call, and its value."""
    if patterns := exact_patterns(begun.grant.policy, pending):
        return "allow-commands", "; ".join(patterns)
    thread, repo, names = begun.here.thread, begun.here.repo, begun.asked.config.labels
    if thread.head_repo_id != repo.id:  # of a fork neither input nor file can raise the level
        return "label", names.auto
    # The lowest of label, file and input holds.
    if lowering := next((name for name in begun.here.labels if names.level_of(name) == "ask"), ""):
        return "label-off", lowering
    return "level", "auto"


def readable(outcome: Outcome) -> Outcome:
    """The same outcome, its summary as a block of code where it is nothing but JSON."""
    if not outcome.output_json or not outcome.summary or "```" in outcome.summary:
        return outcome
    return replace(outcome, summary=fence(outcome.summary, "json"))


RERUN_SECONDS = 600.0
_CACHES = frozenset({".pytest_cache/", ".mypy_cache/", ".ruff_cache/"})


def is_to_be_proven(context: JobContext, begun: Assignment) -> bool:
    """Whether a change is published only when the failed command passes after it: a fix that failed checks began."""
    return context.job.origin.kind == "ci" and isinstance(begun.command, Fix) and begun.grant.can_execute


async def prove(context: JobContext, reporter: StatusReporter, begun: Assignment, tree: Tree, change: Change) -> bool:
    """Run the failed command on the files as the agent left them, whatever it says of them, and keep what it came to.

    Nothing of the agent's terminals is there: no variables, no programs in the background, no home.

    Raises:
        SandboxError: the sandbox cannot be started.
    """
    beside = tuple(each for each in await tree.list_unpublished(change) if each not in _CACHES)
    progress, tell = reporter.progress, reporter.tell
    shown = find_reproduction(progress.checks, progress.edits, progress.failing)
    if shown is None:
        reporter.progress = replace(progress, rerun=Rerun(beside=beside))
        return True
    # On a line of its own: without the directory nothing of the command is run, whatever it is made of.
    place = f"cd {shlex.quote(shown.directory)}\n" if shown.directory else ""
    doing = Activity(label=f"proof: {one_line(shown.command, 200)}", state="doing")
    tell(doing)
    async with CommandRunner(
        context.services.setup.sandbox,
        tree.path,
        network=narrow_network(context.services.network, begun.asked.config.network).network,
        start_in=context.services.conventions.working_directory,
        told=lambda connection: log.info("proof: network: %s", connection),
    ) as runner:
        end = await runner.run(f"{place}{shown.command}", seconds=RERUN_SECONDS)
    tell(replace(doing, state="done" if end.ok else "failed"))
    log.info(
        "proof: exit code %s after %.1f s; it wrote:\n%s",
        end.exit_code,
        end.seconds,
        end.output,
    )
    check = replace(shown, exit_code=end.exit_code, seconds=end.seconds, ended=time.time(), declared=True, by_host=True)
    rerun = Rerun(
        command=shown.command,
        before=shown.exit_code or 0,
        after=end.exit_code,
        seconds=end.seconds,
        other=is_unrelated(shown, progress.failing),
        passed_there=any(each.passed and each.command == shown.command for each in progress.checks),
        beside=beside,
    )
    reporter.progress = replace(reporter.progress, rerun=rerun, checks=(*reporter.progress.checks, check))
    return True


async def keep(context: JobContext, reporter: StatusReporter, outcome: Outcome, change: Change) -> None:
    """Keep what a run came to before any of it is published; its session is needed no more."""
    work = RunResult(outcome=outcome, progress=reporter.progress, base_sha=change.base_sha, tree_sha=change.tree_sha)
    await context.services.work.keep(context.job.id, context.record, work, change)
    await context.services.keep_log(context.job)
    await asyncio.to_thread(context.services.forget_session, context.job)
