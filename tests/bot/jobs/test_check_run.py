"""The check run of a job against a real hub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent_runtime import Status
from bot.domain.job import Job
from bot.github.client import GitHub
from bot.github.rate_limit import Limits
from bot.github.types import GitHubError
from bot.jobs.status import JobCheckRun
from bot.publishing.checks import Check
from bot.publishing.markdown import Allowed
from bot.publishing.render import render_check
from bot.publishing.view import StatusView
from bot.queue.records import CheckRecord
from localhub import LocalHub
from tests.builders import a_job
from tests.github_world import World, opened_world
from tests.publishing_world import Remembered


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened


def a_job_here(world: World) -> Job:
    job = a_job(number=world.issue.number, kind="pull")
    return replace(job, repo=replace(job.repo, full_name=world.name))


def a_view(job: Job) -> StatusView:
    allowed = Allowed(login="mona", number=job.thread.number, server="https://github.example", repo="mona/calc")
    return StatusView(state="working", asked="/codepilot fix", allowed=allowed, job_id=job.id, marker="", seconds=1.0)


async def test_one_check_run_over_restarts(world: World) -> None:
    job, record = a_job_here(world), Remembered(CheckRecord())
    for state in ("working", "working", "failed"):
        check = JobCheckRun(world.github, record, job, head_sha=world.sha)
        view = replace(a_view(job), state=state)
        await check.show(view, status=Status.TIMEOUT, patch="--- a\n+++ b\n")
        await check.show(view, status=Status.TIMEOUT, patch="--- a\n+++ b\n")
    [run] = world.hub.check_runs(world.repo)
    assert (run.status, run.conclusion, run.external_id) == ("completed", "timed_out", f"j1:pull:{job.thread.number}:-")
    assert "```diff\n--- a\n+++ b\n```" in (run.text or "")


async def test_a_worker_killed_before_it_heard_of_it_makes_no_second_one(world: World) -> None:
    job, record = a_job_here(world), Remembered(CheckRecord())
    await JobCheckRun(world.github, record, job, head_sha=world.sha).show(a_view(job))
    posted = record.value.posted
    record.value = replace(record.value, posted=None)
    done = replace(a_view(job), state="done")
    await JobCheckRun(world.github, record, job, head_sha=world.sha).show(done)
    [run] = world.hub.check_runs(world.repo)
    assert run.conclusion == "success"
    assert record.value.posted == posted is not None


async def test_a_lost_answer_makes_no_second_one(world: World) -> None:
    job, record = a_job_here(world), Remembered(CheckRecord())
    world.hub.faults.add("POST", "*/check-runs", "drop_answer")
    checks = (Check(command="pytest", exit_code=1, seconds=1),)
    view = replace(a_view(job), state="done", checks=checks)
    await JobCheckRun(world.github, record, job, head_sha=world.sha).show(view)
    [run] = world.hub.check_runs(world.repo)
    assert len(run.annotations) == 1
    assert record.value.requests == 1
    assert record.value.posted is not None


async def test_annotations_are_added_once_over_restarts(world: World) -> None:
    job, record = a_job_here(world), Remembered(CheckRecord())
    checks = tuple(Check(command=f"pytest {n}", exit_code=1, seconds=1) for n in range(70))
    view = replace(a_view(job), state="done", checks=checks)
    for _ in range(3):
        await JobCheckRun(world.github, record, job, head_sha=world.sha).show(view)
    [run] = world.hub.check_runs(world.repo)
    assert [each["title"] for each in run.annotations] == [check.command for check in checks]


async def test_without_the_permission_the_job_goes_on_and_says_so_once(world: World) -> None:
    job = a_job_here(world)
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
        await check.show(a_view(job))
        await check.show(replace(a_view(job), state="done"))
    assert "`checks: write`" in check.missing
    assert world.hub.check_runs(world.repo) == []


async def test_an_outage_is_an_error_and_the_next_try_shows_it(world: World) -> None:
    job = a_job_here(world)
    check = JobCheckRun(world.github, Remembered(CheckRecord()), job, head_sha=world.sha)
    world.hub.faults.add("POST", "*/check-runs", "secondary_rate_limited", retry_after=3600)
    with pytest.raises(GitHubError):
        await check.show(a_view(job))
    assert not check.missing
    world.github._connection.session.limits = Limits()  # the hour is over
    await check.show(a_view(job))
    assert len(world.hub.check_runs(world.repo)) == 1


async def test_a_commit_that_is_gone_stops_nothing(world: World) -> None:
    job = a_job_here(world)
    check = JobCheckRun(world.github, Remembered(CheckRecord()), job, head_sha="f" * 40)
    await check.show(a_view(job))
    assert not check.missing


async def test_a_check_run_that_github_made_late_ends_like_the_one_that_counts(world: World) -> None:
    job, record = a_job_here(world), Remembered(CheckRecord())
    check = JobCheckRun(world.github, record, job, head_sha=world.sha)
    world.hub.faults.add("POST", "*/check-runs", "drop")
    await check.show(a_view(job))
    # The first request was not lost after all.
    working = render_check(a_view(job), job=job, head_sha=world.sha)
    await world.github.checks.create(world.name, working)
    ended = render_check(replace(a_view(job), state="failed"), job=job, head_sha=world.sha)
    await check.put(ended)
    assert await check.fold_late(ended)
    runs = world.hub.check_runs(world.repo)
    assert [(run.status, run.conclusion) for run in runs] == [("completed", "failure")] * 2
    assert "created this check run late;" in (runs[1].summary or "")


async def test_check_runs_that_github_made_though_no_answer_came_to_either_request_all_end(world: World) -> None:
    job, record = a_job_here(world), Remembered(CheckRecord())
    check = JobCheckRun(world.github, record, job, head_sha=world.sha)
    world.hub.faults.add("POST", "*/check-runs", "drop", times=2)
    with pytest.raises(GitHubError):
        await check.show(a_view(job))
    # Neither request was lost after all.
    for _ in range(2):
        await world.github.checks.create(world.name, render_check(a_view(job), job=job, head_sha=world.sha))
    ended = render_check(replace(a_view(job), state="failed"), job=job, head_sha=world.sha)
    await check.put(ended)
    assert await check.fold_late(ended)
    runs = world.hub.check_runs(world.repo)
    assert [(run.status, run.conclusion) for run in runs] == [("completed", "failure")] * 2
