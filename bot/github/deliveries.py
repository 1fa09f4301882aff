"""What GitHub tried to deliver to the App's webhook, and asking it to try again.

https://docs.github.com/webhooks/using-webhooks/automatically-redelivering-failed-deliveries-for-a-github-app-webhook
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bot.github.app_auth import app_auth
from bot.github.connection import GitHubConnection
from bot.github.errors import unreadable

_PAGE = 100
_NEXT = re.compile(r'<([^>]*)>; rel="next"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to deliver an event.

    Attributes:
        id: of the attempt.
        guid: of the delivery, the same for all its attempts.
        event: the event's name.
        at: when, in seconds since the epoch.
        status: the HTTP status that came back; 0 when nothing did.
    """

    id: int
    guid: str
    event: str
    at: float
    status: int

    @property
    def unheard(self) -> bool:
        """Whether nobody has taken it in: no answer, or a server's failure. A refusal was heard."""
        return self.status < HTTPStatus.OK or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class AppDeliveries:
    """The App's deliveries; see `app_deliveries`.

    Args:
        connection: as the App itself.
    """

    def __init__(self, connection: GitHubConnection) -> None:
        self._connection = connection

    async def attempts(self) -> AsyncIterator[Attempt]:
        """The attempts of the last days, newest first; the next page is asked for when it is needed.

        Raises:
            GitHubError: GitHub did not answer, or does not know the App.
        """
        cursor = ""
        while True:
            query = {"per_page": _PAGE, **({"cursor": cursor} if cursor else {})}
            what = "list the deliveries to the App's webhook"
            headers, found = await self._connection.answered(what, "GET", "/app/hook/deliveries", query=query)
            for each in _attempts(what, found):
                yield each
            cursor = _next_cursor(headers)
            if not cursor:
                return

    async def redeliver(self, attempt: int) -> None:
        """Have GitHub deliver again, under the same GUID.

        Raises:
            GitHubError: GitHub did not answer, or will not.
        """
        path = f"/app/hook/deliveries/{attempt}/attempts"
        await self._connection.json(f"redeliver {attempt}", "POST", path, as_app=True)


@asynccontextmanager
async def app_deliveries(*, app_id: int, private_key: str, api_url: str) -> AsyncIterator[AppDeliveries]:
    """The deliveries of an App.

    Args:
        app_id: the App's.
        private_key: the App's, in PEM.
        api_url: GitHub's REST address.
    """
    connection = GitHubConnection(app_auth(app_id, private_key), api_url)
    try:
        yield AppDeliveries(connection)
    finally:
        connection.close()


def _attempts(what: str, found: Iterable[Mapping[str, Any]]) -> list[Attempt]:
    try:
        return [_attempt(each) for each in found]
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(what, HTTPStatus.OK, f"a delivery of another form: {error!r}") from error


def _attempt(data: Mapping[str, Any]) -> Attempt:
    return Attempt(
        id=int(data["id"]),
        guid=str(data["guid"]),
        event=str(data["event"]),
        at=datetime.fromisoformat(str(data["delivered_at"])).timestamp(),
        status=int(data["status_code"]),
    )


def _next_cursor(headers: Mapping[str, str]) -> str:
    found = _NEXT.search(headers.get("link", ""))
    return parse_qs(urlsplit(found[1]).query).get("cursor", [""])[0] if found else ""
