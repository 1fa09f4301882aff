"""git over HTTP: `git http-backend` as a CGI program, streamed both ways, authenticated with the API's tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import io
import json
import re
import zipfile
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal

from aiohttp import web

from localhub.api.auth import HubError, MovedError, Viewer, can_read, demand, not_found, viewer_of
from localhub.git import plumbing as git
from localhub.operations import branches, checks
from localhub.server.dispatch import Faults, hang_up
from localhub.state.model import Repo, User
from localhub.state.store import Json, Site, is_signed, on_other_host

CHUNK = 64 * 1024
_PULL, _PUSH = "git-upload-pack", "git-receive-pack"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class GitHttp:
    """The three addresses of git's smart protocol for every repository."""

    def __init__(self, site: Site, faults: Faults, threads: Executor) -> None:
        self._site = site
        self._faults = faults
        self._threads = threads

    def add_to(self, app: web.Application) -> None:
        """Add the addresses `/{owner}/{repo}.git/…`; the suffix may be left out."""
        for base in ("/{owner}/{repo}.git", "/{owner}/{repo}"):
            app.router.add_get(f"{base}/info/refs", self._refs)
            app.router.add_post(f"{base}/{_PULL}", self._service(_PULL))
            app.router.add_post(f"{base}/{_PUSH}", self._service(_PUSH))

    async def _refs(self, request: web.Request) -> web.StreamResponse:
        service = request.query.get("service", "")
        if service not in {_PULL, _PUSH}:
            return web.Response(status=403, text="Please upgrade your git client.\n")
        return await self._serve(request, service, "info/refs")

    def _service(self, service: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._serve(request, service, service)

        return handle

    async def _serve(self, request: web.Request, service: str, path: str) -> web.StreamResponse:
        fault = self._faults.take(request.method, request.path)
        if fault is not None:
            return (
                hang_up(request) if fault.trouble.startswith("drop") else web.Response(status=503, text="Try later.\n")
            )
        try:
            with self._site.lock:
                repo, viewer = self._admit(request, service)
        except HubError as error:
            return _refusal(error, asked_by_nobody="Authorization" not in request.headers)
        response = await _run_backend(request, repo, path, viewer)
        if path == _PUSH:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._announce, repo, viewer)
        await response.write_eof()
        return response

    def _admit(self, request: web.Request, service: str) -> tuple[Repo, Viewer]:
        viewer = viewer_of(self._site, request.headers)
        repo = self._site.store.repo(f"{request.match_info['owner']}/{request.match_info['repo']}")
        if repo is None:
            raise self._elsewhere(request, viewer)
        level: Literal["write", "read"] = "write" if service == _PUSH else "read"
        demand(self._site, viewer, repo, permission="contents", level=level, role=level)
        if repo.archived and level == "write":
            raise HubError(403, "This repository was archived so it is read-only.")
        return repo, viewer

    def _elsewhere(self, request: web.Request, viewer: Viewer) -> HubError:
        """What to answer for a name that no repository has now."""
        name = f"{request.match_info['owner']}/{request.match_info['repo']}"
        moved = self._site.store.moved_repo(name)
        if moved is None or not can_read(self._site, viewer, moved):
            return not_found()
        asked = request.path_qs.removeprefix(f"/{name}").removeprefix(".git")
        return MovedError(request.method, f"{self._site.html(moved.owner, moved.name)}.git{asked}")

    def _announce(self, repo: Repo, viewer: Viewer) -> None:
        if viewer.user is None:
            return
        with self._site.lock:
            branches.sync(self._site, self._site.store.repos[repo.id], viewer.user)


def _refusal(error: HubError, *, asked_by_nobody: bool) -> web.Response:
    """Nobody is asked for a password first, also where there is nothing: who has none shall not learn the difference.

    git sends the credentials that it has only after being asked.
    """
    if isinstance(error, MovedError):
        return web.Response(status=error.status, headers=error.headers)
    if asked_by_nobody or error.status == 401:  # noqa: PLR2004 - Unauthorized
        headers = {"WWW-Authenticate": 'Basic realm="GitHub"'}
        return web.Response(status=401, text="Repository not found.\n", headers=headers)
    text = "Repository not found." if error.status == 404 else error.message  # noqa: PLR2004 - Not Found
    return web.Response(status=error.status, text=f"{text}\n")


async def _run_backend(request: web.Request, repo: Repo, path: str, viewer: Viewer) -> web.StreamResponse:
    process = await asyncio.create_subprocess_exec(
        git.program(),
        "-c",
        "safe.directory=*",
        "http-backend",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=git.environment(_cgi(request, repo.path, path, viewer.user) | checks.heed(viewer)),
    )
    assert process.stdin is not None  # noqa: S101 - asked for above
    assert process.stdout is not None  # noqa: S101 - asked for above
    feeding = asyncio.create_task(_feed(request, process.stdin))
    try:
        response = await _headers(process.stdout)
        await response.prepare(request)
        while chunk := await process.stdout.read(CHUNK):
            await response.write(chunk)
        await process.wait()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return response


def _cgi(request: web.Request, repository: Path, path: str, user: User | None) -> dict[str, str]:
    """The variables of RFC 3875 that `git http-backend` reads."""
    variables = {
        "GIT_PROJECT_ROOT": str(repository),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "PATH_INFO": f"/{path}",
        "QUERY_STRING": request.query_string,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "REMOTE_ADDR": request.remote or "",
        "REMOTE_USER": user.login if user else "",
    }
    # aiohttp has already undone a gzip request body, so neither its encoding nor its length is passed on.
    if "Content-Length" in request.headers and "Content-Encoding" not in request.headers:
        variables["CONTENT_LENGTH"] = request.headers["Content-Length"]
    return variables


async def _feed(request: web.Request, stdin: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):  # git may answer before it has read everything
        async for chunk in request.content.iter_chunked(CHUNK):
            stdin.write(chunk)
            await stdin.drain()
    stdin.close()
    with contextlib.suppress(ConnectionError):
        await stdin.wait_closed()


async def _headers(stdout: asyncio.StreamReader) -> web.StreamResponse:
    status, headers = 200, {}
    while line := (await stdout.readline()).decode().strip():
        name, _, value = line.partition(": ")
        if name.lower() == "status":
            status = int(value.split()[0])
        else:
            headers[name] = value
    return web.StreamResponse(status=status, headers=headers)


# ---- Git LFS: the batch API, uploads and downloads, and their verification.


_MEDIA_TYPE = "application/vnd.git-lfs+json"
_LIFE_SECONDS = 3600
_OID = re.compile(r"[0-9a-f]{64}")

HandlerLargeFiles = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LargeFiles:
    """The addresses of LFS for every repository. Objects go to an address of their own, which knows no API token."""

    def __init__(self, site: Site, faults: Faults) -> None:
        self._site = site
        self._faults = faults

    def add_to(self, app: web.Application) -> None:
        """Add the addresses; those of objects are told by the batch API alone."""
        for base in ("/{owner}/{repo}.git", "/{owner}/{repo}"):
            app.router.add_post(f"{base}/info/lfs/objects/batch", self._troubled(self._batch))
        storage = "/-/lfs/{repo_id:[0-9]+}/{oid:[0-9a-f]{64}}"
        app.router.add_put(storage, self._troubled(self._put))
        app.router.add_get(storage, self._troubled(self._get))
        app.router.add_post(f"{storage}/verify", self._troubled(self._verify))

    def _troubled(self, handler: HandlerLargeFiles) -> HandlerLargeFiles:
        async def handle(request: web.Request) -> web.StreamResponse:
            fault = self._faults.take(request.method, request.path)
            if fault is not None:
                status = int(fault.trouble) if fault.trouble.isdecimal() else 503
                return hang_up(request) if fault.trouble.startswith("drop") else _said({"message": "Trouble"}, status)
            try:
                return await handler(request)
            except HubError as error:
                return _said({"message": error.message}, error.status)

        return handle

    async def _batch(self, request: web.Request) -> web.StreamResponse:
        asked = await _body(request)
        operation = asked.get("operation")
        if operation not in {"upload", "download"} or "basic" not in asked.get("transfers", ["basic"]):
            raise HubError(422, "Invalid operation or transfer")
        with self._site.lock:
            repo = self._repo(request, "write" if operation == "upload" else "read")
            objects = [self._told(repo, operation, each) for each in asked.get("objects", [])]
        return _said({"transfer": "basic", "objects": objects, "hash_algo": "sha256"})

    def _told(self, repo: Repo, operation: str, asked: Json) -> Json:
        oid, size = str(asked.get("oid")), asked.get("size")
        told: dict[str, Any] = {"oid": oid, "size": size, "authenticated": True}
        if not _OID.fullmatch(oid) or not isinstance(size, int) or size < 0:
            return {**told, "error": {"code": 422, "message": "Invalid object"}}
        there = (repo.id, oid) in self._site.store.large
        if operation == "download" and not there:
            return {**told, "error": {"code": 404, "message": "Object does not exist"}}
        if operation == "upload" and there:
            return told
        href = f"{self._site.url}/-/lfs/{repo.id}/{oid}"
        action = {"header": {"Authorization": self._pass(repo.id, oid)}, "expires_in": _LIFE_SECONDS}
        actions = {operation: {"href": href, **action}}
        if operation == "upload":
            actions["verify"] = {"href": f"{href}/verify", **action}
        return {**told, "actions": actions}

    async def _put(self, request: web.Request) -> web.StreamResponse:
        key = self._admitted(request)
        if "Content-Length" not in request.headers:  # as the storage behind GitHub's wants it
            raise HubError(411, "You must provide the Content-Length HTTP header.")
        content = await request.read()
        if hashlib.sha256(content).hexdigest() != key[1]:
            raise HubError(400, "The content is not the object's")
        with self._site.lock:
            self._site.store.large[key] = content
        return web.Response()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._object(self._admitted(request)))

    async def _verify(self, request: web.Request) -> web.StreamResponse:
        key, asked = self._admitted(request), await _body(request)
        if asked.get("oid") != key[1] or asked.get("size") != len(self._object(key)):
            raise HubError(422, "The object is not the one that was announced")
        return web.Response()

    def _object(self, key: tuple[int, str]) -> bytes:
        content = self._site.store.large.get(key)
        if content is None:
            raise not_found()
        return content

    def _repo(self, request: web.Request, level: Literal["read", "write"]) -> Repo:
        viewer = viewer_of(self._site, request.headers)
        repo = self._site.store.repo(f"{request.match_info['owner']}/{request.match_info['repo']}")
        if repo is None:
            raise not_found()
        demand(self._site, viewer, repo, permission="contents", level=level, role=level)
        return repo

    def _admitted(self, request: web.Request) -> tuple[int, str]:
        repo_id, oid = int(request.match_info["repo_id"]), request.match_info["oid"]
        if not hmac.compare_digest(request.headers.get("Authorization", ""), self._pass(repo_id, oid)):
            raise HubError(403, "Access denied")
        return repo_id, oid

    def _pass(self, repo_id: int, oid: str) -> str:
        key = self._site.store.signing_key.encode()
        return f"RemoteAuth {hmac.new(key, f'lfs {repo_id} {oid}'.encode(), 'sha256').hexdigest()}"


async def _body(request: web.Request) -> Json:
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise HubError(422, "Problems parsing JSON") from error
    if not isinstance(body, dict):
        raise HubError(422, "Body should be a JSON object")
    return body


def _said(body: Json, status: int = 200) -> web.Response:
    return web.Response(status=status, text=json.dumps(body), content_type=_MEDIA_TYPE)


# ---- Logs of workflow jobs and artifacts of runs, from addresses that the API leads to and that are good for
# minutes.


_ODD = re.compile(r'[<>:"/\\|?*\x00-\x1f]')


class WorkflowFiles:
    """Serve logs and artifacts."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def add_to(self, app: web.Application) -> None:
        """Add their addresses."""
        app.router.add_get("/logs/jobs/{id}", self._job)
        app.router.add_get("/logs/runs/{id}/{attempt}", self._run)
        app.router.add_get("/artifacts/{id}", self._artifact)

    async def _job(self, request: web.Request) -> web.Response:
        with self._site.lock:
            job = self._site.store.workflow_jobs.get(self._number(request))
        if job is None or job.log is None:
            raise web.HTTPNotFound
        content = job.log.encode()
        part = request.http_range
        if part.start is None:
            return web.Response(body=io.BytesIO(content), content_type="text/plain", charset="utf-8")
        begin, end, _ = part.indices(len(content))
        if begin >= end:  # as the storage behind GitHub's: of an empty log there is no part either
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(content)}"})
        cut, told = content[part], {"Content-Range": f"bytes {begin}-{end - 1}/{len(content)}"}
        return web.Response(status=206, body=cut, content_type="text/plain", charset="utf-8", headers=told)

    async def _run(self, request: web.Request) -> web.Response:
        number, attempt = self._number(request), int(request.match_info["attempt"])
        with self._site.lock:
            jobs = [
                job
                for job in self._site.store.workflow_jobs
                if (job.run_id, job.attempt) == (number, attempt) and job.log is not None
            ]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for place, job in enumerate(jobs):
                name = _ODD.sub("", job.name)
                log = job.log or ""
                archive.writestr(f"{place}_{name}.txt", log)
                # What was written is known of the whole job only; the step that failed, or the last one, has it.
                failed = next(
                    (n for n, step in enumerate(job.steps, 1) if step.conclusion == "failure"), len(job.steps)
                )
                for number, step in enumerate(job.steps, 1):
                    content = log if number == failed else ""
                    archive.writestr(f"{name}/{number}_{_ODD.sub('', step.name)}.txt", content)
        packed.seek(0)
        return web.Response(body=packed, content_type="application/zip")

    async def _artifact(self, request: web.Request) -> web.Response:
        with self._site.lock:
            artifact = self._site.store.artifacts.get(self._number(request))
        if artifact is None:
            raise web.HTTPNotFound
        return web.Response(body=io.BytesIO(artifact.content), content_type="application/zip")

    def _number(self, request: web.Request) -> int:
        # https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2: two ways to say who asks
        if "Authorization" in request.headers and on_other_host(f"{self._site.url}/") != f"{self._site.url}/":
            raise web.HTTPBadRequest(text="InvalidAuthenticationInfo")
        with self._site.lock:
            good = is_signed(self._site, request.path, request.query.get("jwt", ""))
        if not good or not request.match_info["id"].isdecimal():
            raise web.HTTPNotFound
        return int(request.match_info["id"])
