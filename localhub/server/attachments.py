"""Attachments: addresses for texts, and signed addresses that serve the picture for five minutes.

As on GitHub an API token opens no attachment. A reader of a text asks for it in the media type `full+json`, and
finds signed addresses in its `body_html`. An attachment of a public repository leads anybody there by a redirection.
https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/attaching-files
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from aiohttp import web

from localhub.api.auth import Viewer, can_read
from localhub.pages.markup import markdown
from localhub.state.model import Repo, User
from localhub.state.signing import is_signed, signed
from localhub.state.site import Site
from localhub.state.uploads import Upload

FULL = "application/vnd.github.full+json"
_PATH = "/user-attachments/assets"


def attach(site: Site, repo: Repo, user: User, content: bytes, media_type: str) -> str:
    """Keep a picture; its address, for a text."""
    made = Upload(
        id=site.store.new_id(),
        asset=str(uuid.uuid4()),
        repo_id=repo.id,
        author_id=user.id,
        media_type=media_type,
        content=content,
    )
    site.store.uploads.put(made)
    return _address(site, made)


def with_html(site: Site, viewer: Viewer, body: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """An answer in the media type `full+json`: with each text as its page shows it to the viewer."""
    if isinstance(body, list):
        return [with_html(site, viewer, each) for each in body]
    if not isinstance(body, dict) or not isinstance(body.get("body"), str):
        return body
    page = _signed(site, viewer, str(markdown(body["body"])))
    return body | {"body_html": page, "body_text": re.sub(r"<[^>]*>", "", page).strip()}


def _signed(site: Site, viewer: Viewer, page: str) -> str:
    """With signed addresses of the attachments that the viewer may see."""
    for upload in site.store.uploads:
        if not can_read(site, viewer, site.store.repos[upload.repo_id]):
            continue
        page = page.replace(f'src="{_address(site, upload)}"', f'src="{_signed_address(site, upload)}"')
    return page


def _address(site: Site, upload: Upload) -> str:
    return f"{site.url}{_PATH}/{upload.asset}"


def _signed_address(site: Site, upload: Upload) -> str:
    return signed(site, f"{_PATH}/{upload.asset}")


class Attachments:
    """Serves them."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def add_to(self, app: web.Application) -> None:
        """Add their address."""
        app.router.add_get(f"{_PATH}/{{asset}}", self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        with self._site.lock:
            found = next((each for each in self._site.store.uploads if each.asset == request.match_info["asset"]), None)
            if found is None:
                raise web.HTTPNotFound
            if "jwt" in request.query and is_signed(self._site, request.path, request.query["jwt"]):
                return web.Response(body=found.content, content_type=found.media_type)
            if "jwt" in request.query or self._site.store.repos[found.repo_id].private:
                raise web.HTTPNotFound
            raise web.HTTPFound(_signed_address(self._site, found))
