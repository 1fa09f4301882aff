"""The processes of a service, each with a data directory of its own."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import forked
from tests.waiting import eventually

START_SECONDS = 60.0
_GRACE_SECONDS = 40.0
_LISTENING = re.compile(r"listening on (http://\S+/webhook)")
_WORKING = re.compile(r"working as (\S+) on")


@dataclass(slots=True, kw_only=True)
class Machine:
    """One process that is started again each time it ends.

    Attributes:
        name: of the machine.
        words: the command, without `codepilot`.
        variables: its environment.
        directory: where its logs are.
        lives: how often it was started.
        namespace: the network namespace that it is in; None for this process's.
    """

    name: str
    words: Sequence[str]
    variables: Mapping[str, str]
    directory: Path
    lives: int = 0
    namespace: Path | None = None
    _process: forked.Forked | None = field(default=None, repr=False)

    @property
    def receives(self) -> bool:
        """Whether the machine accepts deliveries."""
        return self.words[0] == "serve"

    @property
    def works(self) -> bool:
        """Whether it runs jobs."""
        return "--no-work" not in self.words

    async def start(self) -> None:
        """Begin another life."""
        self.lives += 1
        self._process = forked.codepilot(self.words, env=self.variables, stderr=self._log, namespace=self.namespace)

    async def ready(self) -> None:
        """Wait until it does its work.

        Raises:
            AssertionError: it does not begin.
        """

        def has_begun() -> bool:
            assert self.alive, f"{self.name} has ended by itself:\n{self.log_text}"
            return self.is_working

        await eventually(has_begun, within=START_SECONDS)

    @property
    def is_working(self) -> bool:
        """Whether it does its work."""
        return bool(self.worker if self.works else self.address)

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def log_text(self) -> str:
        """The log of this life."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def network(self) -> str:
        """The name of the network namespace that it is in."""
        assert self._process is not None
        return str(Path(f"/proc/{self._process.pid}/ns/net").readlink())

    @property
    def address(self) -> str:
        """The address of its webhook; empty before it listens."""
        found = _LISTENING.search(self.log_text)
        return found[1] if found else ""

    @property
    def worker(self) -> str:
        """The worker's name in the database; empty before it has a slot."""
        found = _WORKING.search(self.log_text)
        return found[1] if found else ""

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self.alive and self._process is not None:
            self._process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it by a signal."""
        self.send(number)
        await self.ended()

    async def ended(self) -> bool:
        """Wait for its end; False when it had to be killed."""
        if self._process is None:
            return True
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            return False
        return True

    @property
    def _log(self) -> Path:
        return self.directory / f"{self.name}-{self.lives}.log"
