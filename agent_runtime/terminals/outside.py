"""Terminals whose programs are children of ours, for sandboxes that do not separate programs. Any POSIX system."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import pexpect
import ptyprocess  # type: ignore[import-untyped] # it ships no types
from typing_extensions import override

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import Launch, Sandbox
from agent_runtime.terminals import processes
from agent_runtime.terminals.processes import MARK, ProcessFamily
from agent_runtime.terminals.pty import READ, Pty, default_signals
from agent_runtime.terminals.screen import COLUMNS, ROWS

_LAST_SECONDS, _KILL_SECONDS = 1.0, 10.0


class Outside:
    """Starts each program through pexpect. See `Backend`."""

    def __init__(self, sandbox: Sandbox, workspace: Path, shell: Sequence[str], readable: Mapping[str, Path]) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._argv = shell
        self._readable = readable
        self._open: set[SpawnedPty] = set()

    async def open(self) -> Pty:
        """Start a shell, from the calling thread.

        Raises:
            SandboxError: it could not be started.
        """
        launch = self._sandbox.launch(self._argv, workspace=self._workspace, readable=self._readable)
        pty = SpawnedPty(launch)
        self._open = {each for each in self._open if each.fd >= 0} | {pty}
        return pty

    async def close(self) -> None:
        """Kill all programs and what they started."""
        for pty in self._open:
            await pty.finish(ended=False)
        self._open = set()


class SpawnedPty(Pty):
    """A child of ours on its terminal."""

    def __init__(self, launch: Launch) -> None:
        program, *args = launch.argv
        self._mark = secrets.token_hex(16)
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of forks in processes with threads; between fork and exec, ptyprocess only closes
                # descriptors and sets the window size.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._child: pexpect.spawn[bytes] = pexpect.spawn(
                    program,
                    args,
                    env={**launch.env, MARK: self._mark},
                    echo=False,
                    maxread=READ,
                    dimensions=(ROWS, COLUMNS),
                    preexec_fn=default_signals,
                )
        except (pexpect.ExceptionPexpect, ptyprocess.PtyProcessError, OSError) as error:
            raise SandboxError(f"`{program}` could not be started on a terminal: {error}") from error
        # ptyprocess sleeps when it closes; we kill and reap ourselves.
        self._process = self._child.ptyproc  # type: ignore[attr-defined] # the stubs lack it
        self._process.delayafterclose = self._process.delayafterterminate = 0
        self._pid: int = self._process.pid
        super().__init__(self._child.child_fd)

    @override
    def has_ended(self) -> bool:
        """Whether it has ended; notes its exit code."""
        if self.exit_code is None:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # somebody else's handler was faster
                self.exit_code = -1
                return True
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.exit_code = code if code >= 0 else 128 - code
        return self.exit_code is not None

    @override
    async def finish(self, *, ended: bool) -> None:
        if self.fd < 0:
            return
        await self._reap(_LAST_SECONDS if ended else 0)
        # Its number stays its own until it was reaped, so its session can be asked for only before that.
        session = self._pid if self.exit_code is None else 0
        if session and not processes.KNOWN:
            others = await asyncio.to_thread(processes.beside, self._pid)
            # Bash hands this signal on to its jobs; one that has just been started takes it for its shell's, and stays.
            os.kill(self._pid, signal.SIGHUP)
            await self._reap(_LAST_SECONDS)
            await asyncio.to_thread(processes.kill_those_left, others)
        await ProcessFamily(mark=self._mark, session=session, namespace=None).kill(within=_LAST_SECONDS)
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        await self._reap(_KILL_SECONDS)

    @override
    def close(self) -> None:
        if not self._child.closed:
            self._process.terminated = True
            self._child.close(force=False)
            self.fd = -1
        super().close()

    async def _reap(self, seconds: float) -> None:
        """Wait for the program, which is ending, so that no zombie is left, and note its exit code."""
        deadline = time.monotonic() + seconds
        while not self.has_ended() and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
