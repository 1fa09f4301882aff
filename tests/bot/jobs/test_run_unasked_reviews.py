"""Reviews that a pull request starts by being opened, pushed to or made ready."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.commands import Review
from bot.domain.job import JobState, Origin
from bot.jobs.record import CheckRecord
from tests.builders import a_job
from tests.fakes.agent import Script, reply, wait_for_test
from tests.fakes.github import no_answer, not_found
from tests.fakes.hub import INSTALLATION
from tests.fakes.site import FakeRepo
from tests.seam import End, Seam, open_seam
from tests.stage import FILES

WANTED = FILES | {".github/codepilot.yml": "review_on: [opened, push]\n"}
WHEN_READY = FILES | {".github/codepilot.yml": "review_on: [ready]\n"}
NOT_WANTED = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\n"}
NOTE = json.dumps([{"path": "topic.txt", "line": 1, "body": "Say which topic."}])
REVIEW: Script = [reply(completion=f"It adds a topic.\n\n```json\n{NOTE}\n```\n")]


def push(stage: Seam, name: str, *, repo: FakeRepo | None = None, author: str = "mona") -> str:
    """Push a file to the branch `topic`; return its head."""
    return stage.hub.commit(repo or stage.repo, {name: "x\n"}, message=name, author=author, branch="topic")


async def review_of(stage: Seam, number: int, head: str) -> End:
    """Return the end of the review that a push of this head has started."""
    await stage.settle()
    [job_id] = [
        stored.job.id
        for stored in await stage.queue.jobs_in_thread(stage.repo.id, number)
        if stored.job.head_sha == head and stored.job.command.verb == "review"
    ]
    return await stage.ended(job_id)


async def test_a_second_review_repeats_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, REVIEW, REVIEW, files=WANTED) as stage:
        number = stage.pull().number
        end = await stage.end_after("pull_request", "opened")
        assert end.state is JobState.DONE, end
        comments = stage.hub.review_comments(stage.repo, number)
        assert [comment.body.startswith("Say which topic.") for comment in comments] == [True]
        assert end.status.startswith("### ✅ Done · Review of this pull request, when opened · ")
        end = await review_of(stage, number, push(stage, "more.txt"))
        assert end.state is JobState.DONE, end
        assert end.status.startswith("### ✅ Done · Review of this pull request, after a push · ")
        check = stage.repo.checks[-1]
        assert check.title == "Done: Review of this pull request, after a push"
        assert (check.summary or "").startswith("### ✅ Done · Review of this pull request, after a push · ")
        assert len(stage.hub.review_comments(stage.repo, number)) == 1
        assert len(stage.providers) == 2


async def test_a_push_ends_the_running_review_and_the_newest_head_is_reviewed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test()), *REVIEW], REVIEW, files=WANTED) as stage:
        number = stage.pull().number
        first = await stage.answer_to("pull_request", "opened")
        await stage.at_work()
        head = push(stage, "more.txt")
        old = await stage.ended(first["job"])
        assert (old.state, "is reviewed instead." in old.reason) == (JobState.STOPPED, True), old
        assert (await review_of(stage, number, head)).state is JobState.DONE
        assert [review.commit_sha for review in stage.hub.reviews(stage.repo, number)] == [head]


async def test_a_review_whose_answer_was_lost_is_not_taken_for_that_of_another_job(tmp_path: Path) -> None:
    async with open_seam(tmp_path, REVIEW, files=WANTED) as stage:
        stage.hub.fail("reviews.create", no_answer(), after=True)
        stage.hub.fail("reviews.list_for_pull", not_found())  # it cannot be looked for now
        number = stage.pull().number
        end = await stage.end_after("pull_request", "opened")
        assert stage.hub.take_fault("reviews.create") is None
        assert stage.hub.take_fault("reviews.list_for_pull") is None
        assert end.state is JobState.DONE, end
        assert end.status.startswith("### ✅ Done · Review of this pull request, when opened · ")
        assert [check.status for check in stage.repo.checks] == ["completed"]
        assert len(stage.hub.reviews(stage.repo, number)) == 1


async def test_the_check_run_of_a_review_that_a_push_ends_before_its_first_comment_ends_too(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "review_on: [push]\n"}
    async with open_seam(tmp_path, REVIEW, files=files) as stage:
        pull = stage.pull()
        old = stage.head("topic")
        review = a_job("old", number=pull.number, kind="pull", command=Review(on="push"))
        repo = replace(review.repo, id=stage.repo.id, full_name=stage.repo.full_name)
        review = replace(review, repo=repo, origin=Origin(kind="event", id=0), installation=INSTALLATION)
        await stage.queue.accept(review, held_seconds=3600)
        # Its worker was told to stop after it had asked for the check run.
        check = CheckRecord(head_sha=old, requests=1)
        await stage.record_of("old").update(lambda record: replace(record, check=check))
        head = push(stage, "more.txt")
        assert (await review_of(stage, pull.number, head)).state is JobState.DONE
        await stage.settle()
        assert [check.status for check in stage.repo.checks if check.head_sha == old] == ["completed"]


async def test_a_strangers_pull_request_and_push_are_not_reviewed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files=WANTED) as stage:
        stage.hub.add_user("forker")
        fork = stage.hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
        push(stage, "mine.txt", repo=fork, author="forker")
        pull = stage.hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")
        assert (await stage.end_after("pull_request", "opened")).state is JobState.REFUSED
        head = push(stage, "more.txt", repo=fork, author="forker")
        assert (await review_of(stage, pull.number, head)).state is JobState.REFUSED
        assert (stage.providers, stage.bot_comments(pull.number)) == ([], [])
        assert stage.hub.reviews(stage.repo, pull.number) == []


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_pull_request_that_becomes_ready_is_reviewed_where_the_repository_wants_it(
    tmp_path: Path, *, wanted: bool
) -> None:
    async with open_seam(tmp_path, REVIEW, files=WHEN_READY if wanted else NOT_WANTED) as stage:
        number = stage.pull().number
        stage.hub.set_draft(stage.repo, number, draft=True, by="mona")
        stage.hub.set_draft(stage.repo, number, draft=False, by="mona")
        end = await stage.end_after("pull_request", "ready_for_review")
        assert end.state is (JobState.DONE if wanted else JobState.REFUSED), end
        states = [review.state for review in stage.hub.reviews(stage.repo, number)]
        assert states == (["COMMENTED"] if wanted else [])
        assert len(stage.providers) == wanted
        assert len(stage.bot_comments(number)) == wanted
        assert len(stage.repo.checks) == wanted


async def test_a_pull_request_that_a_stranger_makes_ready_is_not_reviewed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files=WHEN_READY) as stage:
        stage.hub.add_user("forker")
        fork = stage.hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
        push(stage, "mine.txt", repo=fork, author="forker")
        pull = stage.hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine", draft=True)
        stage.hub.set_draft(stage.repo, pull.number, draft=False, by="forker")
        end = await stage.end_after("pull_request", "ready_for_review")
        assert end.state is JobState.REFUSED
        assert stage.hub.reviews(stage.repo, pull.number) == []
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []
