"""One run of chaos: give commands, end processes, and count the results."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from typing_extensions import override

from bench.chaos.machines import Machine
from bench.chaos.world import FIX, LOOK, World
from bench.service import scripted, variables
from bot.queue.worker import ADVISORY_CLASS
from localhub import LocalHub
from tests.waiting import eventually

_OWNERS = 20
"""Writes of one installation are a second apart, so there are several."""
_AT_ONCE = 8
_MOST_REQUESTS = 40
"""Between two ends."""
_TERM_SHARE, _SUSPEND_SHARE, _START_SHARE = 0.15, 0.15, 0.2
_STEP_SECONDS = 120.0
"""How long each thing that is waited for may take."""
_DONE_SECONDS = 900.0
"""How long the end of it all may take; a job that is charged with deaths is held for minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of it.

    Attributes:
        kills: how many processes end, not counting those that are killed while they start.
        jobs: how many commands are given.
        seed: of all that is left to chance.
        receivers: processes that only receive, with PostgreSQL.
        workers: processes that only work, with PostgreSQL.
    """

    kills: int
    jobs: int
    seed: int
    receivers: int = 2
    workers: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Resources shared by several machines.

    Attributes:
        database_url: the PostgreSQL database.
        blobs: the environment variables of the blob store.
    """

    database_url: str
    blobs: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class Storm:
    """What happened.

    Attributes:
        ends: how many processes ended, by how.
        faults: what is wrong with what came of the commands, and of the processes.
        jobs: how many commands were given.
    """

    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    jobs: int = 0

    @override
    def __str__(self) -> str:
        ends = ", ".join(f"{count} {how}" for how, count in self.ends.items())
        faults = "\n".join(f"WRONG: {each}" for each in self.faults)
        return f"{self.jobs} jobs, {ends}; {len(self.faults)} faults\n{faults}".strip()


async def run(plan: Plan, directory: Path, shared: Shared | None) -> Storm:
    """All of it, in an empty directory; on SQLite where nothing is shared."""
    async with LocalHub(directory / "hub") as hub:
        world = World.on(hub, _OWNERS)
        machines = _machines(plan, world, directory, shared)
        chance = random.Random(plan.seed)  # noqa: S311 - to be the same every time
        running = _Running(plan, world, machines, chance, shared)
        try:
            await running.run()
        finally:
            for machine in machines:
                machine.send(signal.SIGCONT)
                await machine.end()
        return running.storm


class _Running:
    """A run that is under way."""

    def __init__(
        self, plan: Plan, world: World, machines: list[Machine], chance: random.Random, shared: Shared | None
    ) -> None:
        self._plan, self._world, self._machines = plan, world, machines
        self._chance, self._shared = chance, shared
        self._kills = 0
        self.storm = Storm()

    async def run(self) -> None:
        await asyncio.gather(*(self._start(each) for each in self._machines))
        asking = asyncio.create_task(self._ask())
        try:
            while self._kills < self._plan.kills and not asking.done():
                due = self._world.requests + self._chance.randint(1, _MOST_REQUESTS)
                await self._soon(lambda due=due: self._world.requests >= due or asking.done())  # type: ignore[misc]
                await self._strike(self._chance.choice(self._machines))
                self._kills += 1
            await asking
            self._world.redeliver()
            with suppress(AssertionError):  # the faults say what did not end
                await eventually(self._world.is_over, within=_DONE_SECONDS)
        finally:
            asking.cancel()
        self.storm.jobs = len(self._world.tasks)
        self.storm.faults += self._world.faults()

    async def _ask(self) -> None:
        """Give commands, a few under way at a time, spread over all the ends."""
        plan = self._plan
        for number in range(plan.jobs):

            def due(share: int = number * plan.kills) -> bool:
                open_ = self._world.under_way()
                return open_ < _AT_ONCE and (not open_ or share <= plan.jobs * self._kills)

            await eventually(due, within=_DONE_SECONDS)
            self._world.ask()

    async def _strike(self, machine: Machine) -> None:
        """End a machine's process, and start it again."""
        roll = self._chance.random()
        if roll < _TERM_SHARE:
            how: Callable[[Machine], Awaitable[str]] = self._terminate
        elif roll < _TERM_SHARE + _SUSPEND_SHARE and self._shared is not None and machine.works:
            how = self._suspend
        else:
            how = self._kill
        self.storm.ends[await how(machine)] += 1
        if self._chance.random() < _START_SHARE:
            await machine.start()
            lines = self._chance.randint(0, 3)
            await self._soon(lambda: machine.log_text.count("\n") >= lines or not machine.alive or machine.is_working)
            await machine.end()
            self.storm.ends["killed while they start"] += 1
        await self._start(machine)
        self._world.redeliver()

    async def _start(self, machine: Machine) -> None:
        await machine.start()
        await machine.ready()
        if machine.receives:
            self._world.listen_at(machine.address)

    async def _kill(self, machine: Machine) -> str:
        await machine.end(signal.SIGKILL)
        return "killed"

    async def _terminate(self, machine: Machine) -> str:
        machine.send(signal.SIGTERM)
        if not await machine.ended():
            self.storm.faults.append(f"{machine.name} does not end by SIGTERM:\n{machine.log_text[-2000:]}")
        return "told to end"

    async def _suspend(self, machine: Machine) -> str:
        """Be a network that loses a machine, which then comes back and finds others at its jobs."""
        worker = machine.worker
        machine.send(signal.SIGSTOP)
        await asyncio.to_thread(self._cut_off, machine)
        await self._soon(lambda: self._count("SELECT count(*) FROM jobs WHERE worker = %s", worker) == 0)
        machine.send(signal.SIGCONT)
        if not await machine.ended():
            self.storm.faults.append(f"{machine.name} goes on after it was taken for dead:\n{machine.log_text[-2000:]}")
        return "suspended"

    def _cut_off(self, machine: Machine) -> None:
        """Have PostgreSQL end the sessions of a worker, as it does three seconds after the network is gone."""
        slot = int(machine.worker.split("-")[1])
        self._count(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s OR pid IN"
            " (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s)",
            machine.name, ADVISORY_CLASS, slot,
        )  # fmt: skip

    def _count(self, question: str, *values: object) -> int:
        assert self._shared is not None
        with psycopg.connect(self._shared.database_url, autocommit=True) as connection:
            row = connection.execute(question.encode(), values).fetchone()
        return int(row[0]) if row else 0

    async def _soon(self, probe: Callable[[], bool]) -> None:
        await eventually(probe, within=_STEP_SECONDS)


def _machines(plan: Plan, world: World, directory: Path, shared: Shared | None) -> list[Machine]:
    commands: dict[str, tuple[str, ...]] = {"service": ("serve",)}
    if shared is not None:
        commands = {f"receiver{number}": ("serve", "--no-work") for number in range(plan.receivers)}
        commands |= {f"worker{number}": ("work", "--concurrency", "4") for number in range(plan.workers)}
    machines = []
    for name, words in commands.items():
        place = directory / name
        place.mkdir()
        # A process that dies in the middle of a step has it asked for again.
        model = scripted(place, [LOOK, FIX, FIX, FIX])
        told = variables(world.hub, world.app, place, jobs=4, drain_seconds="2", **model)
        if shared is not None:
            told |= {"CODEPILOT_DATABASE_URL": shared.database_url, "PGAPPNAME": name, **shared.blobs}
        machines.append(Machine(name=name, words=words, variables=told, directory=place))
    return machines
