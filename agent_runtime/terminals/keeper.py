r"""The first program of a sandbox that terminals live in, and what we know of that sandbox from outside.

The keeper is a few lines of bash. It reads numbers of terminals from a socket and starts a shell on each. A terminal
comes from the sandbox's own `/dev/pts`, whose master side we open from outside; so nothing has to be passed in, no
privilege is needed, and whatever the keeper starts inherits the sandbox's namespaces, filter and limits.

Code in the sandbox runs as the keeper's user. The keeper is the sandbox's first process, out of the reach of the others
(`WITHOUT_GUARD`); if it is still taken over, it must do no harm out here. So nothing that it says is trusted
with more than an exit code: where the terminals are and which processes are the sandbox's is asked of the kernel before
anything else runs inside (`SCM_CREDENTIALS` in unix(7), `/proc/[pid]/root` and `/proc/[pid]/ns` in proc(5)).
"""

from __future__ import annotations

import asyncio
import contextlib
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

# Job control (`set -m`), because without it bash starts what runs in the background deaf to Ctrl+C, for ever.
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
_START_SECONDS, _ANSWER_SECONDS, _END_SECONDS = 30.0, 10.0, 10.0
_OTHERS_SECONDS = 0.05
"""Until it is asked again: another listener may have consumed what is waited for."""
_EXIT_CODE = re.compile(r"[0-9]{1,3}", re.ASCII)
_LAST_WORDS = 4_000
_MESSAGE = 4_096
_CREDENTIALS = struct.Struct("3i")
_SET_LOCK, _GET_NUMBER = 0x40045431, 0x80045430  # TIOCSPTLCK, TIOCGPTN; `termios` has no names for them


def argv(shell: Sequence[str]) -> tuple[str, ...]:
    """The keeper of a sandbox in which `shell` is started on each terminal."""
    return ("bash", "--noprofile", "--norc", "-c", _SCRIPT, "keeper", *shell)


class Keeper:
    """A sandbox that was started with `argv`.

    Attributes:
        namespace: inode of the sandbox's process namespace; 0 until `ready` and after `close`.
        network: descriptor of its network namespace; -1 until `ready` and after `close`.
        root: descriptor of its root directory; -1 until `ready` and after `close`.
        first: descriptor of its first process, whose end is that of all others; -1 until `ready` and after `close`.
    """

    def __init__(self, launch: Launch, *, entrance: int = -1) -> None:
        """Start it, from the calling thread.

        Args:
            launch: how.
            entrance: of the control group that it is to be in; see `Cgroup`.

        Raises:
            SandboxError: it could not be started at all.
        """
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.settimeout(0)
        self._socket = ours
        self._pts = self.root = self.first = -1
        self._held: list[int] = []
        self._rest = b""
        self._words = ""
        self._awaited: dict[str, str] = {}
        self.namespace = 0
        self.network = -1
        with theirs:
            try:
                self._process = _start(launch, theirs.fileno(), entrance)
            except (OSError, subprocess.SubprocessError) as error:  # the second where it cannot enter its group
                ours.close()
                raise SandboxError(f"`{launch.argv[0]}` could not be started: {error}") from error
        # For a runtime that nobody closes.
        weakref.finalize(self, _kill, self._process, self._held, os.getpid())

    @property
    def alive(self) -> bool:
        """Whether the sandbox runs, as far as is known without asking it."""
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until it has started and get to know it; idempotent.

        Raises:
            SandboxError: it ended or said nothing; the text has its last words.
        """
        if not await self._until(lambda: self._pts >= 0, _START_SECONDS):
            await self.close()
            raise SandboxError(f"The sandbox did not start. It said: {self._words.strip() or 'nothing'}")

    async def start(self, mark: str) -> int:
        """Have it start a shell on a new terminal; the terminal's master side.

        Args:
            mark: a random word that names this shell.

        Raises:
            SandboxError: the sandbox is gone, or there is no terminal left.
        """
        try:
            master = os.open("ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._pts)
        except OSError as error:  # the machine's terminals are all in use, or it was closed meanwhile
            raise SandboxError(f"No terminal could be opened in the sandbox: {error}") from error
        try:
            fcntl.ioctl(master, _SET_LOCK, struct.pack("i", 0))
            (number,) = struct.unpack("I", fcntl.ioctl(master, _GET_NUMBER, bytes(4)))
            await self._request(f"{number} {mark}\n", mark)
        except BaseException:  # cancelled, too: the terminal is nobody's yet
            os.close(master)
            raise
        return master

    async def exit_code(self, mark: str, *, within: float) -> int | None:
        """How a shell ended, for which is waited `within` seconds; None when the sandbox did not say."""

        def known() -> bool:
            return _EXIT_CODE.fullmatch(self._awaited.get(mark, "")) is not None

        await self._until(known, within)
        word = self._awaited.pop(mark, "")
        return int(word) if _EXIT_CODE.fullmatch(word) else None

    async def close(self) -> None:
        """Kill the sandbox and everything in it, and wait until all of it is gone; idempotent."""
        self._socket.close()
        first, self.first = self.first, -1
        if first >= 0:
            self._held.remove(first)
        self._pts = self.root = self.network = -1
        self.namespace = 0
        _close(self._held)
        try:
            if first >= 0:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself
                    signal.pidfd_send_signal(first, signal.SIGKILL)
            end(self._process)
            deadline = time.monotonic() + _END_SECONDS
            if first >= 0:
                await _readable(first, _END_SECONDS)
            while (self.alive or not _ended(first)) and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.001)
        finally:
            if first >= 0:
                os.close(first)

    async def _request(self, line: str, mark: str) -> None:
        self._awaited[mark] = ""
        with contextlib.suppress(OSError):  # it is gone, or stuck; then there is no answer
            self._socket.send(line.encode())
        if not await self._until(lambda: self._awaited[mark] != "", _ANSWER_SECONDS):
            del self._awaited[mark]
            await self.close()  # the next request gets a new one
            raise SandboxError("The sandbox ended, or did not answer, while a terminal was opened in it.")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Listen until a condition holds; False when it cannot come to hold any more or did not within `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._socket.fileno() < 0 or time.monotonic() > deadline:
                return False
            try:
                if not self._listen():
                    return condition()
                await asyncio.sleep(0)  # one that never stops talking must not keep the loop from anything else
            except BlockingIOError:
                await _readable(self._socket.fileno(), _OTHERS_SECONDS)
        return True

    def _listen(self) -> bool:
        """Take in what it says now; False when it will never say anything again.

        Raises:
            BlockingIOError: it says nothing now.
        """
        try:
            data, control, _, _ = self._socket.recvmsg(_MESSAGE, socket.CMSG_SPACE(_CREDENTIALS.size))
        except ConnectionError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_MESSAGE:]
        for line in lines:
            word, _, mark = line.decode(errors="replace").partition(" ")
            if word == "ready" and self._pts < 0:
                try:
                    self._meet(_CREDENTIALS.unpack(control[0][2])[0])
                except OSError as error:  # it has ended, as a rule; then the next look says so
                    self._words += f"{error}\n"
            elif mark in self._awaited:
                self._awaited[mark] = word
            else:
                self._words = f"{self._words}{word} {mark}\n"[-_LAST_WORDS:]
        return bool(data)

    def _meet(self, pid: int) -> None:
        # Held open, because the number of a namespace that is gone is given to the next one.
        self._held.append(os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC))
        self.namespace = os.fstat(self._held[0]).st_ino
        self.network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._held.append(self.network)
        self.root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held.append(self.root)
        self._pts = os.open("dev/pts", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.root)
        self._held.append(self._pts)
        self.first = os.pidfd_open(pid)
        self._held.append(self.first)


def _kill(process: subprocess.Popen[bytes], held: list[int], owner: int) -> None:
    _close(held)
    if os.getpid() == owner:  # and not a fork of it, which ends
        end(process)
        process.wait()


async def _readable(descriptor: int, seconds: float) -> None:
    """Wait until a descriptor can be read, or the time is over; several may wait for the same one."""
    loop, own = asyncio.get_running_loop(), os.dup(descriptor)
    changed = loop.create_future()
    loop.add_reader(own, lambda: None if changed.done() else changed.set_result(None))
    try:
        await asyncio.wait((changed,), timeout=seconds)
    finally:
        loop.remove_reader(own)
        os.close(own)


def _ended(process: int) -> bool:
    """Whether the first process of a namespace is gone: the kernel lets it go after all others (pid_namespaces(7))."""
    if process < 0:
        return True
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _close(held: list[int]) -> None:
    while held:
        os.close(held.pop())


def _start(launch: Launch, standard: int, entrance: int) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        default_signals()
        if entrance >= 0:
            os.write(entrance, b"0")

    with warnings.catch_warnings():
        # Python 3.12 warns of code between fork and exec in processes with threads; this code makes system calls only.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            launch.argv,
            env=dict(launch.env),
            stdin=standard,
            stdout=standard,
            stderr=standard,
            start_new_session=True,
            # Without one, the memory of a large process is not copied for the start.
            preexec_fn=prepare if entrance >= 0 or ignores_signals() else None,  # noqa: PLW1509 - see above
        )
