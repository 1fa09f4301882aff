"""What may stand in an agent file: the YAML as it was written, and the schema that it must fit."""

from __future__ import annotations

from agent_runtime.agent.published import schema_of
from agent_runtime.agent.reading import read_settings

__all__ = ["read_settings", "schema_of"]
