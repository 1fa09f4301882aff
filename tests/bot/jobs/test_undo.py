"""Which commit `undo` takes back."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.domain.commands import Undo
from bot.domain.job import Job, Thread
from bot.jobs.access import ThreadSnapshot
from bot.jobs.delivery import aimed
from bot.permissions.levels import Conventions, Refusal
from bot.publishing.view import CommitRef
from bot.queue.memory import InMemoryEngine
from bot.queue.records import StoredRecord
from tests.builders import a_job
from tests.job_contexts import answering, context_of, snapshot

ISSUE = a_job("undo", command=Undo())
PULL = a_job("undo", kind="pull", number=8, command=Undo())


async def _with_commit(engine: InMemoryEngine, job: Job, sha: str, branch: str) -> None:
    await engine.accept(job)
    committed = CommitRef(sha=sha, branch=branch)
    record = StoredRecord(engine, job.id)
    await record.update(lambda kept: replace(kept, published=replace(kept.published, commit=committed)))


async def _aim(
    engine: InMemoryEngine, head: str | None, *, job: Job = ISSUE, here: ThreadSnapshot | None = None
) -> ThreadSnapshot | Refusal:
    await engine.accept(job)
    github = SimpleNamespace(repos=SimpleNamespace(branch_head=answering(head)))
    services = SimpleNamespace(conventions=Conventions())
    return await aimed(context_of(engine, job, github=github, services=services), here or snapshot())


async def test_the_newest_commit_of_the_thread_is_aimed_at() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("a"), "1" * 40, "codepilot/issue-7-a")
    await _with_commit(engine, a_job("b"), "2" * 40, "codepilot/issue-7-b")
    await engine.accept(a_job("c"))
    await _with_commit(engine, a_job("elsewhere", number=9), "3" * 40, "codepilot/issue-9-elsewhere")
    place = await _aim(engine, "2" * 40)
    assert isinstance(place, ThreadSnapshot)
    thread = place.thread
    assert (thread.head_sha, thread.head_ref, thread.head_repo_id) == ("2" * 40, "codepilot/issue-7-b", 10)


@pytest.mark.parametrize(
    ("commits", "head", "cause"),
    [
        (0, "2" * 40, "nothing-to-undo"),
        (1, None, "undo-gone"),
        (1, "9" * 40, "undo-moved"),
    ],
)
async def test_without_a_last_commit_of_its_own_there_is_nothing_to_undo(
    commits: int,
    head: str | None,
    cause: str,
) -> None:
    engine = InMemoryEngine()
    for _ in range(commits):
        await _with_commit(engine, a_job("a"), "2" * 40, "codepilot/issue-7-a")
    refusal = await _aim(engine, head)
    assert isinstance(refusal, Refusal)
    assert refusal.cause == cause


async def test_an_attempt_that_has_pushed_already_is_not_stopped_by_its_own_push() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("a"), "2" * 40, "codepilot/issue-7-a")
    first = await _aim(engine, "2" * 40)
    assert await _aim(engine, "5" * 40) == first


async def test_in_its_own_pull_request_the_commit_of_the_job_that_opened_it_is_aimed_at() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("maker"), "2" * 40, "codepilot/issue-7-maker")
    place = await _aim(engine, "2" * 40, job=PULL, here=snapshot(head_ref="codepilot/issue-7-maker"))
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.head_sha == "2" * 40


async def test_in_its_own_pull_request_the_commit_of_a_later_fix_of_the_issue_is_aimed_at() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("maker"), "1" * 40, "codepilot/issue-7-maker")
    await _with_commit(engine, a_job("later"), "2" * 40, "codepilot/issue-7-maker")
    await _with_commit(engine, a_job("another"), "3" * 40, "codepilot/issue-7-another")
    place = await _aim(engine, "2" * 40, job=PULL, here=snapshot(head_ref="codepilot/issue-7-maker"))
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.head_sha == "2" * 40


@pytest.mark.parametrize("branch", ["codepilot/fix-ci-501", "codepilot/fix-ci-501-2", "codepilot/branch-maker"])
async def test_in_its_own_pull_request_for_a_branch_the_commit_of_the_job_on_that_branch_is_aimed_at(
    branch: str,
) -> None:
    engine = InMemoryEngine()
    maker = replace(a_job("maker"), thread=Thread.of_branch("main"))
    await _with_commit(engine, maker, "2" * 40, branch)
    place = await _aim(engine, "2" * 40, job=PULL, here=snapshot(head_ref=branch, base_ref="main"))
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.head_sha == "2" * 40


async def test_a_forks_branch_of_the_same_name_is_not_taken_for_the_bots_own() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("maker"), "2" * 40, "codepilot/issue-7-maker")
    here = snapshot(head_ref="codepilot/issue-7-maker", head_repo_id=11)
    refusal = await _aim(engine, "2" * 40, job=PULL, here=here)
    assert isinstance(refusal, Refusal)
    assert refusal.cause == "nothing-to-undo"


async def test_a_job_of_another_repository_is_not_aimed_at_by_its_id_in_a_branch_name() -> None:
    engine = InMemoryEngine()
    job = a_job("maker")
    other = replace(job, repo=replace(job.repo, id=11, full_name="octo/other"))
    await _with_commit(engine, other, "2" * 40, "codepilot/issue-7-maker")
    refusal = await _aim(engine, "2" * 40, job=PULL, here=snapshot(head_ref="codepilot/issue-7-maker"))
    assert isinstance(refusal, Refusal)
    assert refusal.cause == "nothing-to-undo"
