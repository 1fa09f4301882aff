"""Ask a sandbox for its programs once, not in every run: node and npm alone take longer than most runs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path

from agent_runtime.context.first_message import describe_toolchain
from agent_runtime.sandbox.protocol import Sandbox

kept: list[Path] = []
"""The folder of the answers, while there is one."""


def remembered(folder: Path) -> Callable[[Sandbox, Path], Coroutine[None, None, str]]:
    """What `toolchain` answers, kept in a folder for all processes that are told of it."""

    async def known(sandbox: Sandbox, workspace: Path) -> str:
        launch = sandbox.launch(["true"], workspace=workspace)
        words = "\0".join([*launch.argv, *map(str, launch.env.items())])
        words = words.replace(str(await asyncio.to_thread(workspace.resolve)), "").replace(str(workspace), "")
        # A process keeps what it shows in its sandboxes in a directory of its own.
        words = re.sub(r"codepilot-sandbox-\w+", "", words)
        answer = folder / hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()
        if not answer.exists():
            said = await describe_toolchain(sandbox, workspace)
            new = answer.with_suffix(f".{os.getpid()}")
            new.write_text(said, encoding="utf-8")
            new.replace(answer)
        return answer.read_text(encoding="utf-8")

    return known
