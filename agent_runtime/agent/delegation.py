"""The bounds within which an agent delegates tasks to child runs, and the personas of these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import Rule
from agent_runtime.providers.protocol import Provider

DELEGATION_TOOLS = ("delegate", "task_status", "collect")
"""The tools with which an agent delegates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Bounds of delegated tasks, each of which is a child run on a copy of the workspace.

    Attributes:
        max_tasks: tasks that one run may delegate.
        at_once: child runs that work at the same time.
        max_depth: how deep tasks may be delegated; with 1, child runs have no child runs.
        share: the part of what is left of the parent's steps, tokens and money that one child run may use.
        personas: ways for child runs to work.
        provider: the model of child runs; None for the parent's. That of an agent is closed with the agent's own.
        copies: the directory below which copies of the workspace are made, on the same file system best; None for the
            system's directory for temporary files.
        max_copy_bytes: size of one copy.
        max_copy_files: files and directories of one copy.
    """

    max_tasks: int = 8
    at_once: int = 3
    max_depth: int = 1
    share: float = 0.5
    personas: tuple[Persona, ...] = ()
    provider: Provider | None = None
    copies: Path | None = None
    max_copy_bytes: int = 4 * 1024**3
    max_copy_files: int = 200_000

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            SettingsError: one is out of range, or a persona's name is given twice.
        """
        for name in ("max_tasks", "at_once", "max_depth", "max_copy_bytes", "max_copy_files"):
            if (value := getattr(self, name)) < 1:
                raise SettingsError(f"delegation: {name}={value}; it must be at least 1")
        if not 0 < self.share <= 1:
            raise SettingsError(f"delegation: share={self.share}; it must be above 0 and at most 1")
        names = [each.name for each in self.personas]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(f"delegation: the persona {twice[0]!r} is given twice; keep one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """A way for a child run to work; it can only narrow what its parent may do.

    Attributes:
        name: how tasks ask for it.
        role: what it is, as one sentence; empty for the parent's role.
        instructions: words for its system prompt, below the parent's.
        tools: the tools that it has of the parent's; None for all of them.
        denied: rules that deny; they come before the parent's rules.
    """

    name: str
    role: str = ""
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    denied: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """Check the rules.

        Raises:
            SettingsError: one of them allows or asks: before the parent's rules it could widen what those say.
        """
        if not self.name.strip():
            raise SettingsError("a persona has no name; give it one, by which tasks ask for it")
        if wider := next((rule for rule in self.denied if rule.decision != "deny"), None):
            raise SettingsError(
                f"persona {self.name!r}: the rule {wider.decision!r} for {wider.tool!r} in `denied` must be a 'deny': "
                "a persona can only narrow what its parent may do"
            )
