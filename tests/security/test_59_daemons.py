"""Threat 59: `setsid`/`nohup` daemons are gone within a second of the session's end, and of the bot's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.tools.shell import ShellTools
from tests.sandboxes import processes_with, seconds
from tests.waiting import eventually

DAEMONS = {
    "setsid": "setsid sleep {tag} >/dev/null 2>&1 </dev/null & disown",
    "nohup": "nohup sleep {tag} >/dev/null 2>&1 & disown",
    "twice forked": "(setsid sh -c '(sleep {tag} &) &' &) >/dev/null 2>&1 </dev/null",
    "deaf": "setsid bash -c 'trap \"\" HUP INT TERM; sleep {tag}; :' >/dev/null 2>&1 </dev/null & disown",
}


@pytest.mark.parametrize("kind", DAEMONS)
async def test_a_daemon_dies_with_its_session(kind: str, tmp_path: Path) -> None:
    tag = seconds(71000)
    tools = ShellTools(Bubblewrap(SandboxSettings()), tmp_path)
    await tools.execute("main", DAEMONS[kind].format(tag=tag))
    await eventually(lambda: processes_with(tag))
    await tools.close()
    await eventually(lambda: not processes_with(tag))


async def test_a_daemon_dies_with_the_shell_that_exits(tmp_path: Path) -> None:
    tag = seconds(71010)
    tools = ShellTools(Bubblewrap(SandboxSettings()), tmp_path)
    await tools.execute("main", DAEMONS["setsid"].format(tag=tag))
    await eventually(lambda: processes_with(tag))
    await tools.execute("main", "exit")
    await eventually(lambda: not processes_with(tag))
    await tools.close()


async def test_a_daemon_dies_with_a_bot_that_is_killed(tmp_path: Path) -> None:
    tag = seconds(71020)
    bot = (
        "import asyncio, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from agent_runtime.sandbox.bubblewrap import Bubblewrap\n"
        "from agent_runtime.sandbox.protocol import SandboxSettings\n"
        "from agent_runtime.tools.shell import ShellTools\n"
        "async def main():\n"
        "    tools = ShellTools(Bubblewrap(SandboxSettings()), Path(sys.argv[1]))\n"
        f"    await tools.execute('main', {DAEMONS['deaf'].format(tag=tag)!r})\n"
        f"    await tools.execute('main', 'sleep {tag}', 0.1)\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", bot, tmp_path, root], stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - the bot's stand-in
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert processes_with(tag)
        process.send_signal(signal.SIGKILL)
    await eventually(lambda: not processes_with(tag))


async def test_a_detached_process_dies_with_a_killed_bot(tmp_path: Path) -> None:
    """Shells end without a listener; this process would not notice."""
    tag = seconds(71030)
    bot = (
        "import subprocess, sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from agent_runtime.sandbox.bubblewrap import Bubblewrap\n"
        "from agent_runtime.sandbox.protocol import SandboxSettings\n"
        f"launch = Bubblewrap(SandboxSettings()).launch(['sleep', '{tag}'], workspace=Path(sys.argv[1]))\n"
        "subprocess.Popen(launch.argv, env=dict(launch.env))\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", bot, tmp_path, Path(__file__).parents[2]]) as process:  # noqa: ASYNC220 - the bot's stand-in
        try:
            await eventually(lambda: "sleep" in _names(tag) or None)
            process.kill()
            await eventually(lambda: not processes_with(tag))
        finally:
            process.kill()
            for left in processes_with(tag):
                os.kill(left, signal.SIGKILL)


def _names(argument: str) -> set[str]:
    found = set()
    for pid in processes_with(argument):
        with suppress(OSError):  # ended meanwhile
            found.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return found
