"""A plugin of the `llm` package: the command `llm code`, and `CodingTools` for `llm chat --tool`."""

from __future__ import annotations

from collections.abc import Callable

import click
import llm


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `llm code`."""
    from agent_runtime.compat.coding.command import code  # noqa: PLC0415 - not for those who call no command

    cli.add_command(code, name="code")


@llm.hookimpl
def register_tools(register: Callable[[type[llm.Toolbox]], None]) -> None:
    """Add the toolbox."""
    from agent_runtime.compat.coding.toolbox import CodingTools  # noqa: PLC0415 - the same

    register(CodingTools)
