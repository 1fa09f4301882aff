"""A file of MCP servers, for programs whose agents no agent file describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent_runtime.agent.reading import read_settings, read_text
from agent_runtime.mcp.settings import McpServer


def read_mcp_servers(path: Path, environ: Mapping[str, str]) -> tuple[McpServer, ...]:
    """Read a YAML file whose key `mcp` has servers as an agent file has them.

    Args:
        path: of the file.
        environ: the variables that `${NAME}` stands for.

    Raises:
        SettingsError: it cannot be read or does not fit, or a variable is not set.
    """
    from agent_runtime.agent.schema import ServersDocument  # noqa: PLC0415 - loads pydantic

    document = read_settings(read_text(path), ServersDocument, source=str(path))
    return tuple(each.server().filled(environ) for each in document.mcp)
