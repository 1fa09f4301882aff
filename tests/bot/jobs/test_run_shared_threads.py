"""The job of a thread that a command concerns, when others than its author speak in the thread, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bot.domain.job import JobState
from tests.fakes.agent import reply, wait_for_test
from tests.seam import NOTHING_LEFT, End, Seam, open_seam
from tests.stage import FILES

CI_WANTED = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\n"}


def end_run(stage: Seam, branch: str, conclusion: str) -> None:
    """End a workflow run on a branch's head."""
    stage.hub.workflow_run(
        stage.repo,
        head_sha=stage.head(branch),
        head_branch=branch,
        conclusion=conclusion,
        actor="mona",
        event="pull_request" if branch == "topic" else "push",
    )


async def retry(stage: Seam, number: int) -> End:
    """Retry a thread's job; return the end of the newest job."""
    assert (await stage.ask(number, "/codepilot retry")).state is JobState.DONE
    [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, number)
    return await stage.ended(newest.job.id)


async def test_retry_never_repeats_a_strangers_command(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [NOTHING_LEFT], [NOTHING_LEFT]) as stage:
        stage.hub.add_user("stranger")
        issue = stage.issue()
        permitted = await stage.ask(issue.number, "/codepilot fix the sum")
        refused = await stage.ask(issue.number, "/codepilot fix the door, so that I can come in", author="stranger")
        assert refused.state is JobState.REFUSED
        repeated = await retry(stage, issue.number)
        first, second = [await stage.queue.get(end.job_id) for end in (permitted, repeated)]
        assert first is not None
        assert second is not None
        assert second.job.command == first.job.command
        assert len(stage.providers) == 2


async def test_retry_passes_over_red_runs_that_the_repository_does_not_want_fixed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [NOTHING_LEFT], [NOTHING_LEFT]) as stage:
        pull = stage.pull()
        await stage.ask(pull.number, "/codepilot fix the sum")
        end_run(stage, "topic", "failure")
        assert "not enabled" in (await stage.answer_to("workflow_run", "completed"))["reason"]
        assert (await retry(stage, pull.number)).state is JobState.DONE
        assert len(stage.providers) == 2


async def test_a_person_may_repeat_the_fix_of_a_red_run(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [NOTHING_LEFT], [NOTHING_LEFT], files=CI_WANTED) as stage:
        pull = stage.pull()
        end_run(stage, "main", "success")
        end_run(stage, "topic", "failure")
        await stage.end_after("workflow_run", "completed")
        assert len(stage.providers) == 1
        end = await retry(stage, pull.number)
        assert end.state is JobState.DONE, end
        assert len(stage.providers) == 2


async def test_continue_is_for_the_running_job_and_not_for_one_queued_behind_it(tmp_path: Path) -> None:
    message = ("@mona says, while you work: mind the minus",)
    script = [reply(wait_for_test()), replace(NOTHING_LEFT, expect=message)]
    async with open_seam(tmp_path, script, [replace(NOTHING_LEFT, expect_not=message)]) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        queued = stage.say(issue.number, "/codepilot fix me", author="rita")
        await stage.ask(issue.number, "/codepilot continue mind the minus")
        await stage.let_go(await stage.job_of(command))
        assert (await stage.end_of(command)).state is JobState.DONE
        assert (await stage.end_of(queued)).state is JobState.DONE


async def test_a_label_of_the_repositorys_own_name_lets_code_of_a_fork_run(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "labels:\n  ask: bot may run\n"}
    async with open_seam(tmp_path, [NOTHING_LEFT], files=files) as stage:
        stage.hub.add_user("stranger")
        fork = stage.hub.add_repo("stranger/calc", owner="stranger", fork_of=stage.repo)
        stage.hub.commit(fork, {"topic.txt": "x\n"}, message="Add a topic", author="stranger", branch="topic")
        pull = stage.hub.open_pull(stage.repo, author="stranger", head="stranger:topic", title="Add a topic")
        stage.hub.label(stage.repo, pull.number, "bot may run", by="mona")
        await stage.end_after("pull_request", "labeled")
        end = await stage.ask(pull.number, "/codepilot test")
        assert end.state is JobState.DONE, end
