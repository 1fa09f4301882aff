"""The parts shared by the whole hub: the store, the clock, the addresses, one lock, and the sender of webhooks."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from localhub.state.model import WebhookDelivery
from localhub.state.rate import RateCounter
from localhub.state.store import Store

Json: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Site:
    """The hub's inner state. Hold `lock` to read or change it.

    Attributes:
        url: the root of every address, without a slash at its end; known once the socket listens.
        directory: where the bare repositories lie.
        now: the clock.
        send: puts a recorded delivery on its way; returns at once.
    """

    directory: Path
    now: Callable[[], datetime]
    send: Callable[[WebhookDelivery], None]
    url: str = ""
    store: Store = field(default_factory=Store)
    lock: threading.RLock = field(default_factory=threading.RLock)
    rates: RateCounter = field(default_factory=RateCounter)
    seen_payload: Callable[[str, Mapping[str, Any]], None] | None = None

    @property
    def api_url(self) -> str:
        """Where REST begins, in the shape of GitHub Enterprise."""
        return f"{self.url}/api/v3"

    def api(self, *parts: str | int) -> str:
        """An address in the API."""
        return "/".join([self.api_url, *(quote(str(part)) for part in parts)])

    def html(self, *parts: str | int) -> str:
        """An address of a page."""
        return "/".join([self.url, *(quote(str(part)) for part in parts)])


def node_id(kind: str, number: int | str) -> str:
    """The opaque global id that GraphQL uses."""
    return base64.b64encode(f"{kind}:{number}".encode()).decode()


def iso(moment: datetime) -> str:
    """A time as GitHub writes it: UTC, whole seconds, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_or_none(moment: datetime | None) -> str | None:
    """The same, for a time that may not have come yet."""
    return None if moment is None else iso(moment)
