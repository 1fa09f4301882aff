"""A job's comment, check run and notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Status
from bot.domain.job import Job, JobState, Origin, Repo, Thread
from bot.github.client import GitHub
from bot.github.rate_limit import Limits
from bot.github.types import GitHubError
from bot.jobs import status
from bot.jobs.context import JobContext
from bot.jobs.posts import JobCheckRun, StatusComment, background, edit_pause, reply_target
from bot.jobs.record import CheckRecord, CommentRecord, RecordedEnding
from bot.jobs.reports import LATE_SECONDS, post_ending, store_ending
from bot.jobs.status import notice_text, post_parts, read_hint
from bot.permissions.repo_config import Notify
from bot.publishing.checks import Check
from bot.publishing.markdown import Allowlist
from bot.publishing.outcome import PendingView
from bot.publishing.render import render_check, render_notice
from bot.publishing.status_view import StatusView
from bot.queue.memory import InMemoryEngine
from localhub import LocalHub
from tests.builders import a_job
from tests.github_world import World, opened_world
from tests.job_contexts import context_of
from tests.publishing_world import Remembered
from tests.stage import FILES, FIX, staged
from tests.status_views import a_status_view
from tests.waiting import eventually

MARK = "<!-- mark -->"


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened


def a_job_here(world: World, number: int, origin: Origin | None = None) -> Job:
    job = a_job(number=number, kind="issue" if origin is None else "pull")
    return replace(job, repo=replace(job.repo, full_name=world.name), origin=origin or job.origin)


def a_view(job: Job, seconds: float = 1.0) -> StatusView:
    allowed = Allowlist(login="mona", number=job.thread.number, server="https://github.example", repo="mona/calc")
    return a_status_view(
        state="working", command="/codepilot fix", allowed=allowed, job_id=job.id, marker=MARK, seconds=seconds
    )


def comment_bodies(world: World, number: int) -> list[str]:
    return [each.body for each in world.hub.comments(world.repo, number)]


async def test_one_comment_over_restarts_and_lost_answers(world: World) -> None:
    record, job = Remembered(CommentRecord()), a_job_here(world, world.issue.number)
    world.hub.faults.add("POST", "*/comments", "drop_answer")
    for word in ("one", "two", "three"):
        await StatusComment(world.github, record, job, marker=MARK).put(f"{word} {MARK}")
    assert comment_bodies(world, job.thread.number) == [f"three {MARK}"]


async def test_where_a_comment_is_that_only_its_marker_tells_of_is_known_from_then_on(world: World) -> None:
    record, job = Remembered(CommentRecord()), a_job_here(world, world.issue.number)
    await StatusComment(world.github, record, job, marker=MARK).put(f"one {MARK}")
    posted = record.value.posted
    record.value = replace(record.value, posted=None)  # its worker was killed before it heard of it
    await StatusComment(world.github, record, job, marker=MARK).put(f"two {MARK}")
    assert comment_bodies(world, job.thread.number) == [f"two {MARK}"]
    assert record.value.posted == posted is not None


async def test_a_question_about_lines_is_answered_below_them(world: World) -> None:
    pull = world.pull()
    root = world.hub.review_comment(world.repo, pull.number, author="mona", body="Why?", path="long.txt", line=20)
    asked = world.hub.review_comment(world.repo, pull.number, author="mona", body="/codepilot ask", in_reply_to=root.id)
    job = a_job_here(world, pull.number, Origin(kind="review_comment", id=asked.id, root=root.id))
    record = Remembered(CommentRecord())
    for word in ("one", "two"):
        await StatusComment(world.github, record, job, marker=MARK).put(f"{word} {MARK}")
    assert comment_bodies(world, pull.number) == []
    answers = world.hub.review_comments(world.repo, pull.number)
    assert [(each.body, each.in_reply_to) for each in answers[2:]] == [(f"two {MARK}", root.id)]


async def test_where_the_lines_thread_was_deleted_the_answer_stands_below_the_pull_request(world: World) -> None:
    pull = world.pull()
    root = world.hub.review_comment(world.repo, pull.number, author="mona", body="Why?", path="long.txt", line=20)
    job = a_job_here(world, pull.number, Origin(kind="review_comment", id=root.id, root=root.id))
    world.hub.delete_review_comment(root, by="mona")
    record = Remembered(CommentRecord())
    for word in ("one", "two"):
        await StatusComment(world.github, record, job, marker=MARK).put(f"{word} {MARK}")
    assert comment_bodies(world, pull.number) == [f"two {MARK}"]


async def test_it_is_kept_fresh_with_the_boards_beside_it_and_trouble_stops_nothing(world: World) -> None:
    job = a_job_here(world, world.issue.number)
    status = StatusComment(world.github, Remembered(CommentRecord()), job, marker=MARK)
    shown: list[float] = []

    class Board:
        async def show(self, view: StatusView) -> None:
            shown.append(view.seconds)

    seconds = 0.0

    def now() -> StatusView:
        nonlocal seconds
        seconds += 60
        return a_view(job, seconds)

    world.hub.faults.add("POST", "*/comments", "502")
    async with status.refreshing(now, seconds=0.01, check=cast("JobCheckRun", Board())):
        await eventually(lambda: len(shown) > 2 and bool(comment_bodies(world, job.thread.number)))
    count = len(shown)
    await asyncio.sleep(0)
    assert len(shown) == count


@pytest.mark.parametrize("kind", ["comment", "review", "label", "assignment", "button", "ci", "event"])
def test_all_else_is_answered_below_the_thread(kind: str) -> None:
    job = replace(a_job(number=3), origin=Origin(kind=kind, id=5))  # type: ignore[arg-type] # one of them
    assert (reply_target(job).kind, reply_target(job).number) == ("thread", 3)


def test_the_first_comment_about_lines_is_its_own_threads_root() -> None:
    job = replace(a_job(number=3, kind="pull"), origin=Origin(kind="review_comment", id=5))
    assert reply_target(job).root == 5


@pytest.mark.parametrize(
    ("age", "spread", "pause"),
    [(0.0, 1.0, 10.0), (39.0, 1.0, 10.0), (100.0, 1.0, 25.0), (3600.0, 1.0, 60.0), (0.0, 3.0, 30.0)],
)
def test_edits_become_rarer_with_the_age_of_the_run_and_where_the_budget_runs_out(
    age: float, spread: float, pause: float
) -> None:
    assert edit_pause(age, 10.0, spread) == pause


async def test_while_others_have_something_to_write_a_run_that_goes_on_says_nothing(world: World) -> None:
    job = a_job_here(world, world.issue.number)
    status = StatusComment(world.github, Remembered(CommentRecord()), job, marker=MARK)
    pace = world.github._connection.session.pace
    asked = 0

    def now() -> StatusView:
        nonlocal asked
        asked += 1
        return a_view(job, float(asked * 100))

    async with pace.turn(), status.refreshing(now, seconds=0.01):
        await eventually(lambda: pace.waiting == 1)
        assert asked == 1
    assert pace.waiting == 0


async def test_a_comment_that_github_made_late_points_to_the_one_that_counts(world: World) -> None:
    record, job = Remembered(CommentRecord()), a_job_here(world, world.issue.number)
    status = StatusComment(world.github, record, job, marker=MARK)
    world.hub.faults.add("POST", "*/comments", "drop")
    await status.put(f"working {MARK}")
    # The first request was not lost after all.
    await world.github.comments.create(world.name, world.thread, f"queued {MARK}")
    await status.put(f"done {MARK}")
    assert await status.fold_late()
    answer, late = comment_bodies(world, job.thread.number)
    assert answer == f"done {MARK}"
    assert "created this comment late;" in late
    assert MARK not in late


async def test_a_comment_that_was_asked_for_once_is_not_looked_for_again(world: World) -> None:
    status = StatusComment(
        world.github, Remembered(CommentRecord()), a_job_here(world, world.issue.number), marker=MARK
    )
    await status.put(f"done {MARK}")
    assert not await status.fold_late()


async def test_a_comment_that_is_said_to_be_gone_but_is_there_is_not_made_anew(world: World) -> None:
    status = StatusComment(
        world.github, Remembered(CommentRecord()), a_job_here(world, world.issue.number), marker=MARK
    )
    await status.put(f"working {MARK}")
    world.hub.faults.add("PATCH", "*/issues/comments/*", "404")
    await status.put(f"done {MARK}")
    assert comment_bodies(world, world.issue.number) == [f"done {MARK}"]


def a_checked_job(world: World) -> Job:
    job = a_job(number=world.issue.number, kind="pull")
    return replace(job, repo=replace(job.repo, full_name=world.name))


def a_check_view(job: Job, state: str = "working", **facts: Any) -> StatusView:  # noqa: ANN401 - see `a_status_view`
    allowed = Allowlist(login="mona", number=job.thread.number, server="https://github.example", repo="mona/calc")
    return a_status_view(state, allowed=allowed, job_id=job.id, seconds=1.0, **facts)


async def test_one_check_run_over_restarts(world: World) -> None:
    job, record = a_checked_job(world), Remembered(CheckRecord())
    for state in ("working", "working", "failed"):
        check = JobCheckRun(world.github, record, job, head_sha=world.sha)
        facts = {"status": Status.TIMEOUT, "patch": "--- a\n+++ b\n"} if state == "failed" else {}
        view = a_check_view(job, state, **facts)
        await check.show(view)
        await check.show(view)
    [run] = world.hub.check_runs(world.repo)
    assert (run.status, run.conclusion, run.external_id) == ("completed", "timed_out", f"j1:pull:{job.thread.number}:-")
    assert "```diff\n--- a\n+++ b\n```" in (run.text or "")


async def test_a_worker_killed_before_it_heard_of_it_makes_no_second_one(world: World) -> None:
    job, record = a_checked_job(world), Remembered(CheckRecord())
    await JobCheckRun(world.github, record, job, head_sha=world.sha).show(a_check_view(job))
    posted = record.value.posted
    record.value = replace(record.value, posted=None)
    done = a_check_view(job, "done")
    await JobCheckRun(world.github, record, job, head_sha=world.sha).show(done)
    [run] = world.hub.check_runs(world.repo)
    assert run.conclusion == "success"
    assert record.value.posted == posted is not None


async def test_a_lost_answer_makes_no_second_one(world: World) -> None:
    job, record = a_checked_job(world), Remembered(CheckRecord())
    world.hub.faults.add("POST", "*/check-runs", "drop_answer")
    checks = (Check(command="pytest", exit_code=1, seconds=1),)
    view = a_check_view(job, "done", checks=checks)
    await JobCheckRun(world.github, record, job, head_sha=world.sha).show(view)
    [run] = world.hub.check_runs(world.repo)
    assert len(run.annotations) == 1
    assert record.value.requests == 1
    assert record.value.posted is not None


async def test_annotations_are_added_once_over_restarts(world: World) -> None:
    job, record = a_checked_job(world), Remembered(CheckRecord())
    checks = tuple(Check(command=f"pytest {n}", exit_code=1, seconds=1) for n in range(70))
    view = a_check_view(job, "done", checks=checks)
    for _ in range(3):
        await JobCheckRun(world.github, record, job, head_sha=world.sha).show(view)
    [run] = world.hub.check_runs(world.repo)
    assert [each["title"] for each in run.annotations] == [check.command for check in checks]


async def test_without_the_permission_the_job_goes_on_and_says_so_once(world: World) -> None:
    job = a_checked_job(world)
    app = world.hub.add_app("narrow", permissions={"issues": "write", "contents": "read"})
    async with GitHub.for_installation(
        app.id,
        app.private_key_pem,
        world.hub.install(app, world.repo),
        world.hub.api_url,
        redact=str,
        seconds_between_writes=0,
    ) as narrow:
        check = JobCheckRun(narrow, Remembered(CheckRecord()), job, head_sha=world.sha)
        await check.show(a_check_view(job))
        await check.show(a_check_view(job, "done"))
    assert "`checks: write`" in check.missing
    assert world.hub.check_runs(world.repo) == []


async def test_an_outage_is_an_error_and_the_next_try_shows_it(world: World) -> None:
    job = a_checked_job(world)
    check = JobCheckRun(world.github, Remembered(CheckRecord()), job, head_sha=world.sha)
    world.hub.faults.add("POST", "*/check-runs", "secondary_rate_limited", retry_after=3600)
    with pytest.raises(GitHubError):
        await check.show(a_check_view(job))
    assert not check.missing
    world.github._connection.session.limits = Limits()  # the hour is over
    await check.show(a_check_view(job))
    assert len(world.hub.check_runs(world.repo)) == 1


async def test_a_commit_that_is_gone_stops_nothing(world: World) -> None:
    job = a_checked_job(world)
    check = JobCheckRun(world.github, Remembered(CheckRecord()), job, head_sha="f" * 40)
    await check.show(a_check_view(job))
    assert not check.missing


async def test_a_check_run_that_github_made_late_ends_like_the_one_that_counts(world: World) -> None:
    job, record = a_checked_job(world), Remembered(CheckRecord())
    check = JobCheckRun(world.github, record, job, head_sha=world.sha)
    world.hub.faults.add("POST", "*/check-runs", "drop")
    await check.show(a_check_view(job))
    # The first request was not lost after all.
    working = render_check(a_check_view(job), job=job, head_sha=world.sha)
    await world.github.checks.create(world.name, working)
    ended = render_check(a_check_view(job, "failed"), job=job, head_sha=world.sha)
    await check.put(ended)
    assert await check.fold_late(ended)
    runs = world.hub.check_runs(world.repo)
    assert [(run.status, run.conclusion) for run in runs] == [("completed", "failure")] * 2
    assert "created this check run late;" in (runs[1].summary or "")


async def test_check_runs_that_github_made_though_no_answer_came_to_either_request_all_end(world: World) -> None:
    job, record = a_checked_job(world), Remembered(CheckRecord())
    check = JobCheckRun(world.github, record, job, head_sha=world.sha)
    world.hub.faults.add("POST", "*/check-runs", "drop", times=2)
    with pytest.raises(GitHubError):
        await check.show(a_check_view(job))
    # Neither request was lost after all.
    for _ in range(2):
        await world.github.checks.create(world.name, render_check(a_check_view(job), job=job, head_sha=world.sha))
    ended = render_check(a_check_view(job, "failed"), job=job, head_sha=world.sha)
    await check.put(ended)
    assert await check.fold_late(ended)
    runs = world.hub.check_runs(world.repo)
    assert [(run.status, run.conclusion) for run in runs] == [("completed", "failure")] * 2


_ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="mona/calc")
_BOTH: tuple[Notify, ...] = ("waiting", "done")
_URL = "https://github.example/mona/calc/issues/7#issuecomment-1"


def an_end(state: str, *, seconds: float = 500.0, login: str = "mona", request_id: str = "") -> StatusView:
    pending = PendingView(kind="plan", request_id=request_id, trigger="/codepilot") if request_id else None
    facts = {"pending": pending, "until": 1_700_000_000.0} if state == "waiting" else {}
    return a_status_view(state, allowed=replace(_ALLOWED, login=login), seconds=seconds, **facts)


@pytest.mark.parametrize(
    ("view", "events", "excerpt"),
    [
        (an_end("done"), _BOTH, "`/codepilot fix` has finished after 8 min 20 s"),
        (an_end("failed"), _BOTH, "`/codepilot fix` has failed after 8 min 20 s"),
        (an_end("done", seconds=119), _BOTH, ""),
        (an_end("done"), ("waiting",), ""),
        (an_end("stopped"), _BOTH, ""),
        (an_end("done", login=""), _BOTH, ""),
        (an_end("waiting", request_id="abcd"), _BOTH, "is waiting for an answer until 14 November, 22:13 UTC"),
        (an_end("waiting", request_id="abcd"), ("done",), ""),
        (an_end("waiting"), _BOTH, ""),
    ],
)
def test_what_takes_long_or_needs_a_person_is_told(view: StatusView, events: tuple[Notify, ...], excerpt: str) -> None:
    notice = notice_text(view, events)
    assert (excerpt in notice) if excerpt else (notice == "")


def test_a_notice_mentions_the_asker_and_nobody_else() -> None:
    body = render_notice("`x` and @eve have finished", _ALLOWED, url=_URL, marker="<!-- codepilot:job=a sig=b -->")
    assert body == f"@mona `x` and `@eve` have finished ([status]({_URL})).\n\n<!-- codepilot:job=a sig=b -->"


@pytest.mark.parametrize(("file", "count"), [("", 1), ("notify: never\n", 0), ("notify: waiting\n", 0)])
async def test_the_repository_says_whether_its_people_are_told(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, count: int
) -> None:
    monkeypatch.setattr(status, "NOTICE_SECONDS", 0.0)
    files = {**FILES, ".github/codepilot.yml": file} if file else FILES
    async with staged(hub, tmp_path, [FIX], files=files) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE
        notices = stage.notices(issue.number)
        assert [each.startswith("@mona `/codepilot fix` has finished after ") for each in notices] == [True] * count


LINES = [f"+line {number} of a long workflow" for number in range(4_000)]
KEY = b"k"


async def _context(world: World, *, branch: str = "") -> JobContext:
    engine, job = InMemoryEngine(), a_job(number=world.issue.number)
    job = replace(job, repo=Repo(id=world.repo.id, full_name=world.name, private=False))
    job = replace(job, thread=Thread.of_branch(branch)) if branch else job
    await engine.accept(job)
    return context_of(engine, job, github=world.github, services=SimpleNamespace(marker_key=KEY))


def _view(request_id: str = "7f3a", lines: list[str] = LINES) -> StatusView:
    pending = PendingView(
        kind="publication", request_id=request_id, trigger="/codepilot", preview="\n".join(lines), language="diff"
    )
    allowed = Allowlist(login="mona", number=1, server="https://github.example", repo="mona/calc")
    return a_status_view(
        state="waiting", command="/codepilot fix", allowed=allowed, job_id="j1", marker="", seconds=1.0, pending=pending
    )


def _comment_lines(world: World) -> list[str]:
    """The lines that the comments of the thread show, in order."""
    bodies = [each.body for each in world.hub.comments(world.repo, world.issue.number)]
    return [line for body in bodies for line in body.splitlines() if line.startswith("+")]


async def test_all_of_it_is_shown_in_order_and_found_at_the_pages(world: World) -> None:
    pages = await post_parts(await _context(world), _view())
    assert _comment_lines(world) == LINES
    shown = [each.id for each in world.hub.comments(world.repo, world.issue.number)]
    assert len(shown) > 1
    assert [int(page.rpartition("-")[2]) for page in pages] == shown


async def test_it_is_shown_once_however_often_a_worker_dies(world: World) -> None:
    context = await _context(world)
    world.hub.faults.add("POST", "*/comments", "403")
    with pytest.raises(GitHubError):
        await post_parts(context, _view())
    pages = await post_parts(context, _view())
    assert await post_parts(context, _view()) == pages
    assert _comment_lines(world) == LINES


async def test_an_answer_that_was_lost_makes_no_second_comment(world: World) -> None:
    context = await _context(world)
    world.hub.faults.add("POST", "*/comments", "drop_answer")
    await post_parts(context, _view())
    assert _comment_lines(world) == LINES


async def test_a_copy_that_github_made_late_points_to_the_one_that_counts_when_the_job_has_ended(world: World) -> None:
    context = await _context(world)
    world.hub.faults.add("POST", "*/comments", "drop")
    await post_parts(context, _view(lines=LINES[:10]))
    # The first request was not lost after all.
    [shown] = world.hub.comments(world.repo, world.issue.number)
    await world.github.comments.create(world.name, world.thread, shown.body)
    await store_ending(context.record, RecordedEnding(state=JobState.DONE, body=f"done {context.marker}"))
    assert await post_ending(context) == LATE_SECONDS
    assert _comment_lines(world) == LINES[:10]
    assert "created this comment late;" in world.hub.comments(world.repo, world.issue.number)[1].body


async def test_another_request_is_shown_in_comments_of_its_own(world: World) -> None:
    context = await _context(world)
    first = await post_parts(context, _view())
    again = await post_parts(context, _view("90ab", LINES[:10]))
    assert set(first).isdisjoint(again)
    assert _comment_lines(world) == LINES + LINES[:10]


async def test_without_a_thread_or_without_a_request_nothing_is_shown(world: World) -> None:
    assert await post_parts(await _context(world, branch="main"), _view()) == ()
    assert await post_parts(await _context(world), a_status_view("parked")) == ()
    assert _comment_lines(world) == []


@pytest.mark.parametrize("permission", ["actions", "checks"])
def test_a_workflow_is_told_the_line_of_its_file(permission: str) -> None:
    context = context_of(InMemoryEngine(), a_job(), services=SimpleNamespace(is_long_running=False))
    hint = read_hint(context, permission)
    assert f"`{permission}: read`" in hint
    assert "`permissions:`" in hint
    assert "App" not in hint


@pytest.mark.parametrize("permission", ["actions", "checks"])
def test_of_an_app_the_permission_is_named_as_its_settings_name_it(permission: str) -> None:
    context = context_of(InMemoryEngine(), a_job(), services=SimpleNamespace(is_long_running=True))
    hint = read_hint(context, permission)
    assert f"*{permission.capitalize()}: read-only*" in hint
    assert "workflow" not in hint
    assert "accept it in the installation" in hint  # a permission that was only granted does nothing yet


async def _slow_to_end(ending: asyncio.Event, go: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ending.set()
        await go.wait()


async def test_who_is_cancelled_while_the_work_ends_is_cancelled() -> None:
    ending, go = asyncio.Event(), asyncio.Event()
    went_on = False

    async def body() -> None:
        nonlocal went_on
        async with background(_slow_to_end(ending, go)):
            await asyncio.sleep(0)
        went_on = True

    task = asyncio.create_task(body())
    await ending.wait()
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not went_on


async def test_what_the_work_has_raised_is_raised_at_the_end() -> None:
    done = []

    async def fails() -> None:
        raise ValueError("no")

    async def with_it() -> None:
        async with background(fails(), asyncio.sleep(0)):
            await asyncio.sleep(0)
            done.append("body")

    with pytest.raises(ValueError, match="no"):
        await with_it()
    assert done == ["body"]
