"""Commands in the real sandbox without an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime import CommandRunner, Connection, Network, SandboxSettings, SettingsError, pick_sandbox

SANDBOX = pick_sandbox("bubblewrap", SandboxSettings())


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[CommandRunner]:
    async with CommandRunner(SANDBOX, tmp_path) as made:
        yield made


async def test_a_command_works_in_the_workspace_and_its_files_stay(runner: CommandRunner, tmp_path: Path) -> None:
    end = await runner.run("pwd\nmkdir made && echo hi | tee made/file", seconds=20)
    assert (end.ok, end.exit_code, end.output.split()) == (True, 0, ["/workspace", "hi"])
    assert (tmp_path / "made/file").read_text() == "hi\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("false\necho went on", 1),
        ("false | true\necho went on", 1),
        ("echo 'open", 2),
        ("read line\necho went on", 1),
        ("no-such-program", 127),
    ],
)
async def test_the_first_thing_that_fails_ends_a_command(runner: CommandRunner, command: str, code: int) -> None:
    end = await runner.run(command, seconds=20)
    assert (end.ok, end.exit_code) == (False, code)
    assert "went on" not in end.output


async def test_a_command_leaves_neither_directory_nor_variables_to_the_next(runner: CommandRunner) -> None:
    await runner.run("cd /tmp; export LEFT=1", seconds=20)
    assert (await runner.run('pwd; echo "[$LEFT]"', seconds=20)).output.split() == ["/workspace", "[]"]


async def test_commands_start_in_the_directory_that_is_named_or_else_in_the_workspace(
    tmp_path: Path,
) -> None:
    place = "it's [a] $(dir)"
    (tmp_path / place).mkdir()
    async with CommandRunner(SANDBOX, tmp_path, start_in=place) as runner:
        for _ in range(2):
            assert (await runner.run("pwd", seconds=20)).output.strip() == f"/workspace/{place}"
    async with CommandRunner(SANDBOX, tmp_path, start_in="gone") as runner:
        assert (await runner.run("pwd", seconds=20)).output.strip() == "/workspace"


async def test_a_command_that_takes_too_long_is_stopped_and_the_next_one_runs(runner: CommandRunner) -> None:
    end = await runner.run("echo begun; sleep 600", seconds=0.3)
    assert (end.ok, end.exit_code, end.timed_out) == (False, None, True)
    assert "begun" in end.output
    assert "stopped after 0.3 s" in end.note
    assert (await runner.run("echo next", seconds=20)).ok


async def test_of_much_output_the_ends_are_kept(runner: CommandRunner) -> None:
    end = await runner.run("seq 1 1000000; echo the end; exit 4", seconds=60)
    assert end.exit_code == 4
    assert len(end.output) < 20_000
    assert end.output.startswith("1\n2\n")
    assert end.output.endswith("the end\n")


async def test_output_without_end_is_stopped(runner: CommandRunner) -> None:
    end = await runner.run("cat /dev/zero | tr '\\0' y", seconds=60)
    assert (end.exit_code, end.timed_out) == (None, False)
    assert "wrote more than" in end.note


async def test_a_command_that_ends_its_shell_has_no_exit_code_of_its_own(runner: CommandRunner) -> None:
    end = await runner.run("kill -9 $PPID; sleep 60", seconds=30)
    assert (end.exit_code, end.timed_out, end.ok) == (None, False, False)
    assert "the shell itself ended" in end.note


async def test_there_is_no_network_unless_one_is_given(runner: CommandRunner) -> None:
    assert not (await runner.run("exec 3<>/dev/tcp/127.0.0.1/3128", seconds=20)).ok


async def test_the_network_is_enforced_and_connections_are_reported(tmp_path: Path) -> None:
    told: list[Connection] = []
    ask = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT b.example:443 HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    async with CommandRunner(SANDBOX, tmp_path, network=Network.of("a.example"), on_connection=told.append) as runner:
        end = await runner.run(ask, seconds=20)
    assert "403" in end.output
    assert [(each.host, each.allowed) for each in told] == [("b.example", False)]


def test_a_sandbox_that_keeps_to_no_network_is_refused(tmp_path: Path) -> None:
    local = pick_sandbox("local", SandboxSettings())
    with pytest.raises(SettingsError, match="hosts"):
        CommandRunner(local, tmp_path, network=Network.of("a.example"))
