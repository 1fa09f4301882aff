"""How much of a core `codepilot serve` takes while there is nothing to do; on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from bench.measure import Figure
from bench.service import scripted, serving, variables
from bench.stores import stores
from localhub import LocalHub

_SETTLE_SECONDS, _SECONDS = 8.0, 15.0


def measure() -> list[Figure]:
    """The processor time of the service's process, from when it has settled."""
    with stores() as found:
        return [
            Figure(label=f"idle service, {name}", value=100 * asyncio.run(_share(new())), unit="% of a core", bound=5)
            for name, new in found.items()
        ]


async def _share(url: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with LocalHub(directory / "hub") as hub:
            hub.add_user("mona")
            app = hub.add_app("codepilot", webhook_secret="bench" * 8, events=["issue_comment"])
            told = variables(hub, app, directory, jobs=4, database_url=url, **scripted(directory, ["Done."]))
            async with serving(directory, told):
                process = int((directory / "pid").read_text())
                await asyncio.sleep(_SETTLE_SECONDS)
                before = _processor_seconds(process)
                await asyncio.sleep(_SECONDS)
                return (_processor_seconds(process) - before) / _SECONDS


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
