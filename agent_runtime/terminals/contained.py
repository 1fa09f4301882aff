"""Terminals inside one container: each shell is started in it by the engine's command line, on a terminal of ours.

Between our terminal and the shell's own, which is the container's, the command line passes bytes on, Ctrl+C too. What
else happens to processes in there is done by a few lines of bash, for outside they are other users' or unseen. A
process inside that takes these lines over gains nothing: what they report is not trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.docker import READY, Docker, new_name
from agent_runtime.sandbox.protocol import TMPFS, Launch, TemporaryFiles
from agent_runtime.sandbox.watcher import Watcher
from agent_runtime.terminals.attention import UNCLEAR, Attention
from agent_runtime.terminals.outside import SpawnedPty
from agent_runtime.terminals.processes import MARK
from agent_runtime.terminals.pty import Pty

# The container's terminal begins as every terminal does; `Pty` says how ours are to be. What is typed before the
# command line has taken our terminal over may be lost, so the shell's side speaks first.
_SHELL = ("sh", "-c", f'stty -echo -onlcr; echo "{READY}"; exec "$@"', "shell")

# Fields of /proc/PID/stat after the name: state, parent, group, session, terminal, the terminal's foreground group.
_FAMILY = f"""
family() {{
  local place word line words stat
  found=() sessions=' ' foreground=0 leader=
  for place in /proc/[0-9]*; do
    words=(); mapfile -d '' -t words <"$place/environ" || continue
    for word in "${{words[@]}}"; do
      if [[ $word == "{MARK}=$1" ]]; then
        read -r line <"$place/stat" || break
        stat=(${{line##*) }}); found+=("${{place#/proc/}}")
        if (( stat[3] > 0 )); then sessions+="${{stat[3]}} "; fi
        if (( stat[5] > 1 )); then foreground=${{stat[5]}} leader=$place; fi
        break
      fi
    done
  done
  for place in /proc/[0-9]*; do
    read -r line <"$place/stat" || continue
    stat=(${{line##*) }})
    if [[ $sessions == *" ${{stat[3]}} "* && ${{stat[0]}} != [ZX] ]]; then found+=("${{place#/proc/}}"); fi
  done
}} 2>/dev/null
"""
_KILL = f"""{_FAMILY}
for ((turn = 0; turn < 50; turn++)); do
  family "$1"
  if (( ${{#found[@]}} == 0 )); then exit 0; fi
  kill -KILL "${{found[@]}}" 2>/dev/null
  sleep 0.02
done
exit 1
"""
_SIGNAL = f"""{_FAMILY}
family "$1"
if (( foreground > 1 )); then
  # What it did not read, the shell must not read as a command.
  if [[ $2 == KILL ]]; then read -r -t 0.05 -N 65536 <"$leader/fd/0"; fi
  kill -s "$2" -- "-$foreground"
  if [[ $2 == KILL ]]; then stty sane -echo -onlcr <"$leader/fd/0"; fi
fi
"""
_START_SECONDS, _END_SECONDS = 60.0, 15.0
_LAST_WORDS = 4_000


class Contained:
    """Starts the container with the first terminal, and again when it ended. See `Backend`."""

    def __init__(
        self,
        docker: Docker,
        workspace: Path,
        shell: Sequence[str],
        readable: Mapping[str, Path],
        scratch: TemporaryFiles | None = None,
    ) -> None:
        self._docker = docker
        self._workspace = workspace
        self._shell = shell
        self._readable = readable
        self._scratch = scratch
        self._container: _Container | None = None
        self._open: set[_ContainedPty] = set()

    async def open(self) -> Pty:
        """Start a shell on a terminal of its own.

        Raises:
            SandboxError: the container cannot be started; the text has its last words.
        """
        if self._container is not None and not self._container.alive:
            await self.close()
        if self._container is None:
            self._container = _Container(self._docker, self._workspace, self._readable)
        try:
            await self._container.ready()
            await self._container.watch(self._scratch)
        except SandboxError:
            await self.close()
            raise
        pty = _ContainedPty(self._docker, self._container, self._shell)
        self._open = {each for each in self._open if each.fd >= 0} | {pty}
        await pty.ready()
        return pty

    async def close(self) -> None:
        """Remove the container, and with it everything in it."""
        if self._scratch is not None:
            self._scratch.detach()
        container, self._container = self._container, None
        if container is not None:
            await container.close()
        for pty in self._open:
            await pty.finish(ended=False)
        self._open = set()


class _Container:
    """A container that is held as long as this object lives and is not closed."""

    def __init__(self, docker: Docker, workspace: Path, readable: Mapping[str, Path]) -> None:
        self.name = new_name()
        self._docker = docker
        launch = docker.hold(self.name, workspace=workspace, readable=readable)
        try:
            self._process = subprocess.Popen(
                launch.argv,
                env=dict(launch.env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"`{launch.argv[0]}` could not be started: {error}") from error
        self._workspace = workspace
        self._watcher: Watcher | None = None
        self._release = weakref.finalize(self, _release, self._process)
        self._said = ""

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as the command line that holds it knows."""
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until its first program runs; idempotent.

        Raises:
            SandboxError: it ended, or did not start in time.
        """
        if self._process.stdout is None:
            raise AssertionError("it is a pipe")
        output = self._process.stdout.fileno()
        os.set_blocking(output, False)
        deadline = time.monotonic() + _START_SECONDS
        while READY not in self._said:
            if time.monotonic() > deadline:
                raise SandboxError(f"The container did not start within {_START_SECONDS:g} seconds.")
            try:
                data = os.read(output, _LAST_WORDS)
            except BlockingIOError:
                await asyncio.sleep(0.005)
                continue
            self._said = (self._said + data.decode(errors="replace"))[-_LAST_WORDS:]
            if not data:
                raise SandboxError(f"The container did not start. It said: {self._said.strip() or 'nothing'}")

    async def watch(self, scratch: TemporaryFiles | None) -> None:
        """Have it ended when its programs together go over a limit that the engine does not keep; idempotent. Linux.

        Raises:
            SandboxError: it ended meanwhile, or cannot be watched.
        """
        if self._watcher is not None or sys.platform != "linux":
            return
        first = await asyncio.to_thread(self._docker.process_of, self.name)
        held: list[int] = []
        try:
            held.append(os.pidfd_open(first))
            held.append(os.open(f"/proc/{first}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            self._watcher = Watcher(
                root=held[1], first=held[0], workspace=self._workspace, tmpfs=TMPFS, limits=self._docker.limits
            )
            if scratch is not None:
                scratch.attach(held[1], lambda: self.alive)
        except OSError as error:
            raise SandboxError(
                f"The container ended, or cannot be watched: {error}. Its engine must run on this machine, and the "
                "programs in it as the user who runs this."
            ) from error
        finally:
            for descriptor in held:
                os.close(descriptor)

    @property
    def ended_for(self) -> str:
        """The limit for which it was ended, for the model; empty otherwise."""
        breach = self._watcher.verdict() if self._watcher is not None else None
        return "" if breach is None else breach.told()

    async def run(self, script: str, *words: str) -> int | None:
        """Run a bash script of ours inside; its exit code, or None when it did not end in time."""
        launch = self._docker.execute(self.name, ("bash", "-c", script, "bash", *words), environment={}, tty=False)
        return await asyncio.to_thread(_finished, launch)

    def start(self, script: str, *words: str) -> None:
        """Have a bash script of ours run inside, without waiting for it."""
        task = asyncio.get_running_loop().create_task(self.run(script, *words))
        _RUNNING.add(task)
        task.add_done_callback(_RUNNING.discard)

    async def close(self) -> None:
        """Remove it, and wait until the engine has; idempotent."""
        if self.alive:
            await asyncio.to_thread(_finished, self._docker.remove(self.name))
        await asyncio.to_thread(self._release)


_RUNNING: set[asyncio.Task[int | None]] = set()
"""The event loop itself holds its tasks by weak references only."""


class _ContainedPty(SpawnedPty):
    """A shell in a container, at the other end of the engine's command line."""

    def __init__(self, docker: Docker, container: _Container, shell: Sequence[str]) -> None:
        self._container = container
        self._inside = secrets.token_hex(16)
        argv, environment = (*_SHELL, *shell), {MARK: self._inside}
        super().__init__(docker.execute(container.name, argv, environment=environment, tty=True))

    async def ready(self) -> None:
        """Wait until the shell's side has spoken.

        Raises:
            SandboxError: it ended, or did not start in time.
        """
        said, ended, deadline = b"", False, time.monotonic() + _START_SECONDS
        while f"{READY}\n".encode() not in said:
            if ended or time.monotonic() > deadline:
                await self.finish(ended=ended)
                self.close()
                words = said.decode(errors="replace").strip()
                raise SandboxError(f"The shell did not start in its container. It said: {words or 'nothing'}")
            data, ended = self.read()
            said += data
            if not data:
                await asyncio.sleep(0.002)

    @override
    def reset_modes(self) -> None:
        """Nothing: ours only passes bytes on, and the container's is reset after a program was killed."""

    @override
    def takes_lines(self) -> bool:
        """Always: the terminal inside cannot be asked, and this is what terminals do."""
        return True

    @override
    async def attention(self) -> Attention:
        """Not known: what reads our terminal is the command line, whatever the programs inside do."""
        return UNCLEAR

    @override
    def signal_foreground(self, number: signal.Signals) -> None:
        self._container.start(_SIGNAL, self._inside, number.name.removeprefix("SIG"))

    @override
    async def finish(self, *, ended: bool) -> None:
        if self.fd < 0:
            return
        if self._container.alive and await self._container.run(_KILL, self._inside) != 0:
            await self._container.close()  # it multiplies faster than it is killed, or the engine is stuck
        await super().finish(ended=True)
        self.ended_for = self._container.ended_for


def _finished(launch: Launch) -> int | None:
    try:
        done = subprocess.run(
            launch.argv,
            env=dict(launch.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_END_SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):  # nobody waits for it; the end of its input ends the container, too
        return None
    return done.returncode


def _release(process: subprocess.Popen[bytes]) -> None:
    """Let go of a container, which ends it, and reap the command line that held it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    process.kill()
    process.wait()
