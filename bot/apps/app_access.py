"""Ask GitHub as the App that the operator's settings name."""

from __future__ import annotations

from bot.github import AppAccess
from bot.settings.model import Settings


def app_access(settings: Settings) -> AppAccess:
    """What it takes, from the settings."""
    return AppAccess(
        app_id=settings.app_id,
        private_key=settings.private_key.get_secret_value(),
        api_url=settings.api_url,
        ca_file=settings.agent.ca_file,
    )
