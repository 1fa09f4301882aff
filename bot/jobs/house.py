"""What all jobs of a process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent_runtime import AsyncRuntime, Event, Network, Policy, RunLimits
from bot.jobs.setup import Setup
from bot.jobs.work import WorkStore
from bot.publishing.redact import Redactor
from bot.workspace import Workspaces

Listener = Callable[[Event], None]


class AgentMaker(Protocol):
    """Makes a ready agent for a directory."""

    def __call__(
        self,
        work_dir: Path,
        policy: Policy,
        listeners: Sequence[Listener],
        *,
        network: Network,
        instructions: Mapping[str, str],
    ) -> AsyncRuntime:
        """Make one.

        Args:
            work_dir: where it works.
            policy: what it may call and spend.
            listeners: told of every event.
            network: what its commands may reach.
            instructions: texts of the repository's maintainers, by the file that they are from.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What all jobs share.

    Attributes:
        workspaces: where jobs get their files.
        setup: makes them ready.
        agent: makes a ready agent for a directory.
        limits: the operator's bounds of a run.
        redactor: takes secrets out of whatever leaves.
        trigger: the word that starts a command, for the comment.
        server_url: GitHub's address for people and git.
        model: which model works, for the comment.
        sandbox: the level the agent's commands run at, for the comment.
        network: what they may reach at most.
        work: keeps what runs come to until it is published, and for good when it is not.
        edit_seconds: between two edits of a status comment.
        listeners: told of every event of every run, e.g. the demo's terminal.
    """

    workspaces: Workspaces
    setup: Setup
    agent: AgentMaker
    limits: RunLimits
    redactor: Redactor
    trigger: str
    server_url: str
    model: str
    sandbox: str
    network: Network
    work: WorkStore
    edit_seconds: float
    listeners: tuple[Listener, ...] = ()
