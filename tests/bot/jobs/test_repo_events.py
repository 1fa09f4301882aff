"""Events of a repository: dropped on receipt, or acted on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds, LabelGrant, Role
from bot.domain.commands import (
    AccessLost,
    AssignEvent,
    ChecksFailed,
    CloseEvent,
    Command,
    Explain,
    Fix,
    Help,
    LabelEvent,
    PushEvent,
    RepoEvent,
    Review,
    Stop,
)
from bot.domain.job import Actor, Job, JobState, Origin, Thread
from bot.jobs import waiting
from bot.jobs.context import CONFIG_SECONDS, ConfigCache
from bot.jobs.record import ApprovalAnswer, JobRecord, Request, StoredRecord, encode_record
from bot.jobs.repo_events import EventFilter, handle_event, start_ci_fix
from bot.permissions.repo_config import LabelNames, RepoConfig
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, PendingReport
from tests.builders import a_job
from tests.clocks import Clock
from tests.held_jobs import HeldJobs
from tests.job_contexts import account, answering, context_of

FOREVER = 10.0**12
BOT = 99
HEAD = "b" * 40


class _SignalRecorder:
    """Ends each job with the signals that reached it."""

    async def handle(self, attempt: JobAttempt) -> Disposition:
        heard: list[str] = []
        async with attempt.listen(lambda signal: heard.append(signal.kind)):
            pass
        return JobEnded(state=JobState.DONE, reason=",".join(heard))

    async def report(self, report: PendingReport) -> bool:
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
        configs=ConfigCache(),
        bounds=Bounds(limits=RunLimits()),
        push_pause=0.0,
        marker=lambda _job: "",
        run_url="",
        has_session=lambda _job: False,
        store_log=answering(None),
        work=SimpleNamespace(find=answering(None)),
        workspaces=SimpleNamespace(discard=discard),
    )
    services.configs.put(10, config or RepoConfig())
    pulls = SimpleNamespace(get=answering(SimpleNamespace(head_sha=head)))
    github, ledger = SimpleNamespace(accounts=account(BOT), pulls=pulls), SimpleNamespace(labels=answering(()))
    ending = await handle_event(context_of(engine, job, github=github, services=services, ledger=ledger), event)
    assert ending.state is JobState.DONE
    return job


async def _waiting(engine: InMemoryEngine, job_id: str = "waiting", *, bound_to: str) -> StoredRecord:
    await engine.restore(a_job(job_id, kind="pull"), encode_record(JobRecord(generation="1")), until=FOREVER)
    record = StoredRecord(engine, job_id)
    asked = Request(kind="permission", request_id="7f3a", reason="", preview="rm x", bound_to=bound_to, until=FOREVER)
    await waiting.store_request(record, asked)
    return record


async def _states(engine: InMemoryEngine) -> dict[str, tuple[JobState, str]]:
    while await engine.run_next(_SignalRecorder()) or await engine.run_next(_SignalRecorder(), "steer"):
        pass
    return {each.job.id: (each.state, each.reason) for each in await engine.jobs_in_thread(10, 7)}


async def test_a_closed_thread_stops_what_is_queued_and_what_waits() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job("queued", kind="pull"))
    await StoredRecord(engine, "queued").update(lambda record: replace(record, generation="1"))
    await _waiting(engine, bound_to=HEAD)
    await _happens(engine, CloseEvent())
    assert await _states(engine) == {"queued": (JobState.DONE, "stop"), "waiting": (JobState.DONE, "stop")}


async def test_a_push_ends_the_request_that_was_shown_for_another_commit() -> None:
    engine = InMemoryEngine()
    await _waiting(engine, bound_to="a" * 40)
    await _happens(engine, PushEvent(head_sha=HEAD))
    assert await _states(engine) == {"waiting": (JobState.DONE, "stop")}


async def test_a_push_ends_the_request_of_a_job_that_is_between_two_attempts() -> None:
    engine = InMemoryEngine()
    await _waiting(engine, bound_to="a" * 40)
    assert await engine.wake("waiting")
    await _happens(engine, PushEvent(head_sha=HEAD))
    assert await _states(engine) == {"waiting": (JobState.DONE, "stop")}


async def test_a_request_for_the_commit_that_was_pushed_still_waits() -> None:
    engine = InMemoryEngine()
    await _waiting(engine, bound_to=HEAD)
    await _happens(engine, PushEvent(head_sha=HEAD))
    assert await _states(engine) == {"waiting": (JobState.WAITING, "")}


async def test_a_request_for_the_head_outlasts_the_late_delivery_of_an_earlier_push() -> None:
    engine = InMemoryEngine()
    await _waiting(engine, bound_to=HEAD)
    await _happens(engine, PushEvent(head_sha="a" * 40))
    assert await _states(engine) == {"waiting": (JobState.WAITING, "")}


async def test_a_push_voids_what_was_approved_for_the_rest_of_a_run_and_the_bots_own_does_not() -> None:
    engine = InMemoryEngine()
    record = await _waiting(engine, bound_to="a" * 40)
    like = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=a_job().actor, like=("rm *",))
    await waiting.store_answer(record, like)
    await _happens(engine, PushEvent(head_sha=HEAD), by=BOT)
    assert (await record.read()).approvals.approved_patterns == ("rm *",)
    await _happens(engine, PushEvent(head_sha=HEAD))
    assert (await record.read()).approvals.approved_patterns == ()


async def test_a_push_is_reviewed_where_the_repository_wants_it_and_the_review_of_the_one_before_is_dropped() -> None:
    engine, wanted = InMemoryEngine(), RepoConfig(review_on=("push",))
    pushed = await _happens(engine, PushEvent(head_sha=HEAD), config=wanted)
    first = await StoredRecord(engine, pushed.id).read()
    await _happens(engine, PushEvent(head_sha="c" * 40), config=wanted, job_id="next")
    reviews = {each.job.id: each for each in await engine.jobs_in_thread(10, 7)}
    assert {each.state for each in reviews.values()} == {JobState.STOPPED, JobState.QUEUED}
    assert first.leads_to is not None
    assert reviews[first.leads_to].state is JobState.STOPPED


async def test_a_push_back_to_a_commit_whose_review_was_dropped_is_reviewed() -> None:
    engine, wanted = InMemoryEngine(), RepoConfig(review_on=("push",))
    await _happens(engine, PushEvent(head_sha=HEAD), config=wanted)
    await _happens(engine, PushEvent(head_sha="c" * 40), config=wanted, job_id="next")
    await _happens(engine, PushEvent(head_sha=HEAD), config=wanted, job_id="back")
    back = await _happens(engine, PushEvent(head_sha=HEAD), config=wanted, job_id="back")  # its worker had died
    alive = [each.job.id for each in await engine.jobs_in_thread(10, 7) if each.state is JobState.QUEUED]
    assert alive == [(await StoredRecord(engine, back.id).read()).leads_to]


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
    await _happens(engine, AssignEvent(assignee_id=BOT + 1))
    assert await engine.jobs_in_thread(10, 7) == ()
    await _happens(engine, AssignEvent(assignee_id=BOT))
    [begun] = await engine.jobs_in_thread(10, 7)
    assert begun.job.origin.kind == "assignment"


FAILED = ChecksFailed(run_id=501, name="test", conclusion="failure", head_sha="a" * 40, branch="topic", pull=7)
ON_MAIN = replace(FAILED, branch="main", pull=0)
OF_FORK = replace(FAILED, pull=0, fork="mona/calc", fork_id=77)
EVERYWHERE = RepoConfig(fix_ci=("pull-requests", "default-branch"))
LABEL = "codepilot:fix-ci"


async def _start_job(
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
    services = SimpleNamespace(configs=ConfigCache(), is_long_running=True, bounds=Bounds(limits=RunLimits()))
    services.configs.put(10, config)
    accounts = account()
    accounts.get_role = answering(role)
    github = SimpleNamespace(
        accounts=accounts,
        threads=SimpleNamespace(get=answering(SimpleNamespace(labels=labels))),
        pulls=SimpleNamespace(find_for_fork=answering(8)),
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
    begun = await _start_job(command, RepoConfig.model_validate({"fix_ci": [where]}))
    assert (begun is not None) == (where in enabled)


async def test_a_label_asks_for_it_when_who_set_it_may_write() -> None:
    nowhere = RepoConfig(fix_ci=())
    assert await _start_job(FAILED, nowhere) is None
    assert await _start_job(FAILED, nowhere, labels=(LABEL,)) is not None
    assert await _start_job(FAILED, nowhere, labels=(LABEL,), role="read") is None


async def test_what_else_fails_on_a_commit_begins_no_other_work() -> None:
    engine = InMemoryEngine()
    assert await _start_job(FAILED, engine=engine) is not None
    assert await _start_job(replace(FAILED, run_id=502), engine=engine, event_id="second") is None
    assert await _start_job(replace(FAILED, head_sha="b" * 40), engine=engine, event_id="third") is not None


async def test_in_a_fork_it_only_explains_and_has_nobodys_rights() -> None:
    ours, theirs = await _start_job(FAILED), await _start_job(OF_FORK)
    assert ours is not None
    assert theirs is not None
    assert (type(ours.command), ours.actor, ours.thread.number) == (Fix, a_job().actor, 7)
    assert (type(theirs.command), theirs.actor.id, theirs.thread.number) == (Explain, 99, 8)


async def test_nobody_is_behind_the_check_of_another_app() -> None:
    begun = await _start_job(replace(FAILED, run_id=0))
    assert begun is not None
    assert begun.actor.id == 99


@dataclass(frozen=True, kw_only=True)
class Desk:
    queue: InMemoryEngine
    ledger: InMemoryLedger
    configs: ConfigCache
    clock: Clock

    async def accepts(self, command: Command) -> bool:
        """Return whether a job in the thread of `a_job` is kept."""
        receipt = EventFilter(self.queue, self.ledger, self.configs)
        return not await receipt.drop_reason(a_job("happened", command=command))


@pytest.fixture
def desk() -> Desk:
    clock = Clock()
    queue = InMemoryEngine(clock=clock)
    ledger = InMemoryLedger(queue, clock=clock)
    return Desk(queue=queue, ledger=ledger, configs=ConfigCache(clock), clock=clock)


async def test_a_label_is_kept_until_somebody_has_looked_what_labels_are_called(desk: Desk) -> None:
    noise = LabelEvent(label="bug", bound_to=HEAD)
    assert await desk.accepts(noise)
    desk.configs.put(11, RepoConfig())
    assert await desk.accepts(noise)
    desk.configs.put(10, RepoConfig(labels=LabelNames(start="bot: go", auto="Trusted")))
    assert not await desk.accepts(noise)
    for name in ("BOT: go", "trusted", "codepilot:ask"):
        assert await desk.accepts(replace(noise, label=name))
    assert not await desk.accepts(replace(noise, label="codepilot:auto"))
    desk.clock.now += CONFIG_SECONDS
    assert await desk.accepts(noise)


async def test_a_push_is_kept_where_work_is_alive_or_a_label_is_bound_to_a_commit(desk: Desk) -> None:
    desk.configs.put(10, RepoConfig())
    assert not await desk.accepts(PushEvent(head_sha=HEAD))
    grant = LabelGrant(repo_id=10, number=7, name="n", labeller=Actor(id=1, login="a"), bound_to="c" * 40, at=1.0)
    await desk.ledger.save_label(replace(grant, number=8))
    assert not await desk.accepts(PushEvent(head_sha=HEAD))
    await desk.ledger.save_label(grant)
    assert await desk.accepts(PushEvent(head_sha=HEAD))


async def test_a_push_is_kept_while_there_is_work_of_an_issue_that_may_go_on_in_the_pull_request(desk: Desk) -> None:
    desk.configs.put(10, RepoConfig())
    await desk.queue.accept(a_job("other", kind="pull", number=8))
    assert not await desk.accepts(PushEvent(head_sha=HEAD))
    await desk.queue.accept(a_job("work", kind="issue", number=9))
    assert await desk.accepts(PushEvent(head_sha=HEAD))


async def test_failed_checks_are_kept_where_they_may_be_wanted(desk: Desk) -> None:
    red = ChecksFailed(run_id=1, name="CI", conclusion="failure", head_sha=HEAD, branch="topic", pull=7)
    assert await desk.accepts(red)
    desk.configs.put(10, RepoConfig(fix_ci=("pull-requests",)))
    assert await desk.accepts(red)
    desk.configs.put(10, RepoConfig())
    assert not await desk.accepts(red)
    label = LabelGrant(repo_id=10, number=7, name="n", labeller=Actor(id=1, login="a"), bound_to="c" * 40, at=1.0)
    await desk.ledger.save_label(label)
    assert await desk.accepts(red)


async def test_a_push_and_a_review_are_kept_where_a_review_may_be_wanted(desk: Desk) -> None:
    commands = (PushEvent(head_sha=HEAD), Review(on="push"), Review(on="opened"), Review(on="ready"))
    assert [await desk.accepts(each) for each in commands] == [True] * 4
    desk.configs.put(10, RepoConfig())
    assert [await desk.accepts(each) for each in commands] == [False] * 4
    desk.configs.put(10, RepoConfig(review_on=("opened",)))
    assert [await desk.accepts(each) for each in commands] == [False, False, True, True]
    assert await desk.accepts(Review())


@pytest.mark.parametrize("command", [PushEvent(head_sha=HEAD), CloseEvent(), AccessLost(), AccessLost(repo_ids=(10,))])
async def test_what_ends_or_voids_work_is_kept_while_there_is_some(desk: Desk, command: Command) -> None:
    desk.configs.put(10, RepoConfig())
    await desk.queue.accept(replace(a_job("other", number=8), installation=31, repo=replace(a_job().repo, id=11)))
    assert not await desk.accepts(command)
    await desk.queue.accept(a_job("work"))
    assert await desk.accepts(command)
    jobs = HeldJobs(desk.queue)
    assert [await jobs.begin() for _ in range(2)] == ["other", "work"]
    assert await desk.accepts(command)
    await jobs.end("work", JobEnded(state=JobState.DONE))
    assert not await desk.accepts(command)


@pytest.mark.parametrize("command", [Stop(), Help(), AssignEvent(assignee_id=1)])
async def test_a_persons_word_is_always_kept(desk: Desk, command: Command) -> None:
    desk.configs.put(10, RepoConfig())
    assert await desk.accepts(command)
