"""git over HTTP: `git http-backend` as a CGI program, streamed both ways, authenticated with the API's tokens."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Executor
from pathlib import Path
from typing import Literal

from aiohttp import web
from aiohttp.typedefs import Handler

from localhub.api import rules
from localhub.api.auth import HubError, MovedError, Viewer, can_read, demand, not_found, viewer_of
from localhub.git import plumbing as git
from localhub.operations import branches, workflow_files
from localhub.server.dispatch import Faults, hang_up
from localhub.state.model import Repo, User
from localhub.state.store import Site

CHUNK = 64 * 1024
_PULL = "git-upload-pack"
_PUSH = "git-receive-pack"


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
                hang_up(request)
                if fault.trouble.startswith("drop")
                else web.Response(status=int(fault.trouble) if fault.trouble.isdecimal() else 503, text="Try later.\n")
            )
        try:
            with self._site.lock:
                repo, viewer = self._admit(request, service)
        except HubError as error:
            return _refusal(error, is_anonymous="Authorization" not in request.headers)
        login = viewer.user.login if viewer.user is not None else ""
        hooks = rules.hook_environment(self._site, repo, login=login) | workflow_files.hook_environment(viewer)
        response = await _run_backend(request, repo, path, viewer, hooks)
        if path == _PUSH:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._announce, repo, viewer)
        await response.write_eof()
        return response

    def _admit(self, request: web.Request, service: str) -> tuple[Repo, Viewer]:
        viewer = viewer_of(self._site, request.headers)
        repo = self._site.store.repo(f"{request.match_info['owner']}/{request.match_info['repo']}")
        if repo is None:
            raise self._missing_or_moved(request, viewer)
        level: Literal["write", "read"] = "write" if service == _PUSH else "read"
        demand(self._site, viewer, repo, permission="contents", level=level, role=level)
        if repo.archived and level == "write":
            raise HubError(403, "This repository was archived so it is read-only.")
        return repo, viewer

    def _missing_or_moved(self, request: web.Request, viewer: Viewer) -> HubError:
        """The refusal for a name that no repository has now, or the redirection to the renamed one."""
        name = f"{request.match_info['owner']}/{request.match_info['repo']}"
        moved = self._site.store.moved_repo(name)
        if moved is None or not can_read(self._site, viewer, moved):
            return not_found()
        asked = request.path_qs.removeprefix(f"/{name}").removeprefix(".git")
        return MovedError(request.method, f"{self._site.repo_html(moved)}.git{asked}")

    def _announce(self, repo: Repo, viewer: Viewer) -> None:
        if viewer.user is None:
            return
        with self._site.lock:
            branches.sync(self._site, self._site.store.repos[repo.id], viewer.user)


def _refusal(error: HubError, *, is_anonymous: bool) -> web.Response:
    """Ask for a password first, also where no repository is: without one, a client must not learn the difference.

    git sends its credentials only after it was asked for them.
    """
    if isinstance(error, MovedError):
        return web.Response(status=error.status, headers=error.headers)
    if is_anonymous or error.status == 401:  # noqa: PLR2004 - Unauthorized
        headers = {"WWW-Authenticate": 'Basic realm="GitHub"'}
        return web.Response(status=401, text="Repository not found.\n", headers=headers)
    text = "Repository not found." if error.status == 404 else error.message  # noqa: PLR2004 - Not Found
    return web.Response(status=error.status, text=f"{text}\n")


async def _run_backend(
    request: web.Request, repo: Repo, path: str, viewer: Viewer, hooks: dict[str, str]
) -> web.StreamResponse:
    process = await asyncio.create_subprocess_exec(
        git.program(),
        "-c",
        "safe.directory=*",
        "http-backend",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=git.environment(_cgi_variables(request, repo.path, path, viewer.user) | hooks),
    )
    assert process.stdin is not None  # noqa: S101 - asked for above
    assert process.stdout is not None  # noqa: S101 - asked for above
    feeding = asyncio.create_task(_copy_request_body(request, process.stdin))
    try:
        response = await _read_headers(process.stdout)
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


def _cgi_variables(request: web.Request, repository: Path, path: str, user: User | None) -> dict[str, str]:
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


async def _copy_request_body(request: web.Request, stdin: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):  # git may answer before it has read everything
        async for chunk in request.content.iter_chunked(CHUNK):
            stdin.write(chunk)
            await stdin.drain()
    stdin.close()
    with contextlib.suppress(ConnectionError):
        await stdin.wait_closed()


async def _read_headers(stdout: asyncio.StreamReader) -> web.StreamResponse:
    status, headers = 200, {}
    while line := (await stdout.readline()).decode().strip():
        name, _, value = line.partition(": ")
        if name.lower() == "status":
            status = int(value.split()[0])
        else:
            headers[name] = value
    return web.StreamResponse(status=status, headers=headers)
