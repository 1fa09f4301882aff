"""What the requests of a task cost, beside the best that a cache allows and beside how other runtimes lay them out.

One run of 30 steps is made for real, with a scripted model; its requests are then priced by the published prices, and
so are the same contents in the peers' layouts. Nothing is sent anywhere, so this says what layouts cost, and nothing
about how many steps a runtime needs. The recorded runs of `bench/recordings` are priced with today's prompt and
rendering; `bench.replays` plays them again on today's code.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json.decoder
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    MemorySettings,
    Policy,
    RunLimits,
    SandboxSettings,
    ScriptedProvider,
    pick_sandbox,
)
from agent_runtime.context.conversation import Conversation
from agent_runtime.context.transcript import estimate
from agent_runtime.core.events import Observed, Replied, Started
from agent_runtime.core.values import Task, Usage
from agent_runtime.providers.models import Rate, load_prices
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.state import RunState
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.transports.blocks import BlockTransport
from bench import replays
from bench.measure import Figure, percentile

STEPS = 30
SIZES = (10, 10_000)
READING_STEPS, READ = 60, (8_000, 20_000)
"""Steps of a run that only reads, and the characters that each shows: about 1,800 and 4,400 tokens."""
PRICED_STEPS = (3, 10, STEPS)
_LONG_REPLY = 1_000
"""Tokens that a model may add to each scripted reply: an assumption, not a measurement."""
_LEAST_CACHED = 1_024
"""Tokens below which neither provider caches a prompt."""
_CODEPILOT_PROMPT, _CODEPILOT_TREE, _SHELL_PROMPT, _TOOLS_PROMPT = 4_500, 1_500, 700, 1_200
"""Tokens: CodePilot 0.9.1's prompt of 18,000 characters, and the tree of a small project (its prompt carries the whole
tree); that of a runtime with a bare shell; that of one with tool schemas, as pygent and llm-coding-agent are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The prices of a provider."""

    name: str
    model: str
    caches_unasked: bool

    @property
    def rate(self) -> Rate:
        """Prices of the model's tokens."""
        price = load_prices().find_price(self.model)
        assert price is not None, f"prices.json has no price of {self.model}; name another model here"
        return price.rate


SERVICES = (
    Service(name="Anthropic", model="claude-sonnet-5-5", caches_unasked=False),
    Service(name="OpenAI", model="gpt-6.2-sol", caches_unasked=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """The tokens of one request: read from the cache, written to it, neither; and those of its reply."""

    read: int
    written: int
    plain: int
    out: int

    def cost(self, rate: Rate) -> float:
        """US dollars."""
        usage = Usage(
            input_tokens=self.plain, cached_tokens=self.read, cache_write_tokens=self.written, output_tokens=self.out
        )
        return rate.cost(usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request as it was sent, and its reply."""

    request: Request
    reply: str


def measure() -> list[Figure]:
    """Cost of 30 steps as a multiple of the ideal, under each provider's prices; time to make a request."""
    with tempfile.TemporaryDirectory() as directory:
        exchanges = asyncio.run(_run(Path(directory)))
    small, large = (asyncio.run(_request_ms(size)) for size in SIZES)
    return [
        *(_figure(exchanges, service) for service in SERVICES),
        *(_price(exchanges[:steps], service) for service in SERVICES for steps in PRICED_STEPS),
        *(asyncio.run(_reading(size)) for size in READ),
        *asyncio.run(_recorded_runs()),
        Figure(label=f"making a request, {SIZES[0]} messages (median)", value=small, unit="ms", bound=1),
        Figure(label=f"making a request, {SIZES[1]:,} messages (median)", value=large, unit="ms", bound=1),
    ]


def _figure(exchanges: Sequence[Exchange], service: Service) -> Figure:
    ideal = _cost(_ideal(exchanges), service.rate)
    peers = {
        "prompt renewed each step (codepilot-ai 0.9.1)": _renewed(exchanges, service),
        "tool calls, no cache marks (pygent, llm-coding-agent)": _grown(
            exchanges, _TOOLS_PROMPT, cached=service.caches_unasked
        ),
        "bare shell, append-only, with marks": _grown(exchanges, _SHELL_PROMPT, cached=True),
    }
    beside = "; ".join(f"{name} {_cost(sent, service.rate) / ideal:.2f}" for name, sent in peers.items())
    return Figure(
        label=f"cost of a task of {STEPS} steps, {service.name}'s prices, as a multiple of the ideal",
        value=_cost(_ours(exchanges, service), service.rate) / ideal,
        unit="",
        bound=1.05,
        note=f"{beside} (the ideal: ${ideal:.3f})",
    )


def _price(exchanges: Sequence[Exchange], service: Service) -> Figure:
    """US dollars of a run with short replies; the note has those of one whose model writes more, also to itself."""
    sent = _ours(exchanges, service)
    wordy = [
        dataclasses.replace(
            each,
            read=each.read + max(0, step - 1) * _LONG_REPLY,
            written=each.written + (_LONG_REPLY if step else 0),
            out=each.out + _LONG_REPLY,
        )
        for step, each in enumerate(sent)
    ]
    return Figure(
        label=f"a run of {len(exchanges)} steps with `{service.model}`",
        value=_cost(sent, service.rate),
        unit="dollars",
        note=f"{_cost(wordy, service.rate):.3f} if each reply has {_LONG_REPLY:,} more tokens",
    )


async def _recorded_runs() -> list[Figure]:
    """Priced tokens of the recorded runs, with today's prompt and with that of native tool calls."""
    blocks, native = await replays.present_prompt("blocks"), await replays.present_prompt("tools")
    figures: list[Figure] = []
    for name, issue in replays.ISSUES.items():
        events = replays.read_recording(name)
        replies = replays.replies_of(events)
        cost = replays.price(replays.render_recording(events, blocks), replies)
        with_schemas = replays.price(replays.render_recording(events, native), replies)
        figures.append(
            Figure(
                label=f"the recorded run `{name}`, {cost.requests} requests",
                value=cost.tokens,
                unit="priced tokens",
                note=f"{cost.prompt:,} characters of prompt, {cost.first_message:,} of first message, {cost.results:,} "
                f"of results; {with_schemas.tokens:,.0f} with the schemas of native tool calls; a bare shell: "
                f"{issue['shell']['requests']} requests, {issue['shell']['tokens']:,}",
            )
        )
    return figures


async def _reading(size: int) -> Figure:
    """A run that reads until its window is full, and goes on."""
    service = SERVICES[0]
    exchanges = await _read_on(size, service.model)
    opening = _prefix(exchanges[0])
    step = _prefix(exchanges[1]) - opening
    grown = [
        SentRequest(read=opening + (n - 1) * step if n else 0, written=step if n else opening, plain=0, out=2)
        for n in range(READING_STEPS)
    ]
    return Figure(
        label=f"{READING_STEPS} steps that read {size:,} characters each, {service.name}'s prices, as a multiple of "
        "the ideal in an endless window",
        value=_cost(_ours(exchanges, service), service.rate) / _cost(grown, service.rate),
        unit="",
        bound=1.1,
        note=f"its last request would have {opening + (READING_STEPS - 1) * step:,} tokens",
    )


async def _read_on(size: int, model: str) -> list[Exchange]:
    """The requests of such a run, those for summaries among them."""
    session = InMemorySession()
    session.append(Started(task=Task(goal="g"), opening="[Task 1]\ng"))
    provider = _Recorder(["It was found, and noted. " * 600] * READING_STEPS, priced_as=model)
    conversation = Conversation(
        log=RunState(session, HookSystem()),
        provider=provider,
        system="all kinds of words " * 300,
        memory=MemorySettings(),
        limits=RunLimits(max_steps=2 * READING_STEPS),
        words=BlockTransport().extract_prose,
    )
    exchanges: list[Exchange] = []
    for step in range(READING_STEPS):
        asked = len(provider.requests)
        request = await conversation.request("now")
        exchanges += [Exchange(request=each, reply="found " * 3_000) for each in provider.requests[asked:]]
        exchanges.append(Exchange(request=request, reply="I look."))
        conversation.record_usage(Usage(requests=1, cached_tokens=conversation.tokens))
        session.append(Replied(step=step, text="I look.", usage=Usage()))
        session.append(Observed(step=step, text=f"{step}: " + ("all kinds of words " * size)[:size], ok=True))
    return exchanges


def _cost(requests: Sequence[SentRequest], rate: Rate) -> float:
    return sum(each.cost(rate) for each in requests)


def _prefix(exchange: Exchange) -> int:
    """Tokens of a request without its status."""
    return sum(estimate(text) for text in (exchange.request.system, *(m.text for m in exchange.request.messages)))


def _ideal(exchanges: Sequence[Exchange]) -> list[SentRequest]:
    """Every token of prompt and history is written once and read ever after; nothing else is sent."""
    sizes = [0, *map(_prefix, exchanges)]
    return [
        SentRequest(read=before, written=after - before, plain=0, out=estimate(exchange.reply))
        for exchange, (before, after) in zip(exchanges, itertools.pairwise(sizes), strict=True)
    ]


def _ours(exchanges: Sequence[Exchange], service: Service) -> list[SentRequest]:
    """The requests as sent: the prefix shared with the previous one is read from the cache, a status never."""
    sent: list[SentRequest] = []
    held: tuple[str, ...] = ()
    for exchange in exchanges:
        texts = (exchange.request.system, *(message.text for message in exchange.request.messages))
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(held, texts, strict=False)))
        read, total = sum(map(estimate, texts[:shared])), sum(map(estimate, texts))
        status = estimate(exchange.request.status)
        written = total - read + (status if service.caches_unasked else 0)
        sent.append(
            SentRequest(
                read=read if read >= _LEAST_CACHED else 0,
                written=written if read >= _LEAST_CACHED else total,
                plain=0 if service.caches_unasked else status,
                out=estimate(exchange.reply),
            )
        )
        held = texts
    return sent


def _histories(exchanges: Sequence[Exchange]) -> list[int]:
    """Tokens of each request's messages."""
    return [sum(estimate(message.text) for message in exchange.request.messages) for exchange in exchanges]


def _renewed(exchanges: Sequence[Exchange], service: Service) -> list[SentRequest]:
    """The system prompt ends in the tree and a step counter, so nothing behind its fixed part is ever found again.

    In its favour: the fixed part is taken to be cached with either provider, though it sets no marks.
    """
    return [
        SentRequest(
            read=_CODEPILOT_PROMPT if step else 0,
            written=(_CODEPILOT_TREE + history if service.caches_unasked else 0) + (0 if step else _CODEPILOT_PROMPT),
            plain=0 if service.caches_unasked else _CODEPILOT_TREE + history,
            out=estimate(exchange.reply),
        )
        for step, (exchange, history) in enumerate(zip(exchanges, _histories(exchanges), strict=True))
    ]


def _grown(exchanges: Sequence[Exchange], prompt: int, *, cached: bool) -> list[SentRequest]:
    """A prompt of its own, then the same history, append-only, without a status."""
    sizes = [0, *(prompt + history for history in _histories(exchanges))]
    return [
        SentRequest(
            read=before if cached else 0,
            written=after - before if cached else 0,
            plain=0 if cached else after,
            out=estimate(exchange.reply),
        )
        for exchange, (before, after) in zip(exchanges, itertools.pairwise(sizes), strict=True)
    ]


class _Recorder(ScriptedProvider):
    def __init__(self, replies: Sequence[str], priced_as: str = "") -> None:
        super().__init__(replies, chunk_chars=1000)
        self._priced_as = priced_as
        self.requests: list[Request] = []

    @property
    @override
    def model(self) -> str:
        return self._priced_as or super().model

    @override
    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        return super().reply(request)


def _replies() -> list[str]:
    """Reading, searching, editing and running, in turn, on real source files."""
    kinds: list[Callable[[int], str]] = [
        lambda n: f'read_file("json/decoder.py", {10 * n + 1}, {10 * n + 80})',
        lambda n: f'find("def ", include="json/*.py", context={n % 3})',
        lambda n: f'write_file("json/decoder.py", {5 * n + 1}, {5 * n + 1}, mode="edit")\n```\n```python\n# edited {n}',
        lambda n: f'execute("main", "sed -n {n},{n + 40}p json/scanner.py; wc -l json/*.py")',
    ]
    asked = "I look at the part that decides this, then run what proves it.\n```codepilot\n{}\n```\n"
    return [asked.format(kinds[n % len(kinds)](n)) for n in range(STEPS)]


async def _run(work_dir: Path) -> list[Exchange]:
    (work_dir / "json").mkdir()
    for source in Path(json.decoder.__file__).parent.glob("*.py"):
        (work_dir / "json" / source.name).write_text(source.read_text())
    replies = _replies()
    provider = _Recorder(replies)
    agent = Agent(
        provider=provider,
        work_dir=work_dir,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        policy=Policy(limits=RunLimits(max_steps=STEPS)),
    )
    async with AsyncRuntime(agent) as runtime:
        await runtime.run("`JSONDecoder` accepts a trailing comma; make json/decoder.py refuse it.")
    assert len(provider.requests) == STEPS, "the run ended early; look at its outcome"
    return [Exchange(request=r, reply=reply) for r, reply in zip(provider.requests, replies, strict=True)]


async def _request_ms(messages: int) -> float:
    """Median time to make the next request of a conversation, a step's events taken in."""
    session = InMemorySession()
    session.append(Started(task=Task(goal="g"), opening="[Task 1]\ng"))
    for step in range(messages // 2):
        session.append(Replied(step=step, text=f"step {step}", usage=Usage()))
        session.append(Observed(step=step, text=f"result {step}", ok=True))
    conversation = Conversation(
        log=RunState(session, HookSystem()),
        provider=ScriptedProvider([]),
        system="You are an agent.",
        memory=MemorySettings(max_context_tokens=10_000_000),
        limits=RunLimits(),
        words=BlockTransport().extract_prose,
    )
    await conversation.request("now")
    taken = []
    for step in range(200):
        session.append(Replied(step=step, text="I look.", usage=Usage()))
        session.append(Observed(step=step, text="all kinds of words " * 100, ok=True))
        begun = time.perf_counter()
        request = await conversation.request("now")
        taken.append((time.perf_counter() - begun) * 1000)
        sent = sum(len(message.text) for message in request.messages[-4:])
        conversation.record_usage(Usage(requests=1, cached_tokens=10_000, input_tokens=sent // 4))
    return percentile(taken, 0.5)
