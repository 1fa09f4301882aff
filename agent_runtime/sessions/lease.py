"""The lease on a session in a database: its holder, and whether that process is alive.

A database cannot see its users die, so the holder writes down who it is and says again and again that it lives. On the
same machine the operating system knows better and is asked instead: there a dead holder is found out at once.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Self

from agent_runtime.processes.identity import machine, started
from agent_runtime.sessions.lock import Holder

BEAT_SECONDS = 15.0
"""How often a holder says that it lives."""

EXPIRY_SECONDS = 60.0
"""How long after its last word a holder on another machine is taken for dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A claim on a session.

    Attributes:
        token: random; a process that no longer finds it in the database has lost the session.
        pid: the holder's process id.
        host: its machine, for people.
        since: when the claim was made, in seconds since 1970.
        machine: within which process ids can be compared: this start of the system, and this process namespace;
            empty where the system does not tell.
        started: when the process was started, to tell it from a later one with its number; empty likewise.
        beat: when the holder last said that it lives, in seconds since 1970.
    """

    token: str
    pid: int
    host: str
    since: float
    machine: str
    started: str
    beat: float

    @classmethod
    def here(cls) -> Self:
        """A claim by this process."""
        pid, now = os.getpid(), time.time()
        return cls(
            token=secrets.token_hex(16),
            pid=pid,
            host=socket.gethostname(),
            since=now,
            machine=machine(),
            started=started(pid),
            beat=now,
        )

    @property
    def holder(self) -> Holder:
        """Who made it, for people."""
        return Holder(pid=self.pid, host=self.host, since=self.since)

    @property
    def is_dead(self) -> bool:
        """Whether its holder is surely gone, or has not been heard of for `EXPIRY_SECONDS`."""
        if self.machine and self.machine == machine():
            return started(self.pid) != self.started
        return time.time() - self.beat > EXPIRY_SECONDS
