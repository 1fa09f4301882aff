"""A further fix of an issue goes on in the pull request that the bot has open for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bot.domain.commands import Ask, Command, Fix, Options
from bot.github.types import PullFacts
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import continue_own_pull, still_open
from bot.jobs.context import JobContext
from bot.permissions.levels import Conventions, Refusal
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import account, answering, context_of, snapshot

BOT = 99
HERE = snapshot(head_sha="d" * 40, head_ref="main")


def _pull(number: int = 8, **changes: Any) -> PullFacts:  # noqa: ANN401 - whatever PullFacts takes
    """An open pull request of the bot's for issue 7."""
    usual: dict[str, Any] = {
        "state": "open",
        "merged": False,
        "draft": False,
        "locked": False,
        "author": "codepilot[bot]",
        "author_id": BOT,
        "head_ref": f"codepilot/issue-7-{number}",
        "head_sha": f"{number}" * 40,
        "head_repo": "octo/calc",
        "head_repo_id": 10,
        "base_ref": "main",
        "base_sha": "d" * 40,
        "from_fork": False,
        "html_url": f"https://github.com/octo/calc/pull/{number}",
    }
    return PullFacts(number=number, **{**usual, **changes})


async def _context(*pulls: PullFacts, command: Command | None = None, genuine: bool = True) -> JobContext:
    engine, job = InMemoryEngine(), a_job(command=command or Fix())
    await engine.accept(job)

    async def open_from(_: str, branch: str) -> list[PullFacts]:
        return [each for each in pulls if each.head_ref == branch]

    async def get(_: str, number: int) -> PullFacts:
        return next(each for each in pulls if each.number == number)

    github = SimpleNamespace(
        accounts=account(BOT),
        repos=SimpleNamespace(branches_named=answering([each.head_ref for each in pulls])),
        pulls=SimpleNamespace(open_from=open_from, get=get),
    )
    services = SimpleNamespace(
        conventions=Conventions(),
        made=lambda _pull, _job: genuine,
        has_session=lambda _job: False,
        work=SimpleNamespace(find=answering(object())),
    )
    return context_of(engine, job, github=github, services=services)


async def _continued(*pulls: PullFacts, command: Command | None = None, genuine: bool = True) -> int:
    place = await continue_own_pull(await _context(*pulls, command=command, genuine=genuine), HERE, RepoConfig())
    assert isinstance(place, ThreadSnapshot)
    return place.thread.continues


async def test_the_newest_open_one_is_continued_at_its_own_head() -> None:
    place = await continue_own_pull(await _context(_pull(8), _pull(9)), HERE, RepoConfig())
    assert isinstance(place, ThreadSnapshot)
    thread = place.thread
    assert (thread.continues, thread.head_sha, thread.head_ref) == (9, "9" * 40, "codepilot/issue-7-9")


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "closed"},
        {"author_id": 5},
        {"head_repo_id": 11},
        {"head_repo_id": None},
        {"head_ref": "codepilot/issue-77-8"},
    ],
)
async def test_what_is_closed_foreign_or_of_another_issue_is_left_alone(changes: dict[str, Any]) -> None:
    assert await _continued(_pull(**changes)) == 0


async def test_a_pull_request_without_the_bots_mark_is_left_alone() -> None:
    assert await _continued(_pull(), genuine=False) == 0


async def test_one_into_another_base_than_was_named_is_left_alone() -> None:
    into_release = Fix(options=Options(base="release"))
    assert await _continued(_pull(8, base_ref="release"), _pull(9), command=into_release) == 8
    assert await _continued(_pull(9), command=into_release) == 0


@pytest.mark.parametrize("command", [Fix(options=Options(new=True)), Ask(goal="Why?")])
async def test_a_fix_that_is_to_be_new_and_other_commands_continue_nothing(command: Command) -> None:
    assert await _continued(_pull(), command=command) == 0


async def test_a_later_attempt_continues_what_the_first_did_though_a_newer_one_is_open() -> None:
    context = await _context(_pull(8), _pull(9))
    await context.record.update(lambda record: replace(record, continues=8, base_sha="8" * 40))
    place = await continue_own_pull(context, HERE, RepoConfig())
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.continues == 8


@pytest.mark.parametrize("changes", [{"state": "closed", "merged": True}, {"state": "closed"}, {"head_repo_id": 11}])
async def test_a_pull_request_that_was_closed_meanwhile_is_not_continued(changes: dict[str, Any]) -> None:
    refusal = await still_open(await _context(_pull(**changes)), HERE, 8)
    assert isinstance(refusal, Refusal)
    assert refusal.cause == "pull-closed"
