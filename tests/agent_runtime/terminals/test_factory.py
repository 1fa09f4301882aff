"""Terminals of this system, without a sandbox, with all installed shells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.sandbox.select import Local
from agent_runtime.terminals.factory import LiveTerminal, TerminalFactory, create_terminals
from agent_runtime.terminals.output import Spool

_SHELLS = ("bash", "powershell", "cmd")
_VARIABLE = {"bash": ("x=5", "echo $x"), "powershell": ("$x = 5", "echo $x"), "cmd": ("set x=5", "echo %x%")}
_FAIL = {
    "bash": "(exit 7)",
    "powershell": "cmd /c exit 7",
    "cmd": "cmd /c exit 7",
}
_SLEEP = {"bash": "sleep 60", "powershell": "Start-Sleep 60", "cmd": "ping -n 60 127.0.0.1 >nul"}


@pytest.fixture
async def factory(tmp_path: Path) -> AsyncIterator[TerminalFactory]:
    (tmp_path / "work").mkdir()
    made = create_terminals(Local(SandboxSettings()), tmp_path / "work", {}, Spool(tmp_path / "logs"))
    yield made
    await made.close()


@pytest.fixture(params=_SHELLS)
async def terminal(factory: TerminalFactory, request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, LiveTerminal]]:
    shell = str(request.param)
    if shell not in factory.shells:
        pytest.skip(f"{shell} is no shell of this system")
    made = factory.terminal("main", shell)
    yield shell, made
    await made.close()


async def test_output_exit_code_and_directory_are_reported(terminal: tuple[str, LiveTerminal], tmp_path: Path) -> None:
    _, live = terminal
    report = await live.run("echo hello", timeout=60)
    assert (report.status, report.exit_code, report.ok) == ("completed", 0, True)
    assert report.output.strip() == "hello"
    assert Path(report.cwd).samefile(tmp_path / "work")  # noqa: ASYNC240 - nothing else runs


async def test_a_failure_and_multiline_output_are_reported(terminal: tuple[str, LiveTerminal]) -> None:
    shell, live = terminal
    assert (await live.run(_FAIL[shell], timeout=60)).exit_code == 7
    assert (await live.run("echo a\necho b", timeout=60)).output.split() == ["a", "b"]


async def test_state_lives_on(terminal: tuple[str, LiveTerminal]) -> None:
    shell, live = terminal
    setting, getting = _VARIABLE[shell]
    await live.run(setting, timeout=60)
    assert (await live.run(getting, timeout=60)).output.strip() == "5"


async def test_a_running_command_is_interrupted_and_another_follows(terminal: tuple[str, LiveTerminal]) -> None:
    shell, live = terminal
    assert (await live.run(_SLEEP[shell], timeout=1)).status == "running"
    await live.interrupt("enough")
    report = await live.read(timeout=10)
    assert report is not None
    assert report.status == "stopped"
    assert (await live.run("echo again", timeout=60)).output.strip() == "again"
