"""The difference of a pull request of 5,000 files: git, the order, and the text for the first message."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.measure import Figure
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from bot.prompt.difference import Difference, choose_readable, order_files
from tests.origin import Origin

FILES = 5_000
_RUNS = 3
"""The least counts: other work on the machine only adds."""
_WORDS = "See src/pkg7/file7.py and the `Makefile`. " * 100


def measure() -> list[Figure]:
    """Two figures: with git, and of the bot alone."""
    with tempfile.TemporaryDirectory() as directory:
        runs = [asyncio.run(_show(Path(directory) / "state", source)) for source in [_prepare(Path(directory))] * _RUNS]
    git, own = (min(run[each] for run in runs) for each in range(2))
    what = f"the difference of a pull request of {FILES:,} files"
    return [
        Figure(label=f"{what}: compared by git, with attributes and patch", value=git, unit="ms", bound=2_000),
        Figure(label=f"{what}: ordered and rendered", value=own, unit="ms", bound=500),
    ]


def _prepare(folder: Path) -> tuple[Source, Source]:
    origin = Origin(folder / "origin")
    names = [f"src/pkg{number % 300}/file{number}.py" for number in range(FILES)]
    text = "".join(f"line {number}\n" for number in range(40))
    base = origin.commit(
        {name: f"{name}\n{text}" for name in names} | {".gitattributes": "gen/** linguist-generated\n"}
    )
    origin.git("checkout", "--quiet", "-b", "topic")
    for name in names[: FILES // 10]:  # a tenth is renamed
        (origin.path / name).rename(origin.path / name.replace("file", "moved"))
    changed = {name: f"{name}\n{text.replace('line 20', 'line twenty')}" for name in names[FILES // 10 :]}
    head = origin.commit(changed | {"package-lock.json": "".join(f'"{number}": 1,\n' for number in range(1_500))})
    return (
        Source(url=origin.url, token="", ref="refs/heads/main", sha=base),
        Source(url=origin.url, token="", ref="refs/heads/topic", sha=head),
    )


async def _show(state: Path, sources: tuple[Source, Source]) -> tuple[float, float]:
    """Return the milliseconds of git and of the bot."""
    workspaces = Workspaces(state)
    await workspaces.compare(1, *sources)  # the mirror is warm
    start = time.perf_counter()
    comparison = await workspaces.compare(1, *sources)
    compared = time.perf_counter() - start
    start = time.perf_counter()
    ordered = order_files(comparison.files, [_WORDS])
    readable = choose_readable(ordered)
    order_seconds = time.perf_counter() - start
    start = time.perf_counter()
    sections = await workspaces.read_sections(1, comparison, readable)
    read = time.perf_counter() - start
    start = time.perf_counter()
    Difference.of(ordered, sections).render(60_000)
    return 1_000 * (compared + read), 1_000 * (order_seconds + time.perf_counter() - start)
