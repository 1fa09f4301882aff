"""The names of llm-coding-agent: `CodingTools`."""

from agent_runtime.compat.coding.toolbox import CodingTools

__all__ = ["CodingTools"]
