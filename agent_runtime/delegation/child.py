"""Derive the agent of a child run from its parent's: never wider, and with a share of what is left. Pure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Persona
from agent_runtime.core.errors import ToolError
from agent_runtime.core.outcome import Usage
from agent_runtime.core.policy import TOKENS_PER_USD, RunLimits
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.providers.wrapped import WrappedProvider

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has used of its limits.

    Attributes:
        usage: what its model calls used, those of its child runs included.
        steps: steps taken.
        seconds: wall time.
    """

    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    seconds: float = 0.0


def shared(limits: RunLimits, spent: Spent, promised: Iterable[tuple[RunLimits, Usage]], share: float) -> RunLimits:
    """The limits of a child run: a share of what nobody has used yet, and no other child run may.

    Args:
        limits: of the parent.
        spent: what the parent has used, with all its child runs.
        promised: the child runs that are under way: their limits, and what they have used of these.
        share: the part that this one gets. Of time it gets all: it runs beside its parent.

    Raises:
        ToolError: nothing is left.
    """
    open_ = tuple(promised)
    left = {
        "steps": share * (limits.max_steps - spent.steps),
        "seconds": limits.max_seconds - spent.seconds,
    }
    tokens = limits.max_tokens
    if tokens is not None:
        promised_tokens = sum(max(0, (each.max_tokens or 0) - used.total_tokens) for each, used in open_)
        left["tokens"] = share * (tokens - spent.usage.total_tokens - promised_tokens)
    if (cost := limits.max_cost_usd) is not None:
        promised_usd = sum(max(0.0, (each.max_cost_usd or 0.0) - priced(used)) for each, used in open_)
        left["US dollars"] = share * (cost - priced(spent.usage) - promised_usd)
    least = {"steps": 1.0, "tokens": 1.0}
    if out := [name for name, amount in left.items() if amount <= 0 or amount < least.get(name, 0.0)]:
        raise ToolError(f"delegate: no {' and no '.join(out)} of this run are left for another task; do it yourself")
    return replace(
        limits,
        max_steps=int(left["steps"]),
        max_seconds=left["seconds"],
        max_tokens=None if tokens is None else int(left["tokens"]),
        max_cost_usd=left.get("US dollars"),
    )


def lesser(limits: RunLimits, left: RunLimits) -> RunLimits:
    """Limits of a run that somebody has chosen, as far as so much is left."""
    return replace(
        limits,
        max_steps=min(limits.max_steps, left.max_steps),
        max_seconds=min(limits.max_seconds, left.max_seconds),
        max_tokens=_least(limits.max_tokens, left.max_tokens),
        max_cost_usd=_least(limits.max_cost_usd, left.max_cost_usd),
    )


def _least(one: N | None, other: N | None) -> N | None:
    """The smaller bound; None is none."""
    return one if other is None else other if one is None else min(one, other)


def priced(usage: Usage) -> float:
    """What a usage cost in US dollars; where the model's price is not known, as limits count it."""
    return usage.total_tokens / TOKENS_PER_USD if usage.cost_usd is None else usage.cost_usd


def derived(
    parent: Agent, *, tools: Iterable[str], limits: RunLimits, work_dir: Path, persona: Persona | None
) -> Agent:
    """The agent of a child run.

    Sandbox, network, rules and hidden files are the parent's. It has no tool that the parent has not, and none that
    somebody registered, because those may hold the parent's state.

    Args:
        parent: whose child it is.
        tools: the built-in tools that the parent has, as they were built in.
        limits: of the run.
        work_dir: its copy of the workspace.
        persona: as whom it works.
    """
    given = parent.delegation
    deeper = given is not None and given.max_depth > 1
    provider = Borrowed((given.provider if given else None) or parent.provider)
    another = provider if given and given.provider else None
    delegation = replace(given, max_depth=given.max_depth - 1, provider=another) if given and deeper else None
    policy = parent.policy
    had = [each for each in tools if deeper or each not in DELEGATES]
    if persona is not None:
        had = [each for each in had if persona.tools is None or each in persona.tools]
        policy = replace(policy, rules=(*persona.denied, *policy.rules))
    told = (parent.instructions, persona.instructions if persona else "")
    return replace(
        parent,
        provider=provider,
        transport=None if given and given.provider else parent.transport,  # as suits another model
        work_dir=work_dir,
        policy=replace(policy, limits=limits),
        role=(persona.role if persona else "") or parent.role,
        instructions="\n\n".join(text for text in told if text.strip()),
        tools=tuple(had),
        chat=False,
        logs=None,
        delegation=delegation,
        mcp=(),
    )


DELEGATES = ("delegate", "task_status", "collect")
"""The tools with which an agent delegates."""


class Borrowed(WrappedProvider):
    """A provider of child runs, which is somebody else's to close."""

    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Answer one request; see `Provider.reply`."""
        return self._inner.reply(replace(request, child=True))

    async def close(self) -> None:
        """Leave it open."""
