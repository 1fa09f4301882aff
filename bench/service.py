"""What a real `codepilot serve` is told by the benches that start one on a hub of their own."""

from __future__ import annotations

import os
from pathlib import Path

from bench.bench_delivery import SECRET
from bot.localhub import LocalHub
from bot.localhub.model import App


def variables(hub: LocalHub, app: App, directory: Path, *, jobs: int, **others: str) -> dict[str, str]:
    """The whole environment of the service, whose data and key are made in `directory`.

    Args:
        hub: its GitHub.
        app: who it is there.
        directory: an empty one.
        jobs: how many it works on at once.
        others: what else, the model above all, by the names without `CODEPILOT_`, in small letters.
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
        **{f"CODEPILOT_{name.upper()}": value for name, value in others.items()},
    }
