"""Init process of a sandbox: a bash script that starts a shell on each requested terminal.

Terminals belong to the sandbox's `/dev/pts`, whose master side is opened from outside. Sandboxed code runs as the same
user, so only exit codes are trusted; the kernel identifies the rest (`SCM_CREDENTIALS` in unix(7), proc(5)).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time
import warnings
import weakref
from collections.abc import Callable, Sequence

from agent_runtime.core.errors import SandboxError
from agent_runtime.processes.spawn import end
from agent_runtime.sandbox.bubblewrap import WITHOUT_GUARD
from agent_runtime.sandbox.protocol import Launch
from agent_runtime.terminals.processes import MARK
from agent_runtime.terminals.pty import default_signals, ignores_signals

# Job control (`set -m`), because without it bash starts background jobs with SIGINT ignored.
_SCRIPT = f"""
set -m
echo ready
while read -r number mark; do
  echo "started $mark"
  {{
    {MARK}=$mark {" ".join(WITHOUT_GUARD)} setsid --ctty "$@" <>"/dev/pts/$number" >&0 2>&0
    echo "$? $mark"
  }} &
done
"""
_START_SECONDS, _ANSWER_SECONDS, _END_SECONDS = 30.0, 10.0, 60.0
_RECHECK_SECONDS = 0.05
"""Recheck interval: another listener may have consumed the reply."""
_EXIT_CODE = re.compile(r"[0-9]{1,3}", re.ASCII)
_MAX_STRAY_CHARS = 4_000
_MAX_MESSAGE_BYTES = 4_096
_CREDENTIALS = struct.Struct("3i")
_SET_LOCK, _GET_NUMBER = 0x40045431, 0x80045430  # TIOCSPTLCK, TIOCGPTN; `termios` has no names for them


def build_argv(shell: Sequence[str]) -> tuple[str, ...]:
    """Return the init command of a sandbox whose terminals run `shell`."""
    return ("bash", "--noprofile", "--norc", "-c", _SCRIPT, "keeper", *shell)


class SandboxInit:
    """A running sandbox; descriptors are -1 before `wait_ready`.

    Attributes:
        namespace: inode of the PID namespace, or 0.
        pidfd: of the init process.
    """

    def __init__(self, launch: Launch, *, entrance: int = -1) -> None:
        """Start the sandbox from the calling thread.

        Raises:
            SandboxError: it does not start.
        """
        host_end, sandbox_end = socket.socketpair()
        host_end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        host_end.settimeout(0)
        self._socket = host_end
        self._pts = self.root = self.pidfd = -1
        self._descriptors: list[int] = []
        self._rest = b""
        self._stray_output = ""
        self._replies: dict[str, str] = {}
        self.namespace = 0
        self.network = -1
        with sandbox_end:
            try:
                self._process = _start(launch, sandbox_end.fileno(), entrance)
            except (OSError, subprocess.SubprocessError) as error:  # the second if it cannot enter its cgroup
                host_end.close()
                raise SandboxError(f"`{launch.argv[0]}` could not be started: {error}") from error
        # For a runtime that is not closed.
        weakref.finalize(self, _kill, self._process, self._descriptors, os.getpid())

    @property
    def is_alive(self) -> bool:
        """Whether the sandbox's process runs."""
        return self._process.poll() is None

    async def wait_ready(self) -> None:
        """Wait for the start; idempotent.

        Raises:
            SandboxError: it ended or did not answer.
        """
        if not await self._wait_for(lambda: self._pts >= 0, _START_SECONDS):
            await self.close()
            raise SandboxError(f"The sandbox did not start. It said: {self._stray_output.strip() or 'nothing'}")

    async def start_shell(self, mark: str) -> int:
        """Start a shell identified by a random `mark`; return the terminal's master side.

        Raises:
            SandboxError: the sandbox ended, or no terminal is free.
        """
        try:
            master = os.open("ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._pts)
        except OSError as error:  # all terminals are in use, or the sandbox was closed
            raise SandboxError(f"No terminal could be opened in the sandbox: {error}") from error
        try:
            fcntl.ioctl(master, _SET_LOCK, struct.pack("i", 0))
            (number,) = struct.unpack("I", fcntl.ioctl(master, _GET_NUMBER, bytes(4)))
            await self._request(f"{number} {mark}\n", mark)
        except BaseException:  # cancelled, too: the terminal has no owner yet
            os.close(master)
            raise
        return master

    async def wait_exit_code(self, mark: str, *, within: float) -> int | None:
        """Wait up to `within` seconds for a shell's exit code; None if unknown."""

        def has_exit_code() -> bool:
            return _EXIT_CODE.fullmatch(self._replies.get(mark, "")) is not None

        await self._wait_for(has_exit_code, within)
        word = self._replies.pop(mark, "")
        return int(word) if _EXIT_CODE.fullmatch(word) else None

    async def close(self) -> None:
        """Kill the sandbox and wait for its processes' end; idempotent.

        Raises:
            SandboxError: a process does not end, e.g. because it waits for a disk; the next call waits again.
        """
        self._socket.close()
        first, self.pidfd = self.pidfd, -1
        if first >= 0:
            self._descriptors.remove(first)
        self._pts = self.root = self.network = -1
        self.namespace = 0
        _close(self._descriptors)
        try:
            if first >= 0:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself
                    signal.pidfd_send_signal(first, signal.SIGKILL)
            end(self._process)
            deadline = time.monotonic() + _END_SECONDS
            if first >= 0:
                await _wait_readable(first, _END_SECONDS)
            while self.is_alive or not _is_empty(first):
                if time.monotonic() > deadline:  # a program that still writes must not be taken for an ended one
                    if first >= 0:
                        self._descriptors.append(first)
                    self.pidfd, first = first, -1
                    raise SandboxError(
                        f"Programs of the sandbox did not end within {_END_SECONDS:.0f} s of being killed."
                    ) from BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                await asyncio.sleep(0.001)
        finally:
            if first >= 0:
                os.close(first)

    async def _request(self, line: str, mark: str) -> None:
        self._replies[mark] = ""
        with contextlib.suppress(OSError):  # it ended or is stuck, so no reply will come
            self._socket.send(line.encode())
        if not await self._wait_for(lambda: self._replies[mark] != "", _ANSWER_SECONDS):
            del self._replies[mark]
            await self.close()  # the next request starts a new sandbox
            raise SandboxError("The sandbox ended, or did not answer, while a terminal was opened in it.")

    async def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if self._socket.fileno() < 0 or time.monotonic() > deadline:
                return False
            try:
                if not self._receive():
                    return condition()
                await asyncio.sleep(0)  # endless messages must not block the event loop
            except BlockingIOError:
                await _wait_readable(self._socket.fileno(), _RECHECK_SECONDS)
        return True

    def _receive(self) -> bool:
        """Process messages; return False at the end of the stream.

        Raises:
            BlockingIOError: none is pending.
        """
        try:
            data, control, _, _ = self._socket.recvmsg(_MAX_MESSAGE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except ConnectionError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_MAX_MESSAGE_BYTES:]
        for line in lines:
            word, _, mark = line.decode(errors="replace").partition(" ")
            if word == "ready" and self._pts < 0:
                try:
                    self._open_namespaces(_CREDENTIALS.unpack(control[0][2])[0])
                except OSError as error:  # it has probably ended, which the next read shows
                    self._stray_output += f"{error}\n"
            elif mark in self._replies:
                self._replies[mark] = word
            else:
                self._stray_output = f"{self._stray_output}{word} {mark}\n"[-_MAX_STRAY_CHARS:]
        return bool(data)

    def _open_namespaces(self, pid: int) -> None:
        # Keep it open, as the inode of a removed namespace is reused.
        self._descriptors.append(os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC))
        self.namespace = os.fstat(self._descriptors[0]).st_ino
        self.network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors.append(self.network)
        self.root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._descriptors.append(self.root)
        self._pts = os.open("dev/pts", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.root)
        self._descriptors.append(self._pts)
        self.pidfd = os.pidfd_open(pid)
        self._descriptors.append(self.pidfd)


def _kill(process: subprocess.Popen[bytes], descriptors: list[int], owner: int) -> None:
    _close(descriptors)
    if os.getpid() == owner:  # not in a fork
        end(process)
        process.wait()


async def _wait_readable(descriptor: int, seconds: float) -> None:
    loop, own = asyncio.get_running_loop(), os.dup(descriptor)
    changed = loop.create_future()
    loop.add_reader(own, lambda: None if changed.done() else changed.set_result(None))
    try:
        await asyncio.wait((changed,), timeout=seconds)
    finally:
        loop.remove_reader(own)
        os.close(own)


def _is_empty(pidfd: int) -> bool:
    """Whether the PID namespace is empty: its init is reaped last (pid_namespaces(7))."""
    if pidfd < 0:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _start(launch: Launch, stdio: int, entrance: int) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        default_signals()
        if entrance >= 0:
            os.write(entrance, b"0")

    with warnings.catch_warnings():
        # Python 3.12 warns of `preexec_fn` in processes with threads; this one makes system calls only.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            launch.argv,
            env=dict(launch.env),
            stdin=stdio,
            stdout=stdio,
            stderr=stdio,
            start_new_session=True,
            # Without `preexec_fn`, the memory of a large process is not copied.
            preexec_fn=prepare if entrance >= 0 or ignores_signals() else None,  # noqa: PLW1509 - see above
        )
