"""How often a refusal is told."""

from __future__ import annotations

from types import SimpleNamespace

from bot.permissions.levels import Refusal
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from tests.builders import a_job
from tests.job_contexts import answering, context_of


async def _told(*refusals: Refusal) -> list[bool]:
    """Which of them are told in words, each to another command in the thread."""
    engine, github = InMemoryEngine(), SimpleNamespace(comments=SimpleNamespace(react=answering(None)))
    ledger, told = InMemoryLedger(engine), list[bool]()
    for number, refusal in enumerate(refusals):
        job = a_job(f"j{number}")
        await engine.accept(job)
        ending = await context_of(engine, job, github=github, ledger=ledger).refuse(refusal)
        told.append(ending.view is not None)
    return told


async def test_a_rule_is_told_once_an_hour_however_often_it_refuses() -> None:
    at, later = (Refusal(cause="moved-head", reason=f"The head is {head}.") for head in ("a", "b"))
    assert await _told(at, later, at) == [True, False, False]


async def test_who_does_what_a_refusal_says_is_told_what_else_keeps_the_work_from_writing() -> None:
    label = Refusal(cause="read-only", because="the label `x` is set", reason="Remove it.")
    fork = Refusal(cause="read-only", because="this pull request comes from a fork", reason="It does.")
    assert await _told(label, fork, label, fork) == [True, True, False, False]
