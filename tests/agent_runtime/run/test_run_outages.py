"""A model service that is down, slow or breaks off, met by a whole run with the vendors' own SDKs; no test waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Event,
    FallbackProvider,
    FileSession,
    HookSystem,
    InMemorySession,
    MemorySettings,
    ModelAwaited,
    ModelOptions,
    ModelOutageError,
    Observed,
    Outcome,
    Policy,
    Provider,
    Recovered,
    Replied,
    ReplyBroken,
    RunLimits,
    Runtime,
    Sandbox,
    ScriptedProvider,
    Status,
    Summarised,
    Usage,
)
from agent_runtime.agent import agent_file
from agent_runtime.agent.agent import ClockAndRandom
from agent_runtime.context.transcript import estimate
from agent_runtime.providers.protocol import Chunk, ReplyFault, ReplyStart, Request, TextChunk
from agent_runtime.providers.retry import BRIEF_RETRY
from agent_runtime.run import run
from agent_runtime.run.run import MAX_BILLED, MAX_SILENT, PatientProvider
from agent_runtime.run.state import RunClock, RunState
from tests.agent_runtime.providers.answers import DEFINITE, OUTAGES
from tests.agent_runtime.providers.conversations import WIRES, Naps, collect, conversation, provider_at, provider_on
from tests.model_server import Breaks, Fails, ModelServer, Received, Reply, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

DOWN = Fails(503, "overloaded_error", "Back soon")
WRITES = '```codepilot\nwrite_file("a.txt")\nexecute("main", "echo ran >> runs.txt")\n```\n```text\none\n```\n'
EDITS = '```codepilot\nwrite_file("a.txt", mode="edit", start_line=1, end_line=1)\n```\n```text\ntwo\n```\n'
DONE = "```completion\nDone.\n```\n"


@dataclass
class World:
    """A run in front of a model service, with a clock of the test's."""

    place: Path
    sandbox: Sandbox
    limits: RunLimits = field(default_factory=RunLimits)
    naps: Naps = field(default_factory=Naps)
    events: list[Event] = field(default_factory=list)
    sleep: Callable[[float], Awaitable[None]] | None = None
    silence: float | None = None
    memory: MemorySettings = field(default_factory=MemorySettings)

    @property
    def options(self) -> ModelOptions:
        return ModelOptions(retry=self.naps.retry(), silence=self.silence)

    @property
    def clock(self) -> float:
        """Seconds that were slept."""
        return sum(self.naps.seconds)

    @asynccontextmanager
    async def runtime(self, provider: Provider) -> AsyncIterator[AsyncRuntime]:
        self.place.mkdir(exist_ok=True)
        agent = Agent(
            provider=provider,
            work_dir=self.place,
            sandbox=self.sandbox,
            policy=Policy(limits=self.limits),
            chat=False,
            memory=self.memory,
            clock_and_random=replace(ClockAndRandom(), sleep=self.sleep or self.naps.sleep),
        )
        session = FileSession("run", session_dir=self.place.parent / "sessions")
        async with AsyncRuntime(agent, session, listeners=(self.events.append,)) as runtime:
            yield runtime

    def on(self, server: ModelServer, wire: Wire) -> AbstractAsyncContextManager[AsyncRuntime]:
        return self.runtime(provider_on(server, wire, self.options))

    def events_of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def world(tmp_path: Path, sandbox: Sandbox) -> World:
    return World(place=tmp_path / "work", sandbox=sandbox)


@pytest.mark.parametrize("wire", WIRES)
async def test_an_outage_of_minutes_is_waited_for_and_costs_no_step(world: World, wire: Wire) -> None:
    left = [WRITES, DONE]

    def reply(_: Received) -> Reply:
        return DOWN if len(left) == 1 and world.clock < 150 else left.pop(0)

    async with ModelServer(replies=reply) as server, world.on(server, wire) as runtime:
        outcome = await runtime.run("Write it.")
    assert (outcome.status, outcome.steps, outcome.usage.requests) == (Status.FINISHED, 2, 2)
    assert 150 <= world.clock < 300
    pauses = [event.seconds for event in world.events_of(ModelAwaited) if isinstance(event, ModelAwaited)]
    assert pauses == world.naps.seconds
    assert max(pauses) <= 60
    assert not world.events_of(ReplyBroken), "what was never begun costs nothing"


@pytest.mark.parametrize(("answer", "wire"), [*zip(OUTAGES, cycle(WIRES), strict=False)])
async def test_every_kind_of_outage_of_five_minutes_is_survived(world: World, answer: str, wire: Wire) -> None:
    left, stalls = [WRITES, DONE], list[Received]()
    # Real seconds, which stand for the five minutes of the default; a busy machine is no silence.
    world.silence = 0.1 if "stalls" in answer else 10.0
    world.limits = RunLimits(outage_seconds=900.0)

    def reply(received: Received) -> Reply:
        if len(left) == 2 or world.clock + 300 * len(stalls) >= 300:
            return left.pop(0)
        stalls.extend([received] if "stalls" in answer else [])
        return OUTAGES[answer]

    async with ModelServer(replies=reply) as server, world.on(server, wire) as runtime:
        outcome = await runtime.run("Write it.")
    assert (outcome.status, outcome.steps) == (Status.FINISHED, 2), outcome.reason
    assert len(world.events_of(ReplyBroken)) <= MAX_BILLED


@pytest.mark.parametrize(("patience", "shortest", "longest"), [(0.0, 1.0, 5.0), (60.0, 20.0, 70.0)])
async def test_a_service_that_was_never_reached_is_tried_for_seconds(
    world: World, patience: float, shortest: float, longest: float
) -> None:
    world.naps.attempts, world.limits = 5, RunLimits(offline_seconds=patience)
    async with world.runtime(provider_at("http://models.invalid", "chat", world.options)) as runtime:
        outcome = await runtime.run("Write it.")
    assert (outcome.status, outcome.steps) == (Status.MODEL_UNAVAILABLE, 0)
    assert "cannot be reached from this machine" in str(outcome)
    assert shortest <= world.clock <= longest
    assert "the name of its host cannot be resolved" in str(world.events_of(ModelAwaited)[0])


async def test_a_service_that_answered_before_is_waited_for_while_it_cannot_be_reached(world: World) -> None:
    class Cut(ScriptedProvider):
        @override
        async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
            if 0 < world.clock < 100 or (len(request.messages) > 1 and not world.clock):
                raise ModelOutageError("cut off", offline=True)
            async for chunk in super().reply(request):
                yield chunk

    async with world.runtime(Cut([WRITES, DONE])) as runtime:
        assert (await runtime.run("Write it.")).status is Status.FINISHED
    assert world.clock >= 100


@pytest.mark.parametrize("answer", ["a connection that breaks in the text", "a stream that stalls in the text"])
async def test_replies_that_break_off_are_requested_a_few_times_and_then_the_run_is_parked(
    world: World, answer: str
) -> None:
    world.silence, world.limits = 0.1, RunLimits(outage_seconds=100_000.0)
    left: list[Reply] = [WRITES]
    async with ModelServer(replies=lambda _: left.pop() if left else OUTAGES[answer]) as server:
        async with world.on(server, "anthropic") as runtime:
            assert (await runtime.run("Write it.")).status is Status.MODEL_UNAVAILABLE
        assert len(server.requests) == 1 + (MAX_SILENT if "stalls" in answer else MAX_BILLED)
        left.append(DONE)
        async with world.on(server, "anthropic") as runtime:
            assert (await runtime.resume()).status is Status.FINISHED


async def test_a_longer_outage_leaves_the_run_where_it_was_for_another_process(world: World) -> None:
    left: list[Reply] = [WRITES, *[DOWN] * 3, EDITS, DONE]
    world.limits = RunLimits(outage_seconds=5.0)
    async with ModelServer(replies=left) as server:
        async with world.on(server, "anthropic") as runtime:
            outcome = await runtime.run("Write it.")
            assert (outcome.status, outcome.steps) == (Status.MODEL_UNAVAILABLE, 1)
            assert "Back soon" in str(outcome)
            assert runtime.unfinished
            assert runtime.outcome is not None
            assert runtime.outcome.status is Status.MODEL_UNAVAILABLE
        async with world.on(server, "anthropic") as runtime:
            outcome = await runtime.resume()
            assert (outcome.status, outcome.steps, outcome.usage.requests) == (Status.FINISHED, 3, 3)
            assert not runtime.unfinished
        asked, again = server.requests[3].json["messages"], server.requests[4].json["messages"]
    assert (world.place / "a.txt").read_text() == "two\n", "what the agent knew of the file is known still"
    assert (world.place / "runs.txt").read_text() == "ran\n"
    assert len(asked) == len(again)
    [lost] = [event for event in world.events if isinstance(event, Recovered)]
    assert "main" in lost.text, "the model is told of the terminal that died meanwhile"


async def test_a_run_that_is_parked_twice_goes_on(world: World) -> None:
    world.limits = RunLimits(outage_seconds=5.0)
    async with ModelServer(replies=[*[DOWN] * 6, DONE]) as server:
        for expected in (Status.MODEL_UNAVAILABLE, Status.MODEL_UNAVAILABLE, Status.FINISHED):
            async with world.on(server, "responses") as runtime:
                outcome = await (runtime.resume() if runtime.unfinished else runtime.run("Write it."))
                assert outcome.status is expected
    assert len(world.events_of(Replied)) == 1
    assert not world.events_of(Observed)


async def test_a_service_that_asks_for_an_hour_is_not_waited_for_within_the_run(world: World) -> None:
    busy = Fails(429, "rate_limit_error", "Slow down", retry_after="3600")
    async with ModelServer(replies=[busy]) as server, world.on(server, "anthropic") as runtime:
        outcome = await runtime.run("Write it.")
    assert (outcome.status, outcome.retry_after) == (Status.MODEL_UNAVAILABLE, 3600.0)
    assert world.naps.seconds == []


async def test_a_wait_can_be_stopped_at_once(world: World) -> None:
    waiting = asyncio.Event()

    async def sleep(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    world.sleep = sleep
    async with ModelServer(replies=[DOWN] * 3) as server, world.on(server, "chat") as runtime:
        run = asyncio.create_task(runtime.run("Write it."))
        await asyncio.wait_for(waiting.wait(), 10)
        runtime.abort()
        assert (await run).status is Status.STOPPED


@pytest.mark.parametrize("text", ["", "Half"])
async def test_the_runs_clock_stands_still_while_a_service_is_down(text: str) -> None:
    told: list[str] = []

    async def sleep(seconds: float) -> None:
        told.append(f"sleep {seconds:.0f}")

    class Clock(RunClock):
        @override
        @contextmanager
        def pause(self) -> Iterator[None]:
            told.append("stopped")
            yield
            told.append("going")

    class Down(ScriptedProvider):
        @override
        async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
            if told.count("sleep 10") + told.count("sleep 20") < 2:
                if text:
                    yield TextChunk(text=text)
                raise ModelOutageError("down")
            async for chunk in super().reply(request):
                yield chunk

    state = RunState(InMemorySession(), HookSystem())
    state.clock = Clock()
    around = ClockAndRandom(sleep=sleep, token=lambda _: "ffff")
    patient = PatientProvider(
        Down(["Here."]), state, limits=RunLimits(outage_seconds=60.0), clock_and_random=around, spent=lambda *_: Usage()
    )
    reply = await collect(patient.reply(conversation()))
    assert reply.text == "Here."
    assert told == ["stopped", "sleep 10", "going", "stopped", "sleep 20", "going"]


@pytest.mark.parametrize("has_fallback", [False, True])
@pytest.mark.parametrize("is_refused", [False, True], ids=["HTTP 503", "refused"])
async def test_a_runtime_of_an_agent_file_reports_an_outage_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool, has_fallback: bool
) -> None:
    naps = Naps()
    monkeypatch.setattr(agent_file, "BRIEF_RETRY", replace(BRIEF_RETRY, sleep=naps.sleep))
    monkeypatch.setattr(run, "FIRST_PAUSE", 0.1)  # so that a run that waits for the service shows it soon
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-made-up")
    fallback = ", fallback: [{provider: anthropic, name: n}]" if has_fallback else ""
    path = tmp_path / "agent.yaml"
    path.write_text(f"agent: {{name: A, model: {{provider: openai, name: m{fallback}}}, runtime: {{sandbox: local}}}}")

    def run_and_resume() -> tuple[Outcome, Outcome | None]:
        with Runtime(path, quiet=True) as runtime:
            first = runtime.run("Write it.")
            left.append(DONE)
            return first, None if is_refused else runtime.resume()

    left = list[Reply]()
    async with ModelServer(replies=lambda _: left.pop() if left else DOWN) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1" if is_refused else server.url_openai)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9" if is_refused else server.url_anthropic)
        outcome, resumed = await asyncio.to_thread(run_and_resume)
    attempts = 5 if has_fallback else 3
    assert (outcome.status, outcome.steps) == (Status.MODEL_UNAVAILABLE, 0)
    assert ("cannot be reached from this machine" if is_refused else "Back soon") in str(outcome)
    assert len(naps.seconds) == attempts - (2 if has_fallback else 1)
    assert sum(naps.seconds) <= 2
    assert len(server.requests) == (0 if is_refused else attempts + 1)
    assert resumed is None or str(resumed) == "Done."


@pytest.mark.parametrize(("patience", "legs"), [(300.0, 1), (0.0, 2)])
async def test_an_outage_costs_no_summary(world: World, patience: float, legs: int) -> None:
    world.memory = MemorySettings(max_context_tokens=8_000, global_summary_max_tokens=200)
    world.limits = RunLimits(outage_seconds=patience)
    reads = "Looking.\n```codepilot\nprint('all kinds of words ' * 200)\n```\n"
    summary = "It looked at all kinds of words, again and again; nothing is open."
    left: list[Reply] = [DOWN, summary, DONE]

    def reply(received: Received) -> Reply:
        is_over = len(left) < 3 or "[CONTEXT LIMIT]" in str(received.json["messages"][-1])
        return left.pop(0) if is_over else reads

    world.naps.attempts = 1
    async with ModelServer(replies=reply) as server:
        ends = []
        for _ in range(legs):
            async with world.on(server, "chat") as runtime:
                ends.append(await (runtime.resume() if runtime.unfinished else runtime.run("Look.")))
    assert ends[-1].status is Status.FINISHED
    assert [event.text for event in world.events if isinstance(event, Summarised)] == [summary]


@pytest.mark.parametrize("answer", [name for name, (_, error) in DEFINITE.items() if "Overflow" not in error])
async def test_errors_that_waiting_cannot_fix_are_not_waited_for(world: World, answer: str) -> None:
    async with ModelServer(replies=[DEFINITE[answer][0]]) as server, world.on(server, "chat") as runtime:
        assert (await runtime.run("Write it.")).status is Status.FAILED
    assert world.naps.seconds == []


async def test_replies_that_break_off_count_towards_the_bounds(world: World) -> None:
    world.silence, world.limits = 0.2, RunLimits(max_tokens=500)
    async with (
        ModelServer(replies=[Breaks("silence"), WRITES, DONE]) as server,
        world.on(server, "anthropic") as runtime,
    ):
        outcome = await runtime.run("Write it.")
    [broken] = [event for event in world.events if isinstance(event, ReplyBroken)]
    assert broken.usage.input_tokens > 500
    assert broken.usage.cost_usd
    assert outcome.status is Status.MAX_TOKENS
    assert outcome.usage.total_tokens == broken.usage.total_tokens + 120
    assert len(server.requests) == 2


async def test_a_reply_that_a_stop_cuts_off_counts_as_charged(world: World) -> None:
    class Endless(ScriptedProvider):
        @override
        async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
            yield ReplyStart(attempt=1)
            yield TextChunk(text="Half of")
            yield ReplyFault(reason="it broke", billed=True, wait=1.0)
            yield ReplyStart(attempt=2)
            yield TextChunk(text="All of it, and")
            runtime.abort()
            await asyncio.Event().wait()

    async with world.runtime(Endless([])) as runtime:
        outcome = await runtime.run("Write it.")
    assert outcome.status is Status.STOPPED
    broken = [event.usage for event in world.events if isinstance(event, ReplyBroken)]
    assert [each.output_tokens for each in broken] == [estimate("Half of"), estimate("All of it, and")]
    assert outcome.usage == broken[0] + broken[1]


@pytest.mark.parametrize("down", [0, 3])
async def test_a_service_that_takes_requests_and_says_nothing_is_sent_the_same_twice_before_the_run_is_parked(
    world: World, down: int
) -> None:
    world.silence = 0.2
    faults: list[Reply] = [Breaks("silence"), *[DOWN] * down, Breaks("silence")]
    async with ModelServer(replies=[*faults, DONE]) as server, world.on(server, "anthropic") as runtime:
        outcome = await runtime.run("Write it.")
    assert outcome.status is Status.MODEL_UNAVAILABLE
    assert outcome.usage.total_tokens > 0
    assert len(server.requests) == len(faults)


async def test_the_next_model_is_asked_before_anything_is_waited_for(world: World) -> None:
    asked: list[str] = []

    def reply(request: Received) -> Reply:
        asked.append(request.wire)
        return DONE if world.clock > 0 and request.wire == "chat" else DOWN

    world.naps.attempts = 1
    async with ModelServer(replies=reply) as server:
        chain = FallbackProvider([provider_on(server, wire, world.options) for wire in ("anthropic", "chat")])
        async with world.runtime(chain) as runtime:
            outcome = await runtime.run("Write it.")
    assert outcome.status is Status.FINISHED
    assert asked == ["anthropic", "chat", "anthropic", "chat"]
    assert len(world.naps.seconds) == 1
