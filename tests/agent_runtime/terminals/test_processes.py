"""Processes on a terminal as listed by ps(1)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent_runtime.terminals.processes import kill_remaining, terminal_processes

_TERMINALS_OF_A_SANDBOX = 64
"""More than any test has in one sandbox."""


@contextmanager
def own_terminal(script: str) -> Iterator[tuple[int, int]]:
    """Start a shell on a terminal whose number no sandbox has; return its process and the other end.

    ps(1) names terminals by number, and Linux counts them anew in a sandbox with its own /dev: the shell of a
    concurrent test would seem to be on our terminal, and be killed.
    """
    opened = [os.openpty() for _ in range(_TERMINALS_OF_A_SANDBOX)]
    descriptor, terminal = max(opened, key=lambda ends: os.fstat(ends[1]).st_rdev)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
            pid = os.fork()
        if pid == 0:
            os.login_tty(terminal)
            os.execvp("sh", ["sh", "-c", script])  # noqa: S606 - the shell of a POSIX system
    finally:
        for end in {*itertools.chain(*opened)} - {descriptor}:
            os.close(end)
    try:
        yield pid, descriptor
    finally:
        os.close(descriptor)


def test_a_process_without_a_terminal_has_no_terminal_siblings() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as alone:
        assert terminal_processes(alone.pid) == frozenset()
        alone.kill()
        os.waitid(os.P_PID, alone.pid, os.WEXITED | os.WNOWAIT)
        assert terminal_processes(alone.pid) == frozenset(), "it has ended, and nobody has waited for it"
    assert terminal_processes(alone.pid) == frozenset(), "it is gone"


def test_processes_on_the_same_terminal_are_found_and_killed() -> None:
    with own_terminal("sleep 61 & echo begun; wait") as (pid, descriptor):
        assert b"begun" in os.read(descriptor, 100)
        [other] = terminal_processes(pid)
        kill_remaining(frozenset([other]))
        os.waitpid(pid, 0)  # it waited for that one
        assert terminal_processes(pid) == frozenset()


_AS_NOBODY = """
import asyncio, concurrent.futures.thread, os, sys
from agent_runtime.terminals.processes import ProcessFamily
os.setgroups([]); os.setgid(65534); os.setuid(65534)
family = ProcessFamily(mark="none", session=int(sys.argv[1]), namespace=None)
print(asyncio.run(family.kill(within=5)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes of two users")
def test_a_command_that_has_become_another_users_is_passed_over() -> None:
    with subprocess.Popen(["sleep", "62"], start_new_session=True) as theirs:
        argv = [sys.executable, "-c", _AS_NOBODY, str(theirs.pid)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        theirs.kill()
    assert (done.stdout, done.stderr) == ("True\n", "")
