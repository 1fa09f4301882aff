"""The branches that fix one workflow run are numbered."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.domain.job import Job, Origin, Thread
from bot.jobs.admission import branch_number
from bot.permissions.levels import Conventions
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import answering, context_of

RED_RUN = replace(a_job(thread=Thread.of_branch("main")), origin=Origin(kind="ci", id=501))


async def _number(*taken: str, job: Job = RED_RUN) -> int:
    engine = InMemoryEngine()
    await engine.accept(job)
    github = SimpleNamespace(repos=SimpleNamespace(branches_named=answering(taken)))
    services = SimpleNamespace(conventions=Conventions())
    number = await branch_number(context_of(engine, job, github=github, services=services), "octo/calc")
    github.repos.branches_named = answering(())
    assert await branch_number(context_of(engine, job, github=github, services=services), "octo/calc") == number
    return number


@pytest.mark.parametrize(
    ("taken", "number"),
    [
        ((), 1),
        (("codepilot/fix-ci-501",), 2),
        (("codepilot/fix-ci-501-wip",), 2),
        (("codepilot/fix-ci-501", "codepilot/fix-ci-501-2-wip"), 3),
        (("codepilot/fix-ci-501-2",), 1),
        (("codepilot/fix-ci-5011",), 1),
    ],
)
async def test_the_first_free_number_is_taken_and_stays(taken: tuple[str, ...], number: int) -> None:
    assert await _number(*taken) == number


async def test_a_branch_that_bears_the_jobs_own_id_needs_no_number() -> None:
    assert await _number("codepilot/issue-7-j1", job=a_job()) == 1
