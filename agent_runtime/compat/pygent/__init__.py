"""The names of Pygent: `Agent`, `Runtime`, `TaskManager`, and the tools that all agents share."""

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
