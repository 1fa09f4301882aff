"""The requests of a run, kept short and cheap.

Before a request, `Conversation` may leave out archived tasks and old results, or have the model summarise the oldest
part. `plan_shrinking` weighs the tokens saved against the provider's cache, which is lost from the first change on.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from itertools import accumulate

from agent_runtime import prompts
from agent_runtime.context.transcript import (
    ASIDE_CHARS,
    MemorySettings,
    Meter,
    Transcript,
    build_summary,
    describe_place,
    estimate,
    estimate_message,
    extract_summary,
    find_boundary,
    summary_length,
)
from agent_runtime.core.errors import ModelError, ModelOutageError, ModelUnreachableError
from agent_runtime.core.events import Observed, Recorded, Replied, Shrunk, Started, Summarised, ToolReturned
from agent_runtime.core.text import replace_surrogates
from agent_runtime.core.values import Usage, join_answers
from agent_runtime.policy.policy import RunLimits
from agent_runtime.prompts import notes
from agent_runtime.providers.models import load_prices
from agent_runtime.providers.protocol import Message, Provider, ReplyEnd, ReplyStart, Request, TextChunk, ToolSchema
from agent_runtime.sessions.protocol import EventLog

_CACHE_SECONDS = 300.0
"""Lifetime of an unused prefix at the provider: Anthropic 5 minutes, OpenAI longer."""
_USUAL_PRICES = (0.1, 1.25)
"""Cache prices of a model without known prices: both providers' usual ones."""
_MAX_ENTRY_CHARS_PER_TOKEN = 1
"""Characters of one event for each token of the window: a quarter of it, so that a step always fits."""
_UNTOUCHED_SHARE = 0.3
"""The share of the window that a summary leaves as it is."""
_MIN_FREED_SHARE = 0.3
"""The share of a full window that leaving results out must free; a summary is cheaper than a break every few steps."""
_SUMMARY_REQUEST_TOKENS = 300
"""Tokens of the request for a summary, at most."""
_MIN_SUMMARY_FACTOR = 2
"""A summary must replace at least this many times its own length."""


class Conversation:
    """A session's conversation with one model, over many runs.

    The usage of a summary is in `Summarised.usage` alone.
    """

    def __init__(
        self,
        *,
        log: EventLog,
        provider: Provider,
        system: str,
        memory: MemorySettings,
        limits: RunLimits,
        words: Callable[[str], str],
        tools: tuple[ToolSchema, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take over a session's log, which may hold earlier runs; `limits` predict the remaining requests."""
        self._log = log
        self.provider = provider
        self.system = system
        self._memory = memory
        self._limits = limits
        self._words = words
        self._clock = clock
        self._transcript = Transcript(
            max_entry_chars=memory.max_context_tokens * _MAX_ENTRY_CHARS_PER_TOKEN,
            sees_images=provider.sees_images,
            calls_tools=bool(tools),
        )
        self._results = ResultTracker()
        self._pace = RequestForecast()
        self._cache = _Cache()
        self._meter = Meter()
        self.tools = tools
        self._system_tokens = estimate(system) + sum(estimate(json.dumps(asdict(tool))) for tool in tools)
        self._estimated_tokens = 0
        self._status_tokens = 0

    @property
    def tokens(self) -> int:
        """Tokens of the next request without its status, corrected by the provider's last count."""
        return self._meter.expect(self._estimate_request())

    async def request(self, status: str) -> Request:
        """Return the next request, shortening the conversation first where due."""
        threshold = self._memory.threshold_tokens
        over = self.tokens - threshold
        if over < 0:
            self._shrink(cached=self._cache.count_readable_tokens(self.provider.model, self._clock()))
        elif not self._shrink(cached=0, least=over + round(_MIN_FREED_SHARE * threshold)):
            while await self._summarise(self._memory.max_context_tokens) and self.tokens >= threshold:
                pass
            self._shrink(cached=0)  # only now, so that the request for the summary found its prefix in the cache
        status = replace_surrogates(status)  # it names the programs in terminals
        self._estimated_tokens, self._status_tokens = self._estimate_request(), estimate(status)
        return Request(system=self.system, messages=self._messages(), status=status, tools=self.tools)

    def record_usage(self, usage: Usage) -> None:
        """Record the provider's token counts for the last request."""
        self._meter.correct(self._estimated_tokens + self._status_tokens, usage)
        is_cached = usage.cached_tokens or usage.cache_write_tokens
        self._cache = _Cache(
            model=self.provider.model, tokens=self._estimated_tokens if is_cached else 0, seen_at=self._clock()
        )

    def estimate_usage(self, model: str, text: str) -> Usage:
        """Estimate the usage of the last request, whose reply broke off after `text`."""
        received = estimate(text) if text else 0
        input_tokens = self._meter.expect(self._estimated_tokens + self._status_tokens)
        return load_prices().with_cost(
            model, Usage(input_tokens=input_tokens, output_tokens=self._meter.expect(received))
        )

    async def shorten(self) -> bool:
        """Summarise now, because the request is too long for the provider; return whether it is shorter."""
        half, is_shorter = min(self._memory.max_context_tokens, self.tokens) // 2, False
        while self.tokens > half and await self._summarise(half):
            is_shorter = True
        return is_shorter

    def _messages(self) -> tuple[Message, ...]:
        return self._transcript.messages(self._log.events)

    def _estimate_request(self) -> int:
        self._transcript.update(self._log.events)
        return self._system_tokens + self._transcript.tokens

    def _shrink(self, *, cached: int, least: int = 0) -> bool:
        """Leave out the parts that cost more than they save; return whether parts were found."""
        events = self._log.events
        self._results.update(events)
        self._pace.update(events)
        total = self._estimate_request()
        parts = find_candidates(self._transcript, self._results, before=self._system_tokens)
        if not parts:
            return False
        read, write = cache_prices(self.provider.model)
        requests = self._pace.forecast(self._limits.max_steps)
        growth = self._transcript.growth
        prospect = Prospect(total=total, cached=cached, requests=requests, read=read, write=write, growth=growth)
        shrunk = plan_shrinking(parts, prospect)
        if shrunk is None:
            return False
        saved = sum(part.saves for part in parts if part.task in shrunk.tasks or part.output in shrunk.outputs)
        if self._meter.expect(saved) < least:
            return False
        self._log.record(shrunk)
        return True

    async def _summarise(self, window: int) -> bool:
        """Replace the oldest part by a summary; the rest takes a good part of `window` tokens at most."""
        events, entries = self._log.events, self._transcript.entries
        least, fitting = self._memory.global_summary_max_tokens, window / self._meter.ratio
        room = round(fitting) - self._system_tokens - _SUMMARY_REQUEST_TOKENS
        upto = find_boundary(
            events,
            entries,
            keep=round(_UNTOUCHED_SHARE * fitting),
            least=_MIN_SUMMARY_FACTOR * least,
            most=room - len(entries),
        )
        if upto is None:
            return False
        most = summary_length(entries, upto, least=least)
        instruction = prompts.summary_request(place=describe_place(entries, upto), max_tokens=most)
        text, usage, failure = "", Usage(), ""
        # The conversation, so that it can be read from the cache, or as much of its beginning as fits.
        history = self._messages()
        count = sum(1 for size in accumulate(map(estimate_message, history)) if size <= room)
        while count and history[count - 1].role != "user":
            count -= 1
        if history := history[:count]:
            try:
                self._estimated_tokens = self._system_tokens + sum(map(estimate_message, history))
                self._status_tokens = estimate(instruction)
                request = Request(system=self.system, messages=history, status=instruction, tools=self.tools)
                text, usage = await read_reply(self.provider, request)
            except ModelOutageError:
                raise
            except ModelError as error:
                failure = str(error)
        words = self._words(text)
        usable_text = extract_summary(words, max_tokens=most, aside=words.strip() != text.strip())
        summary = usable_text or build_summary(events, upto, max_tokens=most, failure=failure)
        self._log.record(Summarised(upto=upto, text=summary, usage=usage))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    """The beginning of a request that the provider's cache holds, by our own estimate."""

    model: str = ""
    tokens: int = 0
    seen_at: float = 0.0

    def count_readable_tokens(self, model: str, now: float) -> int:
        return self.tokens if model == self.model and now - self.seen_at < _CACHE_SECONDS else 0


async def read_reply(provider: Provider, request: Request) -> tuple[str, Usage]:
    """Return one reply as a whole; raise ModelError if it has no end."""
    text: list[str] = []
    async with aclosing(provider.reply(request)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, ReplyStart):
                text = []
            elif isinstance(chunk, TextChunk):
                text.append(chunk.text)
            elif isinstance(chunk, ReplyEnd):
                return "".join(text), chunk.usage
            elif len("".join(text)) < ASIDE_CHARS:
                text = []  # a call, which a short text only announces; or a fault
    raise ModelUnreachableError(f"{provider.model}: the provider ended a reply without a ReplyEnd")


def cache_prices(model: str) -> tuple[float, float]:
    """Return the prices of a cache read and a cache write, relative to a plain token's."""
    price = load_prices().find_price(model)
    if price is None or not price.rate.input:
        return _USUAL_PRICES
    return price.rate.cache_read / price.rate.input, price.rate.cache_write / price.rate.input


_NOTE_TOKENS = 50
"""Tokens of the note in place of results; see `notes.left_out`."""
_ASKED_AGAIN_SHARE = 0.5
"""The expected share of old results that the agent asks for again: better a cost too high than a step too many."""


def find_candidates(transcript: Transcript, results: ResultTracker, *, before: int) -> list[Candidate]:
    """Find archived tasks, superseded results and old results; `before` are the system prompt's tokens."""
    pending = transcript.pending
    parts: list[Candidate] = []
    first: dict[int, int] = {}
    tokens: dict[int, int] = {}
    for at, entry in enumerate(transcript.entries if pending else ()):
        if entry.task in pending:
            first.setdefault(entry.task, at)
            tokens[entry.task] = tokens.get(entry.task, 0) + entry.tokens
    for task, begins in first.items():
        saves = tokens[task] - estimate(notes.archived_task(task, pending[task]))
        parts.append(Candidate(before=before + transcript.tokens_before(begins), saves=saves, task=task))
    for positions, again in ((results.superseded(), 0.0), (results.far_behind(), _ASKED_AGAIN_SHARE)):
        parts += [
            Candidate(
                before=before + transcript.tokens_before(index),
                saves=entry.tokens - _NOTE_TOKENS,
                again=again,
                output=position,
            )
            for position in positions
            if (index := transcript.index(position)) is not None
            and (entry := transcript.entries[index]).task not in pending
        ]
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A part of the conversation that could be shortened.

    Attributes:
        before: tokens in front of it.
        saves: tokens that the request would lose.
        again: share of them that the agent asks for again.
        output: the results' position in the log, or None.
    """

    before: int
    saves: int
    again: float = 0.0
    task: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """The expected requests of a run.

    Attributes:
        cached: tokens of the next one's beginning in the provider's cache.
        requests: their number; at least 1.
        growth: tokens that each adds.
        read: price of a cached token, as a multiple of a plain one; `write` likewise.
    """

    total: int
    cached: int
    requests: int
    read: float
    write: float
    growth: int = 0

    def gain(self, removed: int, first: int) -> float:
        """Return the saving in plain tokens until as much has accumulated again.

        With D tokens removed and S behind the first change, that pays after S * (write - read) / (D * read) requests,
        or at once if the cache is cold. On average the gain lasts for half the requests that it took to accumulate D.
        """
        again = removed // (2 * self.growth) if self.growth else self.requests
        later = min(self.requests, max(1, again)) - 1
        return self._next() - self._next(removed=removed, first=first) + later * removed * self.read

    def _next(self, *, removed: int = 0, first: int | None = None) -> float:
        total = self.total - removed
        warm = min(total, self.cached if first is None else min(self.cached, first))
        return warm * self.read + (total - warm) * self.write


def plan_shrinking(candidates: Sequence[Candidate], prospect: Prospect) -> Shrunk | None:
    """Return the batch of candidates that pays most, or None.

    After the first break of the cache, every later change is free: the best batch is a candidate with all behind it.
    """
    parts = sorted((part for part in candidates if part.saves > 0), key=lambda part: part.before)
    start, most, tokens = len(parts), 0.0, 0
    removed, again = 0, 0.0
    for index in reversed(range(len(parts))):
        candidate = parts[index]
        removed += candidate.saves
        again += candidate.again * candidate.saves * prospect.write
        gain = prospect.gain(removed, candidate.before) - again
        if gain > most:
            start, most, tokens = index, gain, removed
    if start == len(parts):
        return None
    chosen = parts[start:]
    return Shrunk(
        tasks=tuple(part.task for part in chosen if part.task is not None),
        outputs=tuple(part.output for part in chosen if part.output is not None),
        reason=(
            f"about {tokens:,} tokens less; over {prospect.requests} requests, the cache's loss included, "
            f"worth as much as {most:,.0f} plain ones"
        ),
    )


_TYPICAL_REQUESTS = 8
"""Requests of a first run; most tasks take fewer."""


class RequestForecast:
    """The number of requests in the runs of a growing log."""

    def __init__(self) -> None:
        self._read_events = 0
        self._runs: list[int] = []

    def update(self, events: Sequence[Recorded]) -> None:
        """Count new events; a shorter log is a new one."""
        if len(events) < self._read_events:
            self._read_events, self._runs = 0, []
        for event in events[self._read_events :]:
            if isinstance(event, Started):
                self._runs.append(0)
            elif isinstance(event, Replied) and self._runs:
                self._runs[-1] += 1
        self._read_events = len(events)

    def forecast(self, limit: int) -> int:
        """Return the expected requests of the present run, at least one."""
        *past, present = self._runs or [0]
        usual = round(sum(past) / len(past)) if past else _TYPICAL_REQUESTS
        return max(1, min(limit - present, max(usual - present, present)))


_COMMAND = re.compile(r"\[terminal:(?P<terminal>[^\]\s]+):cmd(?P<number>\d+)\]")
"""The beginning of a terminal command's result; see `agent_runtime.tools.shell`."""
_COVERED = 0.9
"""The share of a step's results that must be shown again for the step to be superseded."""
_MIN_RESULT_TOKENS = 300
"""Results with fewer tokens stay."""
_EDGE_CHARS = 200
_FAR_BEHIND = 20
"""Replies after which results are seldom needed."""


class ResultTracker:
    """The results in a growing log that may be left out."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._read_events = 0
        self._replies = 0
        self._steps: dict[int, _ShownStep] = {}
        self._returned: list[ToolReturned] = []
        self._pieces: dict[str, list[_Piece]] = {}

    def update(self, events: Sequence[Recorded]) -> None:
        if len(events) < self._read_events:
            self._forget()
        for event in events[self._read_events :]:
            match event:
                case Replied():
                    self._replies += 1
                    self._returned = []
                case ToolReturned():
                    self._returned.append(event)
                case Observed():
                    self._add_step(event)
                case Shrunk():
                    for position in event.outputs:
                        self._steps.pop(position, None)
                case Summarised():
                    self._steps = {at: step for at, step in self._steps.items() if at >= event.upto}
                case _:
                    pass
            self._read_events += 1

    def superseded(self) -> list[int]:
        """Return the positions of `Observed` events whose output was shown again later."""
        return [step.position for step in self._steps.values() if step.is_superseded]

    def far_behind(self) -> list[int]:
        """Return the positions of old `Observed` events, superseded ones excepted."""
        last = self._replies - _FAR_BEHIND
        return [step.position for step in self._steps.values() if step.reply <= last and not step.is_superseded]

    def _add_step(self, event: Observed) -> None:
        output = join_answers(event.text, event.answers)
        step = _ShownStep(position=self._read_events, reply=self._replies, chars=len(output))
        if estimate(output) >= _MIN_RESULT_TOKENS:
            self._steps[step.position] = step
        for call in self._returned:
            command = _COMMAND.match(call.text)
            # The result as the model read it; the record may lack its middle.
            start = output.find(call.text[:_EDGE_CHARS])
            end = output.find(call.text[-_EDGE_CHARS:], start) if start >= 0 else -1
            text = output[start : end + min(len(call.text), _EDGE_CHARS)] if end >= 0 else ""
            if command is not None and text:
                piece = _Piece(step=step, command=command["number"], text=text)
                self._add_piece(command["terminal"], piece, whole=call.tool == "read_output")
        self._returned = []

    def _add_piece(self, terminal: str, piece: _Piece, *, whole: bool) -> None:
        """Record a command's output; if it is complete, earlier pieces of it are covered."""
        # Only a terminal's last command can be read again.
        earlier = [candidate for candidate in self._pieces.get(terminal, ()) if candidate.command == piece.command]
        lines = frozenset(piece.text.split("\n")) if whole and earlier else frozenset()
        remaining = []
        for candidate in earlier:
            if candidate.step is not piece.step and candidate.is_covered_by(lines):
                candidate.step.covered += len(candidate.text)
            else:
                remaining.append(candidate)
        self._pieces[terminal] = [*remaining, piece]


@dataclass(slots=True, kw_only=True)
class _ShownStep:
    """The output of a step; `reply` is counted over the whole log, `covered` are characters shown again later."""

    position: int
    reply: int
    chars: int
    covered: int = 0

    @property
    def is_superseded(self) -> bool:
        return self.covered >= _COVERED * self.chars


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """The part of a command's output that one call showed, with the lines around it."""

    step: _ShownStep
    command: str
    text: str

    def is_covered_by(self, lines: frozenset[str]) -> bool:
        """Whether nearly all of it is in `lines`; head and tail of a long output move as it grows."""
        covered = sum(len(line) + 1 for line in self.text.split("\n") if line in lines)
        return covered >= _COVERED * len(self.text)
