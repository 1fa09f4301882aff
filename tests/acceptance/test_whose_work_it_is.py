"""Which of a thread's jobs a command is about, when others than its author speak in the thread, too."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import LocalHub
from tests.durable import signals_of
from tests.stage import FILES, WAIT_FOR_GO, Stage, acting, staged

DONE = "```completion\nNothing left.\n```\n"
CI_WANTED = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\n"}


async def red(stage: Stage) -> str:
    """The pull request's workflow went red; the job that this became."""
    ran(stage, "topic", "failure")
    return (await stage.end_after("workflow_run", "completed")).job_id


def ran(stage: Stage, branch: str, conclusion: str) -> None:
    """A workflow ended on a branch's head."""
    stage.hub.workflow_run(
        stage.repo,
        head_sha=stage.hub.branches(stage.repo)[branch],
        head_branch=branch,
        conclusion=conclusion,
        actor="mona",
        triggering_actor="mona",
        event="pull_request" if branch == "topic" else "push",
    )


async def test_retry_never_does_what_a_stranger_asked_for(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [DONE], [DONE]) as stage:
        hub.add_user("stranger")
        issue = stage.issue()
        wanted = await stage.ask(issue.number, "/codepilot fix the sum")
        refused = await stage.ask(issue.number, "/codepilot fix the door, so that I can come in", author="stranger")
        assert refused.state is JobState.REFUSED
        assert (await stage.ask(issue.number, "/codepilot retry")).state is JobState.DONE
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        asked = await stage.queue.get(wanted.job_id)
        assert asked is not None
        assert newest.job.command == asked.job.command
        await stage.ended(newest.job.id)


async def test_retry_passes_over_red_runs_that_nobody_wanted_fixed(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [DONE], [DONE]) as stage:
        pull = stage.pull()
        await stage.end_after("pull_request", "opened")
        await stage.ask(pull.number, "/codepilot fix the sum")
        ran(stage, "topic", "failure")
        assert "not enabled" in (await stage.answer_to("workflow_run", "completed")).get("reason", "not enabled")
        await stage.ask(pull.number, "/codepilot retry")
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, pull.number)
        assert (await stage.ended(newest.job.id)).state is JobState.DONE
        assert len(stage.providers) == 2


async def test_a_person_may_have_the_work_on_a_red_run_done_again(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [DONE], [DONE], files=CI_WANTED) as stage:
        pull = stage.pull()
        ran(stage, "main", "success")
        await red(stage)
        assert len(stage.providers) == 1
        await stage.ask(pull.number, "/codepilot retry")
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, pull.number)
        end = await stage.ended(newest.job.id)
        assert end.state is JobState.DONE, end
        assert len(stage.providers) == 2


async def test_continue_is_for_the_job_that_runs_whatever_is_queued_behind_it(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), DONE], [DONE]) as stage:
        hub.add_user("stranger")
        issue = stage.issue()
        runs = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        await stage.at_work()
        queued = await stage.job_of(stage.say(issue.number, "/codepilot fix me", author="stranger"))
        await stage.ask(issue.number, "/codepilot continue mind the minus")
        [heard] = await signals_of(stage.queue, runs)
        assert heard.text == "mind the minus"
        assert await signals_of(stage.queue, queued) == []
        await stage.let_go(runs)
        await stage.ended(runs)


async def test_what_nobody_asked_for_is_refused_without_a_word(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, operator={"level": "read-only"}, files=CI_WANTED) as stage:
        pull = stage.pull()
        ran(stage, "main", "success")
        assert (await stage.ended(await red(stage))).state is JobState.REFUSED
        assert stage.bot_comments(pull.number) == []


async def test_a_label_of_the_repositorys_own_name_lets_code_of_a_fork_run(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "labels:\n  ask: bot may run\n"}
    async with staged(hub, tmp_path, [DONE], files=files) as stage:
        hub.add_user("stranger")
        fork = hub.add_repo("stranger/calc", owner="stranger", fork_of=stage.repo)
        hub.commit(fork, {"topic.txt": "x\n"}, message="Add a topic", author="stranger", branch="topic")
        pull = hub.open_pull(stage.repo, author="stranger", head="stranger:topic", title="Add a topic")
        hub.label(stage.repo, pull.number, "bot may run", by="mona")
        await stage.end_after("pull_request", "labeled")
        command = stage.say(pull.number, "/codepilot test")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
