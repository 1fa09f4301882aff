"""A person with a browser at the local hub's pages."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import aiohttp

VERIFIER = "v" * 43
"""What an App's site keeps for the exchange of a code."""
_CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
_TOKEN = re.compile(r'name="token" value="(\w+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """Sends forms as a browser does: with the cookie of its session, and the token of the page that it is on."""

    site: str
    web: aiohttp.ClientSession

    async def look(self, path: str) -> str:
        """The text of a page that is there."""
        async with self.web.get(f"{self.site}{path}", raise_for_status=True) as answer:
            return await answer.text()

    async def send(self, path: str, form: dict[str, str], *, origin: str | None = None, token: str = "") -> int:
        """The status of the answer to a form."""
        async with self._answer(path, form, origin=origin, token=token) as answer:
            return answer.status

    async def sent_on(self, path: str, form: dict[str, str]) -> str:
        """Where the answer to a form leads."""
        async with self._answer(path, form) as answer:
            return answer.headers["Location"]

    @asynccontextmanager
    async def _answer(
        self, path: str, form: dict[str, str], *, origin: str | None = None, token: str = ""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a form; no redirection is followed.

        Args:
            path: where to.
            form: its fields.
            origin: of the page that it is on, by default the hub's.
            token: by default the one of the session.
        """
        found = _TOKEN.search(await self.look("/login"))
        assert found
        headers = {"Origin": self.site if origin is None else origin}
        data = {**form, "token": token or found[1]}
        async with self.web.post(f"{self.site}{path}", data=data, headers=headers, allow_redirects=False) as answer:
            yield answer


@asynccontextmanager
async def browser(site: str, login: str = "") -> AsyncIterator[Browser]:
    """A browser in which somebody is signed in, or nobody."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as web:
        opened = Browser(site=site, web=web)
        if login:
            assert await opened.send("/login", {"login": login}) == 303
        yield opened


async def sign_in_code(site: str, client_id: str, login: str) -> str:
    """The code that an App's site gets once a person has agreed to be signed in there."""
    asked = {"client_id": client_id, "state": "s", "code_challenge": _CHALLENGE}
    async with browser(site, login) as person:
        back = urlsplit(await person.sent_on("/login/oauth/authorize", asked))
    query = parse_qs(back.query)
    assert (back.path, query["state"]) == ("/back", ["s"])
    return query["code"][0]
