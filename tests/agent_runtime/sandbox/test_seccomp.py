from __future__ import annotations

import platform
import struct
from pathlib import Path

import pytest

from agent_runtime.sandbox import bubblewrap
from tests.sandboxes import run_inside

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_X86, _ARM = 0xC000003E, 0xC00000B7


def verdict(machine: str, arch: int, number: int, *args: int) -> int:
    """Run the filter as the kernel would."""
    code = bubblewrap.seccomp_filter(machine)
    assert code is not None
    steps = list(struct.iter_unpack("=HBBI", code))
    data = struct.pack("=iIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    value, position = 0, 0
    while True:
        operation, skip_true, skip_false, operand = steps[position]
        position += 1
        if operation == _RETURN:
            return int(operand)
        if operation == _LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
            continue
        holds = {_EQUAL: value == operand, _AT_LEAST: value >= operand, _ANY_BIT: bool(value & operand)}[operation]
        position += skip_true if holds else skip_false


@pytest.mark.parametrize(("machine", "arch", "column"), [("x86_64", _X86, 0), ("aarch64", _ARM, 1)])
@pytest.mark.parametrize("name", bubblewrap.DENIED)
def test_every_call_in_the_table_is_refused(machine: str, arch: int, column: int, name: str) -> None:
    assert verdict(machine, arch, bubblewrap.DENIED[name][column]) == _EPERM


@pytest.mark.parametrize(
    ("machine", "arch", "ioctl", "clone", "socket"), [("x86_64", _X86, 16, 56, 41), ("aarch64", _ARM, 29, 220, 198)]
)
def test_arguments_decide_about_ioctl_clone_and_socket(
    machine: str, arch: int, ioctl: int, clone: int, socket: int
) -> None:
    assert verdict(machine, arch, ioctl, 0, 0x5412) == _EPERM
    assert verdict(machine, arch, ioctl, 0, 0x541C) == _EPERM
    assert verdict(machine, arch, ioctl, 0, 0x5413) == _ALLOW
    assert verdict(machine, arch, clone, 0x10000011) == _EPERM
    assert verdict(machine, arch, clone, 0x00000011) == _ALLOW
    assert verdict(machine, arch, socket, 40) != _ALLOW
    assert [verdict(machine, arch, socket, family) for family in bubblewrap.FAMILIES] == [_ALLOW] * 4
    assert verdict(machine, arch, 435) == 0x00050026


def test_other_calls_pass_and_other_architectures_do_not() -> None:
    assert verdict("x86_64", _X86, 0) == _ALLOW
    assert verdict("x86_64", 0x40000003, 0) == _KILL
    assert verdict("x86_64", _X86, 0x40000000 | 1) == _EPERM
    assert bubblewrap.seccomp_filter("riscv64") is None


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="no filter for this machine")
def test_the_kernel_refuses_each_call_of_the_table(tmp_path: Path) -> None:
    column = 0 if platform.machine() == "x86_64" else 1
    numbers = {name: numbers[column] for name, numbers in bubblewrap.DENIED.items()}
    script = (
        "import ctypes, fcntl, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {numbers!r}.items():\n"
        "    answer = libc.syscall(number, -1, -1, -1, -1, -1, -1)\n"
        "    print(name, answer, ctypes.get_errno())\n"
        "try: socket.socket(40, socket.SOCK_STREAM)\n"
        "except OSError as error: print('vsock', error.errno)\n"
    )
    (tmp_path / "try.py").write_text(script)
    done = run_inside("/usr/bin/python3 try.py; grep Seccomp: /proc/self/status", tmp_path)
    lines = done.stdout.splitlines()
    assert lines[: len(numbers)] == [f"{name} -1 1" for name in numbers], done.stderr
    assert lines[len(numbers) :] == ["vsock 97", "Seccomp:\t2"]
