"""The system calls that no program in a sandbox needs, and the filter program that refuses them. Pure.

The filter is classic BPF as `seccomp(2)` takes it: an array of `struct sock_filter` in the machine's byte order, over
`struct seccomp_data` (the number at offset 0, the architecture at 4, the low half of argument n at 16 + 8 n).
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

DENIED: dict[str, tuple[int, int]] = {
    # name: (number on x86-64, number on arm64)
    "ptrace": (101, 117),  # reads another process's memory; debuggers are the price
    "syslog": (103, 116),
    "pivot_root": (155, 41),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),  # keyrings are not divided by namespaces
    "unshare": (272, 97),  # new namespaces are the usual way to the kernel's bugs
    "perf_event_open": (298, 241),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),  # opens files outside the mounted tree
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "finit_module": (313, 273),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),  # its operations pass by this filter
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),  # takes another process's descriptors
    "mount_setattr": (442, 442),
}
"""Refused with EPERM, whatever the arguments."""

FAMILIES: tuple[int, ...] = (1, 2, 10, 16)
"""Socket families allowed: unix, IPv4, IPv6, netlink. Others, such as vsock, are not divided by network namespaces."""

LARGEST_SEGMENT = 64 * 1024
"""Bytes of a System V shared memory segment: they need no process and no file, so nothing outside sees what they take.
There can be 4,096 of them (shmget(2)). Databases want a small one for a lock."""

_NEW_USER_NAMESPACE = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into a terminal as if its user did
_X32 = 0x40000000  # x86-64 only: a second numbering of the same calls

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What differs between architectures: the kernel's name for it, its column above, and five more numbers."""

    audit_arch: int
    column: int
    ioctl: int
    clone: int
    socket: int
    shmget: int
    clone3: int = 435


_MACHINES = {
    "x86_64": _Machine(audit_arch=0xC000003E, column=0, ioctl=16, clone=56, socket=41, shmget=29),
    "aarch64": _Machine(audit_arch=0xC00000B7, column=1, ioctl=29, clone=220, socket=198, shmget=194),
}


def program(machine: str) -> bytes | None:
    """The filter for a machine as `platform.machine()` names it, or None for one that is not in the table."""
    known = _MACHINES.get(machine)
    if known is None:
        return None
    refuse = _return(_REFUSE | errno.EPERM)
    code = [_op(_LOAD, 4), _op(_EQUAL, known.audit_arch, skip_true=1), _return(_KILL), _op(_LOAD, 0)]
    if machine == "x86_64":
        code += [_op(_AT_LEAST, _X32, skip_false=1), refuse]
    for numbers in DENIED.values():
        code += [_op(_EQUAL, numbers[known.column], skip_false=1), refuse]
    # clone3 takes its flags by pointer, out of a filter's sight; ENOSYS makes libraries fall back to clone.
    code += [_op(_EQUAL, known.clone3, skip_false=1), _return(_REFUSE | errno.ENOSYS)]
    code += [_op(_EQUAL, known.clone, skip_false=4), _op(_LOAD, 16)]
    code += [_op(_ANY_BIT, _NEW_USER_NAMESPACE, skip_false=1), refuse, _return(_ALLOW)]
    # Its size is 64 bits wide: the high half at 28, the low one at 24.
    code += [_op(_EQUAL, known.shmget, skip_false=6), _op(_LOAD, 28), _op(_EQUAL, 0, skip_false=2), _op(_LOAD, 24)]
    code += [_op(_AT_LEAST, LARGEST_SEGMENT + 1, skip_false=1), _return(_REFUSE | errno.EINVAL), _return(_ALLOW)]
    code += [_op(_EQUAL, known.ioctl, skip_false=5), _op(_LOAD, 24)]
    code += [_op(_EQUAL, _TIOCSTI, skip_true=1), _op(_EQUAL, _TIOCLINUX, skip_false=1), refuse, _return(_ALLOW)]
    code += [_op(_EQUAL, known.socket, skip_false=2 + len(FAMILIES)), _op(_LOAD, 16)]
    code += [_op(_EQUAL, family, skip_true=len(FAMILIES) - index) for index, family in enumerate(FAMILIES)]
    code += [_return(_REFUSE | errno.EAFNOSUPPORT), _return(_ALLOW)]
    return b"".join(code)


def _op(code: int, operand: int, *, skip_true: int = 0, skip_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_true, skip_false, operand)


def _return(verdict: int) -> bytes:
    return _op(_RETURN, verdict)
