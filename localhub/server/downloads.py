"""Files from addresses without a token: attachments of threads, logs of workflow jobs, artifacts of runs.

The API signs an address, which is good for minutes. The picture of a public repository is also served unsigned.
"""

from __future__ import annotations

import io
import re
import uuid
import zipfile
from typing import Any

from aiohttp import web

from localhub.api.auth import Viewer, can_read
from localhub.pages.markup import markdown
from localhub.state.model import Repo, Upload, User
from localhub.state.store import Site, is_signed, on_storage_host, signed_url

FULL = "application/vnd.github.full+json"
_PATH = "/user-attachments/assets"


def attach(site: Site, repo: Repo, user: User, content: bytes, media_type: str) -> str:
    """Store a picture and return its address for a text."""
    made = Upload(
        id=site.store.new_id(),
        asset=str(uuid.uuid4()),
        repo_id=repo.id,
        author_id=user.id,
        media_type=media_type,
        content=content,
    )
    site.store.uploads.put(made)
    return _attachment_url(site, made)


def with_html(site: Site, viewer: Viewer, body: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """Add to each text its HTML as the viewer sees it: the answer in the media type `full+json`."""
    if isinstance(body, list):
        return [with_html(site, viewer, each) for each in body]
    if not isinstance(body, dict) or not isinstance(body.get("body"), str):
        return body
    page = _sign_attachments(site, viewer, str(markdown(body["body"])))
    return body | {"body_html": page, "body_text": re.sub(r"<[^>]*>", "", page).strip()}


def _sign_attachments(site: Site, viewer: Viewer, page: str) -> str:
    """Sign the addresses of the attachments that the viewer may see."""
    for upload in site.store.uploads:
        if not can_read(site, viewer, site.store.repos[upload.repo_id]):
            continue
        page = page.replace(f'src="{_attachment_url(site, upload)}"', f'src="{_signed_attachment_url(site, upload)}"')
    return page


def _attachment_url(site: Site, upload: Upload) -> str:
    return f"{site.url}{_PATH}/{upload.asset}"


def _signed_attachment_url(site: Site, upload: Upload) -> str:
    return signed_url(site, f"{_PATH}/{upload.asset}")


class Attachments:
    """Serves attachments, as GitHub does: an API token opens none.

    A client requests a text in the media type `full+json`, and finds signed addresses in its `body_html`. The address
    of an attachment in a public repository redirects to a signed one.
    https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/attaching-files
    """

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
            raise web.HTTPFound(_signed_attachment_url(self._site, found))


_RESERVED_CHARACTERS = re.compile(r'[<>:"/\\|?*\x00-\x1f]')


class WorkflowFiles:
    """Serve logs and artifacts, on another host as GitHub's are: a request with a token is refused."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def add_to(self, app: web.Application) -> None:
        """Add their addresses."""
        app.router.add_get("/logs/jobs/{id}", self._serve_job_log)
        app.router.add_get("/logs/runs/{id}/{attempt}", self._serve_run_logs)
        app.router.add_get("/artifacts/{id}", self._serve_artifact)

    async def _serve_job_log(self, request: web.Request) -> web.Response:
        with self._site.lock:
            job = self._site.store.workflow_jobs.get(self._signed_id(request))
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

    async def _serve_run_logs(self, request: web.Request) -> web.Response:
        number, attempt = self._signed_id(request), int(request.match_info["attempt"])
        with self._site.lock:
            jobs = [
                job
                for job in self._site.store.workflow_jobs
                if (job.run_id, job.attempt) == (number, attempt) and job.log is not None
            ]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for place, job in enumerate(jobs):
                name = _RESERVED_CHARACTERS.sub("", job.name)
                log = job.log or ""
                archive.writestr(f"{place}_{name}.txt", log)
                # What was written is known of the whole job only; the step that failed, or the last one, has it.
                failed = next(
                    (n for n, step in enumerate(job.steps, 1) if step.conclusion == "failure"), len(job.steps)
                )
                for number, step in enumerate(job.steps, 1):
                    content = log if number == failed else ""
                    archive.writestr(f"{name}/{number}_{_RESERVED_CHARACTERS.sub('', step.name)}.txt", content)
        packed.seek(0)
        return web.Response(body=packed, content_type="application/zip")

    async def _serve_artifact(self, request: web.Request) -> web.Response:
        with self._site.lock:
            artifact = self._site.store.artifacts.get(self._signed_id(request))
        if artifact is None:
            raise web.HTTPNotFound
        return web.Response(body=io.BytesIO(artifact.content), content_type="application/zip")

    def _signed_id(self, request: web.Request) -> int:
        # https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2: two ways to say who asks
        if "Authorization" in request.headers and on_storage_host(f"{self._site.url}/") != f"{self._site.url}/":
            raise web.HTTPBadRequest(text="InvalidAuthenticationInfo")
        with self._site.lock:
            good = is_signed(self._site, request.path, request.query.get("jwt", ""))
        if not good or not request.match_info["id"].isdecimal():
            raise web.HTTPNotFound
        return int(request.match_info["id"])
