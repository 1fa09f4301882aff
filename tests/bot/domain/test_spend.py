"""Caps of spending, what is left of them, and forecasts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_runtime import Usage
from bot.domain.spend import (
    Cap,
    CapUse,
    Period,
    SpendCaps,
    budget_note,
    caps_for,
    count_starts,
    date_of,
    day_of,
    exhausted_reason,
    fit_budget,
    forecast,
    period_days,
    typical_cost,
    warnings_about,
)

FILE = ".github/codepilot.yml"
OPERATOR = "The operator can raise it (`CODEPILOT_SPEND_CAPS=repository-day=…`)."
DAY = Cap(scope="repository", period="day", limit_usd=20.0)


def _use(cap: Cap = DAY, *, spent: float = 0.0, reserved: float = 0.0, ends: int = 20_000, login: str = "") -> CapUse:
    return CapUse(cap=cap, spent_usd=spent, reserved_usd=reserved, ends=ends, login=login)


def test_a_file_only_lowers_the_caps_of_its_repository() -> None:
    operator = SpendCaps(repository_day=20.0, repository_month=100.0, person_month=50.0)
    caps = caps_for(operator, file=FILE, day=5.0, month=500.0)
    assert [(cap.scope, cap.period, cap.limit_usd, cap.file) for cap in caps] == [
        ("repository", "day", 5.0, FILE),
        ("repository", "month", 100.0, ""),
        ("person", "month", 50.0, ""),
    ]
    assert caps_for(SpendCaps(), file=FILE, day=None, month=None) == ()
    [own] = caps_for(SpendCaps(), file=FILE, day=None, month=9.0)
    assert own.remedy == f"Somebody with write access can raise `spend.month_usd` in `{FILE}`."


@pytest.mark.parametrize(
    ("date", "period", "first", "end"),
    [
        ("2026-11-30", "day", "2026-11-30", "2026-12-01"),
        ("2026-11-30", "month", "2026-11-01", "2026-12-01"),
        ("2026-12-31", "month", "2026-12-01", "2027-01-01"),
        ("2028-02-29", "month", "2028-02-01", "2028-03-01"),
    ],
)
def test_days_and_months_begin_at_midnight_utc(date: str, period: Period, first: str, end: str) -> None:
    day = day_of(datetime.fromisoformat(f"{date}T23:59:59+00:00").timestamp())
    assert [f"{date_of(each):%Y-%m-%d}" for each in period_days(day, period)] == [first, end]


def test_a_budget_is_lowered_to_what_each_cap_leaves() -> None:
    month = Cap(scope="person", period="month", limit_usd=50.0)
    uses = [_use(spent=12.0, reserved=5.0), _use(month, spent=48.0)]
    assert fit_budget(5.0, []) == 5.0
    assert fit_budget(None, []) is None
    assert fit_budget(5.0, uses) == 2.0
    assert fit_budget(None, uses) == 2.0
    assert fit_budget(1.0, uses) == 1.0
    # What running jobs may still spend is not there for another one.
    assert fit_budget(5.0, [_use(spent=12.0, reserved=8.0)]) == 0.0
    assert fit_budget(5.0, [_use(spent=25.0)]) == 0.0
    assert fit_budget(5.0, [_use(spent=19.995)]) == 0.0


def test_a_refusal_names_the_cap_the_spending_the_reset_and_the_remedy() -> None:
    ends = day_of(datetime(2026, 12, 1, tzinfo=UTC).timestamp())
    month = Cap(scope="person", period="month", limit_usd=50.0)
    later = _use(month, spent=50.5, ends=ends, login="mona")
    assert exhausted_reason([_use(spent=3.0), later]) == (
        "The spending cap is reached: of $50.00 for mona in all repositories this month, $50.50 is spent. It resets on "
        "2026-12-01 00:00 UTC. The operator can raise it (`CODEPILOT_SPEND_CAPS=person-month=…`)."
    )
    reserved = exhausted_reason([_use(spent=3.0, reserved=17.0, ends=ends)])
    assert "of $20.00 for this repository today, $3.00 is spent, and $17.00 is reserved for running jobs." in reserved


def test_a_lowered_budget_and_caps_that_are_nearly_spent_are_told() -> None:
    uses = [_use(spent=18.0)]
    note = budget_note(5.0, 2.0, uses)
    assert note == f"This run may cost at most $2.00, the rest of $20.00 for this repository today. {OPERATOR}"
    assert budget_note(None, 2.0, uses) == note
    assert not budget_note(5.0, 5.0, uses)
    assert not budget_note(5.0, 5.0, [])
    assert warnings_about([_use(spent=16.0)]) == ()
    [warning] = warnings_about([_use(spent=17.0, ends=day_of(0.0) + 1)])
    assert warning == (
        "Of $20.00 for this repository today, $17.00 is spent (85%). When all is spent, I start no run until "
        f"1970-01-02 00:00 UTC. {OPERATOR}"
    )


def test_without_a_price_tokens_are_charged_as_in_the_limit_of_a_run() -> None:
    assert Usage(output_tokens=100_000, cost_usd=None).estimated_cost_usd == 0.25
    assert Usage(output_tokens=100_000, cost_usd=0.01).estimated_cost_usd == 0.01


def test_a_verb_has_a_typical_cost_after_ten_runs() -> None:
    costs = [0.1 * number for number in range(1, 11)]
    assert not typical_cost(costs[:9])
    assert typical_cost(costs) == "$0.55, nine of ten at most $0.90"
    assert typical_cost([0.001] * 10) == "under $0.01, nine of ten at most under $0.01"


def test_a_schedule_is_expected_to_cost_what_its_runs_did() -> None:
    monday = datetime(2026, 11, 23, tzinfo=UTC).timestamp()
    assert count_starts("17 6 * * 1", monday) == 5
    assert count_starts("17 * * * *", monday) == 720
    # Of another version, or never due again.
    assert count_starts("no schedule", monday) == count_starts("0 0 31 2 *", monday) == 0
    assert not forecast([0.1, 0.2], 30)
    assert forecast([0.4, 0.1, 0.2], 30) == "$6.00 ($3.00 to $12.00)"
