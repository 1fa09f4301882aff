"""The declaration of `write_file` where contents come as arguments, and what makes a call of the tool of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NoReturn

from agent_runtime.core.errors import ToolError
from agent_runtime.tools.planned import Planned
from agent_runtime.tools.tool import Planner, Tool

WRITE = "write_file"


def write_file(
    path: str = "",
    content: str | None = None,
    mode: Literal["w", "a", "edit", "insert", "replace", "patch"] = "w",
    *,
    old: str | None = None,
    start_line: int | None = None,
    end_line: int | None = None,
    after_line: int | None = None,
    force: bool = False,
) -> NoReturn:
    """Write content: 'w' the whole file, 'a' append, 'edit' in place of start_line..end_line, 'insert' below after_line
    (0: top), numbers as read; 'replace' in place of the lines old (unique); 'patch' no path: '*** Begin Patch' with
    Add/Update/Delete File sections, all or nothing. Per reply one edit/insert per file. force writes what was refused.

    This is the declaration only: a call of it is planned by the tool's own planner.
    """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
    raise NotImplementedError


def adapted(tool: Tool) -> Tool:
    """A tool as a model calls it natively: `write_file` takes its contents as arguments."""
    if tool.name != WRITE or tool.planner is None:
        return tool
    return replace(tool, func=write_file, planner=partial(_plan, tool.planner))


def _plan(plan: Planner, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> Planned:
    """The plan of a write, with its contents as the tool takes them.

    Raises:
        ToolError: there is nothing to write.
    """
    given = {name: value for name, value in args.items() if value is not None}
    content, old = given.pop("content", None), given.pop("old", None)
    if content is None or (given.get("mode") == "replace") != (old is not None):
        wanted = "`old` and `content`" if given.get("mode") == "replace" else "`content`, and `old` for 'replace' only"
        raise ToolError(f"write_file: this mode takes {wanted}", kind="ValueError")
    planned = plan(tool, {**given, "contents": (content,) if old is None else (old, content)}, call)
    return replace(planned, facts=replace(planned.facts, args=args))
