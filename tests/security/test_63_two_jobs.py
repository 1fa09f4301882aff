"""Threat 63: two jobs at once can neither list, read, signal nor connect to each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.tools.shell import ShellTools
from tests.sandboxes import processes_with, seconds
from tests.waiting import eventually

SECRET = "only-in-the-other-job"


@pytest_asyncio.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[tuple[ShellTools, ShellTools]]:
    sandbox = Bubblewrap(SandboxSettings())
    made = []
    for name in ("victim", "attacker"):
        (tmp_path / name).mkdir()
        made.append(ShellTools(sandbox, tmp_path / name))
    victim, attacker = made
    serve = "/usr/bin/python3 -c \"import socket,time; a = socket.create_server(('127.0.0.1', 8799)); "
    serve += (
        "b = socket.socket(socket.AF_UNIX); b.bind(chr(0) + 'victim'); b.listen(); print('up'); "
        f'time.sleep({seconds(63063)})"'
    )
    hide = f"echo {SECRET} | tee secret /tmp/secret ~/secret /dev/shm/secret; export KEY={SECRET}; "
    await victim.execute("main", hide + serve, 0.2)
    await eventually(lambda: processes_with(serve.split('"')[1]))
    yield victim, attacker
    await victim.close()
    await attacker.close()


@pytest.mark.parametrize(
    "attempt",
    [
        "ls -laR /workspace/.. 2>/dev/null | head -2000",
        "cat /workspace/../victim/secret /workspace/secret /tmp/secret ~/secret /dev/shm/secret",
        "grep -rs only-in /workspace /tmp /home /dev/shm /proc/[0-9]*/environ /proc/[0-9]*/cmdline",
        "ps auxeww; ls /proc",
        "find / -name secret -not -path '/proc/*' -not -path '/usr/*'",
        "ipcs -a; ls /dev/mqueue",
    ],
)
async def test_nothing_of_another_job_can_be_read(jobs: tuple[ShellTools, ShellTools], attempt: str) -> None:
    output = (await jobs[1].execute("main", attempt, 20)).value
    assert isinstance(output, dict)
    shown = str(output["output"])
    assert SECRET not in shown
    assert "/secret\n" not in shown.replace(": No such file", "")
    assert "63063" not in shown


async def test_another_job_can_neither_be_signalled_nor_connected_to(jobs: tuple[ShellTools, ShellTools]) -> None:
    victim, attacker = jobs
    result: Any = (
        await attacker.execute(
            "main",
            "exec 3<>/dev/tcp/127.0.0.1/8799 && echo connected\n"
            "/usr/bin/python3 -c \"from socket import *; socket(AF_UNIX).connect(chr(0) + 'victim'); print('met')\"\n"
            "kill -9 -1; kill -9 $(seq 2 3000) 2>/dev/null; true",
            20,
        )
    ).value
    assert "connected" not in result["output"]
    assert "met" not in result["output"]
    alive: Any = (await victim.read_output("main", 0.1)).value
    assert alive["status"] == "running"


async def test_terminals_of_different_jobs_show_the_same_paths(jobs: tuple[ShellTools, ShellTools]) -> None:
    result: Any = (await jobs[1].execute("main", "pwd; hostname; whoami; echo $HOME")).value
    assert result["output"] == "/workspace\nsandbox\nagent\n/home/agent\n"
