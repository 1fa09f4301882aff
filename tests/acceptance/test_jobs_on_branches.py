"""A job without a thread begins at a branch's head, ends in a pull request against it, and comments nowhere."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.commands import Ask, Command, Fix, Review
from bot.domain.job import Actor, Job, JobState, Origin, Repo, Thread
from bot.jobs.record import CheckRecord, ServiceOutage, StoredRecord
from localhub import LocalHub
from tests.durable import runnable
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, Stage, acting, staged

AN_ISSUE = Thread(kind="issue", number=1, title="", body="", author="")


def a_branch_job(
    stage: Stage, job_id: str = "onbranch", *, branch: str = "main", command: Command | None = None
) -> Job:
    mona = stage.hub.add_user("mona")
    return Job(
        id=job_id,
        delivery_id=f"delivery-of-{job_id}",
        repo=Repo(id=stage.repo.id, full_name=stage.repo.full_name, private=False),
        thread=Thread.of_branch(branch),
        actor=Actor(id=mona.id, login=mona.login),
        origin=Origin(kind="workflow", id=1),
        command=command or Fix(goal="Make `add` right."),
        installation=stage.hub.install(stage.app, stage.repo),
    )


async def test_a_fix_begins_at_the_branch_and_ends_in_a_pull_request_against_it(hub: LocalHub, tmp_path: Path) -> None:
    script = [ScriptedReply(text=FIX, expect=("Make `add` right.",), expect_not=("issue #0", "pull request #0"))]
    async with staged(hub, tmp_path, script, files=FILES | {".github/codepilot.yml": "base: main\n"}) as stage:
        hub.commit(stage.repo, {"next.txt": "x\n"}, message="Next", author="mona", branch="release/2")
        head = hub.branches(stage.repo)["release/2"]
        await stage.queue.accept(a_branch_job(stage, branch="release/2"))
        end = await stage.ended("onbranch")
        assert end.state is JobState.DONE, end
        [(branch, sha)] = stage.bot_branches().items()
        assert branch == "codepilot/branch-onbranch"
        assert stage.git("rev-parse", f"{sha}^") == head
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert (pull.pull.base_ref, pull.pull.head_ref) == ("release/2", branch)
        assert "For the branch `release/2`" in (pull.body or "")
        assert "#0" not in (pull.body or "")
        assert stage.git("log", "-1", "--format=%B", sha).splitlines()[2] == "Codepilot job onbranch, branch release/2."
        # There is no thread to say anything in; the check run on the branch's head says it all.
        assert not [call for call in stage.calls if "/issues/" in call or "reactions" in call]
        [check] = [each for each in hub.check_runs(stage.repo) if each.head_sha == head]
        assert (check.status, check.conclusion) == ("completed", "success")
        assert COMPLETION in (check.summary or "")


async def test_a_failure_on_a_branch_is_neutral_for_those_who_merge(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, ["no step at all"] * 5) as stage:
        await stage.queue.accept(a_branch_job(stage))
        assert (await stage.ended("onbranch")).state is JobState.FAILED
        [check] = hub.check_runs(stage.repo)
        assert check.conclusion == "neutral"


@pytest.mark.parametrize(
    ("branch", "command", "why"),
    [("gone", None, "The branch `gone`,"), ("main", Review(), "nothing to review on the branch `main` alone")],
)
async def test_what_cannot_be_done_on_a_branch_is_refused_with_the_reason(
    hub: LocalHub, tmp_path: Path, branch: str, command: Command | None, why: str
) -> None:
    async with staged(hub, tmp_path) as stage:
        await stage.queue.accept(a_branch_job(stage, branch=branch, command=command))
        end = await stage.ended("onbranch")
        assert end.state is JobState.REFUSED
        assert why in end.reason
        assert stage.providers == []
        assert stage.nothing_published()


async def test_a_question_is_answered_in_the_check_run(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting("pass", completion="It adds.")]) as stage:
        await stage.queue.accept(a_branch_job(stage, command=Ask(goal="What does it do?")))
        assert (await stage.ended("onbranch")).state is JobState.DONE
        assert stage.nothing_published()
        [check] = hub.check_runs(stage.repo)
        assert "It adds." in (check.summary or "")


async def test_the_check_run_of_a_job_that_nobody_asked_for_ends_though_github_keeps_it_from_going_on(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, held=True) as stage:
        job = replace(a_branch_job(stage), origin=Origin(kind="ci", id=0, name="lint"))
        await stage.queue.accept(job)
        # Its worker died when it had asked for the check run, and GitHub has refused everything for an hour since then.
        check = CheckRecord(head_sha=hub.branches(stage.repo)["main"], requests=1)
        now = time.time()
        outage = ServiceOutage(
            service="GitHub", reason="", since=now - 3600, last=now, until=now, doubtful_since=now - 3600
        )
        await StoredRecord(stage.queue, job.id).update(
            lambda record: replace(record, check=check, service_outage=outage)
        )
        hub.faults.add("POST", "*/graphql", "404", times=9)
        stage.open_for_work.set()
        assert (await stage.ended(job.id)).state is JobState.FAILED
        [run] = hub.check_runs(stage.repo)
        assert run.status == "completed"


async def test_jobs_of_one_branch_wait_for_each_other_and_those_of_two_do_not(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, held=True) as stage:
        hub.commit(stage.repo, {"next.txt": "x\n"}, message="Next", author="mona", branch="next")
        for job_id, branch in (("first", "main"), ("second", "main"), ("other", "next")):
            await stage.queue.accept(a_branch_job(stage, job_id, branch=branch))
        departed = replace(a_branch_job(stage, "issue"), thread=AN_ISSUE)
        await stage.queue.accept(departed)
        assert await runnable(stage.queue) == ["first", "other", "issue"]
        found = await stage.queue.jobs_in_thread(stage.repo.id, Thread.of_branch("main").key)
        assert [each.job.id for each in found] == ["second", "first"]
