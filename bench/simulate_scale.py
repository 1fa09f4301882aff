"""Simulate many workers on one Monday morning, and show what is the first bottleneck: `python -m bench.simulate_scale`.

A discrete-event simulation with random numbers from a fixed seed. It measures nothing: `World` says where each number
is from. A job that waits for GitHub keeps its place here; the bot gives it back when GitHub asks for a long pause.
The figures are in docs/deploy.md, "How far it goes".
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.measure import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The parameters; each docstring says where the number is from."""

    seed: int = 14
    repositories: int = 100_000
    """The question."""
    installations: int = 10_000
    """Assumption; their sizes follow Zipf's law, so that the largest has 1,000 times as many as the median."""
    workers: int = 1_000
    """The question."""
    receivers: int = 2
    """deploy/kubernetes/base/receiver.yaml."""
    jobs_at_once: int = 2
    """CODEPILOT_JOBS: of one installation on one worker; one more place is for others."""
    storm_share: float = 0.2
    """Assumption: so many repositories get a job from their release bot on Monday morning."""
    storm_seconds: float = 3600.0
    """Assumption: the storm takes so long, its density falls linearly."""
    whale_jobs: int = 1_000
    """The question: one installation queues so many at once, at `whale_at`."""
    whale_at: float = 600.0
    """Assumption."""
    agent_seconds: float = 180.0
    """Assumption: the median of a run; log-normal, 0.8 of its logarithm, so that one in ten takes 8 minutes."""
    database_cores: float = 16.0
    """What to turn."""
    accept_core_seconds: float = 2 / 500
    """Measured (bench/README.md): 500 answers a second on 2 cores that PostgreSQL, the receiver and the sender share;
    all counted as PostgreSQL's."""
    poll_core_seconds: float = 0.02
    """Measured (bench/bench_polling.py): processor seconds a second of PostgreSQL for one worker, busy or not, when
    the queue with the work was polled every 0.15 s."""
    poll_seconds: float = 0.2
    """bot/queue/workflows.py, of the queue with the work. The cost is taken to fall in proportion: nearly all
    transactions are polls."""
    polling_threads: int = 5
    """One a queue; bot/queue/workflows.py."""
    look_core_seconds: float = 20e-6
    """Measured (bench/bench_polling.py): one look whether another worker's place is free."""
    looks_a_second: float = 8.0
    """bot/queue/worker.py, `recovery_pause`: all workers together look at the places of all workers with jobs."""
    connections: int = 11
    """Measured (bench/bench_polling.py): of one worker with two jobs."""
    pause_between_writes: float = 1.0
    """docs/decisions/0043-the-request-budget.md."""
    shared_pace: bool = True
    """bot/queue/store.py: the pause holds among all workers; False for each by itself."""
    writes: int = 6
    """Measured (bench/README.md): a job's writes; the first half when it begins."""
    contents: int = 3
    """Decision 43: those that create content: the comment, the check run, and commit with pull request."""
    contents_a_minute: int = 80
    """GitHub, "Rate limits for the REST API": requests that create content."""
    contents_an_hour: int = 500
    """The same."""

    @property
    def idle_cores(self) -> float:
        """Of PostgreSQL, for polling and for looking, when all workers have jobs."""
        looks = min(self.looks_a_second, 2.0 * self.workers) * self.look_core_seconds * self.workers
        return self.workers * self.poll_core_seconds * 0.15 / self.poll_seconds + looks

    @property
    def slowdown(self) -> float:
        """Factor by which PostgreSQL's load stretches a poll."""
        return max(1.0, self.idle_cores / self.database_cores)

    @property
    def accepts_a_second(self) -> float:
        """Jobs that PostgreSQL stores in a second beside the polling; at least the receivers' share of connections."""
        accepting = self.receivers * 8
        share = accepting / (accepting + self.workers * self.polling_threads)
        cores = max(self.database_cores - self.idle_cores, self.database_cores * share)
        return cores / self.accept_core_seconds


@dataclass(slots=True, kw_only=True)
class Job:
    """One job, and when things happened to it."""

    installation: int
    arrived: float
    accepted: float = 0.0
    started: float = 0.0
    ended: float = 0.0


@dataclass(slots=True)
class Pace:
    """The times at which GitHub accepts the writes of an installation."""

    world: World
    next_write: float = 0.0
    contents: deque[float] = field(default_factory=deque)
    refused: int = 0

    def write(self, now: float, *, creates: bool) -> float:
        """Return the time at which a write is accepted; count refusals."""
        at = max(now, self.next_write) if self.world.shared_pace else now
        if creates:
            for most, window in ((self.world.contents_a_minute, 60.0), (self.world.contents_an_hour, 3600.0)):
                if len(self.contents) >= most and self.contents[-most] > at - window:
                    self.refused += 1
                    at = self.contents[-most] + window
            self.contents.append(at)
            if len(self.contents) > self.world.contents_an_hour:
                self.contents.popleft()
        self.next_write = at + self.world.pause_between_writes
        return at

    def phase(self, now: float, *, contents: int) -> float:
        """Return the time at which half of a job's writes are done."""
        for number in range(self.world.writes // 2):
            now = self.write(now, creates=number < contents) + self.world.pause_between_writes
        return now


def arrivals(world: World, dice: random.Random) -> list[Job]:
    """The jobs of the morning, oldest first; installation 0 is the whale."""
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(world.installations)))
    count = int(world.repositories * world.storm_share)
    where = dice.choices(range(1, world.installations + 1), cum_weights=weights, k=count)
    storm = [Job(installation=each, arrived=world.storm_seconds * (1 - (1 - dice.random()) ** 0.5)) for each in where]
    whale = [Job(installation=0, arrived=world.whale_at) for _ in range(world.whale_jobs)]
    return sorted([*storm, *whale], key=lambda job: job.arrived)


class Simulation:
    """One morning."""

    def __init__(self, world: World) -> None:
        self.world, self.dice = world, random.Random(world.seed)  # noqa: S311 - a simulation
        self.jobs = arrivals(world, self.dice)
        self.queued: dict[int, deque[Job]] = {}
        self.running: Counter[int] = Counter()
        self.free = world.workers * (world.jobs_at_once + 1)
        self.paces: defaultdict[int, Pace] = defaultdict(lambda: Pace(world))
        self.order = itertools.count()
        self.events: list[tuple[float, int, str, Job]] = []

    def run(self) -> None:
        """Until every job has ended."""
        accepting = 0.0
        for job in self.jobs:
            accepting = max(accepting, job.arrived) + 1 / self.world.accepts_a_second
            job.accepted = accepting
            self._at(accepting, "queue", job)
        while self.events:
            now, _, what, job = heapq.heappop(self.events)
            if what == "queue":
                self.queued.setdefault(job.installation, deque()).append(job)
            elif what == "publish":
                done = self.paces[job.installation].phase(now, contents=self.world.contents // 2)
                self._at(done, "end", job)
                continue
            else:
                job.ended = now
                self.free += 1
                self.running[job.installation] -= 1
            self._hand_out(now)

    def _at(self, when: float, event: str, job: Job) -> None:
        heapq.heappush(self.events, (when, next(self.order), event, job))

    def _hand_out(self, now: float) -> None:
        """Give places to jobs of installations in random order, as DBOS does with the partitions of a queue."""
        most = self.world.workers * self.world.jobs_at_once
        while self.free:
            able = [each for each in self.queued if self.running[each] < most]
            if not able:
                return
            installation = self.dice.choice(able)
            job = self.queued[installation].popleft()
            if not self.queued[installation]:
                del self.queued[installation]
            idle = max(1, self.free // (self.world.jobs_at_once + 1))
            self.free -= 1
            self.running[installation] += 1
            # The first of all idle workers that polls has it.
            wait = min(self.dice.random() for _ in range(min(idle, 20))) * self.world.poll_seconds
            job.started = now + wait * self.world.slowdown
            acknowledged = self.paces[installation].phase(
                job.started, contents=self.world.contents - self.world.contents // 2
            )
            agent = self.world.agent_seconds * self.dice.lognormvariate(0.0, 0.8)
            self._at(acknowledged + agent, "publish", job)


def row(name: str, world: World) -> str:
    """A scenario, as a row of the table."""
    simulation = Simulation(world)
    simulation.run()
    jobs = simulation.jobs
    counts = Counter(job.installation for job in jobs)
    small = [job.started - job.accepted for job in jobs if counts[job.installation] <= 5]
    accept = [job.accepted - job.arrived for job in jobs]
    whale = max(job.ended for job in jobs if job.installation == 0) - world.whale_at
    refused = sum(pace.refused for pace in simulation.paces.values())
    cells = (
        name,
        f"{world.idle_cores:.1f} of {world.database_cores:.0f}",
        f"{world.workers * world.connections:,}",
        _seconds(percentile(accept, 0.99)),
        _seconds(percentile(small, 0.5)),
        _seconds(percentile(small, 0.99)),
        f"{whale / 3600:.1f} h",
        f"{refused:,}",
    )
    return f"| {' | '.join(cells)} |"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"


def scenarios() -> Iterator[tuple[str, World]]:
    """Growing, and then turning one thing after another."""
    yield "10 workers", World(workers=10, database_cores=2)
    yield "100 workers", World(workers=100, database_cores=4)
    yield "300 workers", World(workers=300)
    yield "500 workers", World(workers=500)
    yield "1,000 workers", World()
    yield "the same, polling every 2 s", World(poll_seconds=2.0)
    yield "the same, each with its own pace of writes", World(poll_seconds=2.0, shared_pace=False)


HEAD = (
    "scenario",
    "PostgreSQL's cores for polling",
    "connections",
    "accept, 99th percentile",
    "wait for a worker, median",
    "wait, 99th percentile",
    "whale done after",
    "writes that GitHub refuses",
)


def main() -> None:
    """Print the table."""
    print(f"| {' | '.join(HEAD)} |")
    print("|---|" + "---:|" * (len(HEAD) - 1))
    for name, world in scenarios():
        print(row(name, world), flush=True)


if __name__ == "__main__":
    main()
