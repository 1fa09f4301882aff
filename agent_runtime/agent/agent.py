"""An agent as one value: its model, workspace, sandbox, permissions, and how it may delegate tasks.

Describe it in code, or read the same from an `agent.yaml` with `Agent.from_file`. A runtime works with it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agent_runtime.agent.delegation import Delegation
from agent_runtime.context.transcript import MemorySettings
from agent_runtime.core.values import EmbeddingService, Network, TransportName
from agent_runtime.mcp.settings import McpServer
from agent_runtime.policy.policy import Policy
from agent_runtime.providers.protocol import Provider
from agent_runtime.sandbox.protocol import ContainerSettings, Sandbox, SandboxSettings
from agent_runtime.sessions.protocol import Scrub

if TYPE_CHECKING:
    from agent_runtime.agent.agent_file import AgentFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAndRandom:
    """The clock and the dice whose values reach the model. What a program in the sandbox finds there is its own.

    Attributes:
        now: the time, aware of its zone.
        token: random hexadecimal digits, for so many bytes.
        sleep: waits so many seconds, e.g. for a model service that is down.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    token: Callable[[int], str] = secrets.token_hex
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent, described in code; `from_file` reads the same from an `agent.yaml`.

    Attributes:
        provider: the model.
        work_dir: the directory that it may read and change.
        start_in: the directory below it in which its commands start; empty for that itself. Not on Windows.
        sandbox: where its commands run.
        network: what its commands may reach, in a sandbox that keeps them from everything else.
        policy: what it may call and spend.
        name: how it is called.
        role: what it is, as one sentence.
        instructions: further words for the system prompt.
        tools: names of the built-in tools it has; None for all.
        memory: how much conversation it keeps before the oldest part is summarised.
        chat: whether a reply that neither acts nor finishes is an answer (True) or an error (False).
        unsafe_mode: whether its file tools may leave `work_dir`. Commands stay in the sandbox.
        repository_instructions: text by name, e.g. of an `AGENTS.md`, for the first message; see `read_instructions`.
        skills: texts of `SKILL.md` files by path; the first message lists them, and it reads them on demand; see
            `read_skills`.
        max_output_chars: tool name → characters of one result that the model is shown at most.
        clock_and_random: the clock and the dice whose values reach the model.
        logs: where the full output of commands is kept; a private directory, removed at the end, by default.
        scrub: takes secrets out of what is recorded, and so out of what the model reads; None takes nothing out. Only
            for values that no file of the workspace holds: what an agent was not shown it cannot write back. A call
            that holds such a value cannot wait for a person; the others of its step are kept encrypted meanwhile.
        indexed: whether it has the tools of the code index; None for where `work_dir` has sources when it begins.
        kept_index: a file, out of the agent's reach, in which the code index is kept for later runs on the same files;
            several may share it. None keeps it nowhere.
        index_seconds: how long the first message waits for the code index, before it goes on without; 0 takes none.
        embeddings: a service that makes vectors of definitions, which are sent to it; None for a search by words alone.
        delegation: how it may delegate tasks to child runs; None for not at all.
        transport: whether the model calls tools in control blocks (`blocks`) or by its service's own tool calls
            (`tools`); None for what suits the model.
        separates_commands: whether a command begins a tick of the clock of files after what was done before it, so that
            `ToolReturned.file_time` tells which files it saw; takes 10 ms a command.
        mcp: servers whose tools it has, too. Child runs have none of them.
    """

    provider: Provider
    work_dir: Path
    sandbox: Sandbox
    network: Network = field(default_factory=Network)
    policy: Policy = field(default_factory=Policy)
    name: str = "Codepilot"
    role: str = "an autonomous software engineering agent."
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    memory: MemorySettings = field(default_factory=MemorySettings)
    chat: bool = True
    unsafe_mode: bool = False
    repository_instructions: Mapping[str, str] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    max_output_chars: Mapping[str, int] = field(default_factory=dict)
    clock_and_random: ClockAndRandom = field(default_factory=ClockAndRandom)
    logs: Path | None = None
    scrub: Scrub | None = None
    start_in: str = ""
    indexed: bool | None = None
    kept_index: Path | None = None
    index_seconds: float = 1.0
    embeddings: EmbeddingService | None = None
    delegation: Delegation | None = None
    transport: TransportName | None = None
    separates_commands: bool = False
    mcp: tuple[McpServer, ...] = ()

    def __post_init__(self) -> None:
        """Let the policy allow what the servers' definitions allow, behind its own rules."""
        new = [rule for server in self.mcp for rule in server.rules if rule not in self.policy.rules]
        if new:
            object.__setattr__(self, "policy", replace(self.policy, rules=(*self.policy.rules, *new)))

    @property
    def step_chars(self) -> int:
        """Characters that one step may show: the policy's bound, and what leaves room for it in the conversation."""
        return min(self.policy.limits.max_output_chars_per_step, self.memory.max_context_tokens * 9 // 10)

    @classmethod
    def from_file(cls, file: AgentFile | Path | str) -> Agent:
        """The agent that an `agent.yaml` describes, ready to work.

        Raises:
            SettingsError: the file does not fit, or a key that it names is not in the environment.
            SandboxError: this machine has no sandbox of the kind it asks for.
        """
        from agent_runtime.agent.agent_file import AgentFile  # noqa: PLC0415 - see TYPE_CHECKING above
        from agent_runtime.sandbox.select import pick_sandbox  # noqa: PLC0415 - the same

        described = file if isinstance(file, AgentFile) else AgentFile.load(file)
        image = described.docker_image
        container = ContainerSettings(image=image) if image else None
        settings = SandboxSettings(container=container, git_writable=described.git_writable)
        return cls(
            provider=described.provider(),
            work_dir=described.work_dir,
            sandbox=pick_sandbox(described.sandbox, settings),
            policy=described.policy(),
            name=described.name,
            role=described.role,
            instructions=described.instructions,
            tools=described.tools,
            memory=described.memory,
            unsafe_mode=described.unsafe_mode,
            max_output_chars=described.max_output_chars,
            embeddings=described.embeddings(),
            kept_index=described.kept_index,
            transport=described.transport,
            delegation=described.delegation,
            mcp=described.servers(),
            skills=described.skills,
        )
