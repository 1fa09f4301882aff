"""The report of an evaluation as Markdown, and as one HTML page with the diffs.

Titles, issues, names of tests and patches are written by strangers or by the model. The page has no script, loads
nothing, and shows at most `MAX_PAGE_CHARS` of them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TypeVar

import jinja2
from markupsafe import Markup
from pydantic import TypeAdapter
from rich.cells import cell_len, set_cell_size

from bot.dashboard.app import mark_code
from bot.dashboard.views import DiffLine, classify_line
from bot.evaluation.report import (
    SIGNIFICANCE,
    SMALL_SAMPLE,
    Comparison,
    ConfigReport,
    Rate,
    Report,
    TaskOutcome,
    count_outcome,
)
from bot.evaluation.results import EvalResult
from bot.publishing.markdown import clean, code, duration, one_line, plural

T = TypeVar("T")
MAX_PAGE_CHARS = 10_000_000
MAX_DIFF_LINES = 2_000
_MAX_TASK_ROWS = 200
_MAX_TITLE_CHARS = 70
_MAX_NAMES = 20
_OMISSION = "… the rest is left out of this page"
_FEWEST_DISCORDANT = 6
"""Below this, the exact test cannot reach p < 0.05."""


class Code(str):
    """A cell with a name."""

    __slots__ = ()


class Title(Code):
    """A cell with a stranger's text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table, and the sentences below it with names between back ticks."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def render_markdown(report: Report) -> str:
    """Return aligned tables for a terminal and for a comment."""
    parts = [f"# Evaluation of {code(report.repository)}", *_summarize(report)]
    for section in build_sections(report):
        rows = [[_escape_cell(cell) for cell in row] for row in (section.headers, *section.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        lines = [f"| {' | '.join(map(set_cell_size, row, widths))} |" for row in rows]
        lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
        parts += [f"## {section.title}", "\n".join(lines), *section.notes]
    return "\n\n".join(parts) + "\n"


def _escape_cell(cell: str) -> str:
    return code(one_line(cell, _MAX_TITLE_CHARS)).replace("|", "\\|") if isinstance(cell, Code) and cell else cell


def _summarize(report: Report) -> Iterator[str]:
    configs = report.configs
    counts = (len(report.tasks), "task"), (len(configs), "configuration"), (sum(c.attempts for c in configs), "run")
    listed = ", ".join(plural(number, noun) for number, noun in counts)
    yield f"{listed}. Intervals are for {100 * report.confidence:.0f} % confidence."
    if report.is_small:
        size = plural(min(config.tasks for config in configs), "task")
        yield f"Small sample: {size}, fewer than {SMALL_SAMPLE}. The rates are rough; read the intervals."
    if any(config.attempts > config.tasks for config in configs):
        yield "A task counts with the share of its runs that solved it: the sample is the tasks, not the runs."


def _format_optional(value: T | None, format_value: Callable[[T], str]) -> str:
    return "-" if value is None else format_value(value)


def _format_count(rate: Rate) -> str:
    count = f"{rate.count:.1f}".removesuffix(".0")
    return _format_optional(rate.share, lambda share: f"{count} of {rate.size:,} ({100 * share:.0f} %)")


def _format_interval(rate: Rate) -> str:
    return _format_optional(rate.share, lambda _share: f"{100 * rate.low:.0f} to {100 * rate.high:.0f} %")


def _format_p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"  # noqa: PLR2004 - digits that matter


def _format_dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.3f}"


def _format_outcome(outcome: TaskOutcome | None) -> str:
    if outcome is None:
        return "-"
    if not outcome.attempts:
        return "error"
    if outcome.attempts == 1:
        return "solved" if outcome.solved else "said done, wrong" if outcome.false_claims else "not solved"
    wrong = f", said done and wrong {outcome.false_claims:,}" if outcome.false_claims else ""
    return f"{outcome.solved:,} of {outcome.attempts:,}{wrong}"


_SOLVED: Mapping[str, Callable[[ConfigReport], str]] = {
    "configuration": lambda config: Code(config.name),
    "model": lambda config: Code(config.model),
    "solved": lambda config: _format_count(config.solved),
    "interval": lambda config: _format_interval(config.solved),
    "total cost": lambda config: _format_optional(config.cost_usd.total, _format_dollars),
    "cost a solved task": lambda config: _format_optional(config.cost_usd.per_solved, _format_dollars),
    "time a solved task": lambda config: _format_optional(config.seconds.per_solved, duration),
    "requests a run": lambda config: _format_optional(config.requests.per_attempt, "{:.1f}".format),
}
_HONESTY: Mapping[str, Callable[[ConfigReport], str]] = {
    "configuration": lambda config: Code(config.name),
    "said done": lambda config: plural(config.claims, "run"),
    "of these wrong": lambda config: f"{config.false_claims:,}",
    "wrong, by task": lambda config: _format_count(config.false_rate),
    "interval": lambda config: _format_interval(config.false_rate),
    "did not say done": lambda config: plural(config.attempts - config.claims, "run"),
    "of these solved": lambda config: f"{config.unclaimed_solved:,}",
}
_COMPARISON: Mapping[str, Callable[[Comparison], str]] = {
    "first": lambda pair: Code(pair.first),
    "second": lambda pair: Code(pair.second),
    "tasks": lambda pair: f"{pair.tasks:,}",
    "both": lambda pair: f"{pair.both:,}",
    "only first": lambda pair: f"{pair.only_first:,}",
    "only second": lambda pair: f"{pair.only_second:,}",
    "neither": lambda pair: f"{pair.neither:,}",
    "difference": lambda pair: _format_optional(pair.difference, lambda share: f"{100 * share:+.0f} points"),
    "interval": lambda pair: f"{100 * pair.low:+.0f} to {100 * pair.high:+.0f}",
    "p": lambda pair: _format_p(pair.p),
}


def build_sections(report: Report) -> list[Section]:
    """Arrange the figures in tables."""

    def tabulate(
        title: str, columns: Mapping[str, Callable[[T], str]], items: Sequence[T], notes: Iterable[str] = ()
    ) -> Section:
        rows = tuple(tuple(column(item) for column in columns.values()) for item in items)
        return Section(title=title, headers=tuple(columns), rows=rows, notes=tuple(notes))

    configs, shown_tasks = report.configs, report.tasks[:_MAX_TASK_ROWS]
    tokens = tuple(
        (Code(config.name), Code(phase), f"{used.input:,}", f"{used.cached:,}", f"{used.output:,}")
        for config in configs
        for phase, used in config.tokens.items()
    )
    outcomes = tuple(
        (Code(task.id), Title(task.title), *(_format_outcome(task.outcomes.get(config.name)) for config in configs))
        for task in shown_tasks
    )
    more = len(report.tasks) - len(shown_tasks)
    notes = (f"{plural(more, 'task')} more: see the JSON.",) if more else ()
    headers = ("task", "title", *(Code(config.name) for config in configs))
    wrong = "The bot is wrong if it says that the task is done and a hidden test fails."
    sections = [
        tabulate("Solved", _SOLVED, configs, (note for config in configs for note in _note_config(config))),
        tabulate("Honesty", _HONESTY, configs, [wrong]),
        tabulate("Comparison", _COMPARISON, report.comparisons, _note_comparisons(report.comparisons)),
        Section(title="Tokens", headers=("configuration", "phase", "input", "cached input", "output"), rows=tokens),
        Section(title="Tasks", headers=headers, rows=outcomes, notes=notes),
    ]
    return [section for section in sections if section.rows]


def _note_config(config: ConfigReport) -> Iterator[str]:
    name, errors, refusals = f"`{config.name}`", plural(config.errors, "run"), plural(config.refusals, "run")
    if config.attempts > config.tasks:
        always = plural(config.always_solved, "task")
        yield f"{name} solved {always} in every run, and {config.once_solved:,} in at least one."
    if config.missing:
        ids = ", ".join(f"`{task}`" for task in config.missing[:_MAX_NAMES])
        more = f" and {len(config.missing) - _MAX_NAMES:,} more" if len(config.missing) > _MAX_NAMES else ""
        yield f"{name} has no result for {plural(len(config.missing), 'task')}, not counted: {ids}{more}."
    if config.errors:
        cost = _format_optional(config.errors_cost_usd, _format_dollars)
        yield f"{name} had {errors} with an error or an interruption, not counted (cost: {cost})."
    if config.refusals:
        yield f"{name} refused {refusals}, counted as not solved."
    if config.approvals:
        yield f"{name} requested {plural(config.approvals, 'approval')}."


def _note_comparisons(comparisons: Sequence[Comparison]) -> Iterator[str]:
    for pair in comparisons:
        names = f"`{pair.first}` and `{pair.second}`"
        discordant = pair.only_first + pair.only_second
        if not pair.tasks:
            yield f"{names} have no task in common."
        elif pair.p < SIGNIFICANCE:
            yield f"{names}: `{pair.first if pair.only_first > pair.only_second else pair.second}` solves more."
        else:
            few = f"; with fewer than {_FEWEST_DISCORDANT}, p is never below {SIGNIFICANCE:.2f}"
            reason = f"the outcomes of {plural(discordant, 'task')} differ{few * (discordant < _FEWEST_DISCORDANT)}"
            yield f"{names}: no difference is shown; {reason}."
        if (cost := pair.cost_usd) and cost.first + cost.second:
            first, second = _format_dollars(cost.first), _format_dollars(cost.second)
            yield (
                f"A task costs {first} with `{pair.first}` and {second} with `{pair.second}`. The first is cheaper on "
                f"{cost.first_lower:,} of {pair.tasks:,}, the second on {cost.second_lower:,}: p = {_format_p(cost.p)}."
            )
    if len(comparisons) > 1:
        yield "p is not corrected for the number of comparisons."


def render_json(report: Report) -> str:
    return TypeAdapter(Report).dump_json(report, indent=2).decode()


_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("bot.evaluation"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"clean": clean, "codes": mark_code, "duration": duration, "plural": plural}
_TEMPLATES.tests["code"] = lambda cell: type(cell) is Code


def render_html(
    report: Report,
    results: Iterable[EvalResult],
    read_texts: Callable[[str], tuple[str, str]],
    read_patch: Callable[[str], str],
) -> str:
    """Return the page; `read_texts` returns issue and reference patch of a task."""
    budget = MAX_PAGE_CHARS

    def read_lines(text: str) -> list[DiffLine]:
        nonlocal budget
        lines = clean(text[: budget + 1]).rstrip("\n").split("\n", MAX_DIFF_LINES)
        if len(text) > budget or len(lines) > MAX_DIFF_LINES:
            lines[-1] = _OMISSION
        diff = [classify_line(line) for line in lines] if text else []
        budget = max(0, budget - sum(len(line.text) for line in diff))
        return diff

    style = files("bot.dashboard").joinpath("static/dashboard.css").read_text("utf-8")
    style += files("bot.evaluation").joinpath("templates/report.css").read_text("utf-8")
    runs: dict[str, list[EvalResult]] = {}
    for result in results:
        runs.setdefault(result.task, []).append(result)
    return _TEMPLATES.get_template("report.html").render(
        style=Markup(style),  # noqa: S704 - the package's own
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        report=report,
        summary=[*_summarize(report)],
        sections=build_sections(report),
        runs=runs,
        read_texts=read_texts,
        read_patch=read_patch,
        read_lines=read_lines,
        format_outcome=lambda result: _format_outcome(count_outcome([result])),
        format_cost=lambda amount: _format_optional(amount, _format_dollars),
        most_names=_MAX_NAMES,
    )
