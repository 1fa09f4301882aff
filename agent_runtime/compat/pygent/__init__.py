"""The names of Pygent: `Agent`, `Runtime`, `TaskManager`, and the tools that all agents share."""

import sys

from agent_runtime.compat.pygent import models, tasks
from agent_runtime.compat.pygent.agent import Agent
from agent_runtime.compat.pygent.models import (
    APIError,
    Message,
    Model,
    OpenAIModel,
    Persona,
    PygentError,
    load_config,
    set_custom_model,
)
from agent_runtime.compat.pygent.runtime import Runtime
from agent_runtime.compat.pygent.tasks import TaskManager, register_task_tools
from agent_runtime.compat.pygent.tools import (
    Tools,
    clear_tools,
    execute_tool,
    register_tool,
    remove_tool,
    reset_tools,
    tool,
)

__version__ = "0.1.26"
"""The version of Pygent whose names these are."""

__all__ = [
    "APIError",
    "Agent",
    "Message",
    "Model",
    "OpenAIModel",
    "Persona",
    "PygentError",
    "Runtime",
    "TaskManager",
    "Tools",
    "clear_tools",
    "execute_tool",
    "load_config",
    "register_task_tools",
    "register_tool",
    "remove_tool",
    "reset_tools",
    "set_custom_model",
    "tool",
]

_MODULES = {
    **dict.fromkeys(("config", "errors", "openai_compat", "persona"), models),
    **dict.fromkeys(("task_manager", "task_tools"), tasks),
}
"""Pygent's modules whose content ours have under other names; programs import from them."""

sys.modules |= {f"{__name__}.{name}": module for name, module in _MODULES.items()}
globals().update(_MODULES)
