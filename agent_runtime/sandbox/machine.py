"""Read the facts about this machine that `remedies` needs."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.remedies import Machine, installing

_CONTAINERS = ("/.dockerenv", "/run/.containerenv")  # Docker's and podman's marks


def this_machine() -> Machine:
    """Look, now; what cannot be read is left out."""
    return Machine(
        systems=_systems(),
        program=shutil.which("bwrap") or "/usr/bin/bwrap",
        apparmor_restricts=_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        userns_clone=_number("/proc/sys/kernel/unprivileged_userns_clone"),
        max_user_namespaces=_number("/proc/sys/user/max_user_namespaces"),
        container=any(Path(mark).exists() for mark in _CONTAINERS),
        root=os.geteuid() == 0,
    )


def find(program: str, package: str) -> str:
    """The absolute path of a program.

    Raises:
        SandboxError: it is missing; the text has the command that installs its package.
    """
    place = shutil.which(program)
    if place is None:
        raise SandboxError(f"The program `{program}` is missing; install it with: {installing(package, _systems())}")
    return place


@functools.cache
def _systems() -> tuple[str, ...]:
    try:
        told = platform.freedesktop_os_release()
    except OSError:  # there is no such file
        return ()
    return (told.get("ID", ""), *told.get("ID_LIKE", "").split())


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # another kernel
        return None
