"""Tools by which agents delegate tasks. They are available once `register_task_tools` was called."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from agent_runtime.compat.pygent.runtime import Runtime
from agent_runtime.compat.pygent.task_manager import TaskManager
from agent_runtime.compat.pygent.tools import DEFAULT, Tools
from agent_runtime.core.errors import AgentError, ToolError

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_DELEGATED = {
    "prompt": {"type": "string", "description": "Instruction for the sub-agent"},
    "files": {"type": "array", "items": _TEXT, "description": "Files to copy to the sub-agent before starting"},
    "persona": {"type": "string", "description": "Persona for the sub-agent"},
    "timeout": {"type": "number", "description": "Max seconds for the task"},
    "step_timeout": {"type": "number", "description": "Time limit per step"},
}


class TaskTools:
    """The tools of one manager.

    Attributes:
        manager: starts the tasks.
    """

    def __init__(self, manager: TaskManager | None = None) -> None:
        """Delegate with `manager`; by default one that is made when it is first needed."""
        if manager is not None:
            self.manager = manager

    @cached_property
    def manager(self) -> TaskManager:
        """Starts the tasks."""
        return TaskManager()

    def register(self, tools: Tools) -> None:
        """Add them to a set of tools; those that it has already are replaced."""
        for name, description, properties, required in (
            ("delegate_task", "Create a background task using a new agent and return its ID.", _DELEGATED, ["prompt"]),
            (
                "delegate_persona_task",
                "Create a background task with a specific persona and return its ID.",
                _DELEGATED,
                ["prompt", "persona"],
            ),
            ("list_personas", "Return the available personas for delegated agents.", {}, []),
            ("task_status", "Check the status of a delegated task.", {"task_id": _TEXT}, ["task_id"]),
            (
                "collect_file",
                "Retrieve a file or directory from a delegated task.",
                {"task_id": _TEXT, "path": _TEXT, "dest": _TEXT},
                ["task_id", "path"],
            ),
            (
                "download_file",
                "Return the contents of a file from the workspace.",
                {"path": _TEXT, "binary": {"type": "boolean"}},
                ["path"],
            ),
        ):
            if name in tools.functions:
                tools.remove_tool(name)
            parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
            tools.register_tool(name, description, parameters, getattr(self, name))

    def delegate_task(  # noqa: PLR0917 - the documented signature
        self,
        rt: Runtime,
        prompt: str,
        files: list[str] | None = None,
        timeout: float | None = None,
        step_timeout: float | None = None,
        persona: str | None = None,
    ) -> str:
        """Begin a task; gives `started <id>`, or why not."""
        if rt.task_depth >= 1:
            return "error: delegation not allowed in sub-tasks"
        try:
            task = self.manager.start_task(
                prompt, rt, files, rt.task_depth, step_timeout=step_timeout, task_timeout=timeout, persona=persona
            )
        except (AgentError, ToolError, OSError, RuntimeError) as error:
            return str(error)
        return f"started {task}"

    def delegate_persona_task(  # noqa: PLR0917 - the same
        self,
        rt: Runtime,
        prompt: str,
        persona: str,
        files: list[str] | None = None,
        timeout: float | None = None,
        step_timeout: float | None = None,
    ) -> str:
        """Begin a task as a persona."""
        return self.delegate_task(rt, prompt, files, timeout, step_timeout, persona)

    def list_personas(self, rt: Runtime) -> str:  # noqa: ARG002 - the interface of all tools
        """The personas, as JSON."""
        return json.dumps([{"name": each.name, "description": each.description} for each in self.manager.personas])

    def task_status(self, rt: Runtime, task_id: str) -> str:  # noqa: ARG002 - the same
        """How a task is getting on."""
        return self.manager.status(task_id)

    def collect_file(self, rt: Runtime, task_id: str, path: str, dest: str | None = None) -> str:
        """Copy a file or directory of a task into the workspace."""
        return self.manager.collect_file(rt, task_id, path, dest)

    def download_file(self, rt: Runtime, path: str, binary: bool = False) -> str:  # noqa: FBT001, FBT002 - as models call it
        """The content of a file of the workspace."""
        return rt.read_file(path, binary)


DEFAULT_TASKS = TaskTools()
"""The tools of one manager for all agents that are given none."""


def register_task_tools(tools: Tools = DEFAULT, manager: TaskManager | None = None) -> None:
    """Let agents delegate tasks.

    Args:
        tools: what the tools are added to.
        manager: starts the tasks; by default one for all.
    """
    (DEFAULT_TASKS if manager is None else TaskTools(manager)).register(tools)
