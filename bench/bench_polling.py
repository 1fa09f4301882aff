"""Load of idle workers on PostgreSQL: transactions, processor time of the server, connections.

Starts a PostgreSQL server and workers of its own, so it is run by hand: `python -m bench.bench_polling`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg

from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from tests.builders import a_job
from tests.postgres import Postgres, programs, running

_SETTLE_SECONDS, _SECONDS = 10.0, 15.0
_LOOKS = 20_000
_DATABASE = "bench"
_JOBS_AT_ONCE = 2  # of the process below


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    at: float
    transactions: int
    processor: float
    connections: int


def _read(server: Postgres) -> _Reading:
    counts = (
        "SELECT sum(xact_commit + xact_rollback), (SELECT count(*) FROM pg_stat_activity WHERE datname = %s) "
        "FROM pg_stat_database"
    )
    with psycopg.connect(server.url(), autocommit=True) as connection:
        row = connection.execute(counts.encode(), (_DATABASE,)).fetchone()
    assert row is not None
    return _Reading(
        at=time.monotonic(), transactions=int(row[0]), processor=_processor(server.port), connections=int(row[1])
    )


def _processor(port: int) -> float:
    """Seconds of processor time of the server and its children, living and ended ones."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
    [top] = [each for each in stats if f"--port={port}".encode() in _command(each).split(b"\0")]
    family = [fields for number, fields in stats.items() if number == top or int(fields[1]) == top]
    living = sum(int(fields[11]) + int(fields[12]) for fields in family)
    ended = sum(map(int, stats[top][13:15]))
    return (living + ended) / os.sysconf("SC_CLK_TCK")


def _command(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def _workers(url: str, folder: Path, count: int) -> Iterator[None]:
    argv = [sys.executable, "-m", "tests.bot.queue.process", url, str(folder)]
    with ExitStack() as stack:
        for number in range(count):
            process = stack.enter_context(subprocess.Popen([*argv, f"worker-{number}"]))
            stack.callback(process.kill)
        yield


async def _queue(url: str, count: int) -> None:
    """Queue jobs of as many threads, each of another installation."""
    store = JobStore(url)
    for number in range(count):
        job = a_job(f"job-{number}", number=number + 1, comment_id=number + 1)
        await DurableEngine(store).accept(replace(job, installation=number + 1))
    await store.close()


def measured(server: Postgres, workers: int, jobs: int) -> str:
    """A row of the table."""
    server.run(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE)")
    server.run(f"CREATE DATABASE {_DATABASE}")
    url = server.url(_DATABASE)
    asyncio.run(_queue(url, jobs))
    with tempfile.TemporaryDirectory() as folder, _workers(url, Path(folder), workers):
        time.sleep(_SETTLE_SECONDS)
        before = _read(server)
        time.sleep(_SECONDS)
        after = _read(server)
    seconds = after.at - before.at
    transactions = (after.transactions - before.transactions) / seconds
    processor = (after.processor - before.processor) / seconds
    return (
        f"| {workers} | {jobs} | {transactions / workers:.0f} | {1000 * processor / workers:.1f} ms "
        f"| {after.connections / workers:.1f} |"
    )


def look(server: Postgres) -> float:
    """Seconds of the server's processor that one look costs whether another worker's place is free."""
    with psycopg.connect(server.url(), autocommit=True) as session, psycopg.connect(server.url()) as holder:
        holder.execute("SELECT pg_advisory_lock(1, 1)")
        before = _processor(server.port)
        for _ in range(_LOOKS):
            session.execute("SELECT pg_try_advisory_lock(1, 1)")
        return (_processor(server.port) - before) / _LOOKS


def main() -> None:
    found = programs()
    if found is None:
        sys.exit("PostgreSQL is not installed; run: scripts/system-programs dev")
    with running(found) as server:
        server.run("ALTER SYSTEM SET max_connections = 400")
        print("| workers | jobs under way | transactions a second | server's processor a second | connections |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        for workers in (1, 4):
            for jobs in (0, workers * _JOBS_AT_ONCE):
                print(measured(server, workers, jobs))
        print(f"\nOne look at the place of another worker: {1e6 * look(server):.0f} µs of the server's processor.")


if __name__ == "__main__":
    main()
