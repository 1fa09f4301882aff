from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import ToolResult
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.terminals.output import OutputLogs
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import MAX_TERMINALS, ShellTools
from agent_runtime.tools.tool import CallPlan, Registry
from agent_runtime.workspace.files import Workspace
from tests.sandboxes import processes_with, seconds
from tests.waiting import eventually


@pytest_asyncio.fixture
async def shell(tmp_path: Path) -> AsyncIterator[ShellTools]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    tools = ShellTools(Bubblewrap(SandboxSettings()), workspace, OutputLogs(tmp_path / "logs"))
    yield tools
    await tools.close()


def planned(shell: ShellTools, tool: str, args: dict[str, Any]) -> CallPlan:
    return shell.plan(tool, args, partial(getattr(shell, tool), **args))


def value(result: ToolResult) -> dict[str, Any]:
    assert isinstance(result.value, dict)
    return result.value


async def test_a_result_is_a_value_for_code_and_a_text_for_the_reader(shell: ShellTools) -> None:
    result = await shell.execute("main", "cd /tmp && echo hi")
    assert result.value == {"status": "completed", "exit_code": 0, "output": "hi\n", "cwd": "/tmp"}  # noqa: S108 - inside
    head, output, status = result.text.split("\n")
    assert head == "[terminal:main:cmd1] $ cd /tmp && echo hi"
    assert output == "hi"
    assert status.startswith("[status: completed | exit_code: 0 | 0.")
    assert status.endswith(" s | cwd: /tmp]")


async def test_check_raises_with_the_end_of_the_output_and_the_status(shell: ShellTools) -> None:
    await shell.execute("main", "true | true", check=True)
    with pytest.raises(ToolError) as failed:
        await shell.execute("main", "seq 100000; echo FAILED test_x; (exit 3) | cat", check=True)
    assert failed.value.kind == "RuntimeError"
    end = str(failed.value).splitlines()[-2:]
    assert end[0] == "FAILED test_x"
    assert "exit_code: 0 | pipe: 3 0" in end[1]


@pytest.mark.parametrize(("command", "status"), [("echo 'open", "incomplete"), ("exit 0", "restarted")])
async def test_check_raises_when_nothing_was_proven(shell: ShellTools, command: str, status: str) -> None:
    with pytest.raises(ToolError, match=status):
        await shell.execute("main", command, check=True)


async def test_a_timeout_is_a_state_and_with_check_an_error(shell: ShellTools) -> None:
    result = await shell.execute("main", "echo begun; sleep 60", 0.3)
    assert value(result) == {"status": "running", "exit_code": None, "output": "begun\n", "cwd": "/workspace"}
    with pytest.raises(ToolError, match=r"running") as failed:
        await shell.execute("other", "sleep 60", 0.1, new_terminal=True, check=True)
    assert failed.value.kind == "TimeoutError"


async def test_a_checked_command_that_still_runs_has_a_hint(shell: ShellTools) -> None:
    with pytest.raises(ToolError, match=r'read_output\("main", timeout=60, check=True\)'):
        await shell.execute("main", "sleep 0.3; exit 3", timeout=0, check=True)
    with pytest.raises(ToolError) as failed:
        await shell.read_output("main", timeout=30, check=True)
    assert (failed.value.kind, failed.value.value["exit_code"]) == ("RuntimeError", 3)  # type: ignore[index] # a mapping
    with pytest.raises(ToolError, match=r'waiting for input[^$]*send_input\("main"') as asked:
        await shell.execute("main", "read -p 'Name: ' name", timeout=30, check=True)
    assert asked.value.kind == "TimeoutError"


async def test_a_second_command_is_refused_by_the_name_of_the_first(shell: ShellTools) -> None:
    await shell.execute("main", "sleep 60", 0.05)
    with pytest.raises(ToolError, match="`sleep 60`"):
        await shell.execute("main", "echo no")
    with pytest.raises(ToolError, match="`sleep 60`"):
        await shell.execute("main", "echo no", new_terminal=True)


async def test_a_server_in_its_own_terminal_serves_the_others_and_ends_with_control_c(shell: ShellTools) -> None:
    serve = "/usr/bin/python3 -u -m http.server --bind 127.0.0.1 8000"
    started = await shell.execute("server", serve, 1, new_terminal=True)
    assert "Serving HTTP" in value(started)["output"]
    fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/').status)"
    result = await shell.execute("main", f'/usr/bin/python3 -c "{fetch}"', 10, check=True)
    assert value(result)["output"] == "200\n"
    assert re.search(r"^server: running `/usr/bin/python3 .*`, pid \d+, cwd /workspace$", shell.status, re.MULTILINE)
    assert re.search(r"^main: idle, pid \d+, cwd /workspace$", shell.status, re.MULTILINE)
    ended = await shell.send_input("server", "\x03", 5)
    assert value(ended)["exit_code"] == 0


async def test_bash_may_be_named_as_the_shell(shell: ShellTools) -> None:
    assert value(await shell.execute("main", "echo $BASH", shell="bash"))["output"] == "/usr/bin/bash\n"  # noqa: S604 - the name of a shell


async def test_the_log_of_a_long_output_is_read_by_the_other_tools_and_by_the_shell(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    sandbox, logs = Bubblewrap(SandboxSettings()), OutputLogs()
    shell = ShellTools(sandbox, tmp_path / "work", logs)
    path = "/logs/main-1.log"
    assert f"; all of it: {path} " in (await shell.execute("main", "seq 100000")).text
    with Workspace(tmp_path / "work", agent_path="/workspace", readable=logs.agent_paths(sandbox)) as workspace:
        files, search = FileTools(workspace), SearchTools(workspace, sandbox)
        assert "50000" in files.read_file(path, 49_999, 50_001).text
        hits = await search.find("^77777$", scope="file", target=path)
        assert hits.value == [{"file": path, "line": 77_777, "text": "77777"}]
        assert (await search.find("^77777$", target="/logs")).value == hits.value
        with pytest.raises(ToolError, match="outside the workspace"):
            workspace.write_bytes(path, b"")
        for outside in ("/logs/../etc/passwd", "/logs/none.log", "/logsx"):
            with pytest.raises(ToolError):
                files.read_file(outside)
    assert value(await shell.execute("main", f"sed -n 7p {path}"))["output"] == "7\n"
    search.close()
    await shell.close()
    logs.close()
    assert not logs.directory.exists()
    assert list((tmp_path / "work").iterdir()) == []


async def test_logs_of_terminals_with_the_same_name_do_not_overwrite_each_other(
    shell: ShellTools, tmp_path: Path
) -> None:
    for number in ("1", "2"):
        await shell.execute("a", f"yes {number} | head -20000", new_terminal=True)
        await shell.terminate_terminal("a")
    assert [(log.name, log.read_text()[:2]) for log in sorted((tmp_path / "logs").iterdir())] == [
        ("a-1.2.log", "2\n"),
        ("a-1.log", "1\n"),
    ]


async def test_output_is_read_as_a_difference_and_then_whole(shell: ShellTools) -> None:
    await shell.execute("main", "echo one; sleep 0.3; echo two", 0.1)
    assert value(await shell.read_output("main", 10))["output"] == "two\n"
    assert value(await shell.read_output("main"))["output"] == "one\ntwo\n"


async def test_input_reaches_programs_but_never_the_shell(shell: ShellTools) -> None:
    await shell.execute("main", "read word; echo got $word", 0.1)
    assert value(await shell.send_input("main", "yes\n"))["output"] == "got yes\n"
    with pytest.raises(ToolError, match="use execute"):
        await shell.send_input("main", "rm -rf .\n")


async def test_terminated_terminals_are_gone_and_main_starts_anew(shell: ShellTools) -> None:
    tag = seconds(61616)
    await shell.execute("server", f"sleep {tag}", 0.1, new_terminal=True)
    await eventually(lambda: processes_with(tag))
    await shell.terminate_terminal("server")
    await eventually(lambda: not processes_with(tag))
    with pytest.raises(ToolError, match="there are: main"):
        await shell.read_output("server")
    await shell.execute("main", "x=1")
    await shell.terminate_terminal("main")
    assert value(await shell.execute("main", "echo $x"))["output"] == "\n"


async def test_new_terminal_replaces_an_idle_one(shell: ShellTools) -> None:
    await shell.execute("a", "x=1", new_terminal=True)
    assert value(await shell.execute("a", "echo $x", new_terminal=True))["output"] == "\n"


async def test_an_interrupt_reaches_every_terminal(shell: ShellTools) -> None:
    await shell.execute("a", "sleep 60", 0.05, new_terminal=True)
    await shell.execute("main", "sleep 60", 0.05)
    await shell.interrupt("stopped by @mona")
    for name in ("a", "main"):
        assert "stopped by @mona" in (await shell.read_output(name)).text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"session_id": "none", "command": "true"}, "there are: main"),
        ({"session_id": "main", "command": "true", "timeout": -1}, "0 to 3600"),
        ({"session_id": "main", "command": "true", "timeout": float("nan")}, "0 to 3600"),
        ({"session_id": "main", "command": "true", "timeout": 1e9}, "0 to 3600"),
        ({"session_id": "main", "command": "a\0b"}, "NUL"),
        ({"session_id": "main", "command": "true", "shell": "zsh"}, "shell='zsh' is not offered; terminals run bash"),
        ({"session_id": "../x", "command": "true", "new_terminal": True}, "letters"),
        ({"session_id": "", "command": "true", "new_terminal": True}, "letters"),
    ],
)
async def test_the_error_of_an_argument_lists_the_allowed_values(
    shell: ShellTools, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await shell.execute(**arguments)


async def test_reading_before_anything_ran_is_refused(shell: ShellTools) -> None:
    with pytest.raises(ToolError, match="main"):
        await shell.read_output("main")


async def test_there_is_a_bound_on_terminals(shell: ShellTools) -> None:
    for number in range(MAX_TERMINALS - 1):
        await shell.execute(f"t{number}", "true", new_terminal=True)
    with pytest.raises(ToolError, match="terminate_terminal"):
        await shell.execute("more", "true", new_terminal=True)


async def test_closing_twice_is_fine_and_a_later_command_starts_a_new_shell(shell: ShellTools) -> None:
    await shell.execute("main", "true")
    await shell.close()
    await shell.close()
    assert shell.status == ""
    assert value(await shell.execute("main", "echo again"))["output"] == "again\n"


def test_the_family_registers_and_declares_itself_briefly(tmp_path: Path) -> None:
    registry = Registry()
    registry.add_family(ShellTools(Bubblewrap(SandboxSettings()), tmp_path))
    assert registry.names == ("execute", "read_output", "send_input", "terminate_terminal")
    assert "check: bool = False" in registry.declarations
    assert len(registry.listing) < 450


# Told beforehand.


async def test_the_plan_of_a_command_has_its_terminal_and_directory(shell: ShellTools) -> None:
    told = planned(shell, "execute", {"session_id": "main", "command": "ls\n\x1b[2K"})
    assert (told.facts.command, told.refusal) == ("ls\n\x1b[2K", "")
    assert told.preview() == f"In terminal main, {told.facts.cwd}:\n$ ls\n> \\x1b[2K"
    assert told.facts.cwd == "/workspace"
    await shell.execute("main", "cd /tmp")
    assert planned(shell, "execute", {"session_id": "main", "command": "ls"}).facts.cwd == "/tmp"  # noqa: S108 - inside
    fresh = planned(shell, "execute", {"session_id": "other", "command": "ls", "new_terminal": True})
    assert fresh.preview().startswith("In a new terminal other, ")
    assert planned(shell, "read_output", {"session_id": "main"}).facts.command is None


async def test_a_command_whose_plan_has_a_refusal_fails(shell: ShellTools) -> None:
    await shell.execute("main", "read x", timeout=0)
    call = {"session_id": "main", "command": "echo hi"}
    told = planned(shell, "execute", call)
    assert told.refusal.startswith("'main' is busy")
    assert told.facts.command == "echo hi"
    await shell.send_input("main", "\n", timeout=5)
    assert value(await planned(shell, "execute", call).apply())["output"] == "hi\n"
    await shell.execute("main", "read x", timeout=0)
    told = planned(shell, "execute", call)
    assert told.refusal
    await _ended(shell)
    with pytest.raises(ToolError, match="`read x`"):  # though it is not any more
        told.apply()
    assert value(await planned(shell, "execute", call).apply())["output"] == "hi\n"
    for wrong in ({"command": "a\0b"}, {"command": "ls", "timeout": -1}, {"command": "ls", "shell": "zsh"}):
        assert planned(shell, "execute", {"session_id": "main", **wrong}).refusal
    assert "'x'" in planned(shell, "execute", {"session_id": "x", "command": "ls"}).refusal


async def test_the_plan_of_input_has_the_running_program(shell: ShellTools) -> None:
    call = {"session_id": "main", "text": "yes\n"}
    assert "main" in planned(shell, "send_input", call).refusal
    await shell.execute("main", "read x", timeout=0)
    told = planned(shell, "send_input", call)
    assert (told.facts.typed_input, told.facts.command, told.refusal) == ("yes\n", None, "")
    assert told.preview() == "Typed into terminal main, where `read x` runs:\n'yes\\n'"
    assert value(await shell.send_input("main", "yes\n", timeout=5))["status"] == "completed"


async def _ended(shell: ShellTools) -> None:
    """Let the running `read` end without a call of the tools."""
    terminal = shell._terminals["main"]
    await terminal.send("\n", timeout=5)
