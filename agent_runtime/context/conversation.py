"""The conversation of a run's loop: make each request, and keep it short and cheap."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from itertools import accumulate

from agent_runtime import prompts
from agent_runtime.context.candidates import candidates
from agent_runtime.context.estimate import Meter, estimate, estimate_message
from agent_runtime.context.memory import MemorySettings
from agent_runtime.context.planner import Prospect, RequestForecast, plan
from agent_runtime.context.results import Results
from agent_runtime.context.summary import ASIDE_CHARS, boundary, length, mechanical, place, usable
from agent_runtime.context.transcript import Transcript, sendable
from agent_runtime.core.errors import ModelError, ModelOutageError, ModelUnreachableError
from agent_runtime.core.events import Summarised
from agent_runtime.core.outcome import Usage
from agent_runtime.core.policy import RunLimits
from agent_runtime.providers.prices import load_prices
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    """What a provider's cache was last seen to hold: the beginning of a request, by our own estimate."""

    model: str = ""
    tokens: int = 0
    at: float = 0.0

    def holds(self, model: str, now: float) -> int:
        """Tokens that can still be read from it."""
        return self.tokens if model == self.model and now - self.at < _CACHE_SECONDS else 0


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
        status = sendable(status)  # it names what runs in terminals
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
