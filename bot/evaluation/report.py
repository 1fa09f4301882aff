"""Statistics of an evaluation.

The sample is the tasks; a task counts with the share of its attempts that succeeded. Errors do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, sqrt
from statistics import NormalDist, fmean

from bot.evaluation.results import EvalResult, PhaseTokens
from bot.evaluation.suite import Suite
from bot.publishing.markdown import one_line

SMALL_SAMPLE = 30
"""Tasks; below this, the report calls the sample small."""
CONFIDENCE = 0.95
SIGNIFICANCE = 1 - CONFIDENCE

_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Rate over tasks with its confidence interval; `share` is None for an empty sample."""

    count: float
    size: int
    share: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Sum over the counted attempts; None if one of them is unknown.

    Attributes:
        per_solved: total divided by the number of successful attempts.
    """

    total: float | None
    per_attempt: float | None
    per_solved: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReport:
    """Figures of a configuration.

    Attributes:
        missing: tasks without a counted attempt.
        always_solved: tasks solved by every attempt.
        claims: attempts in which the bot claimed success.
        false_rate: claims without success, over the tasks with a claim.
        errors: attempts that do not count.
    """

    name: str
    model: str
    tasks: int
    missing: tuple[str, ...]
    attempts: int
    solved: Rate
    always_solved: int
    once_solved: int
    cost_usd: Amount
    seconds: Amount
    requests: Amount
    approvals: int
    tokens: Mapping[str, PhaseTokens]
    claims: int
    false_claims: int
    false_rate: Rate
    unclaimed_solved: int
    refusals: int
    errors: int
    errors_cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedAmount:
    """Mean amounts on the common tasks, the number of tasks with a lower one, and the sign test's p."""

    first: float
    second: float
    first_lower: int
    second_lower: int
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two configurations on their common tasks.

    A configuration solves a task if more than half of its attempts do.

    Attributes:
        difference: share of the first minus that of the second.
        p: exact McNemar test.
        cost_usd: None if a cost is unknown.
    """

    first: str
    second: str
    tasks: int
    both: int
    only_first: int
    only_second: int
    neither: int
    difference: float | None
    low: float
    high: float
    p: float
    cost_usd: PairedAmount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    attempts: int
    solved: int
    false_claims: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    id: str
    title: str
    link: str
    outcomes: Mapping[str, TaskOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures of an evaluation; `format` is the version of its JSON."""

    format: int
    repository: str
    confidence: float
    is_small: bool
    configs: tuple[ConfigReport, ...]
    comparisons: tuple[Comparison, ...]
    tasks: tuple[TaskReport, ...]


def wilson_interval(successes: float, size: int) -> tuple[float, float]:
    """Return the score interval of a proportion (E. B. Wilson, JASA 22, 1927, 209-212)."""
    # With fractional successes it is wider than necessary: their variance is below that of a binomial count.
    if not size:
        return 0.0, 1.0
    share, square = successes / size, _Z * _Z
    centre = share + square / (2 * size)
    spread = _Z * sqrt(max(0.0, share * (1 - share)) / size + square / (4 * size * size))
    return max(0.0, (centre - spread) / (1 + square / size)), min(1.0, (centre + spread) / (1 + square / size))


def paired_interval(both: int, only_first: int, only_second: int, neither: int) -> tuple[float, float]:
    """Return the interval of a paired difference (R. G. Newcombe, Statistics in Medicine 17, 1998, 2635, method 10)."""
    size = both + only_first + only_second + neither
    if not size:
        return -1.0, 1.0
    first, second = (both + only_first) / size, (both + only_second) / size
    low_1, high_1 = wilson_interval(both + only_first, size)
    low_2, high_2 = wilson_interval(both + only_second, size)
    margins = (both + only_first) * (only_second + neither) * (both + only_second) * (only_first + neither)
    product = both * neither - only_first * only_second
    corrected = max(product - size / 2, 0.0) if product > 0 else float(product)
    phi = corrected / sqrt(margins) if margins else 0.0

    def combine(margin: float, other: float) -> float:
        return sqrt(max(0.0, margin * margin - 2 * phi * margin * other + other * other))

    difference = first - second
    low = difference - combine(first - low_1, high_2 - second)
    high = difference + combine(high_1 - first, second - low_2)
    return max(-1.0, low), min(1.0, high)


def sign_test(first: int, second: int) -> float:
    """Return the exact two-sided p; of discordant pairs, McNemar's test (Psychometrika 12, 1947, 153)."""
    size = first + second
    return min(1.0, 2 * sum(comb(size, count) for count in range(min(first, second) + 1)) / (1 << size))


def build_report(results: Iterable[EvalResult], suite: Suite, models: Mapping[str, str]) -> Report:
    """Compute the figures of an evaluation; tasks that only the results name are added to the suite's.

    Args:
        models: model by configuration, in the order of the report.
    """
    attempts: dict[str, dict[str, list[EvalResult]]] = {name: {} for name in models}
    tasks = {task.id: (one_line(task.title, 300), task.link) for task in suite.tasks}
    for result in results:
        attempts.setdefault(result.config, {}).setdefault(result.task, []).append(result)
        tasks.setdefault(result.task, ("", ""))
    configs = tuple(_build_config(name, models.get(name, ""), by_task, tasks) for name, by_task in attempts.items())
    comparisons = tuple(
        _compare((first, attempts[first]), (second, attempts[second])) for first, second in combinations(attempts, 2)
    )
    return Report(
        format=1,
        repository=one_line(suite.head.repository, 200),
        confidence=CONFIDENCE,
        is_small=any(config.tasks < SMALL_SAMPLE for config in configs),
        configs=configs,
        comparisons=comparisons,
        tasks=tuple(
            TaskReport(
                id=task_id,
                title=title,
                link=link,
                outcomes={
                    name: count_outcome(by_task[task_id]) for name, by_task in attempts.items() if task_id in by_task
                },
            )
            for task_id, (title, link) in tasks.items()
        ),
    )


def _build_config(
    name: str, model: str, by_task: Mapping[str, Sequence[EvalResult]], tasks: Iterable[str]
) -> ConfigReport:
    counted = {task: kept for task, results in by_task.items() if (kept := [*filter(_is_counted, results)])}
    attempts = [result for results in counted.values() for result in results]
    errors = [result for results in by_task.values() for result in results if not _is_counted(result)]
    claims = {
        task: kept for task, results in counted.items() if (kept := [result for result in results if result.said_done])
    }
    solutions = sum(map(_is_solved, attempts))
    tokens: defaultdict[str, PhaseTokens] = defaultdict(PhaseTokens)
    for result in attempts:
        for phase, used in result.tokens.items():
            total = tokens[phase]
            tokens[phase] = PhaseTokens(
                input=total.input + used.input, cached=total.cached + used.cached, output=total.output + used.output
            )
    return ConfigReport(
        name=name,
        model=model,
        tasks=len(counted),
        missing=tuple(task for task in tasks if task not in counted),
        attempts=len(attempts),
        solved=_rate(counted.values(), _is_solved),
        always_solved=sum(all(map(_is_solved, results)) for results in counted.values()),
        once_solved=sum(any(map(_is_solved, results)) for results in counted.values()),
        cost_usd=_amount([result.cost_usd for result in attempts], solutions),
        seconds=_amount([result.seconds for result in attempts], solutions),
        requests=_amount([result.requests for result in attempts], solutions),
        approvals=sum(result.approvals for result in attempts),
        tokens=dict(tokens),
        claims=sum(map(len, claims.values())),
        false_claims=sum(not _is_solved(result) for results in claims.values() for result in results),
        false_rate=_rate(claims.values(), lambda result: not _is_solved(result)),
        unclaimed_solved=sum(_is_solved(result) for result in attempts if not result.said_done),
        refusals=sum(result.status == "refused" for result in attempts),
        errors=len(errors),
        errors_cost_usd=_amount([result.cost_usd for result in errors], 0).total,
    )


def _is_counted(result: EvalResult) -> bool:
    return result.status != "error"


def _is_solved(result: EvalResult) -> bool:
    return result.solved is True


def _rate(groups: Iterable[Sequence[EvalResult]], is_success: Callable[[EvalResult], bool]) -> Rate:
    shares = [fmean(map(is_success, results)) for results in groups]
    low, high = wilson_interval(sum(shares), len(shares))
    return Rate(count=sum(shares), size=len(shares), share=fmean(shares) if shares else None, low=low, high=high)


def _amount(values: Sequence[float | None], solutions: int) -> Amount:
    amounts = [value for value in values if value is not None]
    if len(amounts) < len(values):
        return Amount(total=None, per_attempt=None, per_solved=None)
    total = sum(amounts)
    return Amount(
        total=total,
        per_attempt=total / len(amounts) if amounts else None,
        per_solved=total / solutions if solutions else None,
    )


def count_outcome(results: Sequence[EvalResult]) -> TaskOutcome:
    counted = [*filter(_is_counted, results)]
    return TaskOutcome(
        attempts=len(counted),
        solved=sum(map(_is_solved, counted)),
        false_claims=sum(result.said_done and not _is_solved(result) for result in counted),
        errors=len(results) - len(counted),
    )


_Attempts = Mapping[str, Sequence[EvalResult]]


def _compare(first: tuple[str, _Attempts], second: tuple[str, _Attempts]) -> Comparison:
    pairs = [
        (left, right)
        for task, results in first[1].items()
        if (left := [*filter(_is_counted, results)]) and (right := [*filter(_is_counted, second[1].get(task, ()))])
    ]
    outcomes = [tuple(2 * sum(map(_is_solved, results)) > len(results) for results in pair) for pair in pairs]
    both, neither = outcomes.count((True, True)), outcomes.count((False, False))
    only_first, only_second = outcomes.count((True, False)), outcomes.count((False, True))
    low, high = paired_interval(both, only_first, only_second, neither)
    return Comparison(
        first=first[0],
        second=second[0],
        tasks=len(pairs),
        both=both,
        only_first=only_first,
        only_second=only_second,
        neither=neither,
        difference=(only_first - only_second) / len(pairs) if pairs else None,
        low=low,
        high=high,
        p=sign_test(only_first, only_second),
        cost_usd=_compare_costs(pairs),
    )


def _compare_costs(pairs: Iterable[tuple[Sequence[EvalResult], Sequence[EvalResult]]]) -> PairedAmount | None:
    means = [
        tuple(_amount([result.cost_usd for result in results], 0).per_attempt for results in pair) for pair in pairs
    ]
    values = [(one, other) for one, other in means if one is not None and other is not None]
    if not values or len(values) < len(means):
        return None
    first, second = map(fmean, zip(*values, strict=True))
    lower, higher = sum(one < other for one, other in values), sum(one > other for one, other in values)
    return PairedAmount(first=first, second=second, first_lower=lower, second_lower=higher, p=sign_test(lower, higher))
