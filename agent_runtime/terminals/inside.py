"""Terminals inside one running sandbox: all their programs share its processes, network and temporary files."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from agent_runtime.core.errors import SandboxError, SandboxLimitError
from agent_runtime.sandbox import cgroup
from agent_runtime.sandbox.limits import Breach, size
from agent_runtime.sandbox.protocol import TMPFS, Sandbox, SandboxLimits, TemporaryFiles
from agent_runtime.sandbox.watcher import Watcher
from agent_runtime.terminals import keeper
from agent_runtime.terminals.keeper import Keeper
from agent_runtime.terminals.processes import ProcessFamily
from agent_runtime.terminals.pty import Pty

if TYPE_CHECKING:  # few runs have a network
    from agent_runtime.sandbox.egress.proxy import Egress

_LAST_SECONDS = 1.0
_MOST_BREACHES = 3
"""Sandboxes that may be ended for going over a limit before nobody gets another one."""
_FILE_TOO_LARGE = 128 + signal.SIGXFSZ


class Inside:
    """Starts the sandbox with the first terminal, and again when it was killed. See `Backend`.

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
    ) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._argv = keeper.argv(shell)
        self._readable = readable
        self._egress = egress
        self._scratch = scratch
        self._keeper: Keeper | None = None
        self._watcher: Watcher | None = None
        self._group: cgroup.Cgroup | None = None
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
            raise SandboxError(f"The sandbox ended immediately after its start. {breach.told()}") from error

    async def close(self) -> None:
        """Kill the sandbox, and with it everything in it."""
        await self._end()
        self._breaches.clear()

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
        if self._keeper is None:
            self._keeper, self._group = self._start()
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

    def _start(self) -> tuple[Keeper, cgroup.Cgroup | None]:
        launch = self._sandbox.launch(self._argv, workspace=self._workspace, readable=self._readable, first=True)
        if self._egress is not None:
            launch = replace(launch, env={**launch.env, **self._egress.environment})
        group = cgroup.group(self._sandbox.limits)
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
        return f"limit: size of one file {size(self._limits.file_bytes)}" if exit_code == _FILE_TOO_LARGE else ""

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
            self.ended_for = breach.told()
        self._finished = True  # now, and not for one who was cancelled on the way

    def _family(self) -> ProcessFamily:
        return ProcessFamily(mark=self._mark, session=self.leader, namespace=self._keeper.namespace)
