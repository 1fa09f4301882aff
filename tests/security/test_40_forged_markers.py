"""Threat 40: a comment or a check run that looks like ours, but is another's, is neither taken for ours nor touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bot.domain.job import Job, Origin
from bot.github.client import GitHub
from bot.github.types import CheckDraft
from bot.jobs.posts import JobCheckRun, StatusComment
from bot.jobs.record import CheckRecord, CommentRecord
from bot.publishing.markdown import Allowlist
from bot.publishing.markers import sign_marker, signed_job
from bot.publishing.outcome import Finished
from bot.publishing.render import render_check
from bot.publishing.status_view import StatusView
from localhub import LocalHub
from tests.builders import a_job
from tests.github_world import World, opened_world
from tests.publishing_world import Remembered
from tests.status_views import a_status_view

KEY = b"a key that nobody else has"
MARK = sign_marker("j1", 10, 7, key=KEY)


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened


def a_job_of(world: World, number: int) -> Job:
    job = a_job(number=number)
    return replace(job, repo=replace(job.repo, full_name=world.name))


def a_view(job: Job) -> StatusView:
    allowed = Allowlist(login="mona", number=job.thread.number, server="https://github.example", repo="mona/calc")
    return a_status_view(
        state="working", command="/codepilot fix", allowed=allowed, job_id=job.id, marker=MARK, seconds=1.0
    )


# Requested but not posted: a worker was killed after it asked for the comment and before it heard of it.
@pytest.mark.parametrize("noted", [CommentRecord(), CommentRecord(requests=1)], ids=["first try", "after a kill"])
async def test_a_copied_marker_in_a_thread_is_not_ours(world: World, noted: CommentRecord) -> None:
    job = a_job_of(world, world.issue.number)
    body = f"### ✅ Done\n\n{MARK}"
    theirs = world.hub.comment(world.repo, job.thread.number, author="mona", body=body)
    status = StatusComment(world.github, Remembered(noted), job, marker=MARK)
    await status.put(f"Working {MARK}")
    await status.put(f"Done {MARK}")
    said = [each.body for each in world.hub.comments(world.repo, job.thread.number)]
    assert said == [theirs.body, f"Done {MARK}"]


async def test_a_copied_marker_in_a_thread_about_lines_is_not_ours(world: World) -> None:
    pull = world.pull()
    root = world.hub.review_comment(world.repo, pull.number, author="mona", body="Why?", path="long.txt", line=20)
    world.hub.review_comment(world.repo, pull.number, author="mona", body=MARK, in_reply_to=root.id)
    job = replace(a_job_of(world, pull.number), origin=Origin(kind="review_comment", id=root.id, root=root.id))
    status = StatusComment(world.github, Remembered(CommentRecord(requests=1)), job, marker=MARK)
    await status.put(f"Done {MARK}")
    said = [each.body for each in world.hub.review_comments(world.repo, pull.number)]
    assert said == ["Why?", MARK, f"Done {MARK}"]


async def test_another_apps_check_run_is_not_ours(world: World) -> None:
    job = a_job_of(world, world.issue.number)
    draft: CheckDraft = render_check(a_view(job), job=job, head_sha=world.sha)
    forger = world.hub.add_app("forger")
    installation = world.hub.install(forger, world.repo)
    async with GitHub.for_installation(
        forger.id, forger.private_key_pem, installation, world.hub.api_url, redact=str, seconds_between_writes=0
    ) as github:
        theirs = await github.checks.create(world.name, draft)
    check = JobCheckRun(world.github, Remembered(CheckRecord(requests=1)), job, head_sha=world.sha)
    await check.show(replace(a_view(job), outcome=Finished()))
    runs = {run.id: run.status for run in world.hub.check_runs(world.repo)}
    assert len(runs) == 2
    assert runs[theirs.id] == "in_progress"


@pytest.mark.parametrize(
    "forged",
    [
        MARK.replace("sig=", "sig=0"),
        MARK.replace("job=j1", "job=j2"),
        sign_marker("j1", 10, 7, key=b"another key"),
        sign_marker("j1", 10, 8, key=KEY),
        sign_marker("j1", 11, 7, key=KEY),
        sign_marker("j1", 10, 7, key=KEY, kind="ci"),
        MARK.replace("job=", "ci="),
    ],
)
def test_a_marker_of_another_key_job_or_thread_proves_nothing(forged: str) -> None:
    assert signed_job(MARK, 10, 7, key=KEY) == "j1"
    assert signed_job(forged, 10, 7, key=KEY) is None


def test_a_jobs_own_marker_does_not_say_that_ci_started_it() -> None:
    assert signed_job(sign_marker("j1", 10, 7, key=KEY, kind="ci"), 10, 7, key=KEY, kind="ci") == "j1"
    for other in (MARK, MARK.replace("job=", "ci=")):
        assert signed_job(other, 10, 7, key=KEY, kind="ci") is None
