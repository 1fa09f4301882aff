"""The signed, hidden marker by which the bot recognises its own comments. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Literal

MarkerKind = Literal["job", "ci"]
"""A job's own marker, or the further one on the status comment of a job that failed checks started."""

_MARK = "<!-- codepilot:job="
_MARKER = re.compile(r"<!-- codepilot:(job|ci)=([A-Za-z0-9_-]{1,64}) sig=([0-9a-f]{32}) -->")


def marker(job_id: str, repo_id: int, number: int, *, key: bytes, kind: MarkerKind = "job") -> str:
    """An HTML comment that names the job, signed for this one thread and this kind.

    Args:
        job_id: letters, digits, `-` and `_`.
        repo_id: GitHub's id of the repository.
        number: of the issue or pull request.
        key: a secret of the bot's.
        kind: which marker.
    """
    message = f"{'' if kind == 'job' else f'{kind}:'}{repo_id}#{number}:{job_id}".encode()
    return f"<!-- codepilot:{kind}={job_id} sig={hmac.new(key, message, hashlib.sha256).hexdigest()[:32]} -->"


def is_marked(body: str) -> bool:
    """Whether something carries a marker, genuine or not: what carries one is never taken for a person's words."""
    return _MARK in body


def claimed_job(body: str, number: int, *, branch: str) -> str | None:
    """The job whose marker, genuine or not, is in what came from a branch that the job would have made."""
    claimed = (found[2] for found in _MARKER.finditer(body) if found[1] == "job")
    return next((job_id for job_id in claimed if branch.endswith(f"-{number}-{job_id}")), None)


def job_of(body: str, repo_id: int, number: int, *, key: bytes, kind: MarkerKind = "job") -> str | None:
    """The job whose genuine marker is in a comment of this thread; None when there is none or it is forged."""
    for found in _MARKER.finditer(body):
        if hmac.compare_digest(found[0], marker(found[2], repo_id, number, key=key, kind=kind)):
            return found[2]
    return None
