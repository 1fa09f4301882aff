"""The names of llm-coding-agent: `CodingAgent` and `CodingTools`.

A module is loaded when one of its names is first used, as each command of `llm` imports `command`.
"""

from typing import TYPE_CHECKING

import lazy_loader  # type: ignore[import-untyped] # it ships no types

if TYPE_CHECKING:
    from agent_runtime.compat.coding.agent import AgentResult, CodingAgent, CodingCall
    from agent_runtime.compat.coding.tools import CodingTools

    __all__ = ["AgentResult", "CodingAgent", "CodingCall", "CodingTools"]
else:
    __getattr__, __dir__, __all__ = lazy_loader.attach(
        __name__, submod_attrs={"agent": ["AgentResult", "CodingAgent", "CodingCall"], "tools": ["CodingTools"]}
    )
