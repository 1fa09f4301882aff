"""Threat 31: `env`, `/proc/*/environ`, `ps auxeww`, ptrace, the bot's memory or file descriptors."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
from pathlib import Path

import pytest

from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.tools.shell import ShellTools
from tests.sandboxes import run_inside

SECRET = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"

ATTEMPTS = [
    "env; set; export -p",
    "cat /proc/*/environ /proc/*/task/*/environ",
    "ps auxeww",
    "cat /proc/*/cmdline",
    "grep -r ghs_ /proc/self/root/proc/*/environ /tmp /home /dev/shm",
    "for p in /proc/[0-9]*; do ls -l $p/fd $p/cwd $p/root; done",
    "timeout 0.5 cat /proc/[0-9]*/fd/* </dev/null",
    "cat /proc/$PPID/environ /proc/1/environ; cat /proc/1/root/etc/shadow",
    "cat /proc/keys /proc/kcore | head -c 100000 | strings",
    f"cat {Path(__file__)}",
]


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_no_way_to_the_processes_of_the_host_shows_a_secret(
    attempt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    secret_file = tmp_path / "key.pem"
    secret_file.write_text(SECRET)
    workspace = tmp_path / "work"
    workspace.mkdir()
    tools = ShellTools(Bubblewrap(SandboxSettings()), workspace)
    # An inheritable descriptor, as a careless library may leave one.
    descriptor = os.open(secret_file, os.O_RDONLY)
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - its only argument
    try:
        result = await tools.execute("main", attempt, 20)
        assert SECRET not in result.text
        assert f"fd/{descriptor}" not in result.text
    finally:
        os.close(descriptor)
        await tools.close()


def test_processes_of_the_host_can_neither_be_seen_nor_traced(tmp_path: Path) -> None:
    done = run_inside(
        f"ls -d /proc/[0-9]* | wc -l; kill -0 {os.getpid()} || echo unseen; ls /proc/{os.getpid()}/mem", tmp_path
    )
    count, unseen = done.stdout.split()
    assert int(count) < 10
    assert unseen == "unseen"


# Number on x86-64, number on arm64.
_PRYING = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
}


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="there is no filter for this machine")
def test_calls_that_look_into_other_processes_are_refused(tmp_path: Path) -> None:
    numbers = {name: each[platform.machine() == "aarch64"] for name, each in _PRYING.items()}
    script = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {numbers!r}.items():\n"
        "    print(name, libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())\n"
        "print(libc.syscall(-1), libc.getpid() > 0)\n"
    )
    (tmp_path / "pry.py").write_text(script)
    said = run_inside("/usr/bin/python3 pry.py", tmp_path).stdout.splitlines()
    assert said == [*(f"{name} -1 {errno.EPERM}" for name in numbers), "-1 True"]


def test_the_positive_control_works_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    assert SECRET in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
