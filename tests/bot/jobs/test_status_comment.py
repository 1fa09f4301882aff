"""The status comment against a real hub: one, where it belongs, whatever is restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from bot.domain.job import Job, Origin
from bot.jobs.context import spot_of
from bot.jobs.status import JobCheckRun, StatusComment, edit_pause
from bot.publishing.markdown import Allowed
from bot.publishing.view import StatusView
from bot.queue.records import CommentRecord
from localhub import LocalHub
from tests.builders import a_job
from tests.github_world import World, opened_world
from tests.publishing_world import Remembered
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
    allowed = Allowed(login="mona", number=job.thread.number, server="https://github.example", repo="mona/calc")
    return StatusView(
        state="working", asked="/codepilot fix", allowed=allowed, job_id=job.id, marker=MARK, seconds=seconds
    )


def said(world: World, number: int) -> list[str]:
    return [each.body for each in world.hub.comments(world.repo, number)]


async def test_one_comment_over_restarts_and_lost_answers(world: World) -> None:
    record, job = Remembered(CommentRecord()), a_job_here(world, world.issue.number)
    world.hub.faults.add("POST", "*/comments", "drop_answer")
    for word in ("one", "two", "three"):
        await StatusComment(world.github, record, job, marker=MARK).put(f"{word} {MARK}")
    assert said(world, job.thread.number) == [f"three {MARK}"]


async def test_where_a_comment_is_that_only_its_marker_tells_of_is_known_from_then_on(world: World) -> None:
    record, job = Remembered(CommentRecord()), a_job_here(world, world.issue.number)
    await StatusComment(world.github, record, job, marker=MARK).put(f"one {MARK}")
    posted = record.value.posted
    record.value = replace(record.value, posted=None)  # its worker was killed before it heard of it
    await StatusComment(world.github, record, job, marker=MARK).put(f"two {MARK}")
    assert said(world, job.thread.number) == [f"two {MARK}"]
    assert record.value.posted == posted is not None


async def test_a_question_about_lines_is_answered_below_them(world: World) -> None:
    pull = world.pull()
    root = world.hub.review_comment(world.repo, pull.number, author="mona", body="Why?", path="long.txt", line=20)
    asked = world.hub.review_comment(world.repo, pull.number, author="mona", body="/codepilot ask", in_reply_to=root.id)
    job = a_job_here(world, pull.number, Origin(kind="review_comment", id=asked.id, root=root.id))
    record = Remembered(CommentRecord())
    for word in ("one", "two"):
        await StatusComment(world.github, record, job, marker=MARK).put(f"{word} {MARK}")
    assert said(world, pull.number) == []
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
    assert said(world, pull.number) == [f"two {MARK}"]


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
    async with status.kept_fresh(now, seconds=0.01, check=cast("JobCheckRun", Board())):
        await eventually(lambda: len(shown) > 2 and bool(said(world, job.thread.number)))
    count = len(shown)
    await asyncio.sleep(0)
    assert len(shown) == count


@pytest.mark.parametrize("kind", ["comment", "review", "label", "assignment", "button", "ci", "event"])
def test_all_else_is_answered_below_the_thread(kind: str) -> None:
    job = replace(a_job(number=3), origin=Origin(kind=kind, id=5))  # type: ignore[arg-type] # one of them
    assert (spot_of(job).kind, spot_of(job).number) == ("thread", 3)


def test_the_first_comment_about_lines_is_its_own_threads_root() -> None:
    job = replace(a_job(number=3, kind="pull"), origin=Origin(kind="review_comment", id=5))
    assert spot_of(job).root == 5


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

    async with pace.turn(), status.kept_fresh(now, seconds=0.01):
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
    answer, late = said(world, job.thread.number)
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
    assert said(world, world.issue.number) == [f"done {MARK}"]
