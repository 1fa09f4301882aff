"""Signed HTML comments that name the job of a text on GitHub. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Literal

MarkerKind = Literal["job", "ci"]

_MARKER_PREFIX = "<!-- codepilot:job="
_MARKER = re.compile(r"<!-- codepilot:(job|ci)=([A-Za-z0-9_-]{1,64}) sig=([0-9a-f]{32}) -->")


def sign_marker(job_id: str, repo_id: int, number: int, *, key: bytes, kind: MarkerKind = "job") -> str:
    """Return an HTML comment with the job's id, signed with the bot's key for one thread and kind."""
    message = f"{'' if kind == 'job' else f'{kind}:'}{repo_id}#{number}:{job_id}".encode()
    return f"<!-- codepilot:{kind}={job_id} sig={hmac.new(key, message, hashlib.sha256).hexdigest()[:32]} -->"


def has_marker(body: str) -> bool:
    """Whether the text contains a marker, genuine or forged; such text is never a user's command."""
    return _MARKER_PREFIX in body


def claimed_job_id(body: str, number: int, *, branch: str) -> str | None:
    """Return the job of any marker, genuine or forged, that matches the branch name of that job."""
    claimed = (found[2] for found in _MARKER.finditer(body) if found[1] == "job")
    return next((job_id for job_id in claimed if branch.endswith(f"-{number}-{job_id}")), None)


def signed_job(body: str, repo_id: int, number: int, *, key: bytes, kind: MarkerKind = "job") -> str | None:
    """Return the job of the first genuine marker for this thread."""
    for found in _MARKER.finditer(body):
        if hmac.compare_digest(found[0], sign_marker(found[2], repo_id, number, key=key, kind=kind)):
            return found[2]
    return None
