"""Agent files: the YAML as it was written, and its schema."""

from __future__ import annotations

from agent_runtime.agent.published import schema_of
from agent_runtime.agent.reading import read_settings

__all__ = ["read_settings", "schema_of"]
