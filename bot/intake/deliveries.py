"""A webhook delivery, proven genuine; the first value in the corridor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event from GitHub, proven genuine by whichever door it came through.

    Attributes:
        id: GitHub's delivery GUID (`X-GitHub-Delivery`); for an Action, derived from its run id and attempt.
        event: the event's name, e.g. `issue_comment`.
        action: the payload's `action`, or the empty string.
        payload: the parsed JSON body.
        installation: the App installation's id, or None (an Action, or a repository webhook).
    """

    id: str
    event: str
    action: str
    payload: Mapping[str, Any]
    installation: int | None
