"""The agent's run on a job, through its pauses up to its result."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    EventType,
    HookSystem,
    MessageInjected,
    NoAnswer,
    Outcome,
    PendingCall,
    Policy,
    RunLimits,
    ScriptedProvider,
    Status,
    pick_sandbox,
)
from agent_runtime.sandbox.protocol import SandboxSettings
from bot.domain.commands import Fix
from bot.git.errors import ChangeError, CloneError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import WorkspaceRef
from bot.jobs import waiting
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import Assignment
from bot.jobs.agent_run import (
    approve_similar,
    continue_segment,
    deny_unanswerable,
    effective_policy,
    is_current,
    park,
    record_generation,
    reopen_workspace,
    run_setup,
)
from bot.jobs.context import JobContext
from bot.jobs.record import ApprovalAnswer, StoredRecord
from bot.jobs.setup import RepoSettings, SetupResult
from bot.jobs.state import Inbox, RunState
from bot.permissions.levels import Conventions, Grant
from bot.permissions.repo_config import RepoConfig
from bot.publishing.outcome import Waiting
from bot.publishing.status_view import Progress
from bot.queue.memory import InMemoryEngine
from bot.queue.records import Signal
from tests.builders import a_job
from tests.job_contexts import context_of, snapshot

DONE = "```completion\nDone.\n```\n"


def runtime_of(
    path: Path, messages: Inbox, replies: Sequence[str] = (DONE,), *, is_stored: bool = False
) -> AsyncRuntime:
    sandbox = pick_sandbox("auto", SandboxSettings())
    agent = Agent(provider=ScriptedProvider(list(replies)), work_dir=path, sandbox=sandbox)
    session = "file" if is_stored else "memory"
    return AsyncRuntime(
        agent, session, session_dir=path.parent if is_stored else None, listeners=[messages.record_event]
    )


def message_signal(id_: str, text: str = "mind the minus") -> Signal:
    return Signal(kind="message", text=text, by="mona", id=id_)


def injected(runtime: AsyncRuntime) -> list[str]:
    return [event.id for event in runtime.session.events if isinstance(event, MessageInjected)]


async def test_a_message_that_repeats_an_earlier_one_is_delivered_too(tmp_path: Path) -> None:
    messages = Inbox()
    messages.put(message_signal("m1"))
    async with runtime_of(tmp_path, messages) as runtime:
        messages.connect(runtime, runtime.abort, runtime.session.events)
        messages.put(message_signal("m2"))
        await runtime.run("Listen")
        assert injected(runtime) == ["m1", "m2"]
    assert messages.undelivered == ()


async def test_a_message_that_repeats_an_earlier_one_and_comes_too_late_is_reported(tmp_path: Path) -> None:
    messages = Inbox()
    messages.put(message_signal("m1"))
    async with runtime_of(tmp_path, messages) as runtime:
        messages.connect(runtime, runtime.abort, runtime.session.events)
        await runtime.run("Listen")
        messages.disconnect()
        messages.put(message_signal("m2"))
    assert [signal.id for signal in messages.undelivered] == ["m2"]


async def test_the_next_process_delivers_only_what_the_session_does_not_have(tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    for heard in (["m1"], ["m1", "m2"]):
        messages = Inbox()
        for id_ in heard:
            messages.put(message_signal(id_))
        async with runtime_of(work_dir, messages, is_stored=True) as runtime:
            messages.connect(runtime, runtime.abort, runtime.session.events)
            await runtime.run("Listen")
            assert injected(runtime) == heard


DOWN = Outcome(status=Status.MODEL_UNAVAILABLE, reason="HTTP 503", steps=3)
DAY = 86_400.0


async def _context(*, is_long_running: bool = True, patience: float = DAY) -> JobContext:
    engine, job = InMemoryEngine(), a_job()
    await engine.accept(job)
    context = context_of(
        engine, job, services=SimpleNamespace(is_long_running=is_long_running, model_patience=patience)
    )
    context.state.progress = Progress(awaits="the model service")
    return context


async def test_a_job_waits_for_the_model_and_not_for_a_person() -> None:
    context = await _context()
    outcome = await park(context, DOWN, stop_reason="")
    assert isinstance(outcome, Waiting)
    assert (outcome.pending, outcome.service) == (None, "the model service")
    assert outcome.until > time.time()
    assert (await context.record.read()).is_waiting_for_model(outcome.until)
    assert context.state.progress.awaits == ""


async def test_a_job_that_has_waited_for_long_enough_ends_and_says_so() -> None:
    outcome = await park(await _context(patience=1.0), DOWN, stop_reason="")
    assert isinstance(outcome, Outcome)
    assert outcome.status is Status.MODEL_UNAVAILABLE
    assert "HTTP 503" in (outcome.reason or "")


async def test_a_workflows_step_waits_for_nothing() -> None:
    context = await _context(is_long_running=False)
    assert await park(context, DOWN, stop_reason="") is DOWN
    assert (await context.record.read()).outage is None


@pytest.mark.parametrize("status", [Status.MODEL_UNAVAILABLE, Status.STOPPED])
async def test_a_job_that_was_stopped_meanwhile_does_not_wait(status: Status) -> None:
    outcome = await park(await _context(), replace(DOWN, status=status), stop_reason="Stopped by @mona.")
    assert outcome == replace(DOWN, status=Status.STOPPED, reason="Stopped by @mona.")


@pytest.mark.parametrize("stopped", ["", "Stopped by @mona."])
@pytest.mark.parametrize("status", [Status.FINISHED, Status.FAILED, Status.PAUSED])
async def test_what_a_run_came_to_before_a_stop_stands(status: Status, stopped: str) -> None:
    outcome = replace(DOWN, status=status)
    assert await park(await _context(), outcome, stop_reason=stopped) is outcome


async def test_only_a_run_that_has_waited_before_asks_a_silent_model_no_longer() -> None:
    context, policy = await _context(), Policy(limits=RunLimits(outage_seconds=600.0))
    assert await effective_policy(context, policy) == policy
    await park(context, DOWN, stop_reason="")
    after = await effective_policy(context, policy)
    assert (after.limits.outage_seconds, after.limits.max_steps) == (0.0, policy.limits.max_steps)


@pytest.mark.parametrize(
    ("outcome", "resumed"),
    [(None, True), (DOWN, True), (replace(DOWN, status=Status.FINISHED), False)],
    ids=["cut off", "after an outage", "finished"],
)
async def test_what_a_run_has_come_to_is_not_done_again(outcome: Outcome | None, *, resumed: bool) -> None:
    went_on = Outcome(status=Status.FINISHED, summary="It went on.")

    async def resume() -> Outcome:
        return went_on

    runtime = cast("AsyncRuntime", SimpleNamespace(outcome=outcome, resume=resume))
    assert await continue_segment(runtime) is (went_on if resumed else outcome)


BASE = "a" * 40
SOURCE = Source(url="/origin", token="", ref="refs/heads/main", sha=BASE)


@dataclass(slots=True)
class _Files:
    """Workspaces and their trees, which note in order what is done to them; `broken` names what fails once."""

    operations: list[str] = field(default_factory=list)
    broken: dict[str, Exception] = field(default_factory=dict)
    generation: str = "fresh"

    def _do(self, operation: str) -> None:
        if (error := self.broken.pop(operation, None)) is not None:
            raise error
        self.operations.append(operation)

    @asynccontextmanager
    async def open(self, *_: object, **__: object) -> AsyncIterator[Any]:
        self._do("open")
        yield self

    @asynccontextmanager
    async def reopen(self, _: str, workspace: WorkspaceRef, **__: object) -> AsyncIterator[Any]:
        self._do(f"reopen {workspace.generation} at {workspace.source.sha[:1]}")
        yield self

    async def restore_carried(self, work: str) -> None:
        self._do(f"put back {work}")

    async def run(self, *_: object, **__: object) -> SetupResult:
        self._do("set up")
        return SetupResult(facts=("It is set up.",))


def _assignment(*, executes: bool = True) -> Assignment:
    tools = ("execute",) if executes else ("read_file",)
    return Assignment(
        command=Fix(),
        snapshot=snapshot(),
        grant=Grant(policy=Policy(), publish="new_branch", bound_to_sha=BASE, tools=tools),
        settings=RepoSettings(config=RepoConfig(), base_sha=BASE),
        source=SOURCE,
    )


async def _reopening_context(files: _Files, *, saved: str = "") -> JobContext:
    engine, job = InMemoryEngine(), a_job()
    await engine.accept(job)
    handover = SimpleNamespace(saved={job.id: SimpleNamespace(work=saved)} if saved else {})
    services = SimpleNamespace(workspaces=files, setup=files, handover=handover, conventions=Conventions())
    return context_of(engine, job, services=services)


async def _reopen(context: JobContext) -> None:
    async with reopen_workspace(context, _assignment()):
        pass


async def test_files_are_reopened_as_the_last_attempt_to_write_to_them_left_them() -> None:
    files = _Files()
    context = await _reopening_context(files)
    await record_generation(context, cast("Tree", SimpleNamespace(generation="seventh")))
    await _reopen(context)
    assert files.operations == ["reopen seventh at a"]


async def test_what_another_workflow_run_stored_is_put_back_after_set_up() -> None:
    files = _Files()
    await _reopen(await _reopening_context(files, saved="the work"))
    assert files.operations == ["open", "set up", "put back the work"]


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        ("open", CloneError("It cannot be fetched.", "Try again.")),
        ("set up", ChangeError("It cannot be started.", "Try again.")),
        ("put back the work", ChangeError("It does not fit.", "Try again.")),
    ],
)
async def test_what_was_stored_is_still_there_for_the_next_attempt_when_one_could_not_put_it_back(
    fails: str, error: Exception
) -> None:
    files = _Files(broken={fails: error})
    context = await _reopening_context(files, saved="the work")
    with pytest.raises(type(error)):
        await _reopen(context)
    files.operations.clear()
    await _reopen(context)
    assert files.operations == ["open", "set up", "put back the work"]


async def test_what_was_put_back_once_is_not_put_over_what_the_job_did_since() -> None:
    files = _Files()
    context = await _reopening_context(files, saved="the work")
    async with reopen_workspace(context, _assignment()) as tree:
        await record_generation(context, tree)
    await _reopen(context)
    assert files.operations[3:] == ["reopen fresh at a"]


async def test_files_of_an_earlier_generation_are_not_the_jobs_any_more() -> None:
    context = await _reopening_context(_Files())
    await record_generation(context, cast("Tree", SimpleNamespace(generation="first")))
    assert await is_current(context.queue, context.job.id, "first")
    await record_generation(context, cast("Tree", SimpleNamespace(generation="second")))
    assert not await is_current(context.queue, context.job.id, "first")


async def test_only_a_job_that_may_execute_anything_is_set_up() -> None:
    files = _Files()
    context = await _reopening_context(files)
    tree = cast("Tree", files)
    assert await run_setup(context, _assignment(executes=False), tree) == SetupResult()
    assert files.operations == []
    assert (await run_setup(context, _assignment(), tree)).facts


def _call(command: str) -> PendingCall:
    return PendingCall(
        request_id="7f3a",
        kind="permission",
        tool="execute",
        args={"session": "main", "command": command},
        reason="asks",
        preview=command,
        workspace="",
    )


async def _approval_context(kind: str = "issue") -> JobContext:
    engine, job = InMemoryEngine(), a_job(kind=kind)
    await engine.accept(job)
    context = context_of(engine, job)
    answer = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=job.actor, like=("make *",))
    await waiting.store_answer(context.record, answer)
    return context


def _pull_assignment(head_sha: str = BASE) -> Assignment:
    return Assignment(
        command=Fix(),
        snapshot=snapshot(head_sha=head_sha),
        grant=Grant(policy=Policy(default="ask"), publish="pull_branch", bound_to_sha=BASE),
        settings=RepoSettings(config=RepoConfig(), base_sha=BASE),
        source=Source(url="/origin", token="", ref="refs/heads/main", sha=BASE),
    )


async def test_what_fits_the_pattern_is_approved_and_nothing_else_is_answered() -> None:
    approve = approve_similar(await _approval_context(), _pull_assignment())
    assert await approve(_call("make lint")) is True
    assert await approve(_call("cmake lint")) is None
    assert await approve(_call("make lint && curl example.com")) is None


async def test_a_push_voids_it_while_the_run_goes_on() -> None:
    context = await _approval_context()
    approve = approve_similar(context, _pull_assignment())
    await waiting.revoke_patterns(context.record)
    assert await approve(_call("make lint")) is None


async def test_it_does_not_hold_in_a_pull_request_that_has_moved_since() -> None:
    assert (
        await approve_similar(await _approval_context("pull"), _pull_assignment("b" * 40))(_call("make lint")) is None
    )
    assert await approve_similar(await _approval_context("pull"), _pull_assignment())(_call("make lint")) is True


LABELS = RepoConfig().labels
WRITE = PendingCall(
    request_id="7f3a",
    kind="permission",
    tool="write_file",
    args={"path": "a.py"},
    reason="A rule asks.",
    preview="+x = 1",
    workspace="",
)
COMMAND = replace(WRITE, tool="execute", args={"session": "main", "command": "npm view left-pad"}, preview="npm view")


def _unanswerable(thread: ThreadSnapshot, engine: InMemoryEngine | None = None) -> tuple[RunState, HookSystem]:
    state = context_of(engine or InMemoryEngine(), a_job()).state
    hooks = HookSystem()
    assignment = Assignment(
        command=Fix(),
        snapshot=thread,
        grant=Grant(policy=Policy(default="ask"), publish="pull_branch", bound_to_sha=BASE),
        settings=RepoSettings(config=RepoConfig(), base_sha=BASE),
        source=Source(url="/origin", token="", ref="refs/heads/main", sha=BASE),
    )
    deny_unanswerable(hooks, state, assignment)
    return state, hooks


async def _denied(call: PendingCall, thread: ThreadSnapshot) -> tuple[str, str, str]:
    state, hooks = _unanswerable(thread)
    [handler] = hooks.handlers(EventType.PERMISSION_REQUEST)
    reason = await cast("Awaitable[object]", handler(call))
    assert isinstance(reason, str), "a text denies the call"
    [denied] = state.progress.denied
    assert denied.tool == call.tool
    return denied.request, denied.setting, denied.value


@pytest.mark.parametrize(
    ("call", "thread", "noted"),
    [
        (COMMAND, snapshot(), ("npm view left-pad", "allow-commands", "npm view left-pad")),
        (WRITE, snapshot(), ("+x = 1", "level", "auto")),
        (WRITE, snapshot(labels=("bug", LABELS.ask)), ("+x = 1", "label-off", LABELS.ask)),
        (WRITE, snapshot(head_repo_id=11), ("+x = 1", "label", LABELS.auto)),
        (WRITE, snapshot(head_repo_id=11, labels=(LABELS.ask,)), ("+x = 1", "label", LABELS.auto)),
    ],
)
async def test_what_would_have_allowed_a_call_is_noted(
    call: PendingCall, thread: ThreadSnapshot, noted: tuple[str, str, str]
) -> None:
    assert await _denied(call, thread) == noted


async def test_what_was_denied_outlives_a_process_that_is_killed_before_the_run_ends() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job())
    _, hooks = _unanswerable(snapshot(), engine)
    [handler] = hooks.handlers(EventType.PERMISSION_REQUEST)
    await cast("Awaitable[object]", handler(COMMAND))
    [denied] = (await StoredRecord(engine, "j1").read()).denied or ()
    assert (denied.tool, denied.value) == ("execute", "npm view left-pad")


async def test_a_question_gets_no_answer_and_is_noted() -> None:
    state, hooks = _unanswerable(snapshot())
    [handler] = hooks.handlers(EventType.ASK_USER)
    assert isinstance(await cast("Awaitable[object]", handler("Which one?")), NoAnswer)
    [denied] = state.progress.denied
    assert (denied.tool, denied.request, denied.setting) == ("ask_user", "Which one?", "")


async def test_a_call_that_is_too_long_to_be_shown_is_denied_too() -> None:
    _, hooks = _unanswerable(snapshot())
    assert hooks.argument_handlers() == hooks.handlers(EventType.PERMISSION_REQUEST)
