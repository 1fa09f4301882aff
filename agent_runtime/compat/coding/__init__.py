"""The names of llm-coding-agent: `CodingAgent` and `CodingTools`."""

from agent_runtime.compat.coding.agent import AgentResult, CodingAgent, CodingCall
from agent_runtime.compat.coding.tools import CodingTools

__all__ = ["AgentResult", "CodingAgent", "CodingCall", "CodingTools"]
