"""Limits of delegated tasks, and personas for child runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import Rule
from agent_runtime.providers.protocol import Provider

DELEGATION_TOOLS = ("delegate", "task_status", "collect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Limits of delegated tasks. Each is a child run on a copy of the workspace."""

    max_tasks: int = 8
    """Tasks per run."""
    at_once: int = 3
    """Concurrent child runs."""
    max_depth: int = 1
    """With 1, child runs cannot delegate."""
    share: float = 0.5
    """Fraction of the parent's remaining steps, tokens and cost for one child run."""
    personas: tuple[Persona, ...] = ()
    """Named ways for child runs to work."""
    provider: Provider | None = None
    """The model of child runs; None for the parent's. It is closed with the agent's."""
    copies: Path | None = None
    """Parent directory of the copies, preferably on the same file system; None for the temporary directory."""
    max_copy_bytes: int = 4 * 1024**3
    """Size of one copy."""
    max_copy_files: int = 200_000
    """Files and directories of one copy."""

    def __post_init__(self) -> None:
        for name in ("max_tasks", "at_once", "max_depth", "max_copy_bytes", "max_copy_files"):
            if (value := getattr(self, name)) < 1:
                raise SettingsError(f"delegation: {name}={value}; it must be at least 1")
        if not 0 < self.share <= 1:
            raise SettingsError(f"delegation: share={self.share}; it must be above 0 and at most 1")
        names = [persona.name for persona in self.personas]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(f"delegation: the persona {duplicates[0]!r} is given twice; keep one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """A way for a child run to work, with at most its parent's permissions."""

    name: str
    """The name by which tasks ask for it."""
    role: str = ""
    """One sentence; empty for the parent's role."""
    instructions: str = ""
    """Added to the system prompt after the parent's."""
    tools: tuple[str, ...] | None = None
    """Subset of the parent's tools; None for all."""
    denied: tuple[Rule, ...] = ()
    """Rules that precede the parent's."""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise SettingsError("a persona has no name; give it one, by which tasks ask for it")
        if invalid := next((rule for rule in self.denied if rule.decision != "deny"), None):
            raise SettingsError(
                f"persona {self.name!r}: the rule {invalid.decision!r} for {invalid.tool!r} in `denied` must be a "
                "'deny': a persona can only narrow what its parent may do"
            )
