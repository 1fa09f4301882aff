"""Agent files: the YAML as it was written, and its schema."""

from __future__ import annotations

from agent_runtime.agent.published import schema_of
from agent_runtime.agent.reading import read_settings
from agent_runtime.mcp.settings import McpServer

__all__ = ["McpServer", "read_settings", "schema_of"]
