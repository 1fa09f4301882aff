"""The facts by which it is decided what a job may do: its labels with the rights of who set them, and the caps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds, LabelGrant, Role, Tally
from bot.domain.job import Actor
from bot.jobs.admission import decide
from bot.permissions.levels import Grant, Refusal
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import answering, context_of, snapshot

HEAD = "a" * 40
AUTO = RepoConfig().labels.auto


async def _decided(
    *,
    standing: tuple[str, ...] = (AUTO,),
    kept: tuple[str, ...] = (AUTO,),
    role: Role = "write",
    allowed_users: frozenset[str] = frozenset(),
    done: int = 0,
    again: bool = False,
) -> Grant | Refusal:
    """What a fix in a pull request of the repository may do."""
    labels = [
        LabelGrant(repo_id=10, number=7, name=name, labeller=Actor(id=5, login="setter"), bound_to=HEAD, at=0.0)
        for name in kept
    ]
    ledger = SimpleNamespace(labels=answering(tuple(labels)), tally=answering(Tally(thread=done)))
    services = SimpleNamespace(bounds=Bounds(limits=RunLimits(), allowed_users=allowed_users))
    here = snapshot(labels=standing, reader=SimpleNamespace(role_of=answering(role)), head_sha=HEAD)
    context = context_of(InMemoryEngine(), a_job(kind="pull"), services=services, ledger=ledger)
    return await decide(context, here, RepoConfig(), again=again)


def _level(decided: Grant | Refusal) -> str:
    assert isinstance(decided, Grant)
    return decided.level


async def test_a_label_raises_the_level_when_it_is_set_and_who_set_it_may_write() -> None:
    assert _level(await _decided()) == "auto"
    assert _level(await _decided(standing=(AUTO.upper(),), kept=(AUTO,))) == "auto"


@pytest.mark.parametrize(
    "facts",
    [
        {"standing": ()},
        {"kept": ()},
        {"role": "read"},
        {"allowed_users": frozenset({"hubot-owner"})},
    ],
)
async def test_a_label_raises_nothing_otherwise(facts: dict[str, object]) -> None:
    assert _level(await _decided(**facts)) == "ask"  # type: ignore[arg-type]


async def test_work_over_the_cap_is_refused_unless_it_is_under_way_already() -> None:
    refused = await _decided(done=10**6)
    assert isinstance(refused, Refusal)
    assert isinstance(await _decided(done=10**6, again=True), Grant)


async def test_a_job_without_a_place_is_not_decided_about() -> None:
    refusal = Refusal(cause="gone", reason="It is gone.")
    context = context_of(InMemoryEngine(), a_job())
    assert await decide(context, refusal, RepoConfig()) is refusal
