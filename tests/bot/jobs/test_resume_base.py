"""The commit of a job is pinned over its attempts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from agent_runtime import Policy
from bot.jobs import approvals
from bot.jobs.admission import pin_base, resume_base
from bot.jobs.context import JobContext
from bot.permissions.levels import Grant
from bot.queue.memory import InMemoryEngine
from bot.queue.records import Waiting
from tests.builders import a_job
from tests.job_contexts import answering, context_of

FIRST = Grant(policy=Policy(), publish="pull_branch", bound_to_sha="a" * 40, replay=True)
ASKED = Waiting(kind="question", request_id="7f3a", reason="Which?", preview="", bound_to="", until=10.0**12)


async def _context(*, work: object = None) -> JobContext:
    engine, job = InMemoryEngine(), a_job()
    await engine.accept(job)
    services = SimpleNamespace(has_session=lambda _job: False, work=SimpleNamespace(find=answering(work)))
    return context_of(engine, job, services=services)


async def test_a_first_attempt_works_on_the_commit_of_its_grant() -> None:
    context = await _context()
    assert await pin_base(context, FIRST) == FIRST
    assert (await context.record.read()).base_sha == "a" * 40


async def test_an_attempt_that_left_nothing_pins_no_later_one() -> None:
    context = await _context()
    await pin_base(context, FIRST)
    assert await resume_base(context) is None
    assert (await pin_base(context, replace(FIRST, bound_to_sha="b" * 40))).bound_to_sha == "b" * 40


async def test_an_attempt_that_asked_or_finished_pins_the_later_ones() -> None:
    asked, finished = await _context(), await _context(work=object())
    for context in (asked, finished):
        await pin_base(context, FIRST)
    await approvals.ask(asked.record, ASKED)
    for context in (asked, finished):
        assert (await pin_base(context, replace(FIRST, bound_to_sha="b" * 40))).bound_to_sha == "a" * 40


async def test_what_a_label_allowed_for_one_commit_is_not_widened_by_a_later_grant() -> None:
    context = await _context(work=object())
    assert not (await pin_base(context, replace(FIRST, replay=False))).replay
    assert not (await pin_base(context, FIRST)).replay


async def test_a_new_start_under_another_grant_is_not_bound_by_the_earlier_one() -> None:
    context = await _context()
    await pin_base(context, replace(FIRST, replay=False))
    assert (await pin_base(context, FIRST)).replay
