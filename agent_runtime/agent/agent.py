"""An agent's configuration: model, workspace, sandbox, permissions and delegation."""

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
from agent_runtime.core.events import BaselineTaken, Started
from agent_runtime.core.values import EmbeddingService, Network, Task, TransportName
from agent_runtime.mcp.settings import McpServer
from agent_runtime.policy.policy import Policy
from agent_runtime.providers.protocol import Provider
from agent_runtime.sandbox.protocol import ContainerSettings, Sandbox, SandboxSettings
from agent_runtime.sessions.protocol import Scrub

if TYPE_CHECKING:
    from agent_runtime.agent.agent_file import AgentFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAndRandom:
    """Sources of values that reach the model and differ in each run."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The time, with its zone."""
    token: Callable[[int], str] = secrets.token_hex
    """Random hexadecimal digits for a number of bytes."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Used, for example, while a model service is unavailable."""
    recorded_start: Callable[[Task], Started | None] = lambda _task: None
    """The start of a replayed run, whose first message is used again."""
    recorded_baseline: Callable[[Started], BaselineTaken | None] = lambda _started: None
    """The tests that failed before a replayed run."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent's configuration in code; `from_file` reads it from an `agent.yaml`."""

    provider: Provider
    """The model."""
    work_dir: Path
    """The directory that it reads and changes."""
    sandbox: Sandbox
    """Where commands run."""
    network: Network = field(default_factory=Network)
    """Hosts that commands may reach from an isolating sandbox."""
    policy: Policy = field(default_factory=Policy)
    """Rules and limits."""
    name: str = "Codepilot"
    """The agent's name."""
    role: str = "an autonomous software engineering agent."
    """One sentence."""
    instructions: str = ""
    """Added to the system prompt."""
    tools: tuple[str, ...] | None = None
    """Names of built-in tools; None for all."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    """When to summarise the conversation."""
    chat: bool = True
    """Whether a reply without action or completion is an answer (True) or an error (False)."""
    attended: bool = True
    """Whether a person can answer questions, now or later; otherwise `ask_user` is not offered."""
    unsafe_mode: bool = False
    """Whether file tools may leave `work_dir`. Commands stay in the sandbox."""
    repository_instructions: Mapping[str, str] = field(default_factory=dict)
    """Text by name, for example of `AGENTS.md`; see `read_instructions`."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """Texts of `SKILL.md` files by path, listed in the first message; see `read_skills`."""
    max_output_chars: Mapping[str, int] = field(default_factory=dict)
    """Maximum characters of a result by tool name."""
    clock_and_random: ClockAndRandom = field(default_factory=ClockAndRandom)
    """Replaceable for tests."""
    logs: Path | None = None
    """Directory for the full output of commands; by default private and temporary."""
    scrub: Scrub | None = None
    """Removes secrets from records and from text for the model. Only for values that no workspace file contains: the
    model could not write them back. A call with such a value cannot be suspended."""
    start_in: str = ""
    """The directory below `work_dir` in which commands start. Not on Windows."""
    indexed: bool | None = None
    """Whether it has the code index tools; None if `work_dir` has sources."""
    kept_index: Path | None = None
    """Code index file for later runs on the same files, out of the agent's reach; may be shared."""
    index_seconds: float = 1.0
    """Time for which the first message waits for the code index; 0 leaves it out."""
    baseline_seconds: float = 5.0
    """Time for which the first message waits for the nearest tests, run once on a copy of `work_dir`; their
    failures do not count against the agent. 0 leaves them out."""
    embeddings: EmbeddingService | None = None
    """Service that receives definitions and returns vectors; None for search by words only."""
    delegation: Delegation | None = None
    """Limits of delegated tasks; None disables them."""
    transport: TransportName | None = None
    """Control blocks (`blocks`) or native tool calls (`tools`); None for the model's default."""
    separates_commands: bool = False
    """Whether a command starts one tick of the file clock after earlier changes, so that `ToolReturned.file_time` tells
    which files it could see; costs 10 ms per command."""
    mcp: tuple[McpServer, ...] = ()
    """MCP servers. Child runs have none."""

    def __post_init__(self) -> None:
        new = [rule for server in self.mcp for rule in server.rules if rule not in self.policy.rules]
        if new:
            object.__setattr__(self, "policy", replace(self.policy, rules=(*self.policy.rules, *new)))

    @property
    def step_chars(self) -> int:
        """Maximum output of one step in characters."""
        return min(self.policy.limits.max_output_chars_per_step, self.memory.max_context_tokens * 9 // 10)

    @classmethod
    def from_file(cls, file: AgentFile | Path | str, *, waits: bool = True) -> Agent:
        """Create the agent of an `agent.yaml`; `waits` is for a path, see `AgentFile.load`.

        Raises:
            SettingsError: the file is invalid, or a key is not in the environment.
            SandboxError: this machine has no such sandbox.
        """
        from agent_runtime.agent.agent_file import AgentFile  # noqa: PLC0415 - see TYPE_CHECKING above
        from agent_runtime.sandbox.select import pick_sandbox  # noqa: PLC0415 - the same

        agent_file = file if isinstance(file, AgentFile) else AgentFile.load(file, waits=waits)
        image = agent_file.docker_image
        container = ContainerSettings(image=image) if image else None
        settings = SandboxSettings(
            container=container, git_writable=agent_file.git_writable, toolchains=agent_file.toolchains
        )
        return cls(
            provider=agent_file.provider(),
            work_dir=agent_file.work_dir,
            sandbox=pick_sandbox(agent_file.sandbox, settings),
            policy=agent_file.policy(),
            name=agent_file.name,
            role=agent_file.role,
            instructions=agent_file.instructions,
            tools=agent_file.tools,
            memory=agent_file.memory,
            unsafe_mode=agent_file.unsafe_mode,
            max_output_chars=agent_file.max_output_chars,
            embeddings=agent_file.embeddings(),
            kept_index=agent_file.kept_index,
            transport=agent_file.transport,
            delegation=agent_file.delegation,
            mcp=agent_file.servers(),
            skills=agent_file.skills,
        )
