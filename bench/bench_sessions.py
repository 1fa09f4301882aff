"""Cost of a session: saving a step early and late in a long one, and loading one of 10,000 messages."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from agent_runtime import DatabaseSession, FileSession, InMemorySession, Session
from agent_runtime.core.events import Observed, Recorded, Replied, ToolReturned
from agent_runtime.core.values import Plain, Usage
from agent_runtime.sessions.codec import encode
from bench.measure import Figure, percentile
from bench.stores import stores

LENGTHS = (10, 1_000, 10_000)
STEPS = 60
_USAGE = Usage(requests=1, input_tokens=300, cached_tokens=9_000, output_tokens=150, cost_usd=0.01)
_LINES = "    41 | def test_adding_keeps_its_promise() -> None:\n"
_SEED_AT_10_000 = "codepilot-ai 0.9.1 rewrites the whole file: 496 ms at 10,000 messages"

Make = Callable[[], Session]


def measure() -> list[Figure]:
    """Every store: files on the disk of temporary files, and PostgreSQL where it is installed."""
    with tempfile.TemporaryDirectory() as name, stores() as found:
        at = Path(name)
        url = f"sqlite:///{at / 'sessions.db'}"
        observed = Observed(step=1, text=_LINES * 1_300, ok=True)
        return [
            *_save("memory", InMemorySession, bound=1),
            *_save("file", lambda: FileSession("save", session_dir=at), bound=3, note=_SEED_AT_10_000),
            _bare(at / "bare"),
            *_save("db, SQLite", lambda: DatabaseSession("save", db_url=url)),
            *(
                _save("db, PostgreSQL", lambda: DatabaseSession("save", db_url=server))
                if (server := found.get("PostgreSQL", str)())
                else ()
            ),
            _load("file", lambda: FileSession("load", session_dir=at)),
            _load("db, SQLite", lambda: DatabaseSession("load", db_url=url)),
            Figure(
                label=f"writing down an event of {len(observed.text) // 1000} kB",
                value=min(timeit.repeat(lambda: encode(observed), number=20)) / 20 * 1000,
                unit="ms",
                bound=1,
            ),
        ]


def _step(number: int) -> list[Recorded]:
    """Record a step: 600 characters of reply, one call, 1,500 characters of output."""
    args: dict[str, Plain] = {"path": "tests/test_add.py", "start_line": 1}
    return [
        Replied(step=number, text="I read the test first, then the code.\n" * 16, usage=_USAGE),
        ToolReturned(
            number=number,
            tool="read_file",
            args=args,
            value="x" * 400,
            text="x" * 400,
            ok=True,
            seconds=0,
            label="read",
        ),
        Observed(step=number, text=_LINES * 32, ok=True),
    ]


def _save(store: str, make: Make, *, bound: float | None = None, note: str = "") -> list[Figure]:
    """Medians of single steps, each recorded and committed, when the session has grown to each length."""
    session = make()
    medians = asyncio.run(_grow(session))
    session.close()
    return [
        Figure(label=f"saving a step ({store}) after {length:,} events", value=median * 1000, unit="ms", bound=bound,
               note=note if length == LENGTHS[-1] else "")
        for length, median in zip(LENGTHS, medians, strict=True)
    ]  # fmt: skip


async def _grow(session: Session) -> list[float]:
    medians = list[float]()
    for length in LENGTHS:
        while len(session.events) < length:
            for event in _step(0):
                session.append(event)
        await session.commit()
        medians.append(percentile([await _timed_step(session, number) for number in range(STEPS)], 0.5))
    return medians


async def _timed_step(session: Session, number: int) -> float:
    events = _step(number)
    begun = time.perf_counter()
    for event in events:
        session.append(event)
    await session.commit()
    return time.perf_counter() - begun


def _bare(path: Path) -> Figure:
    """Time of the disk for the bytes of a step."""
    data, seconds = b"\n".join(encode(event) for event in _step(0)), list[float]()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(STEPS):
        begun = time.perf_counter()
        os.write(fd, data)
        os.fsync(fd)
        seconds.append(time.perf_counter() - begun)
    os.close(fd)
    return Figure(label="a bare write and sync of a step's bytes", value=percentile(seconds, 0.5) * 1000, unit="ms")


def _load(store: str, make: Make) -> Figure:
    """A session of 10,000 messages, 600 and 1,500 characters by turns; the best of five."""
    session = make()
    for number in range(5_000):
        reply, _, observed = _step(number)
        session.append(reply)
        session.append(observed)
    session.close()
    seconds = []
    for _ in range(5):
        session = make()
        begun = time.perf_counter()
        assert len(session.events) == 10_000
        seconds.append(time.perf_counter() - begun)
        session.close()
    return Figure(label=f"loading 10,000 messages ({store})", value=min(seconds), unit="s", bound=0.2)
