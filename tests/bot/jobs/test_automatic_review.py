"""Reviews that nobody gave a command for: where they are wanted, and of which commit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds
from bot.domain.commands import Command, Fix, Review, ReviewEvent
from bot.domain.job import Job, Origin
from bot.github.types import ReviewFacts
from bot.jobs.access import PhaseReader
from bot.jobs.automatic import early_skip_reason, is_unasked_review, review_skip_reason
from bot.jobs.context import JobContext, KnownConfigs
from bot.permissions.repo_config import RepoConfig
from bot.publishing.render import marker
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import account, answering, context_of, snapshot

BOT, HEAD = 99, "a" * 40
MARK = marker("j1", 10, 7, key=b"k")


def _job(command: Command | None = None, *, head: str = HEAD) -> Job:
    """The review of pull request 7 that a push has begun."""
    job = a_job(kind="pull", command=command or Review(on="push"))
    return replace(job, origin=Origin(kind="event", id=0), head_sha=head)


def _context(job: Job, *reviews: ReviewFacts, is_long_running: bool = True, **services: Any) -> JobContext:  # noqa: ANN401 - of `JobServices`
    github = SimpleNamespace(accounts=account(BOT), reviews=SimpleNamespace(of_pull=answering(reviews)))
    begun = {"work": SimpleNamespace(find=answering(None)), "has_session": lambda _job: False}
    common = SimpleNamespace(is_long_running=is_long_running, **begun, **services)
    return context_of(InMemoryEngine(), job, github=github, services=common)


async def _wanted(job: Job, config: RepoConfig, *operator: ReviewEvent) -> bool:
    configs = KnownConfigs()
    configs.learn(10, config)
    bounds = Bounds(limits=RunLimits(), review_on=frozenset(operator))
    return not await early_skip_reason(_context(job, configs=configs, bounds=bounds))


def _review(author_id: int = BOT, sha: str = HEAD, body: str = f"Good.\n\n{MARK}") -> ReviewFacts:
    return ReviewFacts(
        id=1,
        author="x",
        author_id=author_id,
        body=body,
        state="COMMENTED",
        submitted_at="",
        commit_sha=sha,
        html_url="",
    )


async def _reviewed(context: JobContext, *, draft: bool = False, now: str = HEAD) -> bool:
    here = snapshot(reader=PhaseReader(context.github), head_sha=now)
    seen = replace(here.snapshot, pull=cast("Any", SimpleNamespace(draft=draft)))
    return not await review_skip_reason(context, replace(here, snapshot=seen))


async def test_the_repository_decides_and_where_it_does_not_the_operator() -> None:
    pushes, none = RepoConfig(review_on=("push",)), RepoConfig(review_on=())
    assert await _wanted(_job(), pushes)
    assert not await _wanted(_job(), RepoConfig(review_on=("opened",)), "push")
    assert not await _wanted(_job(), none, "push")
    assert await _wanted(_job(), RepoConfig(), "push")
    assert not await _wanted(_job(), RepoConfig(), "opened")


@pytest.mark.parametrize("job", [a_job(kind="pull", command=Review()), _job(Fix()), a_job(command=Review(on="push"))])
async def test_what_somebody_asked_for_needs_nobodys_leave(job: Job) -> None:
    assert not is_unasked_review(job)
    assert await early_skip_reason(_context(job)) == ""


async def test_a_commit_is_reviewed_once() -> None:
    assert not await _reviewed(_context(_job(), _review()))


@pytest.mark.parametrize(
    "other",
    [_review(author_id=5), _review(sha="b" * 40), _review(body="Good.")],
    ids=["somebody else's with a mark", "of another commit", "without a mark"],
)
async def test_other_reviews_keep_none_back(other: ReviewFacts) -> None:
    assert await _reviewed(_context(_job(), other))


async def test_what_became_a_draft_again_is_left_alone() -> None:
    assert not await _reviewed(_context(_job()), draft=True)


@pytest.mark.parametrize("is_long_running", [True, False])
async def test_a_push_that_came_meanwhile_has_a_workflow_run_of_its_own_and_elsewhere_is_reviewed_here(
    *, is_long_running: bool
) -> None:
    assert await _reviewed(_context(_job(), is_long_running=is_long_running), now="b" * 40) is is_long_running
