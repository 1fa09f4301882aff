"""Jobs and their records as the pages show them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from agent_runtime import Outcome, Status, Usage
from bot.dashboard.views import (
    ENTRIES_ON_A_PAGE,
    LINES_ON_A_PAGE,
    RunMaterial,
    RunView,
    build_cost_view,
    build_run_row,
    build_run_view,
)
from bot.domain.commands import RecipeBounds
from bot.domain.job import Actor, JobState, Origin, Thread
from bot.domain.spend import day_of
from bot.github.types import PullLink
from bot.jobs import waiting
from bot.jobs.record import (
    ApprovalAnswer,
    ApprovalsRecord,
    CommentRecord,
    GitHubPost,
    JobRecord,
    Request,
    RequestView,
    RunResult,
    StoredRecord,
)
from bot.publishing.outcome import CommitRef, Published
from bot.publishing.status_view import Progress, RunEntry, RunLog
from bot.queue.memory import InMemoryEngine
from bot.queue.records import DIMENSIONS, Dimension, ScheduledRecipe, SpendQuery, SpendSum, StoredJob
from tests.builders import a_job

NOW = 1_795_392_000.0
RUNNING = StoredJob(job=a_job(), state=JobState.RUNNING, reason="", attempts=1, enqueued_at=NOW - 65)
WAITING = Request(
    kind="permission", request_id="a1b2c3d4", reason="a rule asks", preview="rm x", bound_to="", until=NOW
)


def _view(
    record: JobRecord | None = None,
    log: RunLog | None = None,
    *,
    stored: StoredJob = RUNNING,
    diff: str = "",
    page: int | None = None,
    diff_page: int = 1,
) -> RunView:
    run = RunMaterial(stored=stored, record=record or JobRecord(), log=log or RunLog(), diff=diff, trace="")
    return build_run_view(run, now=NOW, server_url="https://github.com", page=page, diff_page=diff_page)


def test_a_row_says_who_asked_for_what_where() -> None:
    row = build_run_row(RUNNING, now=NOW)
    assert (row.place, row.verb, row.person, row.state, row.age) == (
        "octo/calc#7",
        "fix",
        "hubot-owner",
        "running",
        "1 min 5 s",
    )
    assert row.since.text == "2026-11-22 23:58:55 UTC"


def test_of_red_checks_nobody_is_named_and_a_branch_has_no_number() -> None:
    job = replace(a_job(thread=Thread.of_branch("main")), origin=Origin(kind="ci", id=1, name="CI"))
    row = build_run_row(replace(RUNNING, job=job), now=NOW)
    assert (row.person, row.title, row.place) == ("", "main", "octo/calc")


def test_a_title_is_one_line_that_changes_no_direction() -> None:
    job = a_job(title="up\n\u202edown\x1b[31m " + "x" * 500)
    title = build_run_row(replace(RUNNING, job=job), now=NOW).title
    assert title.startswith("up down")
    assert len(title) <= 200


def test_the_last_part_of_a_timeline_is_shown_and_the_others_are_linked() -> None:
    count = 2 * ENTRIES_ON_A_PAGE + 5
    log = RunLog(entries=tuple(RunEntry(kind="call", title=str(number)) for number in range(1, count + 1)))
    view = _view(log=log)
    assert [number for number, _ in view.entries] == list(range(2 * ENTRIES_ON_A_PAGE + 1, count + 1))
    assert [(each.label, each.url) for each in view.pages] == [("First", "?page=1"), ("Previous", "?page=2")]
    assert _view(log=log, page=1).entries[0][0] == 1
    assert _view(log=log, page=999).entries == view.entries


def test_entries_after_those_that_are_left_out_keep_their_numbers() -> None:
    entries = tuple(RunEntry(kind="call", title=each) for each in "ab")
    view = _view(log=RunLog(entries=entries, head=1, left_out=40))
    assert [number for number, _ in view.entries] == [1, 42]
    assert view.left_out == "40 entries after entry 1 are left out"


def test_a_diff_is_shown_in_parts_and_long_lines_are_cut() -> None:
    diff = "diff --git a/a b/a\n@@ -1 +1 @@\n-old\n+" + "x" * 5_000 + "\n same\n" * LINES_ON_A_PAGE
    shown = _view(diff=diff).diff
    assert shown is not None
    assert [each.kind for each in shown.lines[:5]] == ["file", "hunk", "removed", "added", ""]
    assert len(shown.lines) == LINES_ON_A_PAGE
    assert max(len(each.text) for each in shown.lines) <= 2_001
    second = _view(diff=diff, diff_page=2).diff
    assert second is not None
    assert second.lines != shown.lines


def test_a_run_links_to_what_it_made_on_github_and_to_nothing_else() -> None:
    published = Published(
        commit=CommitRef(sha="a" * 40, branch="codepilot/7"),
        pull=PullLink(number=9, html_url="https://github.com/octo/calc/pull/9"),
        review_url="javascript:alert(1)",
    )
    record = JobRecord(
        published=published,
        comment=CommentRecord(posted=GitHubPost(id=1, url="https://github.com/octo/calc/issues/7#1")),
    )
    assert [each.label for each in _view(record).links] == [
        "Thread #7",
        "Status comment",
        "Commit aaaaaaa",
        "Pull request #9",
    ]


def test_approvals_say_who_answered_and_what_still_waits() -> None:
    answer = ApprovalAnswer(request_id="00ff00ff", approved=False, note="not now", by=Actor(id=1, login="mona"))
    shown = RequestView(request_id="00ff00ff", kind="permission", at="", since=0.0)
    kept = ApprovalsRecord(waiting=WAITING, answers={"00ff00ff": answer}, request_views={"00ff00ff": shown})
    first, second = _view(JobRecord(approvals=kept)).approvals
    assert (first.title, first.state, first.by, first.note) == ("permission 00ff00ff", "denied", "mona", "not now")
    assert (second.state, second.text) == ("waiting", "a rule asks\n\nrm x")
    over = replace(RUNNING, state=JobState.STOPPED, finished_at=NOW)
    assert len(_view(JobRecord(approvals=kept), stored=over).approvals) == 1


async def test_approvals_are_shown_in_the_order_in_which_they_were_answered() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job("j1"))
    record = StoredRecord(engine, "j1")
    for request_id in ("aa", "bb", "cc"):
        given = ApprovalAnswer(request_id=request_id, approved=True, note="", by=Actor(id=1, login="mona"))
        assert await waiting.store_answer(record, given)
    shown = _view(await record.read()).approvals
    assert [each.title for each in shown] == ["request aa", "request bb", "request cc"]


def test_the_cost_comes_from_the_log_or_else_from_the_result() -> None:
    usage = Usage(requests=2, output_tokens=1_500, cost_usd=0.0012)
    outcome = Outcome(status=Status.FINISHED, summary="Fixed.", usage=usage)
    record = JobRecord(result=RunResult(outcome=outcome, progress=Progress(), base_sha="", tree_sha=""))
    view = _view(record)
    assert ("Cost", "$0.0012") in view.facts
    assert ("Tokens", "1,500") in view.facts
    assert view.summary == "Fixed."
    assert ("Cost", "unknown") in _view(record, RunLog(usage=Usage(requests=1, cost_usd=None))).facts


def test_the_level_of_a_recipe_is_shown() -> None:
    recipe = RecipeBounds(name="deps", level="read-only")
    stored = replace(RUNNING, job=replace(a_job(), recipe=recipe))
    assert ("Recipe", "deps, level read-only") in _view(stored=stored).facts
    stored = replace(stored, job=replace(a_job(), recipe=replace(recipe, level=None)))
    assert ("Recipe", "deps") in _view(stored=stored).facts


_DAY = day_of(datetime(2026, 11, 1, tzinfo=UTC).timestamp())


def test_costs_are_shown_by_each_dimension_the_largest_first() -> None:
    query = SpendQuery(first=_DAY, end=_DAY + 30, equal={"verb": "fix", "recipe": 'tidy & "co"'})
    rows = (
        SpendSum(name="b/b", runs=2, cost_usd=4.0, unknown=0, tokens=0),
        SpendSum(name="a/a", runs=3, cost_usd=1.0, unknown=1, tokens=1_200),
        SpendSum(name="", runs=1, cost_usd=0.0, unknown=1, tokens=34),
    )
    total = SpendSum(name="", runs=6, cost_usd=5.0, unknown=2, tokens=1_234)
    by_dimension: dict[Dimension, tuple[SpendSum, ...]] = dict.fromkeys(DIMENSIONS, ()) | {"person": rows}
    schedules = [
        ScheduledRecipe(repository="a/a", name="tidy", cron="17 6 * * *", costs=(0.1, 0.2, 0.4)),
        ScheduledRecipe(repository="a/a", name="new", cron="17 6 * * *", costs=(0.1,)),
    ]
    sums = (total, by_dimension)
    view = build_cost_view(query, sums, schedules, now=(_DAY + 3) * 86_400.0)
    assert (view.month, view.runs, view.total) == ("2026-11", 6, "$5.00 and 2 of unknown cost (1,234 tokens)")
    [(title, [largest, middle, nobody])] = view.tables
    assert (title, largest.cost, largest.share) == ("Person", "$4.00", 1.0)
    assert largest.url == "?month=2026-11&verb=fix&recipe=tidy+%26+%22co%22&person=b%2Fb"
    assert (middle.cost, middle.share) == ("$1.00 and 1 of unknown cost (1,200 tokens)", 0.25)
    assert (nobody.url, nobody.cost) == ("", "1 of unknown cost (34 tokens)")
    assert [(each.label, each.url) for each in view.filters] == [
        ("verb: fix", "?month=2026-11&recipe=tidy+%26+%22co%22"),
        ('recipe: tidy & "co"', "?month=2026-11&verb=fix"),
    ]
    assert [(starts, cost) for _, starts, cost in view.forecasts] == [
        (30, "$6.00 ($3.00 to $12.00)"),
        (30, "not known yet"),
    ]
    # There is no month after the present one.
    assert [each.label for each in view.months] == ["Previous month"]
    assert "month=2026-10&" in view.months[0].url
    later = build_cost_view(query, sums, (), now=(_DAY + 30) * 86_400.0)
    assert [each.label for each in later.months] == ["Previous month", "Next month"]
