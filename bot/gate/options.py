"""The model and the bounds of one run: its options, the configuration, the operator's bounds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_runtime import RunLimits
from bot.domain.access import Bounds
from bot.domain.commands import Options
from bot.gate.decision import Refusal
from bot.gate.repo_config import RepoConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveOptions:
    """What a run is made with.

    Attributes:
        model: which one works.
        limits: its bounds; of all attempts together, where there are several.
        candidates: how many attempts are made at the same time.
        notes: sentences about what was cut or left out.
        servers: the MCP servers whose tools the agent has, by name.
    """

    model: str
    limits: RunLimits
    candidates: int = 1
    notes: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


def settled(verb: str, options: Options, config: RepoConfig, bounds: Bounds) -> EffectiveOptions | Refusal:
    """The command's options first, then the configuration, then the operator; never more than the operator's bounds.

    Args:
        verb: of the command.
        options: the command's.
        config: the repository's.
        bounds: the operator's.
    """
    offered = tuple(dict.fromkeys((bounds.model, *bounds.models)))
    if options.model is not None and options.model not in offered:
        return Refusal(
            cause="model",
            reason=f"The model `{options.model}` is not offered here. Use one of "
            f"{', '.join(f'`{each}`' for each in offered)}, or leave out `--model`; the operator can offer "
            "more (`CODEPILOT_MODELS`).",
        )
    overrides = config.overrides(verb)
    notes: list[str] = []
    model = options.model or overrides.model or bounds.model
    if model not in offered:
        notes.append(f"`{config.path}` names the model `{model}`, which is not offered here; I used `{bounds.model}`.")
        model = bounds.model
    limits = bounds.limits
    budget, most = options.budget_usd or overrides.budget_usd, limits.max_cost_usd
    if budget is not None and most is not None and budget > most:
        notes.append(f"A budget of {budget:,.2f} USD exceeds the operator's limit; it was reduced to {most:,.2f} USD.")
        budget = most
    steps = options.max_steps or overrides.max_steps or limits.max_steps
    if steps > limits.max_steps:
        notes.append(f"{steps:,} steps exceed the operator's limit; they were reduced to {limits.max_steps:,}.")
        steps = limits.max_steps
    limits = replace(limits, max_cost_usd=most if budget is None else budget, max_steps=steps)
    candidates = options.candidates or 1
    most_candidates = min(bounds.max_candidates, config.max_candidates or bounds.max_candidates)
    if candidates > 1 and verb != "fix":
        notes.append(f"`--candidates` has no effect on `{verb}`.")
        candidates = 1
    elif candidates > most_candidates:
        notes.append(f"{candidates:,} candidates exceed the limit here; they were reduced to {most_candidates}.")
        candidates = most_candidates
    servers = tuple(each for each in bounds.servers if config.mcp is None or each in config.mcp)
    if unknown := [each for each in config.mcp or () if each not in bounds.servers]:
        listed = ", ".join(f"`{each}`" for each in unknown)
        notes.append(f"`{config.path}` names MCP servers that the operator does not define: {listed}.")
    return EffectiveOptions(model=model, limits=limits, candidates=candidates, notes=tuple(notes), servers=servers)
