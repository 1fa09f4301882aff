"""How much of which material a task may hold: one budget, a share for every kind, its rest to the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime import Quote
from bot.gate.sanitise import clip

_FRAME_CHARS = 100
_LEAST_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteShare:
    """Quotes of one kind.

    Attributes:
        what: what they are, in the plural, for the note of what was left out.
        share: of the budget, in characters, that no other kind can take from it.
        quotes: in the order of time; the middle goes first.
    """

    what: str
    share: int
    quotes: tuple[Quote, ...]

    @property
    def need(self) -> int:
        """Characters that all of it would take."""
        return sum(map(_size, self.quotes))


def fitted(parts: Sequence[QuoteShare], budget: int) -> tuple[list[Quote], list[str]]:
    """The quotes that fit into `budget` characters, and notes of what was left out.

    Args:
        parts: those that matter most first; their shares are together no more than the budget.
        budget: for all texts, with something for the frame of each.
    """
    given = [min(part.need, part.share) for part in parts]
    rest = budget - sum(given)
    kept: list[Quote] = []
    notes: list[str] = []
    for part, sure in zip(parts, given, strict=True):
        extra = min(part.need - sure, rest)
        rest -= extra
        quotes = _within(part.quotes, sure + extra)
        kept += quotes
        if missing := len(part.quotes) - len(quotes):
            notes.append(f"{part.what}: {missing}")
    return kept, notes


def _size(quote: Quote) -> int:
    return len(quote.text) + len(quote.source) + _FRAME_CHARS


def _within(quotes: Sequence[Quote], budget: int) -> list[Quote]:
    """From both ends inward, a third of the budget from the start; one that is too large for all of it is cut."""
    if sum(map(_size, quotes)) <= budget:
        return list(quotes)
    if len(quotes) == 1 or _size(quotes[-1]) > budget:
        return _cut(quotes[-1], budget)
    first = _taken(quotes, budget // 3)
    last = _taken(quotes[: len(first) - 1 if first else None : -1], budget - sum(map(_size, first)))
    return [*first, *reversed(last)]


def _taken(quotes: Sequence[Quote], budget: int) -> list[Quote]:
    taken: list[Quote] = []
    for quote in quotes:
        budget -= _size(quote)
        if budget < 0:
            break
        taken.append(quote)
    return taken


def _cut(quote: Quote, budget: int) -> list[Quote]:
    # The note of the cut takes some, too.
    room = budget - len(quote.source) - 2 * _FRAME_CHARS
    return [Quote(source=quote.source, text=clip(quote.text, limit=room))] if room >= _LEAST_CHARS else []
