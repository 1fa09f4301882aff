"""Reviews that a push, or the opening of a pull request, starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from agent_runtime import ScriptedProvider
from bot.domain.commands import Review
from bot.domain.job import JobState, Origin
from bot.jobs.record import CheckRecord, StoredRecord
from localhub import LocalHub
from tests.builders import a_job
from tests.stage import FILES, End, Stage, staged
from tests.waiting import eventually
from tests.workflow_runs import Workflows

WANTED = FILES | {".github/codepilot.yml": "review_on: [opened, push]\n"}
NOTE = json.dumps([{"path": "topic.txt", "line": 1, "body": "Say which topic."}])
REVIEW = f"````completion\nIt adds a topic.\n\n```json\n{NOTE}\n```\n````\n"


def push(stage: Stage, name: str) -> str:
    stage.hub.commit(stage.repo, {name: "x\n"}, message=name, author="mona", branch="topic")
    return stage.hub.branches(stage.repo)["topic"]


async def review_of(stage: Stage, number: int, head: str) -> End:
    """How the review that a push to this head started has ended."""

    async def begun() -> str | None:
        for each in await stage.queue.jobs_in_thread(stage.repo.id, number):
            if each.job.head_sha == head and each.job.command.verb == "review":
                return each.job.id
        return None

    return await stage.ended(await eventually(begun))


async def test_each_push_is_reviewed_and_nothing_is_said_twice(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [REVIEW], [REVIEW], files=WANTED, edit_seconds=0.1) as stage:
        number = stage.pull().number
        end = await stage.end_after("pull_request", "opened")
        assert end.state is JobState.DONE, end
        assert [each.body.startswith("Say which topic.") for each in hub.review_comments(stage.repo, number)] == [True]
        assert end.status.startswith("### ✅ Done · Review of this pull request, when opened · ")
        end = await review_of(stage, number, push(stage, "more.txt"))
        assert end.state is JobState.DONE, end
        assert end.status.startswith("### ✅ Done · Review of this pull request, after a push · ")
        check = hub.check_runs(stage.repo)[-1]
        assert check.title == "Done: Review of this pull request, after a push"
        assert (check.summary or "").startswith("### ✅ Done · Review of this pull request, after a push · ")
        assert len(hub.review_comments(stage.repo, number)) == 1
        assert len(stage.providers) == 2


async def test_a_push_ends_the_review_under_way_and_the_newest_head_is_reviewed(hub: LocalHub, tmp_path: Path) -> None:
    # The first model spells its review out, for as long as nobody stops it.
    models = [ScriptedProvider([REVIEW], chunk_chars=1, delay=0.2), ScriptedProvider([REVIEW])]
    made: list[ScriptedProvider] = []

    def model() -> ScriptedProvider:
        made.append(models[len(made)])
        return made[-1]

    async with staged(hub, tmp_path, provider=model, files=WANTED, edit_seconds=0.1) as stage:
        number = stage.pull().number
        first = await stage.answer_to("pull_request", "opened")
        await eventually(lambda: made or None, within=30.0)
        head = push(stage, "more.txt")
        old = await stage.ended(first["job"])
        assert (old.state, "is reviewed instead." in old.reason) == (JobState.STOPPED, True), old
        assert (await review_of(stage, number, head)).state is JobState.DONE
        assert [each.commit_sha for each in hub.reviews(stage.repo, number)] == [head]


async def test_a_review_whose_answer_was_lost_is_not_taken_for_that_of_another_job(
    hub: LocalHub, tmp_path: Path
) -> None:
    def model() -> ScriptedProvider:
        hub.faults.add("POST", "*/reviews", "drop_answer")
        hub.faults.add("GET", "*/reviews", "404")  # it cannot be looked for now
        return ScriptedProvider([REVIEW])

    async with staged(hub, tmp_path, provider=model, files=WANTED, edit_seconds=0.1) as stage:
        number = stage.pull().number
        end = await stage.end_after("pull_request", "opened")
        assert end.state is JobState.DONE, end
        assert end.status.startswith("### ✅ Done · Review of this pull request, when opened · ")
        assert [run.status for run in hub.check_runs(stage.repo)] == ["completed"]
        assert len(hub.reviews(stage.repo, number)) == 1


async def test_the_check_run_of_a_review_that_a_push_ends_before_it_has_a_comment_ends_too(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [REVIEW], files=FILES | {".github/codepilot.yml": "review_on: [push]\n"}) as stage:
        pull = stage.pull()
        old = hub.branches(stage.repo)["topic"]
        review = a_job("old", number=pull.number, kind="pull", command=Review(on="push"))
        repo = replace(review.repo, id=stage.repo.id, full_name=stage.repo.full_name)
        review = replace(review, repo=repo, origin=Origin(kind="event", id=0), installation=stage.installation)
        await stage.queue.accept(review, held_seconds=3600)
        # Its worker was told to stop when it had asked for the check run.
        check = CheckRecord(head_sha=old, requests=1)
        await StoredRecord(stage.queue, "old").update(lambda record: replace(record, check=check))
        head = push(stage, "more.txt")
        assert (await review_of(stage, pull.number, head)).state is JobState.DONE

        def ended() -> bool:
            return [run.status for run in hub.check_runs(stage.repo) if run.head_sha == old] == ["completed"]

        assert await eventually(ended)


async def test_what_a_stranger_opens_and_pushes_costs_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files=WANTED, edit_seconds=0.1) as stage:
        hub.add_user("forker")
        fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
        hub.commit(fork, {"mine.txt": "x\n"}, message="Mine", author="forker", branch="topic")
        pull = hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")
        assert (await stage.end_after("pull_request", "opened")).state is JobState.REFUSED
        hub.commit(fork, {"mine.txt": "y\n"}, message="More", author="forker", branch="topic")
        assert (await review_of(stage, pull.number, hub.branches(fork)["topic"])).state is JobState.REFUSED
        assert (stage.providers, stage.bot_comments(pull.number)) == ([], [])
        assert hub.reviews(stage.repo, pull.number) == []


async def test_the_action_reviews_a_push(hub: LocalHub, tmp_path: Path) -> None:
    flows = Workflows.of(hub, tmp_path)
    hub.commit(flows.repo, {"topic.txt": "A topic.\n"}, message="Add", author="mona", branch="topic")
    number = hub.open_pull(flows.repo, author="mona", head="topic", title="Add").number
    assert (await flows.run("pull_request", [REVIEW])).ended is JobState.REFUSED
    assert (await flows.run("pull_request", [REVIEW], **{"INPUT_REVIEW-ON": "opened"})).ended is JobState.DONE
    hub.commit(flows.repo, {"more.txt": "x\n"}, message="More", author="mona", branch="topic")
    run = await flows.run("pull_request", [REVIEW], **{"INPUT_REVIEW-ON": "push"})
    assert run.ended is JobState.DONE, run.summary
    assert "Review of this pull request, after a push" in run.summary
    assert (len(hub.reviews(flows.repo, number)), len(hub.review_comments(flows.repo, number))) == (2, 1)
