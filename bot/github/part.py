"""What all parts of the client share: the connection, the redaction, and the three ways to read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any

from typing_extensions import override

from bot.github.connection import GitHubConnection
from bot.github.errors import GitHubError

PAGE = 100
"""The most entries that GitHub puts on a page."""


class ClientPart:
    """A part of the client: what it can do about one kind of thing.

    Args:
        connection: how to reach GitHub.
        redact: takes secrets out of text; every text that goes out passes it, whoever wrote it.
        minted: told of every token that is minted for one repository, before it is used.
    """

    def __init__(
        self,
        connection: GitHubConnection,
        *,
        redact: Callable[[str], str],
        minted: Callable[[str], None] = lambda _token: None,
    ) -> None:
        self._connection = connection
        self._redact = redact
        self._minted = minted

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    async def _read(self, what: str, path: str, query: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """What GET answers."""
        return await self._connection.json(what, "GET", path, query=query)

    async def _found(self, what: str, path: str, query: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """What GET answers, or None for 404."""
        try:
            return await self._connection.json(what, "GET", path, query=query, may_be_absent=True)
        except GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def _entries(
        self, what: str, path: str, query: Mapping[str, Any] | None = None, *, within: str = ""
    ) -> AsyncIterator[Any]:
        """The entries of a list, page by page; the next page is asked for when it is needed.

        Args:
            what: for an error's text.
            path: of the list.
            query: beside the paging.
            within: the field of the answer that holds the list; empty when the answer is the list.
        """
        page = 1
        while True:
            answer = await self._read(what, path, {**(query or {}), "per_page": PAGE, "page": page})
            entries = answer[within] if within else answer
            for entry in entries:
                yield entry
            if len(entries) < PAGE:
                return
            page += 1
