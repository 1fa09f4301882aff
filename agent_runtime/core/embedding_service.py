"""Describe a service that makes vectors of texts, as plain data."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field

from agent_runtime.core.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingService:
    """Who makes vectors of texts.

    Attributes:
        model: its name at the service.
        base_url: the service's address.
        api_key: the key; None for a server without one.
        seconds: how long one request may take, with all its attempts.
        most: how many definitions one search gives at most.
    """

    model: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    seconds: float = 60.0
    most: int = 50

    def __post_init__(self) -> None:
        """Check that vectors can be compared here.

        Raises:
            SettingsError: numpy is not installed.
        """
        if importlib.util.find_spec("numpy") is None:
            raise SettingsError("`index` needs numpy: install codepilot-bot[embeddings], or remove the section")
