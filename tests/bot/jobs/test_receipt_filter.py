"""What is dropped on receipt, and what is kept because something could follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from bot.domain.access import LabelGrant
from bot.domain.commands import (
    AccessLost,
    Assigned,
    ChecksFailed,
    Closed,
    Command,
    Help,
    Labelled,
    Pushed,
    Review,
    Stop,
)
from bot.domain.job import Actor, JobState
from bot.jobs.context import CONFIG_SECONDS, KnownConfigs
from bot.jobs.events import Receipt
from bot.permissions.repo_config import LabelNames, RepoConfig
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.protocols import JobEnded
from tests.builders import a_job
from tests.clocks import Clock
from tests.held_jobs import HeldJobs

HEAD = "b" * 40


@dataclass(frozen=True, kw_only=True)
class Desk:
    queue: InMemoryEngine
    ledger: InMemoryLedger
    configs: KnownConfigs
    clock: Clock

    async def kept(self, command: Command) -> bool:
        """Whether a job in the thread of `a_job` is kept."""
        receipt = Receipt(self.queue, self.ledger, self.configs)
        return not await receipt.unneeded(a_job("happened", command=command))


@pytest.fixture
def desk() -> Desk:
    clock = Clock()
    queue = InMemoryEngine(clock=clock)
    ledger = InMemoryLedger(queue, clock=clock)
    return Desk(queue=queue, ledger=ledger, configs=KnownConfigs(clock), clock=clock)


async def test_a_label_is_kept_until_somebody_has_looked_what_labels_are_called(desk: Desk) -> None:
    noise = Labelled(label="bug", bound_to=HEAD)
    assert await desk.kept(noise)
    desk.configs.learn(11, RepoConfig())
    assert await desk.kept(noise)
    desk.configs.learn(10, RepoConfig(labels=LabelNames(start="bot: go", auto="Trusted")))
    assert not await desk.kept(noise)
    for name in ("BOT: go", "trusted", "codepilot:ask"):
        assert await desk.kept(replace(noise, label=name))
    assert not await desk.kept(replace(noise, label="codepilot:auto"))
    desk.clock.now += CONFIG_SECONDS
    assert await desk.kept(noise)


async def test_a_push_is_kept_where_work_is_alive_or_a_label_is_bound_to_a_commit(desk: Desk) -> None:
    desk.configs.learn(10, RepoConfig())
    assert not await desk.kept(Pushed(head_sha=HEAD))
    grant = LabelGrant(repo_id=10, number=7, name="n", labeller=Actor(id=1, login="a"), bound_to="c" * 40, at=1.0)
    await desk.ledger.keep_label(replace(grant, number=8))
    assert not await desk.kept(Pushed(head_sha=HEAD))
    await desk.ledger.keep_label(grant)
    assert await desk.kept(Pushed(head_sha=HEAD))


async def test_a_push_is_kept_while_there_is_work_of_an_issue_that_may_go_on_in_the_pull_request(desk: Desk) -> None:
    desk.configs.learn(10, RepoConfig())
    await desk.queue.accept(a_job("other", kind="pull", number=8))
    assert not await desk.kept(Pushed(head_sha=HEAD))
    await desk.queue.accept(a_job("work", kind="issue", number=9))
    assert await desk.kept(Pushed(head_sha=HEAD))


async def test_failed_checks_are_kept_where_they_may_be_wanted(desk: Desk) -> None:
    red = ChecksFailed(run_id=1, name="CI", conclusion="failure", head_sha=HEAD, branch="topic", pull=7)
    assert await desk.kept(red)
    desk.configs.learn(10, RepoConfig(fix_ci=("pull-requests",)))
    assert await desk.kept(red)
    desk.configs.learn(10, RepoConfig())
    assert not await desk.kept(red)
    label = LabelGrant(repo_id=10, number=7, name="n", labeller=Actor(id=1, login="a"), bound_to="c" * 40, at=1.0)
    await desk.ledger.keep_label(label)
    assert await desk.kept(red)


async def test_a_push_and_a_review_are_kept_where_a_review_may_be_wanted(desk: Desk) -> None:
    commands = (Pushed(head_sha=HEAD), Review(on="push"), Review(on="opened"), Review(on="ready"))
    assert [await desk.kept(each) for each in commands] == [True] * 4
    desk.configs.learn(10, RepoConfig())
    assert [await desk.kept(each) for each in commands] == [False] * 4
    desk.configs.learn(10, RepoConfig(review_on=("opened",)))
    assert [await desk.kept(each) for each in commands] == [False, False, True, True]
    assert await desk.kept(Review())


@pytest.mark.parametrize("command", [Pushed(head_sha=HEAD), Closed(), AccessLost(), AccessLost(repo_ids=(10,))])
async def test_what_ends_or_voids_work_is_kept_while_there_is_some(desk: Desk, command: Command) -> None:
    desk.configs.learn(10, RepoConfig())
    await desk.queue.accept(replace(a_job("other", number=8), installation=31, repo=replace(a_job().repo, id=11)))
    assert not await desk.kept(command)
    await desk.queue.accept(a_job("work"))
    assert await desk.kept(command)
    jobs = HeldJobs(desk.queue)
    assert [await jobs.begin() for _ in range(2)] == ["other", "work"]
    assert await desk.kept(command)
    await jobs.end("work", JobEnded(state=JobState.DONE))
    assert not await desk.kept(command)


@pytest.mark.parametrize("command", [Stop(), Help(), Assigned(assignee_id=1)])
async def test_a_persons_word_is_always_kept(desk: Desk, command: Command) -> None:
    desk.configs.learn(10, RepoConfig())
    assert await desk.kept(command)
