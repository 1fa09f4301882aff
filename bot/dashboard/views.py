"""The content of the dashboard's pages.

`DashboardReader` reads jobs, records, logs and patches, and redacts their texts; the functions below it turn them into
the values that the templates show.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Literal, Protocol

from agent_runtime import SessionError
from bot.domain.errors import BotError
from bot.domain.job import Job, JobState
from bot.github.rate_limit import RequestBudget
from bot.jobs.context import JobServices
from bot.publishing.markdown import clean, duration, one_line
from bot.publishing.status_view import RunEntry, RunLog, build_log, prepend_attempts, unpack_log
from bot.queue.protocols import JobIndex, RunHistory
from bot.queue.records import Backlog, JobRecord, JobRecords, RunQuery, StoredJob, WeekCost, week_of, week_start
from bot.queue.tracing import root_span_context

MOST_LIVE = 200
"""Runs of each state that the queue shows."""

_ENDED = frozenset(JobState) - frozenset(Backlog.STATES)
_RECENT = 20
_WEEKS = 12
_AT_ONCE = 2


class DashboardEngine(JobIndex, JobRecords, RunHistory, Protocol):
    """The interfaces of the engine that the dashboard uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The live jobs by state, and those that ended last."""

    live: Mapping[JobState, tuple[StoredJob, ...]]
    ended: tuple[StoredJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMaterial:
    """The data of one run, redacted.

    Attributes:
        stored: the job.
        record: its record.
        log: what its run did.
        diff: the change that is kept; empty where there is none.
        trace: the page of its trace; empty where there is none.
    """

    stored: StoredJob
    record: JobRecord
    log: RunLog
    diff: str
    trace: str


class DashboardReader:
    """Reads the data of the pages; every method may raise `BotError`.

    Args:
        engine: has the jobs.
        services: have the sessions and patches, and the redactor.
        budgets: what GitHub said about its limits: the installation, the resource, the budget.
        trace_url: the address of traces; empty where there are none.
    """

    def __init__(
        self,
        engine: DashboardEngine,
        services: JobServices,
        budgets: Callable[[], list[tuple[int, str, RequestBudget]]],
        *,
        trace_url: str,
    ) -> None:
        self._engine, self._services, self._trace_url = engine, services, trace_url
        self.budgets = budgets
        self.server_url = services.server_url
        # Logs and patches may have megabytes, and each takes a while to read and redact.
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def queue(self, repo_ids: frozenset[int] | None) -> Queue:
        """The newest jobs of each state that have not ended, oldest first, and those that have, newest first."""
        # State by state: however many are queued, all that run or wait are shown.
        queries = {
            state: RunQuery(states=frozenset({state}), repo_ids=repo_ids, limit=MOST_LIVE) for state in Backlog.STATES
        }
        live = {state: (await self.runs(query))[::-1] for state, query in queries.items()}
        return Queue(live=live, ended=await self.runs(RunQuery(states=_ENDED, repo_ids=repo_ids, limit=_RECENT)))

    async def runs(self, query: RunQuery) -> tuple[StoredJob, ...]:
        """The work that a query selects, newest first."""
        found = await self._engine.find_runs(query)
        return await asyncio.to_thread(lambda: tuple(map(self._told, found)))

    async def stored(self, job_id: str, repo_ids: frozenset[int] | None) -> StoredJob | None:
        """A piece of work; None where there is none, or the viewer may not see it."""
        found = await self._engine.get(job_id)
        if found is None or found.job.lane != "work":
            return None
        return found if repo_ids is None or found.job.repo.id in repo_ids else None

    async def run(self, stored: StoredJob) -> RunMaterial:
        """Read the data of a piece of work."""
        job = stored.job
        record = await self._engine.record(job.id)
        packed = await self._engine.load_log(job.id)

        def read() -> RunMaterial:
            log = None if packed is None else unpack_log(packed)
            if (
                log is None or stored.state in Backlog.STATES
            ):  # where one is kept, it is of an attempt before the one that runs
                try:
                    events = self._services.session_events(job)
                except SessionError as error:
                    raise BotError(f"The log of the run cannot be read: {error}") from error
                log = prepend_attempts(build_log(events, self._shown), log) if events or log is None else log
            return RunMaterial(
                stored=self._told(stored),
                record=_redacted(record, self._shown),
                log=log,
                diff=self._services.redactor.redact(self._services.work.patch(job.id)),
                trace=f"{self._trace_url.rstrip('/')}/{root_span_context(job).trace_id:032x}"
                if self._trace_url
                else "",
            )

        async with self._turn:
            return await asyncio.to_thread(read)

    def log_stamp(self, job_id: str) -> str:
        """A text that is another one after something was recorded of a run. It blocks."""
        sessions = self._services.sessions
        try:
            return "" if sessions is None else sessions.stamp(job_id)
        except (SessionError, OSError):
            return ""

    async def costs(self, repo_ids: frozenset[int] | None) -> tuple[WeekCost, ...]:
        """The cost of the last weeks."""
        return await self._engine.costs(week_of(time.time()) - _WEEKS + 1, repo_ids)

    def _told(self, stored: StoredJob) -> StoredJob:
        thread = replace(stored.job.thread, title=self._shown(stored.job.thread.title))
        return replace(stored, job=replace(stored.job, thread=thread), reason=self._shown(stored.reason))

    def _shown(self, text: str) -> str:
        return self._services.strip_local_paths(self._services.redactor.redact(text))


def _redacted(record: JobRecord, redact: Callable[[str], str]) -> JobRecord:
    """The record, with secrets taken out of the texts that a page shows."""
    approvals, result = record.approvals, record.result
    waiting = approvals.waiting
    if waiting is not None:
        waiting = replace(waiting, reason=redact(waiting.reason), preview=redact(waiting.preview))
    answers = {key: replace(each, note=redact(each.note)) for key, each in approvals.answers.items()}
    if result is not None and result.outcome.summary:
        result = replace(result, outcome=replace(result.outcome, summary=redact(result.outcome.summary)))
    return replace(record, approvals=replace(approvals, waiting=waiting, answers=answers), result=result)


ENTRIES_ON_A_PAGE = 100
LINES_ON_A_PAGE = 1_000
_LONGEST_LINE = 2_000
_MOST_TITLE = 200
_MOST_TEXT = 20_000
_MOST_ANSWERS = 100
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
    """A time: as a machine reads it, and as a person does."""

    iso: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run in a list.

    Attributes:
        id: the job.
        title: of the thread, or the branch.
        place: the repository and the number of the thread.
        repository: `owner/name`.
        person: who asked; empty when nobody did.
        verb: the command.
        state: where the job stands.
        reason: why it ended as it did, or how long it waits.
        since: when it was stored.
        age: how long it has been live, or took.
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
    """A link below a list that is too long for one page, e.g. `Older`."""

    label: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLink:
    """A page about a run that is not the dashboard's, e.g. `Pull request #7`."""

    label: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    """A request to a person, and the answer.

    Attributes:
        title: what was asked.
        text: the reason and the preview; empty for one that is answered.
        state: `waiting`, `approved` or `denied`.
        by: who answered.
        note: what they said.
    """

    title: str
    state: Literal["waiting", "approved", "denied"]
    text: str = ""
    by: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a diff and its kind, by which it is coloured."""

    text: str
    kind: Literal["file", "hunk", "added", "removed", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffView:
    """A part of a diff."""

    lines: tuple[DiffLine, ...]
    total: int
    pages: tuple[PageLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The page of one run.

    Attributes:
        row: the same as in lists.
        links: pages about it.
        facts: name and value, e.g. how often it was attempted.
        approvals: what it asked people.
        entries: a part of its timeline, oldest first, each with its number.
        left_out: after how many entries, and how many, are missing; empty when none are.
        pages: links to the other parts of the timeline.
        summary: what the agent reported.
        diff: a part of what it changed; None where that is not kept.
    """

    row: RunRow
    links: tuple[RunLink, ...]
    facts: tuple[tuple[str, str], ...]
    approvals: tuple[ApprovalView, ...]
    entries: tuple[tuple[int, RunEntry], ...]
    left_out: str
    pages: tuple[PageLink, ...]
    summary: str
    diff: DiffView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """The cost of a repository in a week, and its share of the largest one of all."""

    repository: str
    runs: int
    cost: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWeek:
    """A week with its repositories."""

    begins: Moment
    total: str
    rows: tuple[CostRow, ...]


def moment(at: float) -> Moment:
    """A time in seconds since the epoch, in UTC."""
    when = datetime.fromtimestamp(at, UTC)
    return Moment(iso=when.isoformat(timespec="seconds"), shown=f"{when:%Y-%m-%d %H:%M:%S} UTC")


def run_row(stored: StoredJob, *, now: float) -> RunRow:
    """A job as a line of a list."""
    job = stored.job
    place = job.repo.full_name if job.thread.kind == "branch" else f"{job.repo.full_name}#{job.thread.number}"
    reason = one_line(stored.reason, _MOST_TITLE)
    if stored.state is JobState.WAITING and stored.until is not None:
        reason = f"at most {duration(max(0.0, stored.until - now))} more"
    return RunRow(
        id=job.id,
        title=one_line(job.thread.title, _MOST_TITLE) or job.thread.branch or place,
        place=place,
        repository=job.repo.full_name,
        person="" if job.is_from_event else job.actor.login,
        verb=job.command.verb,
        state=STATE_WORDS[stored.state],
        reason=reason,
        since=moment(stored.enqueued_at),
        age=duration(max(0.0, (stored.finished_at or now) - stored.enqueued_at)),
    )


def run_view(run: RunMaterial, *, now: float, server_url: str, page: int | None = None, diff_page: int = 1) -> RunView:
    """Show a job as a page.

    Args:
        run: the job and its data, redacted.
        now: in seconds since the epoch.
        server_url: GitHub's address for people.
        page: the part of the timeline; None for the last one.
        diff_page: the part of the diff.
    """
    stored, record, log = run.stored, run.record, run.log
    outcome = record.result.outcome if record.result is not None else None
    count = max(1, -(-len(log.entries) // ENTRIES_ON_A_PAGE))
    shown = min(max(1, page or count), count)
    first = (shown - 1) * ENTRIES_ON_A_PAGE
    numbered = [
        (place + 1 + (log.left_out if place >= log.head else 0), each) for place, each in enumerate(log.entries)
    ]
    return RunView(
        row=run_row(stored, now=now),
        links=_links(stored.job, record, server_url, run.trace),
        facts=_facts(stored, record, log),
        approvals=_approvals(record, live=stored.state in Backlog.STATES),
        entries=tuple(numbered[first : first + ENTRIES_ON_A_PAGE]),
        left_out=f"{log.left_out:,} entries after entry {log.head:,} are left out" if log.left_out else "",
        pages=_pages(shown, count, "page"),
        summary=_bounded((outcome and outcome.summary) or ""),
        diff=_diff(run.diff, diff_page) if run.diff else None,
    )


def cost_weeks(costs: Iterable[WeekCost]) -> tuple[CostWeek, ...]:
    """Costs by week, the newest first."""
    costs = tuple(costs)
    most = max((each.cost_usd for each in costs), default=0.0)
    weeks = []
    for week, each_of in groupby(costs, key=lambda each: each.week):
        rows = sorted(each_of, key=lambda each: (-each.cost_usd, each.repository))
        weeks.append(
            CostWeek(
                begins=moment(week_start(week)),
                total=_money(sum(each.cost_usd for each in rows), sum(each.unknown for each in rows)),
                rows=tuple(
                    CostRow(
                        repository=each.repository,
                        runs=each.runs,
                        cost=_money(each.cost_usd, each.unknown),
                        share=round(each.cost_usd / most, 3) if most else 0.0,
                    )
                    for each in rows
                ),
            )
        )
    return tuple(weeks)


def _money(dollars: float, unknown: int = 0) -> str:
    known = f"${dollars:,.2f}" if dollars >= 0.01 or not dollars else f"${dollars:.4f}"  # noqa: PLR2004 - a cent
    return f"{known} and {unknown} of unknown cost" if unknown else known


def _links(job: Job, record: JobRecord, server_url: str, trace: str) -> tuple[RunLink, ...]:
    repo = f"{server_url}/{job.repo.full_name}"
    thread = f"{repo}/{'pull' if job.thread.kind == 'pull' else 'issues'}/{job.thread.number}"
    links = [] if job.thread.kind == "branch" else [RunLink(label=f"Thread #{job.thread.number}", url=thread)]
    if record.comment.posted is not None:
        links.append(RunLink(label="Status comment", url=record.comment.posted.url))
    if record.check.posted is not None:
        links.append(RunLink(label="Check run", url=record.check.posted.url))
    published = record.published
    if published.commit is not None:
        sha = published.commit.sha
        links.append(RunLink(label=f"Commit {sha[:7]}", url=f"{repo}/commit/{sha}"))
    if published.pull is not None:
        links.append(RunLink(label=f"Pull request #{published.pull.number}", url=published.pull.html_url))
    if published.review_url:
        links.append(RunLink(label="Review", url=published.review_url))
    if trace:
        links.append(RunLink(label="Trace", url=trace))
    return tuple(each for each in links if each.url.startswith(("https://", "http://")))


def _facts(stored: StoredJob, record: JobRecord, log: RunLog) -> tuple[tuple[str, str], ...]:
    result = record.result
    usage = log.usage if log.usage.requests or result is None else result.outcome.usage
    facts = [("Queued", moment(stored.enqueued_at).shown)]
    if stored.finished_at is not None:
        facts.append(("Ended", moment(stored.finished_at).shown))
    if stored.attempts > 1:
        facts.append(("Attempts", str(stored.attempts)))
    if record.base_sha:
        facts.append(("Commit worked on", record.base_sha[:12]))
    if record.verdict is not None:
        facts.append(("Verdict", record.verdict.value.replace("_", " ")))
    if usage.requests:
        cost = "unknown" if usage.cost_usd is None else _money(usage.cost_usd)
        facts += [("Cost", cost), ("Model requests", f"{usage.requests:,}"), ("Tokens", f"{usage.total_tokens:,}")]
    return tuple(facts)


def _approvals(record: JobRecord, *, live: bool) -> tuple[ApprovalView, ...]:
    asked, kept = record.approvals.waiting, record.approvals
    views = [
        ApprovalView(
            title=f"{kept.shown[key].kind if key in kept.shown else 'request'} {key}",
            state="approved" if answer.approved else "denied",
            by=answer.by.login,
            note=_bounded(answer.note),
        )
        for key, answer in list(kept.answers.items())[:_MOST_ANSWERS][::-1]
    ]
    if live and asked is not None and asked.request_id not in kept.answers:
        text = _bounded("\n\n".join(filter(None, (asked.reason, asked.preview))))
        views.append(ApprovalView(title=f"{asked.kind} {asked.request_id}", state="waiting", text=text))
    return tuple(views)


def _bounded(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}\n… {len(text) - _MOST_TEXT:,} more characters …"


def _diff(text: str, page: int) -> DiffView:
    lines = clean(text).split("\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    count = max(1, -(-len(lines) // LINES_ON_A_PAGE))
    shown = min(max(1, page), count)
    first = (shown - 1) * LINES_ON_A_PAGE
    return DiffView(
        lines=tuple(map(_diff_line, lines[first : first + LINES_ON_A_PAGE])),
        total=len(lines),
        pages=_pages(shown, count, "diff"),
    )


def _diff_line(line: str) -> DiffLine:
    text = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
    if line.startswith(("diff --git ", "+++ ", "--- ", "index ", "new file ", "deleted file ", "rename ")):
        return DiffLine(text=text, kind="file")
    if line.startswith("@@"):
        return DiffLine(text=text, kind="hunk")
    if line.startswith("+"):
        return DiffLine(text=text, kind="added")
    return DiffLine(text=text, kind="removed" if line.startswith("-") else "")


def _pages(shown: int, count: int, name: str) -> tuple[PageLink, ...]:
    """Links to the first, the neighbouring and the last page, beside the one that is shown."""
    places: Sequence[tuple[str, int]] = (("First", 1), ("Previous", shown - 1), ("Next", shown + 1), ("Last", count))
    return tuple(
        PageLink(label=f"{label} of {count}" if label == "Last" else label, query=f"{name}={place}")
        for label, place in places
        if 1 <= place <= count and place != shown
    )
