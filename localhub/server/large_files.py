"""Git LFS: the batch API, uploads and downloads, and their verification.

https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
https://github.com/git-lfs/git-lfs/blob/main/docs/api/basic-transfers.md
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any, Literal

from aiohttp import web
from aiohttp.typedefs import Handler

from localhub.api.auth import HubError, demand, or_404, viewer_of
from localhub.git import plumbing as git
from localhub.server.dispatch import Faults, hang_up
from localhub.state.model import Repo
from localhub.state.store import Json, Site

_MEDIA_TYPE = "application/vnd.git-lfs+json"
_LIFE_SECONDS = 3600
_OID = re.compile(r"[0-9a-f]{64}")


class LargeFiles:
    """The addresses of LFS for every repository. Objects go to an address of their own, which knows no API token."""

    def __init__(self, site: Site, faults: Faults) -> None:
        self._site = site
        self._faults = faults

    def add_to(self, app: web.Application) -> None:
        """Add the addresses; those of objects are entry by the batch API alone."""
        for base in ("/{owner}/{repo}.git", "/{owner}/{repo}"):
            app.router.add_post(f"{base}/info/lfs/objects/batch", self._with_faults(self._batch))
        storage = "/-/lfs/{repo_id:[0-9]+}/{oid:[0-9a-f]{64}}"
        app.router.add_put(storage, self._with_faults(self._put))
        app.router.add_get(storage, self._with_faults(self._get))
        app.router.add_post(f"{storage}/verify", self._with_faults(self._verify))

    def _with_faults(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            fault = self._faults.take(request.method, request.path)
            if fault is not None:
                status = int(fault.trouble) if fault.trouble.isdecimal() else 503
                return (
                    hang_up(request)
                    if fault.trouble.startswith("drop")
                    else _json_response({"message": "Trouble"}, status)
                )
            try:
                return await handler(request)
            except HubError as error:
                return _json_response({"message": error.message}, error.status)

        return handle

    async def _batch(self, request: web.Request) -> web.StreamResponse:
        asked = await _read_json(request)
        operation = asked.get("operation")
        if operation not in {"upload", "download"} or "basic" not in asked.get("transfers", ["basic"]):
            raise HubError(422, "Invalid operation or transfer")
        with self._site.lock:
            repo = self._repo(request, "write" if operation == "upload" else "read")
            objects = [self._object_entry(repo, operation, each) for each in asked.get("objects", [])]
        return _json_response({"transfer": "basic", "objects": objects, "hash_algo": "sha256"})

    def _object_entry(self, repo: Repo, operation: str, request: Json) -> Json:
        oid, size = str(request.get("oid")), request.get("size")
        entry: dict[str, Any] = {"oid": oid, "size": size, "authenticated": True}
        if not _OID.fullmatch(oid) or not isinstance(size, int) or size < 0:
            return {**entry, "error": {"code": 422, "message": "Invalid object"}}
        there = git.large_object(repo.path, oid).exists()
        if operation == "download" and not there:
            return {**entry, "error": {"code": 404, "message": "Object does not exist"}}
        if operation == "upload" and there:
            return entry
        href = f"{self._site.url}/-/lfs/{repo.id}/{oid}"
        action = {"header": {"Authorization": self._authorization(repo.id, oid)}, "expires_in": _LIFE_SECONDS}
        actions = {operation: {"href": href, **action}}
        if operation == "upload":
            actions["verify"] = {"href": f"{href}/verify", **action}
        return {**entry, "actions": actions}

    async def _put(self, request: web.Request) -> web.StreamResponse:
        key = self._check_authorization(request)
        if "Content-Length" not in request.headers:  # as the storage behind GitHub's wants it
            raise HubError(411, "You must provide the Content-Length HTTP header.")
        content = await request.read()
        if hashlib.sha256(content).hexdigest() != key[1]:
            raise HubError(400, "The content is not the object's")
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return web.Response()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(self._object(self._check_authorization(request)))

    async def _verify(self, request: web.Request) -> web.StreamResponse:
        key, asked = self._check_authorization(request), await _read_json(request)
        if asked.get("oid") != key[1] or asked.get("size") != self._object(key).stat().st_size:
            raise HubError(422, "The object is not the one that was announced")
        return web.Response()

    def _object(self, key: tuple[int, str]) -> Path:
        file = self._file(key)
        return or_404(file if file.exists() else None)

    def _file(self, key: tuple[int, str]) -> Path:
        repo_id, oid = key
        with self._site.lock:
            return git.large_object(or_404(self._site.store.repos.get(repo_id)).path, oid)

    def _repo(self, request: web.Request, level: Literal["read", "write"]) -> Repo:
        viewer = viewer_of(self._site, request.headers)
        repo = or_404(self._site.store.repo(f"{request.match_info['owner']}/{request.match_info['repo']}"))
        demand(self._site, viewer, repo, permission="contents", level=level, role=level)
        return repo

    def _check_authorization(self, request: web.Request) -> tuple[int, str]:
        repo_id, oid = int(request.match_info["repo_id"]), request.match_info["oid"]
        if not hmac.compare_digest(request.headers.get("Authorization", ""), self._authorization(repo_id, oid)):
            raise HubError(403, "Access denied")
        return repo_id, oid

    def _authorization(self, repo_id: int, oid: str) -> str:
        key = self._site.store.signing_key.encode()
        return f"RemoteAuth {hmac.new(key, f'lfs {repo_id} {oid}'.encode(), 'sha256').hexdigest()}"


async def _read_json(request: web.Request) -> Json:
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise HubError(422, "Problems parsing JSON") from error
    if not isinstance(body, dict):
        raise HubError(422, "Body should be a JSON object")
    return body


def _json_response(body: Json, status: int = 200) -> web.Response:
    return web.Response(status=status, text=json.dumps(body), content_type=_MEDIA_TYPE)
