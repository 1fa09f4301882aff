"""Events of a repository that are no commands."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from agent_runtime import RunLimits
from bot.domain.access import Bounds
from bot.domain.commands import AccessLost, Assigned, Closed, Pushed, RepoEvent
from bot.domain.job import Job, JobState, Origin
from bot.jobs import approvals
from bot.jobs.context import KnownConfigs
from bot.jobs.events import handle_event
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, Owed
from bot.queue.records import ApprovalAnswer, JobRecord, StoredRecord, Waiting
from tests.builders import a_job
from tests.job_contexts import account, answering, context_of

FOREVER = 10.0**12
BOT = 99
HEAD = "b" * 40


class _Hearing:
    """Ends each job with the signals that reached it."""

    async def handle(self, attempt: JobAttempt) -> Disposition:
        heard: list[str] = []
        async with attempt.listening(lambda signal: heard.append(signal.kind), lambda: 0):
            pass
        return JobEnded(state=JobState.DONE, reason=",".join(heard))

    async def tell(self, owed: Owed) -> bool:
        raise NotImplementedError


async def _happens(
    engine: InMemoryEngine,
    event: RepoEvent,
    *,
    by: int = 20,
    config: RepoConfig | None = None,
    job_id: str = "event",
    head: str = HEAD,
) -> Job:
    """Handle an event in pull request 7, whose head is this by now."""
    job = a_job(job_id, kind="pull", command=event)
    job = replace(job, actor=replace(job.actor, id=by), origin=Origin(kind="event", id=0))
    await engine.accept(job)
    discarded: list[str] = []

    async def discard(job_id: str) -> None:
        discarded.append(job_id)

    services = SimpleNamespace(
        configs=KnownConfigs(),
        bounds=Bounds(limits=RunLimits()),
        push_pause=0.0,
        marker=lambda _job: "",
        has_session=lambda _job: False,
        keep_log=answering(None),
        work=SimpleNamespace(find=answering(None)),
        workspaces=SimpleNamespace(discard=discard),
    )
    services.configs.learn(10, config or RepoConfig())
    pulls = SimpleNamespace(get=answering(SimpleNamespace(head_sha=head)))
    github, ledger = SimpleNamespace(accounts=account(BOT), pulls=pulls), SimpleNamespace(labels=answering(()))
    ending = await handle_event(context_of(engine, job, github=github, services=services, ledger=ledger), event)
    assert ending.state is JobState.DONE
    return job


async def _waiting(engine: InMemoryEngine, job_id: str = "waiting", *, bound_to: str) -> StoredRecord:
    await engine.restore(a_job(job_id, kind="pull"), JobRecord(), until=FOREVER)
    record = StoredRecord(engine, job_id)
    asked = Waiting(kind="permission", request_id="7f3a", reason="", preview="rm x", bound_to=bound_to, until=FOREVER)
    await approvals.ask(record, asked)
    return record


async def _states(engine: InMemoryEngine) -> dict[str, tuple[JobState, str]]:
    while await engine.run_next(_Hearing()):
        pass
    return {each.job.id: (each.state, each.reason) for each in await engine.of_thread(10, 7)}


async def test_a_closed_thread_stops_what_is_queued_and_what_waits() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job("queued", kind="pull"))
    await _waiting(engine, bound_to=HEAD)
    await _happens(engine, Closed())
    assert await _states(engine) == {"queued": (JobState.DONE, "stop"), "waiting": (JobState.DONE, "stop")}


async def test_a_push_ends_the_request_that_was_shown_for_another_commit() -> None:
    engine = InMemoryEngine()
    await _waiting(engine, bound_to="a" * 40)
    await _happens(engine, Pushed(head_sha=HEAD))
    assert await _states(engine) == {"waiting": (JobState.DONE, "stop")}


async def test_a_request_for_the_commit_that_was_pushed_still_waits() -> None:
    engine = InMemoryEngine()
    await _waiting(engine, bound_to=HEAD)
    await _happens(engine, Pushed(head_sha=HEAD))
    assert await _states(engine) == {"waiting": (JobState.WAITING, "")}


async def test_a_request_for_the_head_outlasts_the_late_delivery_of_an_earlier_push() -> None:
    engine = InMemoryEngine()
    await _waiting(engine, bound_to=HEAD)
    await _happens(engine, Pushed(head_sha="a" * 40))
    assert await _states(engine) == {"waiting": (JobState.WAITING, "")}


async def test_a_push_voids_what_was_approved_for_the_rest_of_a_run_and_the_bots_own_does_not() -> None:
    engine = InMemoryEngine()
    record = await _waiting(engine, bound_to="a" * 40)
    like = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=a_job().actor, like=("rm *",))
    await approvals.answer(record, like)
    await _happens(engine, Pushed(head_sha=HEAD), by=BOT)
    assert await approvals.approved_alike(record) == ("rm *",)
    await _happens(engine, Pushed(head_sha=HEAD))
    assert await approvals.approved_alike(record) == ()


async def test_a_push_is_reviewed_where_the_repository_wants_it_and_the_review_of_the_one_before_is_dropped() -> None:
    engine, wanted = InMemoryEngine(), RepoConfig(review_on=("push",))
    first = await engine.record((await _happens(engine, Pushed(head_sha=HEAD), config=wanted)).id)
    await _happens(engine, Pushed(head_sha="c" * 40), config=wanted, job_id="next")
    reviews = {each.job.id: each for each in await engine.of_thread(10, 7)}
    assert {each.state for each in reviews.values()} == {JobState.STOPPED, JobState.QUEUED}
    assert first.leads_to is not None
    assert reviews[first.leads_to].state is JobState.STOPPED


async def test_a_push_back_to_a_commit_whose_review_was_dropped_is_reviewed() -> None:
    engine, wanted = InMemoryEngine(), RepoConfig(review_on=("push",))
    await _happens(engine, Pushed(head_sha=HEAD), config=wanted)
    await _happens(engine, Pushed(head_sha="c" * 40), config=wanted, job_id="next")
    await _happens(engine, Pushed(head_sha=HEAD), config=wanted, job_id="back")
    back = await _happens(engine, Pushed(head_sha=HEAD), config=wanted, job_id="back")  # its worker had died
    alive = [each.job.id for each in await engine.of_thread(10, 7) if each.state is JobState.QUEUED]
    assert alive == [(await engine.record(back.id)).leads_to]


async def test_a_lost_installation_ends_what_waits_in_its_repositories_and_nothing_else() -> None:
    engine = InMemoryEngine()
    here, there = a_job("here", kind="pull"), a_job("there", number=8)
    await engine.accept(here)
    await engine.accept(replace(there, repo=replace(there.repo, id=11)))
    await _happens(engine, AccessLost(repo_ids=(10,)))
    ended, left = await engine.get("here"), await engine.get("there")
    assert ended is not None
    assert left is not None
    assert (ended.state, left.state) == (JobState.STOPPED, JobState.QUEUED)


async def test_only_an_assignment_of_the_bot_itself_begins_work() -> None:
    engine = InMemoryEngine()
    await _happens(engine, Assigned(assignee_id=BOT + 1))
    assert await engine.of_thread(10, 7) == ()
    await _happens(engine, Assigned(assignee_id=BOT))
    [begun] = await engine.of_thread(10, 7)
    assert begun.job.origin.kind == "assignment"
