"""Threat 60: what a program writes or leaves set makes neither a wrong end of a command nor a host out of memory."""

from __future__ import annotations

import asyncio
import select
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.terminals import command as command_module
from agent_runtime.terminals import processes
from agent_runtime.terminals.output import Output
from agent_runtime.terminals.processes import ProcessFamily
from agent_runtime.terminals.terminal import Terminal
from agent_runtime.tools.shell import ShellTools
from agent_runtime.workspace.files import Workspace
from tests.sandboxes import processes_with, seconds
from tests.waiting import eventually

FORGE = r"printf '\e]7770;%s;0 0;4;/tmp\a' "


@pytest_asyncio.fixture
async def tools(tmp_path: Path) -> AsyncIterator[ShellTools]:
    made = ShellTools(Bubblewrap(SandboxSettings()), tmp_path)
    yield made
    await made.close()


async def run(tools: ShellTools, command: str, seconds: float = 20) -> dict[str, Plain]:
    value = (await tools.execute("main", command, seconds)).value
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("before", ["set -a", "set -a; export PROMPT_COMMAND", "export __cp_nonce", "set -ax"])
async def test_programs_never_inherit_the_nonce(tools: ShellTools, tmp_path: Path, before: str) -> None:
    (tmp_path / "forge").write_text(f'{FORGE} "$__cp_nonce" >/dev/tty; exit 3\n')
    await run(tools, before)
    await run(tools, "env > seen")
    assert "__cp_nonce=" not in (tmp_path / "seen").read_text()
    forged = await run(tools, "bash forge")
    assert (forged["exit_code"], forged["cwd"]) == (3, "/workspace")


async def test_a_trace_that_goes_to_a_file_does_not_help_to_forge(tools: ShellTools, tmp_path: Path) -> None:
    find = "$(grep -aoE '[0-9a-f]{32}' trace)"
    (tmp_path / "forge").write_text(f'for nonce in {find}; do {FORGE} "$nonce" >/dev/tty; done; exit 3\n')
    await run(tools, "exec 2>trace; set -x")
    forged = await run(tools, "bash forge")
    assert (forged["exit_code"], forged["cwd"]) == (3, "/workspace")


async def test_a_mark_without_an_end_is_output(tools: ShellTools) -> None:
    endless = await run(tools, "printf '\\e]7770;%s;' \"$__cp_nonce\"; head -c 3000000 /dev/zero | tr '\\0' x; false")
    assert "characters left out" in str(endless["output"])
    assert endless["exit_code"] == 1


async def test_a_job_that_never_stops_writing_is_not_read_for_ever(
    tools: ShellTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Output, "is_over_quota", property(lambda output: output.bytes > 1_000_000))
    await run(tools, "yes &")
    terminal = tools._terminals["main"]
    assert isinstance(terminal, Terminal)
    shell = terminal._shell
    assert shell is not None
    await eventually(lambda: shell._output.is_over_quota)
    read = shell._output.bytes
    await eventually(lambda: select.select([shell.pty.fd], [], [], 0)[0] or None)  # there is more to read
    for _ in range(100):  # turns of the loop, each of which would read
        await asyncio.sleep(0)
    assert shell._output.bytes == read
    # Bash tells of the end of a job when it has noticed it, which may be with a later command.
    assert (await run(tools, "kill %1; wait %1; false"))["exit_code"] == 1
    assert (await run(tools, "echo works"))["output"] == "works\n"


async def test_numbers_in_a_mark_are_short() -> None:
    marker = command_module.parse_marker(b"9" * 5_000 + b" 0;" + b"9" * 5_000 + b";/")
    assert (marker.exit_code, marker.pid, marker.ok) == (0, 0, True)


async def test_an_environment_of_any_size_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process can declare gigabytes as its environment (PR_SET_MM in prctl(2))."""
    mark = "m" * 32
    with subprocess.Popen(["sleep", "60"], env={processes.MARK: mark, "LAST": "x" * 5_000}) as process:  # noqa: ASYNC220 - to look at
        family = ProcessFamily(mark=mark, session=0, namespace=None)
        await eventually(lambda: family.contains(process.pid))
        monkeypatch.setattr(processes, "_MAX_ENVIRONMENT_BYTES", 20)
        assert not family.contains(process.pid)
        process.kill()


def test_a_removed_temporary_file_is_a_reported_error(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        staged = workspace.stage("file", b"new")
        next(tmp_path.glob(".*.tmp")).unlink()
        with pytest.raises(ToolError, match="does not exist"), staged:
            workspace.put("file", staged)


async def test_daemons_do_not_outlive_the_terminal_that_hides_its_environment(tools: ShellTools) -> None:
    tag = seconds(60060)
    await run(tools, f"env -i setsid /usr/bin/sleep {tag} >/dev/null 2>&1 </dev/null & disown")
    await eventually(lambda: processes_with(tag))
    await tools.close()
    await eventually(lambda: not processes_with(tag))
