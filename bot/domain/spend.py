"""Caps of spending by repository and person, how much of them is used, and the words about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from math import ceil
from statistics import median
from typing import Literal

from croniter import croniter

Scope = Literal["repository", "person"]
Period = Literal["day", "month"]
_SCOPES: tuple[Scope, ...] = ("repository", "person")
_PERIODS: tuple[Period, ...] = ("day", "month")
_DAY_SECONDS = 86_400

LEAST_BUDGET_USD = 0.01
"""A run with less would end at once."""

WARNING_SHARE = 0.8

UNKNOWN_PRICE = "The price of the model is not known. A cap of spending counts one dollar for 400,000 tokens instead."

TYPICAL_RUNS = 10
"""Number of runs from which a verb has a typical cost."""

FORECAST_RUNS, FORECAST_DAYS = 3, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendCaps:
    """US dollars in a day and in a month (UTC); None for no cap."""

    repository_day: float | None = None
    repository_month: float | None = None
    person_day: float | None = None
    person_month: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """One cap of a run; `file` is the repository's, if that sets it."""

    scope: Scope
    period: Period
    limit_usd: float
    file: str = ""

    @property
    def remedy(self) -> str:
        if self.file:
            return f"Somebody with write access can raise `spend.{self.period}_usd` in `{self.file}`."
        return f"The operator can raise it (`CODEPILOT_SPEND_CAPS={self.scope}-{self.period}=…`)."


def caps_for(operator: SpendCaps, *, file: str, day: float | None, month: float | None) -> tuple[Cap, ...]:
    """Return the operator's caps, with those of a repository's file where they are lower."""
    caps = []
    for scope, period in product(_SCOPES, _PERIODS):
        limit: float | None = getattr(operator, f"{scope}_{period}")
        lowered = (day if period == "day" else month) if scope == "repository" else None
        if lowered is not None and (limit is None or lowered < limit):
            caps.append(Cap(scope=scope, period=period, limit_usd=lowered, file=file))
        elif limit is not None:
            caps.append(Cap(scope=scope, period=period, limit_usd=limit))
    return tuple(caps)


def day_of(at: float) -> int:
    """Return the number of the UTC day since 1970."""
    return int(at // _DAY_SECONDS)


def date_of(day: int) -> datetime:
    return datetime.fromtimestamp(day * _DAY_SECONDS, UTC)


def period_days(day: int, period: Period) -> tuple[int, int]:
    """Return the first day of the period around a day, and that of the next period."""
    if period == "day":
        return day, day + 1
    first = date_of(day).replace(day=1)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return day_of(first.timestamp()), day_of(following.timestamp())


@dataclass(frozen=True, slots=True, kw_only=True)
class CapUse:
    """The used part of a cap.

    Attributes:
        reserved_usd: the rest of the budgets of running jobs.
        login: of a person's cap.
        ends: the first day of the next period.
    """

    cap: Cap
    spent_usd: float
    reserved_usd: float
    ends: int
    login: str = ""

    @property
    def remaining_usd(self) -> float:
        return self.cap.limit_usd - self.spent_usd - self.reserved_usd

    @property
    def is_exhausted(self) -> bool:
        return self.remaining_usd < LEAST_BUDGET_USD

    @property
    def amount(self) -> str:
        period = "today" if self.cap.period == "day" else "this month"
        of = "this repository" if self.cap.scope == "repository" else f"{self.login} in all repositories"
        return f"${self.cap.limit_usd:,.2f} for {of} {period}"

    @property
    def reset(self) -> str:
        return f"{date_of(self.ends):%Y-%m-%d} 00:00 UTC"


def fit_budget(budget: float | None, uses: Sequence[CapUse]) -> float | None:
    """Lower a budget to the remainder of each cap; 0 if a cap is exhausted."""
    if any(use.is_exhausted for use in uses):
        return 0.0
    return min(
        (amount for amount in (budget, *(use.remaining_usd for use in uses)) if amount is not None), default=None
    )


def exhausted_reason(uses: Sequence[CapUse]) -> str:
    """Return why a run is refused: the exhausted cap that resets last."""
    use = max((use for use in uses if use.is_exhausted), key=lambda use: use.ends)
    running = f", and ${use.reserved_usd:,.2f} is reserved for running jobs" if use.reserved_usd else ""
    return (
        f"The spending cap is reached: of {use.amount}, ${use.spent_usd:,.2f} is spent{running}. It resets on "
        f"{use.reset}. {use.cap.remedy}"
    )


def budget_note(budget: float | None, fitted: float, uses: Sequence[CapUse]) -> str:
    """Return the note that a cap lowers the budget of a run; empty if none does."""
    if not uses or (budget is not None and fitted >= budget):
        return ""
    use = min(uses, key=lambda use: use.remaining_usd)
    return f"This run may cost at most ${fitted:,.2f}, the rest of {use.amount}. {use.cap.remedy}"


def warnings_about(uses: Sequence[CapUse]) -> tuple[str, ...]:
    """Return the warnings about caps of which more than four fifths are spent."""
    return tuple(
        f"Of {use.amount}, ${use.spent_usd:,.2f} is spent ({use.spent_usd / use.cap.limit_usd:.0%}). When all is "
        f"spent, I start no run until {use.reset}. {use.cap.remedy}"
        for use in uses
        if use.spent_usd > WARNING_SHARE * use.cap.limit_usd
    )


def dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else "under $0.01"  # noqa: PLR2004 - a cent


def typical_cost(costs: Sequence[float]) -> str:
    """Return the median of runs, and the amount that nine of ten stay within; empty for too few."""
    if len(costs) < TYPICAL_RUNS:
        return ""
    upper = sorted(costs)[ceil(0.9 * len(costs)) - 1]
    return f"{dollars(median(costs))}, nine of ten at most {dollars(upper)}"


def count_starts(cron: str, after: float) -> int:
    """Return how often a UTC schedule starts in the 30 days after a time; 0 if it is not valid."""
    end, count = after + FORECAST_DAYS * _DAY_SECONDS, 0
    try:
        times = croniter(cron, after)
        while times.get_next(float) <= end:
            count += 1
    except (ValueError, KeyError):  # of another version, or without any further time
        return count
    return count


def forecast(costs: Sequence[float], starts: int) -> str:
    """Return the expected cost of a number of runs from those of the last ones; empty for too few."""
    if len(costs) < FORECAST_RUNS:
        return ""
    low, middle, high = (dollars(starts * cost) for cost in (min(costs), median(costs), max(costs)))
    return f"{middle} ({low} to {high})"
