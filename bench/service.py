"""A real `codepilot serve`, for the benches that start one on a hub of their own."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from bench.bench_delivery import SECRET
from localhub import App, LocalHub


def variables(hub: LocalHub, app: App, directory: Path, *, jobs: int, **settings: str) -> dict[str, str]:
    """The whole environment of the service, whose data and key are made in `directory`.

    Args:
        hub: its GitHub.
        app: who it is there.
        directory: an empty one.
        jobs: how many it works on at once.
        settings: what else, the model above all, by the names without `CODEPILOT_`, in small letters.
    """
    key = directory / "app.pem"
    key.touch(mode=0o600)
    key.write_text(app.private_key_pem)
    (directory / "bot").mkdir(mode=0o700)
    return {
        "PATH": os.environ["PATH"],
        "CODEPILOT_WEBHOOK_SECRET": SECRET,
        "CODEPILOT_APP_ID": str(app.id),
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "CODEPILOT_DATA_DIR": str(directory / "bot"),
        "CODEPILOT_API_URL": hub.api_url,
        "CODEPILOT_SERVER_URL": hub.url,
        "CODEPILOT_PORT": "0",
        "CODEPILOT_JOBS": str(jobs),
        "CODEPILOT_LEVEL": "auto",
        "CODEPILOT_CAPS": "thread=10000,user=10000,repository=10000,installation=10000",
        "CODEPILOT_ALLOW_ROOT": "yes",
        **{f"CODEPILOT_{name.upper()}": value for name, value in settings.items()},
    }


def scripted(directory: Path, replies: Sequence[str]) -> dict[str, str]:
    """The settings of a model that gives these replies in each run."""
    script = directory / "script.yaml"
    script.write_text(yaml.safe_dump([{"reply": reply} for reply in replies]))
    return {"provider": "scripted", "model": str(script)}


@asynccontextmanager
async def serving(directory: Path, env: Mapping[str, str]) -> AsyncIterator[str]:
    """`codepilot serve` as an operator starts it; the address of its webhook. Files: `log`, what it says; `pid`."""
    log = directory / "log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bot", "serve", env=env, stderr=stderr)
    (directory / "pid").write_text(str(process.pid))
    try:
        while not (found := re.search(r"listening on (http://\S+/webhook)", log.read_text())):
            assert process.returncode is None, log.read_text()
            await asyncio.sleep(0.05)
        yield found[1]
    finally:
        process.kill()
        await process.wait()
