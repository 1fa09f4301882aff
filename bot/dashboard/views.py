"""Content of the dashboard's pages: `DashboardReader` reads and redacts it, functions convert it for the templates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Protocol
from urllib.parse import urlencode

from agent_runtime import SessionError
from bot.domain.commands import persona_of
from bot.domain.errors import BotError, OtherVersionError
from bot.domain.job import ENDED_STATES, LIVE_STATES, Job, JobState
from bot.domain.spend import count_starts, date_of, day_of, forecast, period_days
from bot.github.rate_limit import RequestBudget
from bot.jobs.context import JobServices
from bot.jobs.record import OUTAGE_TEXT, JobRecord, StoredRecord, decode_record
from bot.jobs.waiting import describe_service_wait
from bot.publishing.markdown import clean, duration, one_line
from bot.publishing.status_view import RunEntry, RunLog, build_log, prepend_attempts, unpack_log
from bot.queue.ledger import DurableSpending
from bot.queue.protocols import JobIndex, JobRecords, RunHistory
from bot.queue.records import Dimension, RunQuery, ScheduledRecipe, SpendQuery, SpendSum, SpendSums, StoredJob
from bot.queue.tracing import root_span_context

MAX_LIVE_RUNS = 200
"""Maximum number of runs of each state in the queue."""

_RECENT = 20
_MAX_PARALLEL_READS = 2


class DashboardEngine(JobIndex, JobRecords, RunHistory, Protocol):
    """Interfaces of the engine that the dashboard uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    live: Mapping[JobState, tuple[StoredJob, ...]]
    ended: tuple[StoredJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMaterial:
    """Redacted data of a run."""

    stored: StoredJob
    record: JobRecord
    log: RunLog
    diff: str
    trace: str


class DashboardReader:
    """Read the pages' data. Methods may raise `BotError`.

    Args:
        budgets: installation, resource and rate limit of each budget.
        trace_url: base address of traces; may be empty.
    """

    def __init__(
        self,
        engine: DashboardEngine,
        services: JobServices,
        budgets: Callable[[], list[tuple[int, str, RequestBudget]]],
        spending: DurableSpending,
        *,
        trace_url: str,
    ) -> None:
        self._engine, self._services, self._trace_url = engine, services, trace_url
        self.budgets, self.spending = budgets, spending
        self.server_url = services.server_url
        # Logs and patches may have megabytes to read and redact.
        self._turn = asyncio.Semaphore(_MAX_PARALLEL_READS)

    async def read_queue(self, repo_ids: frozenset[int] | None) -> Queue:
        """Return the newest unfinished jobs of each state, oldest first, and the latest ended ones."""
        # Per state, so that queued jobs do not displace running ones.
        queries = {
            state: RunQuery(states=frozenset({state}), repo_ids=repo_ids, limit=MAX_LIVE_RUNS) for state in LIVE_STATES
        }
        live = {state: (await self.find_runs(query))[::-1] for state, query in queries.items()}
        ended = RunQuery(states=ENDED_STATES, repo_ids=repo_ids, limit=_RECENT)
        return Queue(live=live, ended=await self.find_runs(ended))

    async def find_runs(self, query: RunQuery) -> tuple[StoredJob, ...]:
        """Return the selected work, newest first."""
        runs = await self._engine.find_runs(query)
        live = [run.job.id for run in runs if run.state in LIVE_STATES]
        records = await self._engine.records(live, containing=OUTAGE_TEXT) if live else {}

        def convert(run: StoredJob) -> StoredJob:
            with suppress(OtherVersionError):
                run = _add_wait(run, decode_record(records.get(run.job.id)))
            return self._redact_job(run)

        return await asyncio.to_thread(lambda: tuple(map(convert, runs)))

    async def find_run(self, job_id: str, repo_ids: frozenset[int] | None) -> StoredJob | None:
        """Return a job; None if missing, not work, or not visible to the viewer."""
        stored = await self._engine.get(job_id)
        if stored is None or stored.job.lane != "work":
            return None
        return stored if repo_ids is None or stored.job.repo.id in repo_ids else None

    async def read_run(self, stored: StoredJob) -> RunMaterial:
        job = stored.job
        record = await StoredRecord(self._engine, job.id).read()
        packed = await self._engine.load_log(job.id)

        def read() -> RunMaterial:
            log = None if packed is None else unpack_log(packed)
            if (
                log is None or stored.state in LIVE_STATES
            ):  # where one is kept, it is of an attempt before the one that runs
                try:
                    events = self._services.session_events(job)
                except SessionError as error:
                    raise BotError(f"The log of the run cannot be read: {error}") from error
                log = prepend_attempts(build_log(events, self._redact_text), log) if events or log is None else log
            return RunMaterial(
                stored=self._redact_job(_add_wait(stored, record)),
                record=_redact_record(record, self._redact_text),
                log=log,
                diff=self._services.redactor.redact(self._services.work.excerpt(job.id)),
                trace=f"{self._trace_url.rstrip('/')}/{root_span_context(job).trace_id:032x}"
                if self._trace_url
                else "",
            )

        async with self._turn:
            return await asyncio.to_thread(read)

    def log_stamp(self, job_id: str) -> str:
        """Return a text that changes with the run's log. Blocks."""
        sessions = self._services.sessions
        try:
            return "" if sessions is None else sessions.version(job_id)
        except (SessionError, OSError):
            return ""

    def _redact_job(self, stored: StoredJob) -> StoredJob:
        thread = replace(stored.job.thread, title=self._redact_text(stored.job.thread.title))
        return replace(stored, job=replace(stored.job, thread=thread), reason=self._redact_text(stored.reason))

    def _redact_text(self, text: str) -> str:
        return self._services.strip_local_paths(self._services.redactor.redact(text))


def _add_wait(stored: StoredJob, record: JobRecord) -> StoredJob:
    return replace(stored, reason=describe_service_wait(record, stored.state) or stored.reason)


def _redact_record(record: JobRecord, redact: Callable[[str], str]) -> JobRecord:
    approvals, result = record.approvals, record.result
    waiting = approvals.waiting
    if waiting is not None:
        waiting = replace(waiting, reason=redact(waiting.reason), preview=redact(waiting.preview))
    answers = {key: replace(answer, note=redact(answer.note)) for key, answer in approvals.answers.items()}
    if result is not None and result.outcome.summary:
        result = replace(result, outcome=replace(result.outcome, summary=redact(result.outcome.summary)))
    return replace(record, approvals=replace(approvals, waiting=waiting, answers=answers), result=result)


ENTRIES_ON_A_PAGE = 100
LINES_ON_A_PAGE = 1_000
_LONGEST_LINE = 2_000
_MAX_TITLE = 200
_MAX_TEXT = 20_000
_MAX_ANSWERS = 100
STATE_WORDS: Mapping[JobState, str] = {
    JobState.QUEUED: "queued",
    JobState.RUNNING: "running",
    JobState.WAITING: "waiting",
    JobState.DONE: "done",
    JobState.REFUSED: "refused",
    JobState.FAILED: "failed",
    JobState.STOPPED: "stopped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time for machines and for people."""

    iso: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run in a list.

    Attributes:
        title: of the thread, or the branch.
        person: empty for an event.
        reason: for the end or the wait.
        age: until now or the end.
    """

    id: str
    title: str
    place: str
    repository: str
    person: str
    verb: str
    state: str
    reason: str
    since: Moment
    age: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLink:
    """A link to another part of the page, or to a run's page elsewhere, e.g. `Pull request #7`."""

    label: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    title: str
    state: Literal["waiting", "approved", "denied"]
    text: str = ""
    by: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    text: str
    kind: Literal["file", "hunk", "added", "removed", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffView:
    lines: tuple[DiffLine, ...]
    total: int
    pages: tuple[PageLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The page of a run; `entries` is a page of the numbered timeline, oldest first."""

    row: RunRow
    links: tuple[PageLink, ...]
    facts: tuple[tuple[str, str], ...]
    approvals: tuple[ApprovalView, ...]
    entries: tuple[tuple[int, RunEntry], ...]
    left_out: str
    pages: tuple[PageLink, ...]
    summary: str
    diff: DiffView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """The cost of one name, its share of the largest one, and the page with its runs alone."""

    name: str
    url: str
    runs: int
    cost: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """The page of a month's costs.

    Attributes:
        filters: links to the page without one of them.
        forecasts: recipes with the number of their starts and the expected cost.
    """

    month: str
    months: tuple[PageLink, ...]
    total: str
    runs: int
    filters: tuple[PageLink, ...]
    tables: tuple[tuple[str, tuple[CostRow, ...]], ...]
    forecasts: tuple[tuple[ScheduledRecipe, int, str], ...]


def format_moment(at: float) -> Moment:
    date = datetime.fromtimestamp(at, UTC)
    return Moment(iso=date.isoformat(timespec="seconds"), text=f"{date:%Y-%m-%d %H:%M:%S} UTC")


def build_run_row(stored: StoredJob, *, now: float) -> RunRow:
    job = stored.job
    place = job.repo.full_name if job.thread.kind == "branch" else f"{job.repo.full_name}#{job.thread.number}"
    reason = one_line(stored.reason, _MAX_TITLE)
    if stored.state is JobState.WAITING and stored.until is not None:
        reason = f"at most {duration(max(0.0, stored.until - now))} more"
    return RunRow(
        id=job.id,
        title=one_line(job.thread.title, _MAX_TITLE) or job.thread.branch or place,
        place=place,
        repository=job.repo.full_name,
        person="" if job.is_from_event else job.actor.login,
        verb=f"{job.command.verb} --agent {persona}" if (persona := persona_of(job.command)) else job.command.verb,
        state=STATE_WORDS[stored.state],
        reason=reason,
        since=format_moment(stored.enqueued_at),
        age=duration(max(0.0, (stored.finished_at or now) - stored.enqueued_at)),
    )


def build_run_view(
    run: RunMaterial, *, now: float, server_url: str, page: int | None = None, diff_page: int = 1
) -> RunView:
    """Convert a run to its page.

    Args:
        now: seconds since the epoch.
        page: of the timeline; None for the last.
    """
    stored, record, log = run.stored, run.record, run.log
    outcome = record.result.outcome if record.result is not None else None
    count = max(1, -(-len(log.entries) // ENTRIES_ON_A_PAGE))
    current = min(max(1, page or count), count)
    first = (current - 1) * ENTRIES_ON_A_PAGE
    entries = [
        (index + 1 + (log.left_out if index >= log.head else 0), entry) for index, entry in enumerate(log.entries)
    ]
    return RunView(
        row=build_run_row(stored, now=now),
        links=_build_links(stored.job, record, server_url, run.trace),
        facts=_build_facts(stored, record, log),
        approvals=_build_approvals(record, live=stored.state in LIVE_STATES),
        entries=tuple(entries[first : first + ENTRIES_ON_A_PAGE]),
        left_out=f"{log.left_out:,} entries after entry {log.head:,} are left out" if log.left_out else "",
        pages=_build_pages(current, count, "page"),
        summary=_truncate((outcome and outcome.summary) or ""),
        diff=_build_diff(run.diff, diff_page) if run.diff else None,
    )


def build_cost_view(
    query: SpendQuery, sums: SpendSums, schedules: Iterable[ScheduledRecipe], *, now: float
) -> CostView:
    """Convert the costs of a month to their page."""
    equal, (total, by_dimension) = query.equal, sums
    month, latest = f"{date_of(query.first):%Y-%m}", period_days(day_of(now), "month")
    neighbours = [("Previous month", query.first - 1), ("Next month", query.end)][: 1 + (query.end < latest[1])]
    return CostView(
        month=month,
        months=tuple(
            PageLink(label=label, url=_costs_url(f"{date_of(day):%Y-%m}", equal)) for label, day in neighbours
        ),
        total=_format_cost(total),
        runs=total.runs,
        filters=tuple(
            PageLink(
                label=f"{name}: {value}",
                url=_costs_url(month, {other: kept for other, kept in equal.items() if other != name}),
            )
            for name, value in equal.items()
        ),
        tables=tuple(
            (name.capitalize(), _build_cost_rows(rows, name, month, equal))
            for name, rows in by_dimension.items()
            if rows and name not in equal
        ),
        forecasts=tuple(
            (recipe, starts, forecast(recipe.costs, starts) or "not known yet")
            for recipe in schedules
            for starts in [count_starts(recipe.cron, now)]
        ),
    )


def _build_cost_rows(
    rows: Sequence[SpendSum], dimension: Dimension, month: str, equal: Mapping[Dimension, str]
) -> tuple[CostRow, ...]:
    largest = rows[0].cost_usd or 1.0
    return tuple(
        CostRow(
            name=row.name,
            url=_costs_url(month, {**equal, dimension: row.name}) if row.name else "",
            runs=row.runs,
            cost=_format_cost(row),
            share=round(row.cost_usd / largest, 3),
        )
        for row in rows
    )


def _costs_url(month: str, equal: Mapping[Dimension, str]) -> str:
    return f"?{urlencode([('month', month), *equal.items()])}"


def _format_cost(spent: SpendSum) -> str:
    tokens = f" ({spent.tokens:,} tokens)" if spent.tokens else ""
    rest = f"{spent.unknown} of unknown cost{tokens}" if spent.unknown else ""
    return " and ".join(filter(None, ["" if rest and not spent.cost_usd else _format_dollars(spent.cost_usd), rest]))


def _format_dollars(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 0.01 or not dollars else f"${dollars:.4f}"  # noqa: PLR2004 - a cent


def _build_links(job: Job, record: JobRecord, server_url: str, trace: str) -> tuple[PageLink, ...]:
    repo = f"{server_url}/{job.repo.full_name}"
    thread = f"{repo}/{'pull' if job.thread.kind == 'pull' else 'issues'}/{job.thread.number}"
    links = [] if job.thread.kind == "branch" else [PageLink(label=f"Thread #{job.thread.number}", url=thread)]
    if record.comment.posted is not None:
        links.append(PageLink(label="Status comment", url=record.comment.posted.url))
    if record.check.posted is not None:
        links.append(PageLink(label="Check run", url=record.check.posted.url))
    published = record.published
    if published.commit is not None:
        sha = published.commit.sha
        links.append(PageLink(label=f"Commit {sha[:7]}", url=f"{repo}/commit/{sha}"))
    if published.pull is not None:
        links.append(PageLink(label=f"Pull request #{published.pull.number}", url=published.pull.html_url))
    if published.review_url:
        links.append(PageLink(label="Review", url=published.review_url))
    if trace:
        links.append(PageLink(label="Trace", url=trace))
    return tuple(link for link in links if link.url.startswith(("https://", "http://")))


def _build_facts(stored: StoredJob, record: JobRecord, log: RunLog) -> tuple[tuple[str, str], ...]:
    result = record.result
    usage = log.usage if log.usage.requests or result is None else result.outcome.usage
    facts = [("Queued", format_moment(stored.enqueued_at).text)]
    if stored.finished_at is not None:
        facts.append(("Ended", format_moment(stored.finished_at).text))
    if stored.attempts > 1:
        facts.append(("Attempts", str(stored.attempts)))
    if (recipe := stored.job.recipe) is not None:
        facts.append(("Recipe", recipe.name if recipe.level is None else f"{recipe.name}, level {recipe.level}"))
    if record.base_sha:
        facts.append(("Commit worked on", record.base_sha[:12]))
    if record.verdict is not None:
        facts.append(("Verdict", record.verdict.value.replace("_", " ")))
    if usage.requests:
        cost = "unknown" if usage.cost_usd is None else _format_dollars(usage.cost_usd)
        facts += [("Cost", cost), ("Model requests", f"{usage.requests:,}"), ("Tokens", f"{usage.total_tokens:,}")]
    return tuple(facts)


def _build_approvals(record: JobRecord, *, live: bool) -> tuple[ApprovalView, ...]:
    waiting, approvals = record.approvals.waiting, record.approvals
    views = [
        ApprovalView(
            title=f"{approvals.request_views[key].kind if key in approvals.request_views else 'request'} {key}",
            state="approved" if answer.approved else "denied",
            by=answer.by.login,
            note=_truncate(answer.note),
        )
        for key, answer in list(approvals.answers.items())[:_MAX_ANSWERS][::-1]
    ]
    if live and waiting is not None and waiting.request_id not in approvals.answers:
        text = _truncate("\n\n".join(filter(None, (waiting.reason, waiting.preview))))
        views.append(ApprovalView(title=f"{waiting.kind} {waiting.request_id}", state="waiting", text=text))
    return tuple(views)


def _truncate(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}\n… {len(text) - _MAX_TEXT:,} more characters …"


def _build_diff(text: str, page: int) -> DiffView:
    lines = clean(text).split("\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    count = max(1, -(-len(lines) // LINES_ON_A_PAGE))
    current = min(max(1, page), count)
    first = (current - 1) * LINES_ON_A_PAGE
    return DiffView(
        lines=tuple(map(classify_line, lines[first : first + LINES_ON_A_PAGE])),
        total=len(lines),
        pages=_build_pages(current, count, "diff"),
    )


def classify_line(line: str) -> DiffLine:
    text = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
    if line.startswith(("diff --git ", "+++ ", "--- ", "index ", "new file ", "deleted file ", "rename ")):
        return DiffLine(text=text, kind="file")
    if line.startswith("@@"):
        return DiffLine(text=text, kind="hunk")
    if line.startswith("+"):
        return DiffLine(text=text, kind="added")
    return DiffLine(text=text, kind="removed" if line.startswith("-") else "")


def _build_pages(current: int, count: int, name: str) -> tuple[PageLink, ...]:
    places: Sequence[tuple[str, int]] = (
        ("First", 1),
        ("Previous", current - 1),
        ("Next", current + 1),
        ("Last", count),
    )
    return tuple(
        PageLink(label=f"{label} of {count}" if label == "Last" else label, url=f"?{name}={place}")
        for label, place in places
        if 1 <= place <= count and place != current
    )
