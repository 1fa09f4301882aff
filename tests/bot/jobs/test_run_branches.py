"""Jobs without a thread: they begin at a branch's head and comment nowhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import Status
from bot.domain.commands import Ask, Command, Fix, Review
from bot.domain.job import Actor, Job, JobState, Origin, Repo, Thread
from bot.jobs.record import CheckRecord, ServiceOutage
from tests.fakes.agent import end, reply, wait_for_test
from tests.fakes.github import not_found
from tests.fakes.hub import INSTALLATION
from tests.seam import COMPLETION, FIX, FIXED_CALC, NOTHING_LEFT, Seam, open_seam
from tests.stage import FILES


def branch_job(stage: Seam, job_id: str = "onbranch", *, branch: str = "main", command: Command | None = None) -> Job:
    mona = stage.hub.user("mona")
    return Job(
        id=job_id,
        delivery_id=f"delivery-of-{job_id}",
        repo=Repo(id=stage.repo.id, full_name=stage.repo.full_name, private=False),
        thread=Thread.of_branch(branch),
        actor=Actor(id=mona.id, login=mona.login),
        origin=Origin(kind="workflow", id=1),
        command=command or Fix(goal="Make `add` right."),
        installation=INSTALLATION,
    )


async def test_a_fix_of_a_branch_ends_in_a_pull_request_against_it(tmp_path: Path) -> None:
    script = [replace(FIX[0], expect=("Make `add` right.",), expect_not=("issue #0", "pull request #0"))]
    async with open_seam(tmp_path, script, files=FILES | {".github/codepilot.yml": "base: main\n"}) as stage:
        stage.hub.commit(stage.repo, {"next.txt": "x\n"}, message="Next", author="mona", branch="release/2")
        head = stage.head("release/2")
        await stage.queue.accept(branch_job(stage, branch="release/2"))
        ended = await stage.ended("onbranch")
        assert ended.state is JobState.DONE, ended
        [(branch, sha)] = stage.bot_branches().items()
        assert branch == "codepilot/branch-onbranch"
        assert stage.head(f"{branch}^") == head
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert (pull.pull.base_ref, pull.pull.head_ref) == ("release/2", branch)
        assert "For the branch `release/2`" in (pull.body or "")
        assert "#0" not in (pull.body or "")
        assert stage.message(sha).splitlines()[2] == "Codepilot job onbranch, branch release/2."
        # There is no thread to comment in; the check run on the branch's head has the report.
        assert not [call for call in stage.calls if call.startswith("comments.")]
        [check] = [check for check in stage.repo.checks if check.head_sha == head]
        assert (check.status, check.conclusion) == ("completed", "success")
        assert COMPLETION in (check.summary or "")


async def test_a_failure_on_a_branch_does_not_block_merging(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(end(Status.FAILED, "The model gave no step."))]) as stage:
        await stage.queue.accept(branch_job(stage))
        assert (await stage.ended("onbranch")).state is JobState.FAILED
        [check] = stage.repo.checks
        assert check.conclusion == "neutral"


@pytest.mark.parametrize(
    ("branch", "command", "reason"),
    [("gone", None, "The branch `gone`,"), ("main", Review(), "nothing to review on the branch `main` alone")],
)
async def test_an_impossible_command_on_a_branch_is_refused_with_the_reason(
    tmp_path: Path, branch: str, command: Command | None, reason: str
) -> None:
    async with open_seam(tmp_path) as stage:
        await stage.queue.accept(branch_job(stage, branch=branch, command=command))
        ended = await stage.ended("onbranch")
        assert ended.state is JobState.REFUSED
        assert reason in ended.reason
        assert stage.providers == []
        assert stage.nothing_published()


async def test_a_question_about_a_branch_is_answered_in_the_check_run(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(completion="It adds.")]) as stage:
        await stage.queue.accept(branch_job(stage, command=Ask(goal="What does it do?")))
        assert (await stage.ended("onbranch")).state is JobState.DONE
        assert stage.nothing_published()
        [check] = stage.repo.checks
        assert "It adds." in (check.summary or "")


async def test_the_check_run_of_a_fix_of_failed_checks_ends_though_github_refuses_its_snapshot(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        job = replace(branch_job(stage), origin=Origin(kind="ci", id=0, name="lint"))
        await stage.queue.accept(job)
        # Its worker died after it had asked for the check run, and GitHub has refused everything for an hour since.
        check, now = CheckRecord(head_sha=stage.head("main"), requests=1), stage.clock()
        outage = ServiceOutage(
            service="GitHub", reason="", since=now - 3600, retry_at=now, until=now, doubtful_since=now - 3600
        )
        await stage.record_of(job.id).update(lambda record: replace(record, check=check, service_outage=outage))
        stage.hub.fail("threads.branch_snapshot", not_found(), times=9)
        assert (await stage.ended(job.id)).state is JobState.FAILED
        assert "threads.branch_snapshot" in stage.calls
        [run] = stage.repo.checks
        assert run.status == "completed"


async def test_jobs_of_one_branch_wait_for_each_other_and_those_of_two_do_not(tmp_path: Path) -> None:
    scripts = ([reply(wait_for_test(), completion="Done.")], [NOTHING_LEFT], [NOTHING_LEFT], [NOTHING_LEFT])
    async with open_seam(tmp_path, *scripts) as stage:
        issue = stage.issue()
        stage.hub.commit(stage.repo, {"next.txt": "x\n"}, message="Next", author="mona", branch="next")
        await stage.queue.accept(branch_job(stage, "first"))
        await stage.at_work()
        for job_id, branch in (("second", "main"), ("other", "next")):
            await stage.queue.accept(branch_job(stage, job_id, branch=branch))
        await stage.queue.accept(replace(branch_job(stage, "issue"), thread=Thread.from_number("issue", issue.number)))
        await stage.settle()
        states = {job_id: await stage.state_of(job_id) for job_id in ("first", "second", "other", "issue")}
        assert (states["first"], states["second"]) == (JobState.RUNNING, JobState.QUEUED)
        assert (states["other"], states["issue"]) == (JobState.DONE, JobState.DONE)
        jobs = await stage.queue.jobs_in_thread(stage.repo.id, Thread.of_branch("main").key)
        assert [stored.job.id for stored in jobs] == ["second", "first"]
        await stage.let_go("first")
        assert (await stage.ended("second")).state is JobState.DONE
