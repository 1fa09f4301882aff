"""Logs of workflow jobs, a job's as text and a run's as a zip; the API leads to addresses that are good for minutes."""

from __future__ import annotations

import io
import re
import zipfile

from aiohttp import web

from bot.localhub.model_actions import WorkflowJob, WorkflowRun
from bot.localhub.signing import is_signed, signed
from bot.localhub.site import Site

_ODD = re.compile(r'[<>:"/\\|?*\x00-\x1f]')


def log_of(site: Site, job: WorkflowJob) -> str:
    """Where a job's log is given out, for a while."""
    return signed(site, f"/logs/jobs/{job.id}")


def logs_of(site: Site, run: WorkflowRun) -> str:
    """Where the logs of all jobs of a run are given out, for a while."""
    return signed(site, f"/logs/runs/{run.id}")


class Logs:
    """Serves them."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def add_to(self, app: web.Application) -> None:
        """Add their addresses."""
        app.router.add_get("/logs/jobs/{id}", self._job)
        app.router.add_get("/logs/runs/{id}", self._run)

    async def _job(self, request: web.Request) -> web.Response:
        with self._site.lock:
            job = self._site.store.workflow_jobs.get(self._number(request))
        if job is None:
            raise web.HTTPNotFound
        return web.Response(body=io.BytesIO(job.log.encode()), content_type="text/plain", charset="utf-8")

    async def _run(self, request: web.Request) -> web.Response:
        number = self._number(request)
        with self._site.lock:
            run = self._site.store.workflow_runs.get(number)
            newest = 0 if run is None else run.attempt
            jobs = [job for job in self._site.store.workflow_jobs if (job.run_id, job.attempt) == (number, newest)]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for place, job in enumerate(jobs):
                name = _ODD.sub("", job.name)
                archive.writestr(f"{place}_{name}.txt", job.log)
                # What was written is known of the whole job only; the step that failed, or the last one, has it.
                failed = next(
                    (n for n, step in enumerate(job.steps, 1) if step.conclusion == "failure"), len(job.steps)
                )
                for number, step in enumerate(job.steps, 1):
                    content = job.log if number == failed else ""
                    archive.writestr(f"{name}/{number}_{_ODD.sub('', step.name)}.txt", content)
        packed.seek(0)
        return web.Response(body=packed, content_type="application/zip")

    def _number(self, request: web.Request) -> int:
        with self._site.lock:
            good = is_signed(self._site, request.path, request.query.get("jwt", ""))
        if not good or not request.match_info["id"].isdecimal():
            raise web.HTTPNotFound
        return int(request.match_info["id"])
