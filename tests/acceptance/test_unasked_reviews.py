"""Reviews that a push, or the opening of a pull request, starts."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import LocalHub
from tests.bot.jobs.test_run_unasked_reviews import NOTE, WANTED
from tests.stage import End, Stage, staged
from tests.waiting import eventually
from tests.workflow_runs import Workflows

REVIEW = f"````completion\nIt adds a topic.\n\n```json\n{NOTE}\n```\n````\n"


def push(stage: Stage, name: str) -> str:
    stage.hub.commit(stage.repo, {name: "x\n"}, message=name, author="mona", branch="topic")
    return stage.hub.branches(stage.repo)["topic"]


async def review_of(stage: Stage, number: int, head: str) -> End:
    """Wait for the end of the review that a push of this head has started."""

    async def find_review() -> str | None:
        for each in await stage.queue.jobs_in_thread(stage.repo.id, number):
            if each.job.head_sha == head and each.job.command.verb == "review":
                return each.job.id
        return None

    return await stage.ended(await eventually(find_review))


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
