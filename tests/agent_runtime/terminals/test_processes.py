"""Who shares a terminal, where ps(1) is all that tells."""

from __future__ import annotations

import os
import pty
import subprocess
import warnings

from agent_runtime.terminals.processes import beside, kill_those_left


def test_a_process_without_a_terminal_shares_it_with_nobody() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as alone:
        assert beside(alone.pid) == frozenset()
        alone.kill()
        os.waitid(os.P_PID, alone.pid, os.WEXITED | os.WNOWAIT)
        assert beside(alone.pid) == frozenset(), "it has ended, and nobody has waited for it"
    assert beside(alone.pid) == frozenset(), "it is gone"


def test_those_beside_a_process_on_its_terminal_are_found_and_killed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        pid, descriptor = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "sleep 61 & echo begun; wait"])  # noqa: S606 - the shell of a POSIX system
    try:
        assert b"begun" in os.read(descriptor, 100)
        [other] = beside(pid)
        kill_those_left(frozenset([other]))
        os.waitpid(pid, 0)  # it waited for that one
        assert beside(pid) == frozenset()
    finally:
        os.close(descriptor)
