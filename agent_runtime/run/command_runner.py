"""Commands in the sandbox without an agent: what prepares a workspace before one works there."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agent_runtime.core.network import Connection, Network
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.sandbox.way_out import way_out
from agent_runtime.terminals.bash import ShellStart
from agent_runtime.terminals.place import LiveTerminal, place

_LEFT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        command: as it was given.
        exit_code: None when it was stopped before it ended.
        seconds: how long it took.
        output: what it wrote, as plain text; of much, the first and the last 5,000 characters.
        note: what else is to be known: a limit that it went over, a network that went away; or empty. It may hold words
            of programs, too.
        timed_out: whether it was stopped because its time was over.
    """

    command: str
    exit_code: int | None
    seconds: float
    output: str
    note: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.exit_code == 0


class CommandRunner:
    """Runs commands one after the other in one sandbox on one workspace; everything in it ends on leaving.

    Use it on Linux or macOS, and from the main thread, because a sandbox dies with the thread that started it.

    Example:
        ```python
        async with CommandRunner(sandbox, work_dir, network=Network.of("registries")) as runner:
            end = await runner.run("pip install -r requirements.txt", seconds=300)
        ```
    """

    def __init__(
        self,
        sandbox: Sandbox,
        work_dir: Path,
        *,
        network: Network | None = None,
        told: Callable[[Connection], None] = lambda _connection: None,
        start_in: str = "",
    ) -> None:
        """Prepare; nothing is started before the first command.

        Args:
            sandbox: protects the host.
            work_dir: the directory that the commands work in, and may change.
            network: what they may reach; nothing by default.
            told: called with each connection once it is over or was refused.
            start_in: the directory below `work_dir` in which they start.

        Raises:
            SettingsError: there is to be a network that the sandbox cannot keep to.
        """
        self._lost = ""
        egress = way_out(sandbox, network or Network(), told=told, lost=self._note_lost)
        self._place = place(sandbox, work_dir, {}, None, egress, start=ShellStart(directory=start_in))
        self._terminal: LiveTerminal = self._place.terminal("commands", self._place.shells[0])

    async def __aenter__(self) -> Self:
        """Enter; see `close`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def run(self, command: str, *, seconds: float) -> CommandEnd:
        """Run a command in a bash of its own, which stops at the first thing that fails, and has no input.

        Args:
            command: one line or many.
            seconds: after these it is stopped.

        Raises:
            SandboxError: the sandbox cannot be started.
        """
        begun = time.monotonic()
        # With `bash -c` no spelling of a command can leave the terminal's own shell waiting for more.
        text = f"bash -e -o pipefail -c {shlex.quote(command)} </dev/null"
        report = await self._terminal.run(text, timeout=seconds)
        said = report.output
        timed_out = report.status == "running"
        if timed_out or report.status == "waiting for input":
            why = f"it was stopped after {seconds:.3g} s" if timed_out else "it asked for input, and there is none"
            await self._terminal.interrupt(why)
            last = await self._terminal.read(timeout=_LEFT_SECONDS)
            if last is not None:
                report, said = last, said + last.output
        stopped = report.status in {"running", "waiting for input", "stopped", "killed", "incomplete", "restarted"}
        return CommandEnd(
            command=command,
            exit_code=None if stopped else report.exit_code,
            seconds=time.monotonic() - begun,
            output=said,
            timed_out=timed_out,
            note="; ".join(filter(None, (report.note, self._lost and f"the network went away: {self._lost}"))),
        )

    async def close(self) -> None:
        """End everything that was started; idempotent."""
        await self._place.close()
        await self._terminal.close()

    def _note_lost(self, reason: str) -> None:
        self._lost = reason
