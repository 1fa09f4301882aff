"""When failed checks begin work, and whose work it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds, LabelGrant, Role
from bot.domain.commands import ChecksFailed, Explain, Fix
from bot.domain.job import Actor, Job, Thread
from bot.jobs.context import KnownConfigs
from bot.jobs.events import start_ci_fix
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import account, answering, context_of

FAILED = ChecksFailed(run_id=501, name="test", conclusion="failure", head_sha="a" * 40, branch="topic", pull=7)
ON_MAIN = replace(FAILED, branch="main", pull=0)
OF_FORK = replace(FAILED, pull=0, fork="mona/calc", fork_id=77)
EVERYWHERE = RepoConfig(fix_ci=("pull-requests", "default-branch"))
LABEL = "codepilot:fix-ci"


async def _begun(
    command: ChecksFailed,
    config: RepoConfig = EVERYWHERE,
    *,
    engine: InMemoryEngine | None = None,
    labels: tuple[str, ...] = (),
    role: Role = "write",
    event_id: str = "event",
) -> Job | None:
    """The work that follows from failed checks on a server whose jobs report by check runs."""
    engine = engine or InMemoryEngine()
    job = replace(a_job(event_id, command=command), thread=Thread.of_branch(command.branch))
    await engine.accept(job)
    set_by = LabelGrant(repo_id=10, number=7, name=LABEL, labeller=Actor(id=5, login="setter"), bound_to="", at=0.0)
    services = SimpleNamespace(configs=KnownConfigs(), is_long_running=True, bounds=Bounds(limits=RunLimits()))
    services.configs.learn(10, config)
    accounts = account()
    accounts.role_of = answering(role)
    github = SimpleNamespace(
        accounts=accounts,
        threads=SimpleNamespace(get=answering(SimpleNamespace(labels=labels))),
        pulls=SimpleNamespace(of_fork=answering(8)),
    )
    ledger = SimpleNamespace(labels=answering((set_by,) if labels else ()))
    context = context_of(engine, job, github=github, services=services, ledger=ledger)
    await start_ci_fix(context, command)
    begun = (await context.record.read()).leads_to
    stored = await engine.get(begun) if begun is not None else None
    return stored.job if stored is not None else None


@pytest.mark.parametrize(
    ("command", "enabled"),
    [
        (FAILED, {"pull-requests"}),
        (OF_FORK, {"pull-requests"}),
        (ON_MAIN, {"default-branch"}),
    ],
)
@pytest.mark.parametrize("where", ["pull-requests", "default-branch"])
async def test_work_begins_where_the_repository_asks_for_it(
    command: ChecksFailed, enabled: set[str], where: str
) -> None:
    begun = await _begun(command, RepoConfig.model_validate({"fix_ci": [where]}))
    assert (begun is not None) == (where in enabled)


async def test_a_label_asks_for_it_when_who_set_it_may_write() -> None:
    nowhere = RepoConfig(fix_ci=())
    assert await _begun(FAILED, nowhere) is None
    assert await _begun(FAILED, nowhere, labels=(LABEL,)) is not None
    assert await _begun(FAILED, nowhere, labels=(LABEL,), role="read") is None


async def test_what_else_fails_on_a_commit_begins_no_other_work() -> None:
    engine = InMemoryEngine()
    assert await _begun(FAILED, engine=engine) is not None
    assert await _begun(replace(FAILED, run_id=502), engine=engine, event_id="second") is None
    assert await _begun(replace(FAILED, head_sha="b" * 40), engine=engine, event_id="third") is not None


async def test_in_a_fork_it_only_explains_and_has_nobodys_rights() -> None:
    ours, theirs = await _begun(FAILED), await _begun(OF_FORK)
    assert ours is not None
    assert theirs is not None
    assert (type(ours.command), ours.actor, ours.thread.number) == (Fix, a_job().actor, 7)
    assert (type(theirs.command), theirs.actor.id, theirs.thread.number) == (Explain, 99, 8)


async def test_nobody_is_behind_the_check_of_another_app() -> None:
    begun = await _begun(replace(FAILED, run_id=0))
    assert begun is not None
    assert begun.actor.id == 99
