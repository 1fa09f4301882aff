"""What is too long for the status comment stands in comments of its own before anybody is asked about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.domain.job import JobState, Repo, Thread
from bot.github.types import GitHubError
from bot.jobs.context import JobContext
from bot.jobs.endings import LATE_SECONDS, keep, tell
from bot.jobs.status import show_parts
from bot.publishing.markdown import Allowed
from bot.publishing.view import PendingView, StatusView
from bot.queue.memory import InMemoryEngine
from bot.queue.records import RecordedEnding
from localhub import LocalHub
from tests.builders import a_job
from tests.github_world import World, opened_world
from tests.job_contexts import context_of

LINES = [f"+line {number} of a long workflow" for number in range(4_000)]
KEY = b"k"


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened


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
    allowed = Allowed(login="mona", number=1, server="https://github.example", repo="mona/calc")
    return StatusView(
        state="waiting", asked="/codepilot fix", allowed=allowed, job_id="j1", marker="", seconds=1.0, pending=pending
    )


def _said(world: World) -> list[str]:
    """The lines that the comments of the thread show, in order."""
    bodies = [each.body for each in world.hub.comments(world.repo, world.issue.number)]
    return [line for body in bodies for line in body.splitlines() if line.startswith("+")]


async def test_all_of_it_is_shown_in_order_and_found_at_the_pages(world: World) -> None:
    pages = await show_parts(await _context(world), _view())
    assert _said(world) == LINES
    shown = [each.id for each in world.hub.comments(world.repo, world.issue.number)]
    assert len(shown) > 1
    assert [int(page.rpartition("-")[2]) for page in pages] == shown


async def test_it_is_shown_once_however_often_a_worker_dies(world: World) -> None:
    context = await _context(world)
    world.hub.faults.add("POST", "*/comments", "403")
    with pytest.raises(GitHubError):
        await show_parts(context, _view())
    pages = await show_parts(context, _view())
    assert await show_parts(context, _view()) == pages
    assert _said(world) == LINES


async def test_an_answer_that_was_lost_makes_no_second_comment(world: World) -> None:
    context = await _context(world)
    world.hub.faults.add("POST", "*/comments", "drop_answer")
    await show_parts(context, _view())
    assert _said(world) == LINES


async def test_a_copy_that_github_made_late_points_to_the_one_that_counts_when_the_job_has_ended(world: World) -> None:
    context = await _context(world)
    world.hub.faults.add("POST", "*/comments", "drop")
    await show_parts(context, _view(lines=LINES[:10]))
    # The first request was not lost after all.
    [shown] = world.hub.comments(world.repo, world.issue.number)
    await world.github.comments.create(world.name, world.thread, shown.body)
    await keep(context.record, RecordedEnding(state=JobState.DONE, body=f"done {context.marker}"))
    assert await tell(context) == LATE_SECONDS
    assert _said(world) == LINES[:10]
    assert "created this comment late;" in world.hub.comments(world.repo, world.issue.number)[1].body


async def test_another_request_is_shown_in_comments_of_its_own(world: World) -> None:
    context = await _context(world)
    first = await show_parts(context, _view())
    again = await show_parts(context, _view("90ab", LINES[:10]))
    assert set(first).isdisjoint(again)
    assert _said(world) == LINES + LINES[:10]


async def test_without_a_thread_or_without_a_request_nothing_is_shown(world: World) -> None:
    assert await show_parts(await _context(world, branch="main"), _view()) == ()
    assert await show_parts(await _context(world), replace(_view(), pending=None)) == ()
    assert _said(world) == []
