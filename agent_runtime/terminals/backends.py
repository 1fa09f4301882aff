"""Backends of shells: a sandbox, a container, or the host.

The shells of a sandbox or container share processes, network and temporary files. Start with `create_backend`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
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
from agent_runtime.terminals import command, processes, sandbox_init
from agent_runtime.terminals.output import COLUMNS, ROWS
from agent_runtime.terminals.processes import MARK, UNCLEAR, ForegroundState, ProcessFamily
from agent_runtime.terminals.pty import READ, Pty, default_signals
from agent_runtime.terminals.sandbox_init import SandboxInit

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress


def create_backend(
    sandbox: Sandbox,
    workspace: Path,
    readable: Mapping[str, Path] | None = None,
    egress: Egress | None = None,
    scratch: TemporaryFiles | None = None,
    *,
    guard: RepositoryGuard | None = None,
) -> Backend:
    """Create the backend for shells in `workspace`.

    `readable` maps paths inside to host files; `scratch` gets the `/tmp` of an isolated sandbox; without `guard`,
    programs may change repositories.
    """
    if isinstance(sandbox, Docker):
        return ContainerBackend(sandbox, workspace, command.ARGV, readable or {}, scratch, guard=guard)
    if sandbox.is_isolated:
        return SandboxBackend(sandbox, workspace, command.ARGV, readable or {}, egress, scratch=scratch, guard=guard)
    return HostBackend(sandbox, workspace, command.ARGV, readable or {})


_LAST_SECONDS, _KILL_SECONDS = 1.0, 10.0
_MAX_BREACHES = 3
"""Limit breaches before `open` fails once."""
_FILE_TOO_LARGE = 128 + signal.SIGXFSZ


class SandboxBackend:
    """Opens shells in one sandbox, which it restarts after its end.

    Call `open` from the main thread: the sandbox dies with the thread that started it.
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
        self._argv = sandbox_init.build_argv(shell)
        self._readable = readable
        self._egress = egress
        self._scratch = scratch
        self._init: SandboxInit | None = None
        self._watcher: Watcher | None = None
        self._group: limits_module.Cgroup | None = None
        self._breaches: list[Breach] = []

    async def open(self) -> Pty:
        """Start a shell on a terminal.

        Raises:
            SandboxError: the sandbox does not start.
            SandboxLimitError: it exceeded its limits repeatedly; the next call starts again.
        """
        try:
            return await self._open_pty()
        except SandboxError:
            if self._init is None or self._init.is_alive:
                raise
        # The sandbox was already ending: killed from inside, or for lack of memory.
        try:
            return await self._open_pty()
        except SandboxLimitError:
            raise
        except SandboxError as error:
            if self._watcher is None or (breach := self._watcher.verdict()) is None:
                raise
            raise SandboxError(f"The sandbox ended immediately after its start. {breach.message()}") from error

    async def close(self) -> None:
        """Kill the sandbox and its processes."""
        await self._stop()
        self._breaches.clear()
        await self.sweep()

    async def sweep(self) -> str:
        """Set aside git repositories made by programs; return the report or ""."""
        return await _sweep_repositories(self._guard)

    async def _stop(self) -> None:
        if self._scratch is not None:
            self._scratch.detach()
        init, self._init = self._init, None
        watcher, self._watcher = self._watcher, None
        group, self._group = self._group, None
        try:
            if init is not None:
                await init.close()
        finally:
            if group is not None and watcher is None:
                group.remove()
            if watcher is not None and (breach := watcher.verdict()) is not None:
                self._breaches.append(breach)
            if self._egress is not None:
                await self._egress.close()

    async def _open_pty(self) -> Pty:
        has_ended = self._init is not None and not self._init.is_alive
        if has_ended or (self._watcher is not None and self._watcher.verdict() is not None):
            await self._stop()
        if len(self._breaches) >= _MAX_BREACHES:
            breaches, self._breaches = self._breaches, []
            names = ", ".join(dict.fromkeys(map(str, breaches)))
            raise SandboxLimitError(
                f"The sandbox was ended {len(breaches)} times because its programs exceeded its limits ({names}). "
                "Raise the limits of the sandbox, or run less."
            )
        fixed = await _prepare_guard(self._guard) if self._init is None else ()
        if self._init is None:
            self._init, self._group = self._start(fixed)
        init = self._init  # a concurrent `open` may replace it
        await init.wait_ready()
        if self._watcher is None:
            try:
                self._watcher = Watcher(
                    root=init.root,
                    first=init.pidfd,
                    workspace=self._workspace,
                    tmpfs=TMPFS,
                    limits=self._sandbox.limits,
                    cgroup=self._group,
                    guard=self._guard,
                )
                if self._scratch is not None:
                    self._scratch.attach(init.root, lambda: init.is_alive)
            except OSError as error:
                await init.close()
                raise SandboxError(f"The sandbox ended, or cannot be watched: {error}") from error
        watcher = self._watcher
        if self._egress is not None:
            await self._egress.serve(init.network)
        mark = secrets.token_hex(16)
        return _SandboxPty(await init.start_shell(mark), init, mark, watcher, self._sandbox.limits)

    def _start(self, fixed: Sequence[FixedPath]) -> tuple[SandboxInit, limits_module.Cgroup | None]:
        launch = self._sandbox.launch(
            self._argv, workspace=self._workspace, readable=self._readable, fixed=fixed, first=True
        )
        if self._egress is not None:
            launch = replace(launch, env={**launch.env, **self._egress.environment})
        group = limits_module.create_cgroup(self._sandbox.limits)
        try:
            return SandboxInit(launch, entrance=-1 if group is None else group.entrance), group
        except SandboxError:
            if group is not None:
                group.remove()
            raise
        finally:
            if group is not None:
                group.close_entrance()


class _SandboxPty(Pty):
    """A shell started by `SandboxInit`."""

    def __init__(self, fd: int, init: SandboxInit, mark: str, watcher: Watcher, limits: SandboxLimits) -> None:
        self._init = init
        self._watcher = watcher
        self._limits = limits
        self._mark = mark
        self._finished = False
        super().__init__(fd)

    @property
    @override
    def is_over_limit(self) -> bool:
        return self._watcher.verdict() is not None

    @override
    def describe_exit_code(self, exit_code: int) -> str:
        return (
            f"limit: size of one file {format_bytes(self._limits.file_bytes)}" if exit_code == _FILE_TOO_LARGE else ""
        )

    @override
    def has_ended(self) -> bool:
        """Whether the shell or its sandbox has ended; a shell that never started closes no terminal."""
        return super().has_ended() or not self._init.is_alive

    @override
    def signal_foreground(self, number: signal.Signals) -> None:
        self.flush_input()
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The terminal remembers an ended group, whose number may be one of the host's by now.
            self.family.signal_group(os.tcgetpgrp(self.fd), number)

    @override
    async def finish(self, *, ended: bool) -> None:
        if self._finished:
            return
        if ended:
            self.exit_code = await self._init.wait_exit_code(self._mark, within=_LAST_SECONDS)
        if not await self.family.kill(within=_LAST_SECONDS):
            # It forks faster than it is killed. If it does not end now either, the backend cannot be closed.
            with contextlib.suppress(SandboxError):
                await self._init.close()
        if not ended:
            self.exit_code = await self._init.wait_exit_code(self._mark, within=_LAST_SECONDS)
        if (breach := self._watcher.verdict()) is not None:
            self.breach_message = breach.message()
        self._finished = True  # only now, as a cancelled call must not count

    @property
    @override
    def family(self) -> ProcessFamily:
        return ProcessFamily(mark=self._mark, session=self.leader, namespace=self._init.namespace)


class HostBackend:
    """Opens shells on the host through pexpect."""

    def __init__(self, sandbox: Sandbox, workspace: Path, shell: Sequence[str], readable: Mapping[str, Path]) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._argv = shell
        self._readable = readable
        self._open: set[SpawnedPty] = set()

    async def open(self) -> Pty:
        """Start a shell from the calling thread.

        Raises:
            SandboxError: it does not start.
        """
        launch = self._sandbox.launch(self._argv, workspace=self._workspace, readable=self._readable)
        pty = SpawnedPty(launch)
        self._open = {terminal for terminal in self._open if terminal.fd >= 0} | {pty}
        return pty

    async def close(self) -> None:
        """Kill all shells and their processes."""
        for pty in self._open:
            await pty.finish(ended=False)
        self._open = set()

    async def sweep(self) -> str:
        """Return "": programs on the host may change every repository."""
        return ""


class SpawnedPty(Pty):
    """A child process on its terminal."""

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
        """Whether the program has ended; records its exit code."""
        if self.exit_code is None:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # another handler reaped it first
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
        # The process id is not reused until it is reaped, so the session is valid only before that.
        session = self._pid if self.exit_code is None else 0
        if session and not processes.HAS_PROC:
            siblings = await asyncio.to_thread(processes.terminal_processes, self._pid)
            # Bash forwards this signal to its jobs; one that has just been forked may miss it.
            os.kill(self._pid, signal.SIGHUP)
            await self._reap(_LAST_SECONDS)
            await asyncio.to_thread(processes.kill_remaining, siblings)
        await replace(self.family, session=session).kill(within=_LAST_SECONDS)
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        await self._reap(_KILL_SECONDS)

    @property
    @override
    def family(self) -> ProcessFamily:
        return ProcessFamily(mark=self._mark, session=self.leader, namespace=None)

    @override
    def close(self) -> None:
        if not self._child.closed:
            self._process.terminated = True
            self._child.close(force=False)
            self.fd = -1
        super().close()

    async def _reap(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.has_ended() and time.monotonic() < deadline:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)


# Set the modes of the container's terminal as `Pty` does. Input before the engine's client is ready may be lost, so
# the shell's side writes first.
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
_MAX_ERROR_CHARS = 4_000


class ContainerBackend:
    """Opens shells in one container, which it restarts after its end.

    Processes inside may be invisible from outside, so bash scripts find and signal them; their reports are not trusted.
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
        self._open: set[_ContainerPty] = set()

    async def open(self) -> Pty:
        """Start a shell on a terminal.

        Raises:
            SandboxError: the container does not start.
        """
        if self._container is not None and not self._container.is_alive:
            await self.close()
        fixed = await _prepare_guard(self._guard) if self._container is None else ()
        if self._container is None:
            self._container = _Container(self._docker, self._workspace, self._readable, fixed)
        try:
            await self._container.wait_ready()
            await self._container.watch(self._scratch, self._guard)
        except SandboxError:
            await self.close()
            raise
        pty = _ContainerPty(self._docker, self._container, self._shell)
        self._open = {terminal for terminal in self._open if terminal.fd >= 0} | {pty}
        await pty.wait_ready()
        return pty

    async def close(self) -> None:
        """Remove the container and its processes."""
        if self._scratch is not None:
            self._scratch.detach()
        container, self._container = self._container, None
        try:
            if container is not None:
                await container.close()
        finally:
            for pty in self._open:
                await pty.finish(ended=False)
            self._open = set()
            await self.sweep()

    async def sweep(self) -> str:
        """Set aside git repositories made by programs; return the report or ""."""
        return await _sweep_repositories(self._guard)


class _Container:
    """A container that lives as long as this object."""

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
        self._startup_output = ""
        self._is_stuck = False

    @property
    def is_alive(self) -> bool:
        """Whether the engine's client still runs."""
        return self._process.poll() is None

    async def wait_ready(self) -> None:
        """Wait until its first program runs; idempotent.

        Raises:
            SandboxError: it ended, or did not start in time.
        """
        if self._process.stdout is None:
            raise AssertionError("stdout is not a pipe")
        output = self._process.stdout.fileno()
        os.set_blocking(output, False)
        deadline = time.monotonic() + _START_SECONDS
        while READY not in self._startup_output:
            if time.monotonic() > deadline:
                raise SandboxError(f"The container did not start within {_START_SECONDS:g} seconds.")
            try:
                data = os.read(output, _MAX_ERROR_CHARS)
            except BlockingIOError:
                await asyncio.sleep(0.005)
                continue
            self._startup_output = (self._startup_output + data.decode(errors="replace"))[-_MAX_ERROR_CHARS:]
            if not data:
                raise SandboxError(f"The container did not start. It said: {self._startup_output.strip() or 'nothing'}")

    async def watch(self, scratch: TemporaryFiles | None, guard: RepositoryGuard | None) -> None:
        """Enforce the limits that the engine does not keep; idempotent. Linux.

        Raises:
            SandboxError: it ended, or cannot be watched.
        """
        if self._watcher is not None or sys.platform != "linux":
            return
        first = await asyncio.to_thread(self._docker.process_id_of, self.name)
        descriptors: list[int] = []
        try:
            descriptors.append(os.pidfd_open(first))
            descriptors.append(os.open(f"/proc/{first}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            self._watcher = Watcher(
                root=descriptors[1],
                first=descriptors[0],
                workspace=self._workspace,
                tmpfs=TMPFS,
                limits=self._docker.limits,
                guard=guard,
            )
            if scratch is not None:
                scratch.attach(descriptors[1], lambda: self.is_alive)
        except OSError as error:
            raise SandboxError(
                f"The container ended, or cannot be watched: {error}. Its engine must run on this machine, and the "
                "programs in it as the user who runs this."
            ) from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    @property
    def breach_message(self) -> str:
        """The breach that ended it, for the model, or ""."""
        breach = self._watcher.verdict() if self._watcher is not None else None
        return "" if breach is None else breach.message()

    async def run_script(self, script: str, *args: str) -> int | None:
        """Run a bash script inside; return its exit code, or None after a timeout."""
        launch = self._docker.execute(self.name, ("bash", "-c", script, "bash", *args), environment={}, tty=False)
        return await asyncio.to_thread(_run_to_end, launch)

    def start_script(self, script: str, *args: str) -> None:
        """Run a bash script inside without waiting."""
        task = asyncio.get_running_loop().create_task(self.run_script(script, *args))
        _SCRIPT_TASKS.add(task)
        task.add_done_callback(_SCRIPT_TASKS.discard)

    async def close(self) -> None:
        """Remove the container; idempotent.

        Raises:
            SandboxError: the engine does not answer, so its programs may still run; the next call asks again.
        """
        if self.is_alive or self._is_stuck:
            self._is_stuck = await asyncio.to_thread(_run_to_end, self._docker.remove(self.name)) is None
        await asyncio.to_thread(self._release)
        if self._is_stuck:
            cause = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            raise SandboxError("The container's engine did not confirm that its programs have ended.") from cause


_SCRIPT_TASKS: set[asyncio.Task[int | None]] = set()
"""Strong references: the event loop holds weak ones only."""


class _ContainerPty(SpawnedPty):
    """A shell in a container, behind the engine's client."""

    def __init__(self, docker: Docker, container: _Container, shell: Sequence[str]) -> None:
        self._container = container
        self._inner_mark = secrets.token_hex(16)
        argv, environment = (*_SHELL, *shell), {MARK: self._inner_mark}
        super().__init__(docker.execute(container.name, argv, environment=environment, tty=True))

    async def wait_ready(self) -> None:
        """Wait for the shell's first output.

        Raises:
            SandboxError: it ended, or did not start in time.
        """
        output, ended, deadline = b"", False, time.monotonic() + _START_SECONDS
        while f"{READY}\n".encode() not in output:
            if ended or time.monotonic() > deadline:
                await self.finish(ended=ended)
                self.close()
                message = output.decode(errors="replace").strip()
                raise SandboxError(f"The shell did not start in its container. It said: {message or 'nothing'}")
            data, ended = self.read()
            output += data
            if not data:
                await asyncio.sleep(0.002)

    @override
    def list_background(self) -> tuple[str, ...]:
        """Return (): processes inside may be invisible from outside."""
        return ()

    @override
    def reset_modes(self) -> None:
        """Do nothing: our terminal only passes bytes on; a kill resets the container's."""

    @override
    def is_canonical(self) -> bool:
        """Return True, the usual mode: the terminal inside cannot be queried."""
        return True

    @override
    async def foreground_state(self) -> ForegroundState:
        """Return `UNCLEAR`: only the engine's client reads our terminal."""
        return UNCLEAR

    @override
    def signal_foreground(self, number: signal.Signals) -> None:
        self._container.start_script(_SIGNAL, self._inner_mark, number.name.removeprefix("SIG"))

    @override
    async def finish(self, *, ended: bool) -> None:
        if self.fd < 0:
            return
        if self._container.is_alive and await self._container.run_script(_KILL, self._inner_mark) != 0:
            # It forks faster than it is killed, or the engine is stuck; then the backend cannot be closed either.
            with contextlib.suppress(SandboxError):
                await self._container.close()
        await super().finish(ended=True)
        self.breach_message = self._container.breach_message


async def _prepare_guard(guard: RepositoryGuard | None) -> Sequence[FixedPath]:
    return () if guard is None else await asyncio.to_thread(guard.begin)


async def _sweep_repositories(guard: RepositoryGuard | None) -> str:
    if guard is None:
        return ""
    await asyncio.to_thread(guard.sweep)
    return guard.report()


def _run_to_end(launch: Launch) -> int | None:
    try:
        completed = subprocess.run(
            launch.argv,
            env=dict(launch.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_END_SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):  # the end of its input ends the container, too
        return None
    return completed.returncode


def _release(process: subprocess.Popen[bytes]) -> None:
    """Detach from a container, which ends it, and reap the engine's client."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    process.kill()
    process.wait()


Backend: TypeAlias = SandboxBackend | HostBackend | ContainerBackend
"""Opens terminals whose programs share processes, network and temporary files."""
