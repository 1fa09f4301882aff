"""A whole job without a process, socket, git, database or sandbox, in some hundredths of a second.

The events, permissions, prompt, pipeline and publishing are real; GitHub, the workspaces and the agent are those of
`tests.fakes`, the queue is the one in memory. The verbs are those of `tests.stage.Stage`.

async with open_seam(tmp_path, FIX) as stage:
    end = await stage.ask(stage.issue().number, "/codepilot fix")
    assert end.state is JobState.DONE and "Fixed" in end.status
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agent_runtime import CommandEnd, CommandRunner, Event, Network, RunLimits, pick_sandbox
from agent_runtime.sandbox.protocol import SandboxSettings
from bot.domain.access import BotProfile
from bot.domain.job import TRANSITIONS, Job, JobState, Lane
from bot.events.delivery import Delivery, IgnoredDelivery
from bot.events.triggers import job_from
from bot.github.client import GitHub
from bot.jobs import waiting
from bot.jobs.acknowledger import Acknowledger
from bot.jobs.context import JobContextFactory, JobServices
from bot.jobs.faults import Patience
from bot.jobs.pipeline import Worker
from bot.jobs.record import JobRecord, StoredRecord
from bot.jobs.repo_events import EventFilter
from bot.jobs.setup import Setup
from bot.jobs.storage import RunResults
from bot.publishing.markdown import redact_inertly
from bot.publishing.redact import Redactor
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.settings.models import bounds_of
from tests.fakes.agent import Play, Reply, Script, ScriptedAgents, execute, reply, write
from tests.fakes.clock import SteppedClock
from tests.fakes.github import FakeGitHub
from tests.fakes.hub import INSTALLATION, FakeDelivery, FakeHub
from tests.fakes.site import FakeApp, FakeCheck, FakeComment, FakeRepo, FakeThread
from tests.fakes.stores import FakeJobSessions, FakePatches
from tests.fakes.workspaces import FakeWorkspaces
from tests.pauses import ASKING, REACHED, Pause
from tests.stage import COMPLETION, FILES, FIXED_CALC, End, agent_settings

__all__ = [
    "ASKING",
    "COMPLETION",
    "FIX",
    "FIXED_CALC",
    "NOTHING_LEFT",
    "REACHED",
    "End",
    "Pause",
    "Seam",
    "open_seam",
]

SECRET = "a-secret-of-the-operator-8d21"
FIX: Script = [reply(write("calc.py", FIXED_CALC), execute("sh check.sh", output="1 passed"), completion=COMPLETION)]
"""The run that fixes the repository of `FILES` and checks it."""
NOTHING_LEFT: Reply = reply(completion="Nothing left to do.")

_NOTICE = "<!-- codepilot:job=notice-"
_LANES: Sequence[Lane] = ("event", "steer", "work", "work")
_ROUNDS = 200


@dataclass(slots=True)
class _Slot:
    """A place for one running job; a blocked one waits for the test."""

    lane: Lane
    task: asyncio.Task[None] | None = None
    is_blocked: bool = False

    @property
    def is_busy(self) -> bool:
        return self.task is not None and not self.task.done() and not self.is_blocked


_SLOT: ContextVar[_Slot | None] = ContextVar("_SLOT", default=None)


@dataclass(slots=True, kw_only=True)
class Seam:
    """A bot without its surroundings.

    Attributes:
        hub: GitHub, with `LocalHub`'s methods; `hub.fail("comments.create", outage())` lets a request fail.
        workspaces: `workspaces.fail("fetch", error)` lets git fail, `lose(job_id)` loses the files.
        providers: the runs of the scripts, oldest first; their `commands`, `answers`, `opening` and `specs`.
        events: of all runs.
        commands: ends of the commands that the bot itself runs, for set-up and proofs, by command; exit code 0 without.
    """

    directory: Path
    hub: FakeHub
    repo: FakeRepo
    queue: InMemoryEngine
    ledger: InMemoryLedger
    services: JobServices
    workspaces: FakeWorkspaces
    sessions: FakeJobSessions
    patches: FakePatches
    agents: ScriptedAgents
    clock: SteppedClock
    profile: BotProfile
    events: list[Event]
    commands: dict[str, CommandEnd | int] = field(default_factory=dict)
    is_acknowledging: bool = False
    _contexts: JobContextFactory = field(init=False)
    _worker: Worker = field(init=False)
    _slots: list[_Slot] = field(default_factory=lambda: [_Slot(lane) for lane in _LANES])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _handled: int = 0
    _delivered: int = 0
    _blocked: dict[int, _Slot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agents.settle, self.agents.on_wait, self.agents.on_go = self.settle, self._block, self._unblock
        self.start()

    # The worker

    def start(self) -> None:
        """Start a worker, as a new process does: it shares only the queue and the stores with earlier ones."""
        self._contexts = JobContextFactory(
            services=self.services, queue=self.queue, ledger=self.ledger, github_for=self._github_for
        )
        self._worker = Worker(self._contexts, Patience(longest_pause=60.0))

    async def restart(self) -> None:
        """Kill the worker, whose running jobs return to the queue, and start another one."""
        running = [slot.task for slot in self._slots if slot.task is not None and not slot.task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._slots = [_Slot(lane) for lane in _LANES]
        self.start()

    def _github_for(self, job: Job | None = None) -> GitHub:
        redactor = self.services.redactor.copy()
        return FakeGitHub(self.hub, redact=redact_inertly(redactor.redact), on_mint=redactor.add_secret)

    async def settle(self) -> None:
        """Deliver events, run jobs and post reports until nothing is due, or all running agents wait for the test."""
        others = [slot for slot in self._slots if slot is not _SLOT.get()]
        for _ in range(_ROUNDS):
            before = self._handled
            await self._deliver()
            for slot in others:
                if slot.task is None or slot.task.done():
                    slot.task = asyncio.create_task(self._work(slot))
            while busy := [slot.task for slot in others if slot.is_busy and slot.task is not None]:
                self._changed.clear()
                change = asyncio.create_task(self._changed.wait())
                await asyncio.wait({*busy, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
            for slot in others:
                if slot.task is not None and slot.task.done():
                    slot.task.result()
            while await self.queue.report_next(self._worker):
                self._handled += 1
            if self._handled == before and self._delivered == len(self.hub.deliveries):
                return
        raise AssertionError("the queue never settles")

    async def _work(self, slot: _Slot) -> None:
        _SLOT.set(slot)
        while await self.queue.run_next(self._worker, slot.lane):
            self._handled += 1

    def _block(self, play: Play) -> None:
        slot = _SLOT.get()
        assert slot is not None
        slot.is_blocked, self._blocked[id(play)] = True, slot
        self._changed.set()

    async def hang(self, *_: object, **__: object) -> None:
        """Block the running job at this point until `restart` kills its worker; takes the place of any coroutine."""
        slot = _SLOT.get()
        assert slot is not None, "no job runs here"
        slot.is_blocked = True
        self._handled += 1
        self._changed.set()
        await asyncio.Event().wait()

    def _unblock(self, play: Play) -> None:
        slot = self._blocked.pop(id(play), None)
        if slot is not None:
            slot.is_blocked = False

    async def _deliver(self) -> None:
        while self._delivered < len(self.hub.deliveries):
            delivery = self.hub.deliveries[self._delivered]
            self._delivered += 1
            delivery.answer = await self._receive(delivery)

    async def _receive(self, delivery: FakeDelivery) -> dict[str, str]:
        """Do what the webhook does with an authentic delivery."""
        received = Delivery(delivery.payload, event=delivery.event, delivery_id=delivery.guid)
        job = job_from(received, self.profile)
        if isinstance(job, IgnoredDelivery):
            return {"guid": delivery.guid, "status": "ignored", "reason": job.reason}
        bounds = self.services.bounds
        filters = EventFilter(self.queue, self.ledger, self.services.configs, review_on=bounds.review_on)
        if reason := await filters.drop_reason(job):
            return {"guid": delivery.guid, "status": "ignored", "reason": reason}
        if not await self.queue.accept(job):
            return {"guid": delivery.guid, "status": "duplicate", "job": job.id}
        if self.is_acknowledging:
            acknowledger = Acknowledger(self._contexts)
            acknowledger.acknowledge(job)
            await asyncio.gather(*acknowledger._tasks)
        return {"guid": delivery.guid, "status": "accepted", "job": job.id}

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    # People

    def issue(self, title: str = "Adding is off by one", body: str = "`add(1, 1)` gives 3.") -> FakeThread:
        return self.hub.open_issue(self.repo, author="mona", title=title, body=body)

    def pull(self, branch: str = "topic") -> FakeThread:
        """Open a pull request from a branch of the repository that adds a file, the bug left in."""
        self.hub.commit(self.repo, {"topic.txt": "A topic.\n"}, message="Add a topic", author="mona", branch=branch)
        return self.hub.open_pull(self.repo, author="mona", head=branch, title="Add a topic", body="As discussed.")

    def say(self, number: int, body: str, *, author: str = "mona") -> FakeComment:
        return self.hub.comment(self.repo, number, author=author, body=body)

    async def ask(self, number: int, body: str, *, author: str = "mona") -> End:
        """Comment, and run jobs until the comment's has ended."""
        return await self.end_of(self.say(number, body, author=author))

    # Jobs

    async def answer(self, comment: FakeComment) -> dict[str, str]:
        """Return the bot's answer to the first delivery of a comment."""
        await self._deliver()
        deliveries = [delivery for delivery in self.hub.deliveries if delivery.subject == comment.id]
        return deliveries[0].answer

    async def answer_to(self, event: str, action: str) -> dict[str, str]:
        """Return the bot's answer to the newest delivery of an event."""
        await self._deliver()
        deliveries = [
            delivery for delivery in self.hub.deliveries if (delivery.event, delivery.action) == (event, action)
        ]
        return deliveries[-1].answer

    async def job_of(self, comment: FakeComment) -> str:
        answer = await self.answer(comment)
        assert "job" in answer, answer
        return answer["job"]

    async def end_of(self, comment: FakeComment) -> End:
        return await self.ended(await self.job_of(comment))

    async def end_after(self, event: str, action: str) -> End:
        """Run jobs until that of the newest delivery of an event has ended, and the work that it began."""
        answer = await self.answer_to(event, action)
        assert "job" in answer, answer
        end = await self.ended(answer["job"])
        following = (await self.record(end.job_id)).leads_to
        return end if following is None else await self.ended(following)

    async def ended(self, job_id: str) -> End:
        """Run jobs until this one has ended; time passes while it is held back."""
        for _ in range(_ROUNDS):
            await self.settle()
            stored = await self.queue.get(job_id)
            assert stored is not None
            if not TRANSITIONS[stored.state]:
                return await self._end(job_id)
            assert stored.state is JobState.QUEUED, f"{stored.state}: {stored.job.command} has not ended"
            self.clock.advance_to(self.queue._entries[job_id].held_until)
        raise AssertionError("the job never ends")

    async def _end(self, job_id: str) -> End:
        stored = await self.queue.get(job_id)
        assert stored is not None
        posted = (await self.record(job_id)).comment.posted
        number, bodies = stored.job.thread.number, dict[int, str]()
        if (thread := self.repo.threads.get(number)) is not None:
            line_comments = thread.pull.line_comments if thread.pull is not None else []
            bodies = {comment.id: comment.body for comment in (*thread.comments, *line_comments)}
        status = bodies.get(posted.id, "") if posted else ""
        return End(job_id=job_id, state=stored.state, reason=stored.reason, status=status)

    async def record(self, job_id: str) -> JobRecord:
        return await self.record_of(job_id).read()

    def record_of(self, job_id: str) -> StoredRecord:
        return StoredRecord(self.queue, job_id)

    async def state_of(self, job_id: str) -> JobState | None:
        stored = await self.queue.get(job_id)
        return stored.state if stored else None

    async def waits(self, comment: FakeComment) -> str:
        """Run jobs until a comment's waits for a person; return its id."""
        job_id = await self.job_of(comment)
        await self.settle()
        stored = await self.queue.get(job_id)
        assert stored is not None
        assert stored.state is JobState.WAITING, f"{stored.state}: {stored.reason}"
        return job_id

    async def refusal(self, end: End) -> str:
        """Return the cause of the refusal that a job ended with, of which its comment gives the reason."""
        stored = await self.queue.get(end.job_id)
        assert stored is not None
        assert stored.state is JobState.REFUSED, end
        assert end.reason
        assert end.reason in end.status
        place = (stored.job.repo.id, stored.job.thread.key)
        causes = [cause for (*key, cause) in self.ledger._notices if tuple(key) == place]
        return causes[-1].partition(" by ")[0]

    async def at_work(self) -> None:
        """Run jobs until an agent waits for the test."""
        await self.settle()
        assert self._blocked, "no agent waits for the test"

    async def let_go(self, job_id: str) -> None:
        """Let the agent of a job go on that waits for the test."""
        await self.at_work()
        play = self.agents.play_of(job_id)
        self._unblock(play)
        play.go.set()

    # What is seen

    @property
    def app(self) -> FakeApp:
        return self.hub.app

    @property
    def installation(self) -> int:
        return INSTALLATION

    @property
    def providers(self) -> list[Play]:
        return self.agents.plays

    @property
    def calls(self) -> list[str]:
        return self.hub.calls

    def bot_comments(self, number: int) -> list[str]:
        """The bot's comments in a thread, oldest first, without its notices."""
        return [body for body in self._bodies(number) if _NOTICE not in body]

    def notices(self, number: int) -> list[str]:
        """The bot's comments in a thread that only mention a person, oldest first."""
        return [body for body in self._bodies(number) if _NOTICE in body]

    def _bodies(self, number: int) -> list[str]:
        comments = self.hub.comments(self.repo, number)
        return [comment.body for comment in comments if comment.author_id == self.app.bot.id]

    def reactions(self, comment: FakeComment) -> list[str]:
        return [content for _, content in comment.reactions]

    def bot_branches(self) -> dict[str, str]:
        """The bot's branches and their commits."""
        return {name: sha for name, sha in self.repo.branches.items() if name.startswith("codepilot/")}

    def pulls(self) -> list[FakeThread]:
        return [thread for thread in self.repo.threads.values() if thread.pull is not None]

    def head(self, ref: str) -> str:
        """Return the commit of a branch or commit id; `topic^` is the parent of `topic`."""
        name = ref.removesuffix("^")
        commit = self.repo.resolve(name)
        assert commit is not None, f"no commit {name}"
        return commit.parents[0] if name != ref else commit.sha

    def file(self, ref: str, path: str) -> str:
        """Return a file's text at a branch or commit, without its last newline."""
        return self.repo.commits[self.head(ref)].tree[path].content.decode().removesuffix("\n")

    def message(self, ref: str) -> str:
        return self.repo.commits[self.head(ref)].message.strip()

    def author(self, ref: str) -> str:
        return self.repo.commits[self.head(ref)].author

    def paths(self, ref: str) -> list[str]:
        """Return the paths of all files at a branch or commit."""
        return sorted(self.repo.commits[self.head(ref)].tree)

    def changed_paths(self, base: str, ref: str) -> list[str]:
        before, after = (self.repo.commits[self.head(name)].tree for name in (base, ref))
        return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))

    def all_paths(self) -> set[str]:
        """Return the paths of all files in all commits of the repository."""
        return {path for commit in self.repo.commits.values() for path in commit.tree}

    def commits_between(self, base: str, ref: str) -> int:
        """Return the number of commits of a branch that another one lacks."""
        return len(set(self.repo.history(self.head(ref))) - set(self.repo.history(self.head(base))))

    def files_of(self, job_id: str) -> Path:
        """Return the directory of a job's files."""
        return self.workspaces.files_of(job_id)

    def kept_patch(self, job_id: str) -> str | None:
        """Return the patch that the operator finds of a job; None without one."""
        path = self.patches.file(job_id)
        return None if path is None else path.read_text(encoding="utf-8")

    def nothing_published(self) -> bool:
        """Return whether no branch and no commit of the bot is on GitHub."""
        return not self.bot_branches() and all("codepilot" not in each.author for each in self.repo.commits.values())

    def nothing_left(self) -> bool:
        """Return whether no job's files are on the disk."""
        return not self.workspaces.kept_jobs

    # Waiting jobs

    async def pause_of(self, comment: FakeComment) -> Pause:
        return await self.pause_of_job(await self.waits(comment))

    async def paused_fix(self, number: int) -> tuple[FakeComment, Pause]:
        """Ask for a fix, and run jobs until it waits for a person."""
        command = self.say(number, "/codepilot fix")
        return command, await self.pause_of(command)

    async def next_pause(self, last: Pause) -> Pause:
        """Run jobs until a job waits for another answer than the last time."""
        return await self.pause_of_job(last.job_id, after=last.request_id)

    async def pause_of_job(self, job_id: str, *, after: str = "") -> Pause:
        await self.settle()
        stored, request = await self.queue.get(job_id), (await self.record_of(job_id).read()).approvals.waiting
        assert stored is not None
        assert stored.state is JobState.WAITING, f"{stored.state}: {stored.reason}"
        assert request is not None
        assert request.request_id != after
        status = (await self._end(job_id)).status
        number = stored.job.thread.number
        return Pause(job_id=job_id, number=number, request_id=request.request_id, status=status)

    async def expire(self, pause: Pause) -> None:
        """Let the time for an answer be over without the queue's notice."""
        record = self.record_of(pause.job_id)
        request = (await record.read()).approvals.waiting
        assert request is not None
        await waiting.store_request(record, replace(request, until=1.0))

    async def still_waits(self, pause: Pause) -> bool:
        """Return whether a job waits and has no answer."""
        await self.settle()
        answered = (await self.record_of(pause.job_id).read()).approvals.is_answered
        return await self.state_of(pause.job_id) is JobState.WAITING and not answered

    def check_of(self, job_id: str) -> FakeCheck:
        """Return a job's check run."""
        [check] = [check for check in self.repo.checks if check.external_id.startswith(f"{job_id}:")]
        return check

    def buttons_of(self, job_id: str) -> dict[str, str]:
        """Return the identifiers of the buttons of a job's check run, by their labels."""
        return {button["label"]: button["identifier"] for button in self.check_of(job_id).actions}

    def press(self, job_id: str, label: str, *, by: str = "mona") -> None:
        """Press a button of a job's check run."""
        self.hub.press(self.check_of(job_id), self.buttons_of(job_id)[label], by=by)


@asynccontextmanager
async def open_seam(
    directory: Path,
    *scripts: Script,
    files: Mapping[str, str | bytes] | None = None,
    limits: RunLimits | None = None,
    trigger: str = "/codepilot",
    network: Network | None = None,
    operator: Mapping[str, Any] | None = None,
    sees_images: bool = False,
    acknowledges: bool = False,
    services: Mapping[str, Any] | None = None,
) -> AsyncIterator[Seam]:
    """Open a bot with a repository `mona/calc`, of which `mona` is the owner.

    Args:
        directory: for the files of jobs.
        scripts: one for each run, over all its pauses; a run beyond the last one fails.
        files: the repository's, in place of `FILES`; empty for a repository without commits.
        limits: of a run.
        operator: changes of `AgentSettings`.
        acknowledges: whether each command has its reaction and comment before its job runs, as in a service.
        services: changes of `JobServices`.
    """
    settings = agent_settings(directory, limits=limits, trigger=trigger, network=network)
    settings = replace(settings, **(operator or {}))
    clock = SteppedClock()
    hub = FakeHub(now=lambda: datetime.fromtimestamp(clock(), UTC))
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", files=FILES if files is None else files)
    queue = InMemoryEngine(clock=clock)
    ledger = InMemoryLedger(queue, trusted_bots=settings.trusted_bots, clock=clock)
    workspaces, sessions = FakeWorkspaces(directory / "workspaces", hub), FakeJobSessions()
    patches, events = FakePatches(directory / "patches"), list[Event]()
    agents = ScriptedAgents(scripts, clock=clock, sees_images=sees_images)
    shared = JobServices(
        workspaces=workspaces,
        setup=Setup(
            sandbox=pick_sandbox("local", SandboxSettings()),
            network=settings.network if settings.setup_network is None else settings.setup_network,
            seconds=settings.setup_seconds,
            cache=None,
        ),
        agent=agents,
        bounds=replace(bounds_of(settings), sandbox="bubblewrap"),
        redactor=Redactor([SECRET]),
        server_url=hub.url,
        work=RunResults(patches, most_bytes=1024**3),
        sessions=sessions,
        marker_key=b"key of the markers in tests",
        is_long_running=True,
        pictures=settings.pictures != "off",
        keep_days=settings.keep_days,
        edit_seconds=10.0,
        model_patience=settings.model_patience,
        listeners=(events.append,),
    )
    profile = BotProfile(
        triggers=settings.triggers,
        own_app_id=hub.app.id,
        trusted_bots=settings.trusted_bots,
        start_label=settings.start_label,
    )
    seam = Seam(
        directory=directory,
        hub=hub,
        repo=repo,
        queue=queue,
        ledger=ledger,
        services=replace(shared, **(services or {})),
        workspaces=workspaces,
        sessions=sessions,
        patches=patches,
        agents=agents,
        clock=clock,
        profile=profile,
        events=events,
        is_acknowledging=acknowledges,
    )
    # By the stepped clock, the directories of other processes would be leftovers.
    leftovers = patch("agent_runtime.sandbox.protocol._remove_leftovers")
    with patch("time.time", clock), leftovers, _without_programs(seam):
        try:
            yield seam
        finally:
            await seam.restart()


def _without_programs(seam: Seam) -> Any:  # noqa: ANN401 - of `patch`
    """Give the bot's own commands the ends of `Seam.commands`."""

    def prepare(_runner: CommandRunner, *_args: object, **_options: object) -> None: ...

    async def close(_runner: CommandRunner) -> None: ...

    async def run(_runner: CommandRunner, command: str, *, seconds: float) -> CommandEnd:
        end = next((end for name, end in seam.commands.items() if command.endswith(name)), 0)
        if isinstance(end, CommandEnd):
            return end
        return CommandEnd(command=command, exit_code=end, output="", seconds=0.1)

    return patch.multiple(CommandRunner, __init__=prepare, close=close, run=run)
