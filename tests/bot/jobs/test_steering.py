"""Commands that need no agent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds, TrustedBots
from bot.domain.commands import BadUsage, Continue, Deny, Help, Retry, ShowStatus, Steering, Stop, UnknownVerb
from bot.domain.grammar import VERBS
from bot.domain.job import Actor, JobState, Origin
from bot.github.types import Snapshot
from bot.jobs import waiting
from bot.jobs.record import JobRecord, Request, StoredRecord, WaitKind, encode_record
from bot.jobs.steering import answer_to, steer
from bot.publishing.outcome import JobOutcome
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, JobParked, PendingReport
from tests.builders import REPO, a_job
from tests.job_contexts import answering, context_of, snapshot

FOREVER = 10.0**12
BUTTON = Origin(kind="button", id=1)


@dataclass
class Parking:
    """Parks each job that it gets, until it is told to stop."""

    async def handle(self, attempt: JobAttempt) -> Disposition:
        received: list[str] = []
        async with attempt.listen(lambda signal: received.append(f"{signal.kind} by {signal.by}")):
            pass
        if received:
            return JobEnded(state=JobState.STOPPED, reason=", ".join(received))
        return JobParked(until=FOREVER)

    async def report(self, report: PendingReport) -> bool:
        raise NotImplementedError


async def steered(engine: InMemoryEngine, command: Steering) -> JobOutcome:
    """Do what a press of a button asks, once more each time: GitHub has nothing to be asked or told."""
    job = replace(a_job("command", command=command), origin=BUTTON)
    context = context_of(engine, job)
    await engine.accept(job)
    return await steer(context, command, snapshot())


async def test_stop_reaches_a_job_that_waits_and_the_one_behind_it() -> None:
    engine, handler = InMemoryEngine(), Parking()
    await engine.accept(a_job("a"))
    await engine.run_next(handler)
    await engine.accept(a_job("b"))
    for name in "ab":
        await StoredRecord(engine, name).update(lambda record: replace(record, generation="1"))
    assert (await steered(engine, Stop())).state is JobState.DONE
    assert not await engine.run_next(handler)
    while len(await engine.live_ids()) > 0:
        assert await engine.run_next(handler, "steer")
    ended = {each.job.id: (each.state, each.reason) for each in await engine.jobs_in_thread(10, 7)}
    stopped = (JobState.STOPPED, f"stop by {a_job().actor.login}")
    assert ended == {"a": stopped, "b": stopped}


async def test_a_stop_whose_worker_died_after_it_took_effect_is_not_refused() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job("a"))
    await StoredRecord(engine, "a").update(lambda record: replace(record, generation="1"))
    for _ in range(2):
        assert (await steered(engine, Stop())).state is JobState.DONE
        await engine.cancel("a", JobState.STOPPED, "")


async def test_words_for_a_job_that_asked_a_question_are_its_answer() -> None:
    engine = InMemoryEngine()
    asked = Request(kind="question", request_id="7f3a", reason="Which?", preview="", bound_to="", until=FOREVER)
    await engine.restore(a_job("a"), encode_record(JobRecord()), until=FOREVER)
    record = StoredRecord(engine, "a")
    await waiting.store_request(record, asked)
    assert (await steered(engine, Continue(message="The second."))).state is JobState.DONE
    given = (await record.read()).approvals.answers.get(asked.request_id)
    assert given is not None
    assert (given.note, given.approved) == ("The second.", True)
    stored = await engine.get("a")
    assert stored is not None
    assert stored.state is JobState.QUEUED


@pytest.mark.parametrize("kind", ["question", "permission"])
async def test_a_request_on_the_screen_is_answered_while_its_job_is_between_two_attempts(kind: WaitKind) -> None:
    engine = InMemoryEngine()
    asked = Request(kind=kind, request_id="7f3a", reason="", preview="", bound_to="", until=FOREVER)
    await engine.accept(a_job("a"), held_seconds=60)
    record = StoredRecord(engine, "a")
    await waiting.store_request(record, asked)
    await waiting.record_shown(record, at="")
    command = Continue(message="The second.") if kind == "question" else Deny(request_id="7f3a", why="The second.")
    assert (await steered(engine, command)).state is JobState.DONE
    given = (await record.read()).approvals.answers.get(asked.request_id)
    assert given is not None
    assert given.note == "The second."


async def test_words_for_a_job_that_ended_just_now_are_refused_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job("a"))
    monkeypatch.setattr(engine, "jobs_in_thread", answering(await engine.jobs_in_thread(10, 7)))
    await engine.cancel("a", JobState.STOPPED, "")
    job = replace(a_job("command"), origin=BUTTON)
    await engine.accept(job)
    ending = await steer(context_of(engine, job, ledger=InMemoryLedger(engine)), Continue(message="x"), snapshot())
    assert ending.state is JobState.REFUSED
    assert "No job is running" in ending.reason


async def test_the_event_loop_goes_on_while_a_hostile_message_is_cleaned() -> None:
    engine, turns = InMemoryEngine(), 0

    async def go_on() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await engine.accept(a_job("a"))
    beside = asyncio.create_task(go_on())
    await steered(engine, Continue(message="- a\n" * 2_000))
    beside.cancel()
    assert turns > 1


async def test_words_that_answered_a_question_answer_no_other_when_their_worker_died_then() -> None:
    engine, handler, message = InMemoryEngine(), Parking(), Continue(message="The second.")
    first = Request(kind="question", request_id="7f3a", reason="Which?", preview="", bound_to="", until=FOREVER)
    next_one = replace(first, request_id="08c1", reason="How?")
    await engine.restore(a_job("a"), encode_record(JobRecord()), until=FOREVER)
    record = StoredRecord(engine, "a")
    await waiting.store_request(record, first)
    await steered(engine, message)
    assert (await steered(engine, message)).state is JobState.DONE
    await engine.run_next(handler)
    await waiting.store_request(record, next_one)
    assert (await steered(engine, message)).state is JobState.DONE
    assert (await record.read()).approvals.answers.get(next_one.request_id) is None
    stored = await engine.get("a")
    assert stored is not None
    assert stored.state is JobState.WAITING  # it heard no message


async def test_a_retry_whose_worker_died_after_it_began_the_job_begins_no_other_and_is_not_refused() -> None:
    engine = InMemoryEngine()
    await engine.accept(replace(a_job("a"), origin=Origin(kind="ci", id=1)))
    await engine.cancel("a", JobState.STOPPED, "")
    for _ in range(2):
        assert (await steered(engine, Retry(job_id=""))).state is JobState.DONE
    states = [each.state for each in await engine.jobs_in_thread(10, 7)]
    assert states == [JobState.QUEUED, JobState.STOPPED]


@pytest.mark.parametrize(("trusted", "state"), [(True, JobState.DONE), (False, JobState.REFUSED)])
async def test_what_a_bot_asked_for_is_repeated_where_the_operator_lists_the_bot(
    *, trusted: bool, state: JobState
) -> None:
    engine = InMemoryEngine()
    await engine.accept(replace(a_job("a"), actor=Actor(id=5, login="dependabot[bot]")))
    await engine.cancel("a", JobState.STOPPED, "")
    job = replace(a_job("command", command=Retry()), origin=BUTTON)
    await engine.accept(job)
    bots = TrustedBots(logins=frozenset({"dependabot[bot]"} if trusted else ()))
    github = SimpleNamespace(
        threads=SimpleNamespace(snapshot=answering(Snapshot(repo=REPO, default_head=None))),
        accounts=SimpleNamespace(get_role=answering("none")),
    )
    services = SimpleNamespace(bounds=Bounds(limits=RunLimits(), trusted_bots=bots))
    context = context_of(engine, job, github=github, services=services, ledger=InMemoryLedger(engine))
    assert (await steer(context, Retry(), snapshot())).state is state


async def test_a_refusal_whose_worker_died_before_it_was_told_is_told_by_the_next_attempt_and_to_no_other() -> None:
    engine = InMemoryEngine()
    ledger = InMemoryLedger(engine)
    first, second = (context_of(engine, replace(a_job(each), origin=BUTTON), ledger=ledger) for each in ("a", "b"))
    for _ in range(2):
        ending = await steer(first, Stop(), snapshot())
        assert "No job is running" in ending.reply
    assert not (await steer(second, Stop(), snapshot())).reply


async def test_status_names_each_job_under_way() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job("a"))
    await engine.restore(a_job("b"), encode_record(JobRecord()), until=FOREVER)
    ending = await steered(engine, ShowStatus())
    assert ending.reply
    newest, oldest = ending.reply.splitlines()
    assert ": waiting, " in newest
    assert ": queued, " in oldest


async def test_status_says_how_each_job_that_waits_is_answered() -> None:
    engine = InMemoryEngine()
    kinds: dict[str, WaitKind] = {"a": "permission", "b": "question"}
    for job_id, kind in kinds.items():
        await engine.restore(a_job(job_id), encode_record(JobRecord()), until=FOREVER)
        asked = Request(kind=kind, request_id=f"7f3{job_id}", reason="", preview="", bound_to="", until=FOREVER)
        await waiting.store_request(StoredRecord(engine, job_id), asked)
    ending = await steered(engine, ShowStatus())
    assert ending.reply
    question, permission = ending.reply.splitlines()
    assert ": waiting, for `/codepilot continue` and an answer, " in question
    assert ": waiting, for `/codepilot approve 7f3a` or `deny`, " in permission


async def test_a_denial_of_a_question_that_was_answered_denies_no_other_request() -> None:
    engine = InMemoryEngine()
    await engine.restore(a_job("a"), encode_record(JobRecord()), until=FOREVER)
    record = StoredRecord(engine, "a")
    question = Request(kind="question", request_id="7f3a7f3a", reason="", preview="", bound_to="", until=FOREVER)
    wish = replace(question, kind="permission", request_id="08c108c1")
    for asked in (question, wish):
        await waiting.store_request(record, asked)
        await waiting.record_shown(record, at="")
    job = replace(a_job("command"), origin=replace(BUTTON, at="2026-01-02T03:04:05Z"))
    await engine.accept(job)
    context = context_of(engine, job, ledger=InMemoryLedger(engine))
    ending = await steer(context, Deny(request_id="7f3a", why="not that one"), snapshot())
    assert "There is no request `7f3a` here." in ending.reason
    assert (await record.read()).approvals.answers.get(wish.request_id) is None


def test_a_slip_is_answered_on_one_line_with_what_to_write() -> None:
    reply = answer_to(UnknownVerb(word="fxi", nearest="fix"), trigger="@bot")
    assert reply == "There is no command `fxi`. Did you mean `@bot fix`? `@bot help` lists all commands."
    assert answer_to(UnknownVerb(word="dance", nearest=None), trigger="@bot").startswith(
        "There is no command `dance`. `@bot"
    )


def test_a_wrong_option_is_answered_with_what_is_wrong() -> None:
    reply = answer_to(BadUsage(reason="`--cost` needs an amount."), trigger="@bot")
    assert reply == "`--cost` needs an amount. `@bot help` lists all commands."


def test_help_lists_every_command() -> None:
    reply = answer_to(Help(), trigger="@bot")
    assert all(f"`@bot {verb.name}" in reply for verb in VERBS)
