"""The commits that a job works on, and the branch that its pull request is for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.domain.commands import Bare, Command, Fix, Options, Review, Undo
from bot.domain.job import Job, Thread
from bot.git.errors import BranchGoneError
from bot.github.types import PullFacts
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import at_base, base_of, wanted_base, work_source
from bot.jobs.context import JobContext
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Conventions
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import REPO, answering, context_of, snapshot

HEAD, THERE = "a" * 40, "b" * 40
ISSUE, PULL = a_job(), a_job(kind="pull")
ON_BRANCH = replace(ISSUE, thread=Thread.of_branch("release"))


def _context(job: Job, *, base: str = "", branch_head: str | None = THERE) -> JobContext:
    github = SimpleNamespace(
        tokens=SimpleNamespace(for_clone=answering("the-token")),
        repos=SimpleNamespace(branch_head=answering(branch_head)),
    )
    return context_of(
        InMemoryEngine(), job, github=github, services=SimpleNamespace(conventions=Conventions(base=base))
    )


def _pull_into_main(base_head: str | None) -> ThreadSnapshot:
    here = snapshot(head_sha=HEAD, base_ref="main")
    pull = PullFacts(
        number=7,
        state="open",
        merged=False,
        draft=False,
        locked=False,
        author="mona",
        author_id=3,
        head_ref="mona/patch-1",
        head_sha=HEAD,
        head_repo="mona/calc",
        head_repo_id=11,
        base_ref="main",
        base_sha="c" * 40,
        from_fork=True,
        html_url="",
    )
    return replace(here, snapshot=replace(here.snapshot, pull=pull, base_head=base_head))


@pytest.mark.parametrize(("job", "ref"), [(PULL, "refs/pull/7/head"), (ISSUE, "refs/heads/topic")])
async def test_a_pull_request_is_fetched_by_its_number_for_its_branch_may_be_in_a_fork(job: Job, ref: str) -> None:
    source = await work_source(_context(job), snapshot(head_ref="topic", head_sha=HEAD))
    assert (source.ref, source.sha, source.url, source.token) == (ref, HEAD, REPO.clone_url, "the-token")


async def test_what_is_no_pull_request_begins_at_the_base_itself() -> None:
    context, here = _context(ISSUE), snapshot(head_ref="main", head_sha=HEAD)
    source = await work_source(context, here)
    assert await base_of(context, here, source) == source


async def test_the_base_of_a_pull_request_is_where_its_branch_stands_now_and_not_where_it_was_opened() -> None:
    context, here = _context(PULL, branch_head=None), _pull_into_main(THERE)
    base = await base_of(context, here, await work_source(context, here))
    assert (base.ref, base.sha) == ("refs/heads/main", THERE)


async def test_a_base_branch_that_is_gone_is_said_by_its_name() -> None:
    context, here = _context(PULL), _pull_into_main(None)
    source = await work_source(context, here)
    with pytest.raises(BranchGoneError, match="`main`"):
        await base_of(context, here, source)


@pytest.mark.parametrize(
    ("command", "operator", "file", "wanted"),
    [
        (Fix(options=Options(base="named")), "operators", "files", "named"),
        (Bare(goal="Please", options=Options(base="named")), "operators", "files", "named"),
        (Fix(), "operators", "files", "operators"),
        (Fix(), "", "files", "files"),
        (Fix(), "", None, None),
        (Undo(), "", "files", "files"),
    ],
)
def test_the_command_goes_before_the_operator_and_the_operator_before_the_file(
    command: Command, operator: str, file: str | None, wanted: str | None
) -> None:
    asked = RepoSettings(config=RepoConfig(base=file), base_sha=HEAD)
    assert wanted_base(_context(replace(ISSUE, command=command), base=operator), asked) == wanted


def test_work_on_a_branch_is_for_that_branch_whatever_the_file_wants_for_issues() -> None:
    assert (
        wanted_base(_context(ON_BRANCH, base="operators"), RepoSettings(config=RepoConfig(base="files"), base_sha=HEAD))
        is None
    )


async def test_an_issue_is_worked_on_at_the_branch_that_its_pull_request_is_for() -> None:
    thread = (await at_base(_context(ISSUE), snapshot(head_ref="main"), "release")).thread
    assert (thread.head_sha, thread.head_ref, thread.base_ref) == (THERE, "release", "release")


@pytest.mark.parametrize(
    ("job", "base"),
    [(ISSUE, None), (PULL, "release"), (ON_BRANCH, "release"), (replace(ISSUE, command=Undo()), "release")],
)
async def test_other_work_stays_where_it_is(job: Job, base: str | None) -> None:
    here = snapshot(head_ref="topic")
    assert await at_base(_context(job, branch_head=None), here, base) == here


async def test_a_wanted_branch_that_does_not_exist_is_said_by_its_name() -> None:
    with pytest.raises(BranchGoneError, match="`relaese`"):
        await at_base(_context(ISSUE, branch_head=None), snapshot(), "relaese")


def test_a_review_has_no_base_of_its_own() -> None:
    asked = RepoSettings(config=RepoConfig(), base_sha=HEAD)
    assert wanted_base(_context(replace(PULL, command=Review())), asked) is None
