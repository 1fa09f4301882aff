"""Addresses that are valid for a few minutes without a token: attachments and logs."""

from __future__ import annotations

from datetime import timedelta

import jwt

from localhub.state.site import Site
from localhub.state.workflows import Artifact, WorkflowJob, WorkflowRun

LIFE = timedelta(minutes=5)


def signed(site: Site, path: str) -> str:
    """The address of a path, signed."""
    claims = {"path": path, "exp": int((site.now() + LIFE).timestamp())}
    return f"{site.url}{path}?jwt={jwt.encode(claims, site.store.signing_key, algorithm='HS256')}"


def is_signed(site: Site, path: str, signature: str) -> bool:
    """Whether a signature is of this path, and still good."""
    try:
        claims = jwt.decode(signature, site.store.signing_key, algorithms=["HS256"], options={"verify_exp": False})
    except jwt.InvalidTokenError:
        return False
    return bool(claims["path"] == path and claims["exp"] > site.now().timestamp())


def log_of(site: Site, job: WorkflowJob) -> str:
    """Where a job's log is given out, for a while."""
    return on_other_host(signed(site, f"/logs/jobs/{job.id}"))


def logs_of(site: Site, run: WorkflowRun, attempt: int) -> str:
    """Where the logs of all jobs of an attempt are given out, for a while."""
    return on_other_host(signed(site, f"/logs/runs/{run.id}/{attempt}"))


def archive_of(site: Site, artifact: Artifact) -> str:
    """Where an artifact's zip file is given out, for a while."""
    return on_other_host(signed(site, f"/artifacts/{artifact.id}"))


def on_other_host(address: str) -> str:
    """The same address under this machine's other name, for which a certificate of the hub's is none."""
    return address.replace("http://127.0.0.1:", "http://localhost:", 1)
