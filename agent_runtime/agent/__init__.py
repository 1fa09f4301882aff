"""Agent files: the YAML as it was written, and its schema."""

from __future__ import annotations

from agent_runtime.agent.published import schema_of
from agent_runtime.agent.reading import read_settings
from agent_runtime.agent.servers import read_mcp_servers

__all__ = ["read_mcp_servers", "read_settings", "schema_of"]
