"""The bot's own keys, each made from one secret of the operator's."""

from __future__ import annotations

import hashlib
import hmac

from pydantic import SecretStr


def key_for(secret: SecretStr, purpose: str) -> bytes:
    """A key of its own for each purpose, so that the secret itself signs one thing only."""
    return hmac.digest(secret.get_secret_value().encode(), f"codepilot {purpose}".encode(), hashlib.sha256)
