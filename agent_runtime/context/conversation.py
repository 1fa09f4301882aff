"""The conversation of a run: make each request, and keep it short and cheap.

Before a request, `Conversation` may leave out what costs more than it is worth (archived tasks, results that were shown
again later or are far behind), or have the model summarise the oldest part. Tokens saved are weighed against the
provider's cache, which is lost from the first change on (`plan`).
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
    boundary,
    estimate,
    estimate_message,
    length,
    mechanical,
    place,
    usable,
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
"""How long a provider keeps a prefix that nobody asks for: Anthropic 5 minutes, OpenAI longer."""
_USUAL_PRICES = (0.1, 1.25)
"""Of a model whose prices are not known: what both providers take for most of theirs."""
_LARGEST_ENTRY = 1
"""Characters that one event may tell for each token of the window: a quarter of it, so that a step always fits."""
_KEPT = 0.3
"""The share of the window that stays as it is when the rest is summarised: few enough that it lasts for a while."""
_ENOUGH = 0.3
"""The share of the window that leaving results out must free where it is full: else the next break comes after a few
steps, and a summary is cheaper."""
_ASKING = 300
"""Tokens that asking for a summary takes at most."""
_WORTH_IT = 2
"""A summary must replace at least this many times its own length."""


class Conversation:
    """One session's conversation with one model, request by request.

    It lives as long as the runtime does, over many runs: it knows what the provider's cache holds. A new one on an old
    log works as well, and takes the cache to be cold.

    Before a request it may record a `Shrunk` or a `Summarised`. What the request for a summary used is in that
    event and nowhere else: to sum up a run's usage, add `Summarised.usage`.

    Attributes:
        provider: the model; asked for summaries, too. In a run it waits for outages.
        system: the system prompt.
        tools: the tools as they are declared to the service.
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
        """Take over a session's log, which may hold earlier runs.

        Args:
            log: what the messages are derived from.
            provider: the model.
            system: the system prompt.
            memory: how much conversation there may be.
            limits: bounds of a run, from which its remaining requests are guessed.
            words: takes from a reply that was to be plain text what is not; see `Transport.words`.
            tools: the tools as they are declared to the service; none where the system prompt declares them.
            clock: seconds, for the age of the provider's cache.
        """
        self._log = log
        self.provider = provider
        self.system = system
        self._memory = memory
        self._limits = limits
        self._words = words
        self._clock = clock
        self._transcript = Transcript(
            max_entry_chars=memory.max_context_tokens * _LARGEST_ENTRY,
            sees_images=provider.sees_images,
            calls_tools=bool(tools),
        )
        self._results = Results()
        self._pace = RequestForecast()
        self._cache = _Cache()
        self._meter = Meter()
        self.tools = tools
        self._system_tokens = estimate(system) + sum(estimate(json.dumps(asdict(each))) for each in tools)
        self._sent = 0
        self._status = 0

    @property
    def tokens(self) -> int:
        """Tokens that the next request would have as things stand, its status aside.

        Estimated, and corrected by how far the estimate for the last request was from the provider's own count.
        """
        return self._meter.expect(self._estimated())

    async def request(self, status: str) -> Request:
        """The next request: the conversation so far, shortened first where that is due.

        A model that fails to summarise does not fail the run: a summary is then put together from the log.

        Args:
            status: the short text that ends the request and is not part of the conversation.

        Raises:
            ModelOutageError: the service is down while a summary is due, which is not to be worse for that.
        """
        threshold = self._memory.threshold_tokens
        over = self.tokens - threshold
        if over < 0:
            self._shrink(cached=self._cache.holds(self.provider.model, self._clock()))
        elif not self._shrink(cached=0, least=over + round(_ENOUGH * threshold)):
            while await self._summarise(self._memory.max_context_tokens) and self.tokens >= threshold:
                pass
            self._shrink(cached=0)  # only now, so that the request for the summary found its prefix in the cache
        status = replace_surrogates(status)  # it names what runs in terminals
        self._sent, self._status = self._estimated(), estimate(status)
        return Request(system=self.system, messages=self._messages(), status=status, tools=self.tools)

    def learned(self, usage: Usage) -> None:
        """Take in what the provider counted for the last request; called after each reply."""
        self._meter.correct(self._sent + self._status, usage)
        keeps = usage.cached_tokens or usage.cache_write_tokens
        self._cache = _Cache(model=self.provider.model, tokens=self._sent if keeps else 0, at=self._clock())

    def spent(self, model: str, text: str) -> Usage:
        """What the last request has probably cost, when its reply broke off after `text`."""
        received = estimate(text) if text else 0
        sent = self._meter.expect(self._sent + self._status)
        return load_prices().priced(model, Usage(input_tokens=sent, output_tokens=self._meter.expect(received)))

    async def shorten(self) -> bool:
        """Summarise now, whatever the estimate: for a provider that says that the request was too long.

        Returns:
            Whether the next request is shorter; False when nothing is left to summarise.

        Raises:
            ModelOutageError: as for `request`.
        """
        half, is_shorter = min(self._memory.max_context_tokens, self.tokens) // 2, False
        while self.tokens > half and await self._summarise(half):
            is_shorter = True
        return is_shorter

    def _messages(self) -> tuple[Message, ...]:
        return self._transcript.messages(self._log.events)

    def _estimated(self) -> int:
        """Tokens of the next request by our own estimate alone."""
        self._transcript.update(self._log.events)
        return self._system_tokens + self._transcript.tokens

    def _shrink(self, *, cached: int, least: int = 0) -> bool:
        """Leave out what costs more than it is worth.

        Args:
            cached: tokens of the last request that the provider still holds; 0 when that does not matter.
            least: tokens that this must save, else everything stays.

        Returns:
            Whether something was left out.
        """
        events = self._log.events
        self._results.update(events)
        self._pace.update(events)
        total = self._estimated()
        found = candidates(self._transcript, self._results, before=self._system_tokens)
        if not found:
            return False
        read, write = cache_prices(self.provider.model)
        requests = self._pace.expected(self._limits.max_steps)
        growth = self._transcript.growth
        prospect = Prospect(total=total, cached=cached, requests=requests, read=read, write=write, growth=growth)
        shrunk = plan(found, prospect)
        if shrunk is None:
            return False
        saved = sum(each.saves for each in found if each.task in shrunk.tasks or each.output in shrunk.outputs)
        if self._meter.expect(saved) < least:
            return False
        self._log.record(shrunk)
        return True

    async def _summarise(self, window: int) -> bool:
        """Replace the oldest part by a summary, so that the rest takes a good part of `window` tokens at most.

        Nothing is replaced that the model was not shown: where its request has no room for all, more stays.
        """
        events, entries = self._log.events, self._transcript.entries
        least, fitting = self._memory.global_summary_max_tokens, window / self._meter.ratio
        room = round(fitting) - self._system_tokens - _ASKING
        upto = boundary(events, entries, keep=round(_KEPT * fitting), least=_WORTH_IT * least, most=room - len(entries))
        if upto is None:
            return False
        most = length(entries, upto, least=least)
        ask = prompts.summary_request(place=place(entries, upto), max_tokens=most)
        text, usage, failure = "", Usage(), ""
        # The conversation, so that it can be read from the cache, or as much of its beginning as fits.
        history = self._messages()
        fits = sum(1 for size in accumulate(map(estimate_message, history)) if size <= room)
        while fits and history[fits - 1].role != "user":
            fits -= 1
        if history := history[:fits]:
            try:
                self._sent = self._system_tokens + sum(map(estimate_message, history))
                self._status = estimate(ask)
                request = Request(system=self.system, messages=history, status=ask, tools=self.tools)
                text, usage = await answer(self.provider, request)
            except ModelOutageError:
                raise
            except ModelError as error:
                failure = str(error)
        words = self._words(text)
        told = usable(words, max_tokens=most, aside=words.strip() != text.strip())
        summary = told or mechanical(events, upto, max_tokens=most, failure=failure)
        self._log.record(Summarised(upto=upto, text=summary, usage=usage))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    """What a provider's cache was last seen to hold: the beginning of a request, by our own estimate."""

    model: str = ""
    tokens: int = 0
    at: float = 0.0

    def holds(self, model: str, now: float) -> int:
        """Tokens that can still be read from it."""
        return self.tokens if model == self.model and now - self.at < _CACHE_SECONDS else 0


async def answer(provider: Provider, request: Request) -> tuple[str, Usage]:
    """One reply as a whole.

    Args:
        provider: the model.
        request: what it is asked.

    Raises:
        ModelError: the service failed for good, or ended its reply without saying so.
    """
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
                text = []  # a call: what was said announces it; or a fault, and it is void
    raise ModelUnreachableError(f"{provider.model}: the provider ended a reply without a ReplyEnd")


def cache_prices(model: str) -> tuple[float, float]:
    """Prices of a token that is read from and written to the provider's cache, as multiples of a plain one."""
    price = load_prices().price(model)
    if price is None or not price.rate.input:
        return _USUAL_PRICES
    return price.rate.cache_read / price.rate.input, price.rate.cache_write / price.rate.input


_NOTE_TOKENS = 50
"""What stands in place of results; see `notes.left_out`."""
_AGAIN = 0.5
"""Every other result that is far behind is taken to be needed again: better a cost too high than a step too many."""


def candidates(transcript: Transcript, results: Results, *, before: int) -> list[Candidate]:
    """Archived tasks, results that were shown again later, and results that are far behind.

    Args:
        transcript: the conversation, up to date with the log.
        results: the same.
        before: tokens that stand before the whole conversation: the system prompt's.
    """
    pending = transcript.pending
    found: list[Candidate] = []
    first: dict[int, int] = {}
    tokens: dict[int, int] = {}
    for at, entry in enumerate(transcript.entries if pending else ()):
        if entry.task in pending:
            first.setdefault(entry.task, at)
            tokens[entry.task] = tokens.get(entry.task, 0) + entry.tokens
    for task, begins in first.items():
        saves = tokens[task] - estimate(notes.archived_task(task, pending[task]))
        found.append(Candidate(before=before + transcript.tokens_before(begins), saves=saves, task=task))
    for positions, again in ((results.superseded(), 0.0), (results.far_behind(), _AGAIN)):
        found += [
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
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that could be shortened.

    Attributes:
        before: tokens of the request that stand before it.
        saves: tokens that the request would have less.
        again: the share of them that the agent is expected to ask for again, 0 to 1.
        task: number of the archived task that it is; None for results.
        output: position in the log of the results that it is; None for a task.
    """

    before: int
    saves: int
    again: float = 0.0
    task: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What the requests to come are expected to be.

    Attributes:
        total: tokens of the next one if nothing is shortened.
        cached: tokens of its beginning that the provider's cache holds; 0 when it is cold.
        requests: how many are still to come, the next one included; at least 1.
        growth: tokens that each has more than the one before; 0 when nothing piles up again.
        read: price of a token read from the cache, as a multiple of a plain one.
        write: price of a token written to the cache, the same.
    """

    total: int
    cached: int
    requests: int
    read: float
    write: float
    growth: int = 0

    def gain(self, removed: int, first: int) -> float:
        """What the requests cost less, as a number of plain tokens, until as much has piled up again.

        Everything after the first change has to be written to the cache again. With D tokens removed and S behind them,
        that pays after S * (write - read) / (D * read) further requests, or at once if the cache is cold. New
        results accumulate, and then the cache is lost again: on average the gain lasts for half as many requests as it
        took to accumulate D tokens.

        Args:
            removed: tokens that they have less.
            first: tokens that stand before the first change.
        """
        again = removed // (2 * self.growth) if self.growth else self.requests
        later = min(self.requests, max(1, again)) - 1
        return self._next() - self._next(removed=removed, first=first) + later * removed * self.read

    def _next(self, *, removed: int = 0, first: int | None = None) -> float:
        """Price of the tokens of the next request."""
        total = self.total - removed
        warm = min(total, self.cached if first is None else min(self.cached, first))
        return warm * self.read + (total - warm) * self.write


def plan(candidates: Sequence[Candidate], prospect: Prospect) -> Shrunk | None:
    """The batch whose shortening pays most, or None when none pays.

    Once the cache is broken at one place, shortening what stands behind it costs nothing more: so the best batch is
    one candidate with all behind it, and one look at each finds it.
    """
    useful = sorted((each for each in candidates if each.saves > 0), key=lambda each: each.before)
    start, most, tokens = len(useful), 0.0, 0
    removed, again = 0, 0.0
    for index in reversed(range(len(useful))):
        candidate = useful[index]
        removed += candidate.saves
        again += candidate.again * candidate.saves * prospect.write
        gain = prospect.gain(removed, candidate.before) - again
        if gain > most:
            start, most, tokens = index, gain, removed
    if start == len(useful):
        return None
    chosen = useful[start:]
    return Shrunk(
        tasks=tuple(each.task for each in chosen if each.task is not None),
        outputs=tuple(each.output for each in chosen if each.output is not None),
        reason=(
            f"about {tokens:,} tokens less; over {prospect.requests} requests, the cache's loss included, "
            f"worth as much as {most:,.0f} plain ones"
        ),
    )


_TYPICAL_REQUESTS = 8
"""Requests of a run about which nothing is known; most tasks take fewer."""


class RequestForecast:
    """How many requests the runs of a growing log took, and so how many the present one will probably still make."""

    def __init__(self) -> None:
        self._taken = 0
        self._runs: list[int] = []

    def update(self, events: Sequence[Recorded]) -> None:
        """Take in what is new in the log; a shorter one is a new one."""
        if len(events) < self._taken:
            self._taken, self._runs = 0, []
        for event in events[self._taken :]:
            if isinstance(event, Started):
                self._runs.append(0)
            elif isinstance(event, Replied) and self._runs:
                self._runs[-1] += 1
        self._taken = len(events)

    def expected(self, limit: int) -> int:
        """Requests that the present run will probably still make, at least one.

        A fresh run is taken to be like those before it; one that has gone on for longer, to be half way through.

        Args:
            limit: the most that a run may make.
        """
        *past, done = self._runs or [0]
        usual = round(sum(past) / len(past)) if past else _TYPICAL_REQUESTS
        return max(1, min(limit - done, max(usual - done, done)))


_COMMAND = re.compile(r"\[terminal:(?P<terminal>[^\]\s]+):cmd(?P<number>\d+)\]")
"""How the result of a terminal's command begins; see `agent_runtime.tools.shell`."""
_COVERED = 0.9
"""The share of a step's results that must be shown again later for the step's results to be superseded."""
_WORTH = 300
"""Tokens that results must have for it to matter whether they are kept."""
_EDGE_CHARS = 200
_FAR_BEHIND = 20
"""Replies since, after which results are seldom looked at again."""


class Results:
    """The results in a growing log that are worth leaving out some day; each event is looked at once."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._taken = 0
        self._replies = 0
        self._steps: dict[int, _Step] = {}
        self._returned: list[ToolReturned] = []
        self._pieces: dict[str, list[_Piece]] = {}

    def update(self, events: Sequence[Recorded]) -> None:
        """Take in what is new in the log; a shorter one is a new one."""
        if len(events) < self._taken:
            self._forget()
        for event in events[self._taken :]:
            match event:
                case Replied():
                    self._replies += 1
                    self._returned = []
                case ToolReturned():
                    self._returned.append(event)
                case Observed():
                    self._observed(event)
                case Shrunk():
                    for position in event.outputs:
                        self._steps.pop(position, None)
                case Summarised():
                    self._steps = {at: step for at, step in self._steps.items() if at >= event.upto}
                case _:
                    pass
            self._taken += 1

    def superseded(self) -> list[int]:
        """Positions of `Observed` events that hold little but output which was shown again later."""
        return [step.position for step in self._steps.values() if step.is_superseded]

    def far_behind(self) -> list[int]:
        """Positions of `Observed` events that are many steps old, superseded ones left out."""
        last = self._replies - _FAR_BEHIND
        return [step.position for step in self._steps.values() if step.reply <= last and not step.is_superseded]

    def _observed(self, event: Observed) -> None:
        told = join_answers(event.text, event.answers)
        step = _Step(position=self._taken, reply=self._replies, chars=len(told))
        if estimate(told) >= _WORTH:
            self._steps[step.position] = step
        for call in self._returned:
            command = _COMMAND.match(call.text)
            # The result as the model read it, whose middle the record may lack; nothing when it was not shown.
            start = told.find(call.text[:_EDGE_CHARS])
            end = told.find(call.text[-_EDGE_CHARS:], start) if start >= 0 else -1
            text = told[start : end + min(len(call.text), _EDGE_CHARS)] if end >= 0 else ""
            if command is not None and text:
                piece = _Piece(step=step, command=command["number"], text=text)
                self._showed(command["terminal"], piece, whole=call.tool == "read_output")
        self._returned = []

    def _showed(self, terminal: str, piece: _Piece, *, whole: bool) -> None:
        """Take in what was shown of a command; if that may be the whole of it, what came before has had its day."""
        # Only a terminal's last command can be read again, so nothing needs to be known of those before it.
        earlier = [each for each in self._pieces.get(terminal, ()) if each.command == piece.command]
        lines = frozenset(piece.text.split("\n")) if whole and earlier else frozenset()
        kept = []
        for each in earlier:
            if each.step is not piece.step and each.is_told_by(lines):
                each.step.covered += len(each.text)
            else:
                kept.append(each)
        self._pieces[terminal] = [*kept, piece]


@dataclass(slots=True, kw_only=True)
class _Step:
    """What one step showed.

    Attributes:
        position: of its `Observed` in the log.
        reply: number of the reply that it followed, counted over the whole log.
        chars: how much it showed.
        covered: how much of that was shown again later.
    """

    position: int
    reply: int
    chars: int
    covered: int = 0

    @property
    def is_superseded(self) -> bool:
        """Whether (nearly) all of it was shown again later."""
        return self.covered >= _COVERED * self.chars


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What one call showed of a command's output, with the lines around it."""

    step: _Step
    command: str
    text: str

    def is_told_by(self, lines: frozenset[str]) -> bool:
        """Whether (nearly) all of it is in `lines`; of a long output, the shown head and tail move as it grows."""
        told = sum(len(line) + 1 for line in self.text.split("\n") if line in lines)
        return told >= _COVERED * len(self.text)
