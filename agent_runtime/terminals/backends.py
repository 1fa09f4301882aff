"""Start shells on terminals for a runtime: in its sandbox, in its container, or on the host.

All shells of one backend share processes, network and temporary files. On Linux that is one sandbox, with an engine one
container; without a sandbox, and so on macOS, each shell is a child of ours on a terminal of its own. Windows has
terminals of another kind: see `place`.
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
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pexpect
import ptyprocess  # type: ignore[import-untyped] # it ships no types
from typing_extensions import override

from agent_runtime.core.errors import SandboxError, SandboxLimitError
from agent_runtime.sandbox import limits as limits_module
from agent_runtime.sandbox.container import READY, Docker, new_name
from agent_runtime.sandbox.limits import Breach, Watcher, format_bytes
from agent_runtime.sandbox.protocol import TMPFS, FixedPath, Launch, Sandbox, SandboxLimits, TemporaryFiles
from agent_runtime.sandbox.repositories import RepositoryGuard
from agent_runtime.terminals import command, keeper, processes
from agent_runtime.terminals.keeper import Keeper
from agent_runtime.terminals.output import COLUMNS, ROWS
from agent_runtime.terminals.processes import MARK, UNCLEAR, Attention, ProcessFamily
from agent_runtime.terminals.pty import READ, Pty, default_signals

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress


def backend(
    sandbox: Sandbox,
    workspace: Path,
    readable: Mapping[str, Path] | None = None,
    egress: Egress | None = None,
    scratch: TemporaryFiles | None = None,
    *,
    guard: RepositoryGuard | None = None,
) -> Backend:
    """Where shells on `workspace` are opened.

    Args:
        sandbox: how programs are started.
        workspace: the directory that they work in.
        readable: more host files and directories that they may read, by their path inside.
        egress: the way out of a sandbox that is `apart`; None for no network there.
        scratch: informed of the `/tmp` of a sandbox that is `apart`.
        guard: of the workspace's repositories; None where programs may make and change them.
    """
    if isinstance(sandbox, Docker):
        return Contained(sandbox, workspace, command.ARGV, readable or {}, scratch, guard=guard)
    if sandbox.apart:
        return Inside(sandbox, workspace, command.ARGV, readable or {}, egress, scratch=scratch, guard=guard)
    return Outside(sandbox, workspace, command.ARGV, readable or {})


_LAST_SECONDS, _KILL_SECONDS = 1.0, 10.0
_MOST_BREACHES = 3
"""Sandboxes that may be ended for going over a limit before nobody gets another one."""
_FILE_TOO_LARGE = 128 + signal.SIGXFSZ


class Inside:
    """Starts the sandbox with the first terminal, and again when it was killed.

    The sandbox dies with the thread that started it, so call `open` from the main thread.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        workspace: Path,
        shell: Sequence[str],
        readable: Mapping[str, Path],
        egress: Egress | None = None,
        *,
        scratch: TemporaryFiles | None = None,
        guard: RepositoryGuard | None = None,
    ) -> None:
        self._guard = guard
        self._sandbox = sandbox
        self._workspace = workspace
        self._argv = keeper.argv(shell)
        self._readable = readable
        self._egress = egress
        self._scratch = scratch
        self._keeper: Keeper | None = None
        self._watcher: Watcher | None = None
        self._group: limits_module.Cgroup | None = None
        self._breaches: list[Breach] = []

    async def open(self) -> Pty:
        """Start a shell on a terminal of its own.

        Raises:
            SandboxError: the sandbox cannot be started; the text has its last words.
            SandboxLimitError: it went over a limit for the last time; the next call starts again.
        """
        try:
            return await self._open()
        except SandboxError:
            if self._keeper is None or self._keeper.alive:
                raise
        # It was dying when it was asked: killed from inside, or for lack of memory.
        try:
            return await self._open()
        except SandboxLimitError:
            raise
        except SandboxError as error:
            if self._watcher is None or (breach := self._watcher.verdict()) is None:
                raise
            raise SandboxError(f"The sandbox ended immediately after its start. {breach.message()}") from error

    async def close(self) -> None:
        """Kill the sandbox, and with it everything in it."""
        await self._end()
        self._breaches.clear()
        await self.sweep()

    async def sweep(self) -> str:
        """Set aside the git repositories that programs made; return the report, empty for none."""
        return await _sweep(self._guard)

    async def _end(self) -> None:
        if self._scratch is not None:
            self._scratch.detach()
        keeper, self._keeper = self._keeper, None
        watcher, self._watcher = self._watcher, None
        group, self._group = self._group, None
        if keeper is not None:
            await keeper.close()
        if group is not None and watcher is None:
            group.remove()
        if watcher is not None and (breach := watcher.verdict()) is not None:
            self._breaches.append(breach)
        if self._egress is not None:
            await self._egress.close()

    async def _open(self) -> Pty:
        ended = self._keeper is not None and not self._keeper.alive
        if ended or (self._watcher is not None and self._watcher.verdict() is not None):
            await self._end()
        if len(self._breaches) >= _MOST_BREACHES:
            breaches, self._breaches = self._breaches, []
            names = ", ".join(dict.fromkeys(map(str, breaches)))
            raise SandboxLimitError(
                f"The sandbox was ended {len(breaches)} times because its programs exceeded its limits ({names}). "
                "Raise the limits of the sandbox, or run less."
            )
        fixed = await _begin(self._guard) if self._keeper is None else ()
        if self._keeper is None:
            self._keeper, self._group = self._start(fixed)
        keeper = self._keeper  # another terminal's `open` may take its place meanwhile
        await keeper.ready()
        if self._watcher is None:
            try:
                self._watcher = Watcher(
                    root=keeper.root,
                    first=keeper.first,
                    workspace=self._workspace,
                    tmpfs=TMPFS,
                    limits=self._sandbox.limits,
                    cgroup=self._group,
                    guard=self._guard,
                )
                if self._scratch is not None:
                    self._scratch.attach(keeper.root, lambda: keeper.alive)
            except OSError as error:
                await keeper.close()
                raise SandboxError(f"The sandbox ended, or cannot be watched: {error}") from error
        watcher = self._watcher
        if self._egress is not None:
            await self._egress.serve(keeper.network)
        mark = secrets.token_hex(16)
        return _InsidePty(await keeper.start(mark), keeper, mark, watcher, self._sandbox.limits)

    def _start(self, fixed: Sequence[FixedPath]) -> tuple[Keeper, limits_module.Cgroup | None]:
        launch = self._sandbox.launch(
            self._argv, workspace=self._workspace, readable=self._readable, fixed=fixed, first=True
        )
        if self._egress is not None:
            launch = replace(launch, env={**launch.env, **self._egress.environment})
        group = limits_module.group(self._sandbox.limits)
        try:
            return Keeper(launch, entrance=-1 if group is None else group.entrance), group
        except SandboxError:
            if group is not None:
                group.remove()
            raise
        finally:
            if group is not None:
                group.close_entrance()


class _InsidePty(Pty):
    """A shell that a keeper started."""

    def __init__(self, fd: int, home: Keeper, mark: str, watcher: Watcher, limits: SandboxLimits) -> None:
        self._keeper = home
        self._watcher = watcher
        self._limits = limits
        self._mark = mark
        self._finished = False
        super().__init__(fd)

    @property
    @override
    def doomed(self) -> bool:
        return self._watcher.verdict() is not None

    @override
    def meaning(self, exit_code: int) -> str:
        return (
            f"limit: size of one file {format_bytes(self._limits.file_bytes)}" if exit_code == _FILE_TOO_LARGE else ""
        )

    @override
    def has_ended(self) -> bool:
        """Whether it has ended, as it has with its sandbox: a shell that never began closes no terminal."""
        return super().has_ended() or not self._keeper.alive

    @override
    def signal_foreground(self, number: signal.Signals) -> None:
        self.forget_input()
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The terminal remembers a group that is gone; by now its number may be a group of ours.
            self._family().signal_group(os.tcgetpgrp(self.fd), number)

    @override
    async def finish(self, *, ended: bool) -> None:
        if self._finished:
            return
        if ended:
            self.exit_code = await self._keeper.exit_code(self._mark, within=_LAST_SECONDS)
        if not await self._family().kill(within=_LAST_SECONDS):
            await self._keeper.close()  # it multiplies faster than it is killed
        if not ended:
            self.exit_code = await self._keeper.exit_code(self._mark, within=_LAST_SECONDS)
        if (breach := self._watcher.verdict()) is not None:
            self.ended_for = breach.message()
        self._finished = True  # now, and not for one who was cancelled on the way

    def _family(self) -> ProcessFamily:
        return ProcessFamily(mark=self._mark, session=self.leader, namespace=self._keeper.namespace)


class Outside:
    """Starts each program through pexpect."""

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

    async def sweep(self) -> str:
        """Nothing: programs here can change every repository of the user."""
        return ""


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
    """Starts the container with the first terminal, and again when it ended.

    The engine's command line passes bytes, Ctrl+C included, between our terminal and the shell's own, which is the
    container's. From outside, the processes in there belong to other users or cannot be seen, so a few lines of bash
    inside find and signal them. A program that takes these lines over gains nothing: their reports are not trusted.
    """

    def __init__(
        self,
        docker: Docker,
        workspace: Path,
        shell: Sequence[str],
        readable: Mapping[str, Path],
        scratch: TemporaryFiles | None = None,
        *,
        guard: RepositoryGuard | None = None,
    ) -> None:
        self._guard = guard
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
        fixed = await _begin(self._guard) if self._container is None else ()
        if self._container is None:
            self._container = _Container(self._docker, self._workspace, self._readable, fixed)
        try:
            await self._container.ready()
            await self._container.watch(self._scratch, self._guard)
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
        await self.sweep()

    async def sweep(self) -> str:
        """Set aside the git repositories that programs made; return the report, empty for none."""
        return await _sweep(self._guard)


class _Container:
    """A container that is held as long as this object lives and is not closed."""

    def __init__(
        self, docker: Docker, workspace: Path, readable: Mapping[str, Path], fixed: Sequence[FixedPath]
    ) -> None:
        self.name = new_name()
        self._docker = docker
        launch = docker.hold(self.name, workspace=workspace, readable=readable, fixed=fixed)
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

    async def watch(self, scratch: TemporaryFiles | None, guard: RepositoryGuard | None) -> None:
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
                root=held[1],
                first=held[0],
                workspace=self._workspace,
                tmpfs=TMPFS,
                limits=self._docker.limits,
                guard=guard,
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
        return "" if breach is None else breach.message()

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


async def _begin(guard: RepositoryGuard | None) -> Sequence[FixedPath]:
    return () if guard is None else await asyncio.to_thread(guard.begin)


async def _sweep(guard: RepositoryGuard | None) -> str:
    if guard is None:
        return ""
    await asyncio.to_thread(guard.sweep)
    return guard.report()


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


Backend: TypeAlias = Inside | Outside | Contained
"""Opens terminals whose programs meet: their processes, network and temporary files are the same."""
