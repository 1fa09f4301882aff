"""The plugin of the `llm` package, which each `llm` command imports: it loads the agent only when one is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import llm
from typing_extensions import override


class _CodeCommand(click.Command):
    @override
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Make the context of the command itself, whose module is loaded now."""
        from agent_runtime.compat.coding.session import code  # noqa: PLC0415 - as above

        return code.make_context(*args, **kwargs)


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    cli.add_command(_CodeCommand("code", short_help="Work with a coding agent on a directory."))


@llm.hookimpl
def register_tools(register: Callable[[type[llm.Toolbox]], None]) -> None:
    from agent_runtime.compat.coding.tools import CodingTools  # noqa: PLC0415 - as above

    register(CodingTools)
