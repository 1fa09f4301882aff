"""What works where system calls of Linux, or all that is POSIX, are missing: here they are taken away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_LIKE_WINDOWS = """
import asyncio, concurrent.futures, ctypes, logging, multiprocessing, os, pathlib, shutil, signal, socket, ssl
import subprocess, sys, tempfile, threading, uuid
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "geteuid", "getuid",
             "openpty", "pidfd_open", "pipe2", "tcgetpgrp"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGXFSZ", "pidfd_send_signal"):
    delattr(signal, name)
os.supports_dir_fd.discard(os.open)
"""
_LIKE_MACOS = """
import asyncio, os, select, signal, subprocess, sys
from pathlib import Path
from agent_runtime.workspace import files as confined
for module, name in ((os, "O_PATH"), (os, "pidfd_open"), (os, "pipe2"), (signal, "pidfd_send_signal")):
    delattr(module, name)
confined.PATH_ONLY = os.O_RDONLY | os.O_CLOEXEC
from agent_runtime.terminals import processes
processes.HAS_PROC = False
sys.platform = "darwin"
"""
_ALONE = ("bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--")
"""ps(1) lists no process of another test, whose sandbox may have a terminal of the same number."""


def run(program: str, *arguments: str, within: Sequence[str] = ()) -> str:
    argv = [*within, sys.executable, "-c", program, *arguments]
    done = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module", ["agent_runtime", "agent_runtime.tools.files", "agent_runtime.tools.search", "agent_runtime.tools.shell"]
)
def test_it_can_be_imported_without_what_windows_lacks(module: str) -> None:
    assert run(f"{_LIKE_WINDOWS}\nimport {module}; print('imported')") == "imported\n"


def test_a_workspace_that_could_not_be_kept_safe_is_refused_with_the_remedy(tmp_path: Path) -> None:
    program = """
from agent_runtime.workspace.files import Workspace
try:
    Workspace(pathlib.Path(sys.argv[1]))
except OSError as error:
    print(error)
"""
    assert "run this in WSL or in a Linux container" in run(_LIKE_WINDOWS + program, str(tmp_path))


def test_a_sandbox_is_not_looked_for_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.core.errors import SandboxError
try:
    pick_sandbox("auto", SandboxSettings())
except SandboxError as error:
    print(error)
print(pick_sandbox("local", SandboxSettings()).level)
"""
    said = run(_LIKE_MACOS + program)
    assert "bubblewrap is for Linux" in said
    assert said.endswith("none\n")


def test_files_searches_and_terminals_work_without_what_macos_lacks(tmp_path: Path) -> None:
    program = """
from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.terminals.output import OutputLogs
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools
from agent_runtime.workspace import listing
from agent_runtime.workspace.files import Workspace

async def main(root):
    sandbox = pick_sandbox("local", SandboxSettings())
    with Workspace(root) as workspace:
        workspace.write_bytes("d/a.txt", b"needle\\n")
        (root / "out").symlink_to("/etc")
        try:
            workspace.read_bytes("out/passwd", 9)
        except Exception as error:
            print(error)
        print(listing.list_files(workspace, "*.txt", ".").files)
        print((await SearchTools(workspace, sandbox).find("needle")).value)
    shell = ShellTools(sandbox, root, OutputLogs())
    print(await shell.execute("main", "cd d; cat a.txt"))
    print((await shell.execute("main", "sleep 60", timeout=0.3)).value["status"])
    await shell.interrupt()
    await shell.execute("main", "cd d 2>/dev/null; sleep 80803 &", timeout=9)
    print((await shell.execute("main", "echo $PWD", timeout=9)).value["output"])
    await shell.terminate_terminal("main")
    print((await shell.execute("main", "sleep 5 & exit 3", timeout=3)).value)
    await shell.close()
    print(subprocess.run(["pgrep", "-f", "^sleep 80803"], capture_output=True).stdout)

asyncio.run(main(Path(sys.argv[1])))
"""
    said = run(_LIKE_MACOS + program, str(tmp_path), within=_ALONE)
    assert "'out/passwd' leads out of the workspace" in said
    assert "['d/a.txt']\n[{'file': 'd/a.txt', 'line': 1, 'text': 'needle'}]" in said
    assert "needle\\n[status: completed | exit_code: 0" in said
    assert "running" in said
    assert f"{tmp_path}/d" in said
    assert "'restarted', 'exit_code': 3" in said
    assert said.endswith("\nb''\n"), "the job in the background has ended"
