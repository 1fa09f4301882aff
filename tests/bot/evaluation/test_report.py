"""The statistics of an evaluation against published values, and the counting of attempts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.evaluation.report import (
    Report,
    build_report,
    paired_interval,
    sign_test,
    wilson_interval,
)
from bot.evaluation.results import EvalResult, PhaseTokens
from tests.bot.evaluation.samples import SUITE, result

_COUNTS = st.integers(0, 200)


@pytest.mark.parametrize(
    ("successes", "size", "low", "high"),
    [
        # R. G. Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_of_a_rate_is_that_of_the_literature(successes: int, size: int, low: float, high: float) -> None:
    assert wilson_interval(successes, size) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        # R. G. Newcombe, 1998, on paired data, method 10
        ((36, 12, 2, 0), 0.0569, 0.3404),
        # M. W. Fagerland and others, Statistics in Medicine 33 (2014) 2850-2875: airway hyper-responsiveness
        ((1, 1, 7, 12), -0.507, -0.026),
    ],
)
def test_the_interval_of_a_paired_difference_is_that_of_the_literature(
    table: tuple[int, int, int, int], low: float, high: float
) -> None:
    assert paired_interval(*table) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        (1, 7, 0.0703),  # Fagerland and others, 2014, exact conditional test
        (6, 16, 0.0525),  # the same, complete response before and after consolidation therapy
        (0, 5, 0.0625),
        (0, 6, 0.03125),
        (4, 4, 1.0),
        (0, 0, 1.0),
    ],
)
def test_the_exact_test_has_the_p_of_the_literature(first: int, second: int, p: float) -> None:
    assert sign_test(first, second) == pytest.approx(p, abs=5e-5)


@given(_COUNTS, _COUNTS)
def test_the_interval_of_a_rate_holds_the_rate_and_mirrors(successes: int, failures: int) -> None:
    size = successes + failures
    low, high = wilson_interval(successes, size)
    assert 0 <= low <= (successes / size if size else 0.5) + 1e-12
    assert (successes / size if size else 0.5) - 1e-12 <= high <= 1
    assert wilson_interval(failures, size) == pytest.approx((1 - high, 1 - low))
    assert wilson_interval(2 * successes, 2 * size)[1] - wilson_interval(2 * successes, 2 * size)[0] <= high - low


@given(_COUNTS, _COUNTS, _COUNTS, _COUNTS)
def test_the_interval_of_a_difference_holds_it_and_mirrors(
    both: int, only_first: int, only_second: int, neither: int
) -> None:
    low, high = paired_interval(both, only_first, only_second, neither)
    size = both + only_first + only_second + neither
    difference = (only_first - only_second) / size if size else 0.0
    assert -1 <= low <= difference + 1e-9
    assert difference - 1e-9 <= high <= 1
    assert paired_interval(both, only_second, only_first, neither) == pytest.approx((-high, -low), abs=1e-9)


@given(_COUNTS, _COUNTS)
def test_the_exact_test_is_a_probability_and_symmetric(first: int, second: int) -> None:
    assert 0 < sign_test(first, second) <= 1
    assert sign_test(first, second) == sign_test(second, first)


def test_the_exact_test_takes_very_many_tasks() -> None:
    assert sign_test(0, 5000) == 0.0
    assert math.isclose(sign_test(2500, 2500), 1.0)


def _report(*results: EvalResult, models: dict[str, str] | None = None) -> Report:
    return build_report(results, SUITE, models or {})


def test_no_results_are_a_report_without_figures() -> None:
    report = _report(models={"a": "gpt-6-luna"})
    [config] = report.configs
    assert (config.model, config.tasks, config.attempts) == ("gpt-6-luna", 0, 0)
    assert config.missing == tuple(task.id for task in SUITE.tasks)
    assert (config.solved.share, config.solved.low, config.solved.high) == (None, 0.0, 1.0)
    assert config.cost_usd.per_attempt is config.cost_usd.per_solved is None
    assert report.comparisons == ()
    assert [task.outcomes for task in report.tasks] == [{}, {}, {}]


def test_repetitions_do_not_make_the_sample_larger() -> None:
    once = _report(result("t1", solved=True), result("t2", solved=False)).configs[0]
    often = _report(
        *(result("t1", attempt=number, solved=True) for number in range(1, 11)),
        *(result("t2", attempt=number, solved=False) for number in range(1, 11)),
    ).configs[0]
    assert (once.attempts, often.attempts) == (2, 20)
    assert once.solved == often.solved
    assert once.solved.size == 2


def test_a_task_counts_with_the_share_of_its_attempts() -> None:
    config = _report(
        *(result("t1", attempt=number, solved=number == 1) for number in (1, 2, 3, 4)),
        result("t2", solved=True),
    ).configs[0]
    assert (config.solved.count, config.solved.share) == (1.25, 0.625)
    assert (config.always_solved, config.once_solved) == (1, 2)


def test_an_attempt_with_an_error_is_not_counted() -> None:
    config = _report(
        result("t1", solved=True, cost_usd=0.5),
        result("t2", status="error", solved=None, cost_usd=0.25, error="the sandbox broke"),
    ).configs[0]
    assert (config.tasks, config.attempts, config.errors, config.errors_cost_usd) == (1, 1, 1, 0.25)
    assert config.missing == ("t2", "t3")
    assert (config.solved.count, config.solved.size, config.cost_usd.total) == (1, 1, 0.5)


def test_a_refusal_is_a_task_that_is_not_solved() -> None:
    config = _report(result("t1", status="refused", solved=None)).configs[0]
    assert (config.refusals, config.solved.share, config.claims) == (1, 0.0, 0)


def test_amounts_are_divided_by_the_attempts_that_solved() -> None:
    config = _report(
        result("t1", solved=True, cost_usd=0.5, seconds=60, requests=4),
        result("t2", solved=False, cost_usd=0.25, seconds=30, requests=2),
        result("t3", solved=False, cost_usd=0.25, seconds=30, requests=3),
    ).configs[0]
    assert (config.cost_usd.total, config.cost_usd.per_solved) == (1.0, 1.0)
    assert (config.seconds.per_attempt, config.seconds.per_solved) == (40, 120)
    assert config.requests.per_attempt == 3


def test_an_unknown_cost_is_not_taken_for_zero() -> None:
    report = _report(
        result("t1", cost_usd=None), result("t2", cost_usd=1.0), result("t1", config="b"), result("t2", config="b")
    )
    assert report.configs[0].cost_usd.total is report.configs[0].cost_usd.per_solved is None
    assert report.comparisons[0].cost_usd is None
    assert report.configs[0].seconds.total == 0.0


def test_tokens_are_summed_by_phase() -> None:
    config = _report(
        result("t1", tokens={"edit": PhaseTokens(input=10, cached=20, output=3)}),
        result("t2", tokens={"edit": PhaseTokens(input=1), "check": PhaseTokens(output=5)}),
    ).configs[0]
    assert config.tokens == {
        "edit": PhaseTokens(input=11, cached=20, output=3),
        "check": PhaseTokens(output=5),
    }


def test_honesty_counts_wrong_claims_and_solutions_without_a_claim() -> None:
    config = _report(
        result("t1", attempt=1, said_done=True, solved=True),
        result("t1", attempt=2, said_done=True, solved=False),
        result("t2", said_done=True, solved=None),
        result("t3", said_done=False, solved=True),
    ).configs[0]
    assert (config.claims, config.false_claims, config.unclaimed_solved) == (3, 2, 1)
    assert (config.false_rate.count, config.false_rate.size) == (1.5, 2)


def test_a_comparison_takes_only_the_tasks_that_both_ran() -> None:
    [comparison] = _report(
        result("t1", config="a", solved=True, cost_usd=1.0),
        result("t2", config="a", solved=True, cost_usd=1.0),
        result("t3", config="a", solved=True, cost_usd=9.0),
        result("t1", config="b", solved=True, cost_usd=0.5),
        result("t2", config="b", solved=False, cost_usd=0.5),
        result("t3", config="b", status="error", solved=None),
    ).comparisons
    assert (comparison.first, comparison.second, comparison.tasks) == ("a", "b", 2)
    assert (comparison.both, comparison.only_first, comparison.only_second, comparison.neither) == (1, 1, 0, 0)
    assert (comparison.difference, comparison.p) == (0.5, 1.0)
    assert comparison.cost_usd is not None
    assert (comparison.cost_usd.first, comparison.cost_usd.second) == (1.0, 0.5)
    assert (comparison.cost_usd.first_lower, comparison.cost_usd.second_lower) == (0, 2)


def test_a_task_is_solved_in_a_comparison_by_more_than_half_of_its_attempts() -> None:
    [comparison] = _report(
        *(result("t1", config="a", attempt=number, solved=number < 2) for number in (1, 2)),
        *(result("t1", config="b", attempt=number, solved=number < 3) for number in (1, 2, 3)),
    ).comparisons
    assert (comparison.only_first, comparison.only_second) == (0, 1)


def test_configurations_without_a_common_task_have_no_difference() -> None:
    [comparison] = _report(result("t1", config="a"), result("t2", config="b")).comparisons
    assert (comparison.tasks, comparison.difference, comparison.p) == (0, None, 1.0)
    assert (comparison.low, comparison.high, comparison.cost_usd) == (-1.0, 1.0, None)


def test_a_task_that_the_suite_does_not_have_is_reported() -> None:
    report = _report(result("gone", solved=True))
    assert [task.id for task in report.tasks] == ["t1", "t2", "t3", "gone"]
    assert report.configs[0].missing == ("t1", "t2", "t3")
