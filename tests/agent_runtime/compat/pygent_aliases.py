"""Our modules under the names of Pygent's, for the tests that it publishes.

These reach for private functions of its tools and for the manager that its tools share; ours have public names.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from typing_extensions import override

from agent_runtime.compat import pygent
from agent_runtime.compat.pygent import tasks, tools

__all__: list[str] = []


class _Tools(ModuleType):
    """The module `tools`, with the tools for tasks by their private names."""

    @override
    def __getattr__(self, name: str) -> object:
        if name.startswith("_") and hasattr(tasks.TaskTools, name[1:]):
            return getattr(tasks.DEFAULT_TASKS, name[1:])
        return getattr(tools, name)

    @override
    def __setattr__(self, name: str, value: object) -> None:
        if name == "_task_manager":
            tasks.DEFAULT_TASKS.__dict__["manager"] = value
        else:
            super().__setattr__(name, value)


_NAMES = (
    "config", "errors", "models", "openai_compat", "persona", "runtime", "task_manager", "task_tools",
)  # fmt: skip
_aliases = {name: import_module(f"{pygent.__name__}.{name}") for name in _NAMES} | {"tools": _Tools("pygent.tools")}
_package = ModuleType("pygent")
_package.__dict__.update({**pygent.__dict__, **_aliases})
sys.modules |= {"pygent": _package, **{f"pygent.{name}": module for name, module in _aliases.items()}}
