"""Faults that are not the job's: of GitHub, of its git, of the blob store and of the machine.

`classify` returns the fault behind an error, and `Patience` how long to wait for its end. docs/server.md has the table.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, replace
from typing import Literal

from bot.domain.errors import Certainty, StorageError
from bot.git.errors import GitError
from bot.git.process import CA_FILE_UNREADABLE, AuthoritiesError
from bot.github.types import GitHubError
from bot.jobs.record import JobRecord, ServiceOutage, StoredRecord

Service = Literal["GitHub", "git on GitHub", "the store for unfinished work", "the bot's machine"]
"""As the headline of the status comment names it."""
_STORE_GONE = "The store for unfinished work cannot be reached."
_DISK_FULL = "The disk of the machine is full."
_MACHINE = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EROFS: "The disk of the machine can only be read.",
    errno.EIO: "The disk of the machine failed.",
    errno.EMFILE: "The machine has too many open files.",
    errno.ENFILE: "The machine has too many open files.",
    errno.ENOMEM: "The machine has too little memory.",
    errno.EAGAIN: "The machine is busy.",
    errno.ESTALE: "The disk of the machine failed.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that is not the job's.

    Attributes:
        certainty: `passing` or `doubtful`.
        public: a sentence for the status comment, without internal addresses and paths.
        retry_after: seconds that the service asked to wait.
    """

    service: Service
    certainty: Certainty
    public: str
    retry_after: float = 0.0

    @property
    def is_operators(self) -> bool:
        """Whether the operator ends it, not GitHub."""
        return self.service in {"the store for unfinished work", "the bot's machine"}


def classify(error: BaseException) -> Fault | None:
    """Return the fault behind an error; None for a definite answer, and for a fault of the job or of the bot.

    Errors of the queue and of the session's lock are no faults: another worker continues the job.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, GitHubError):
            return _github_fault(cause)
        if isinstance(cause, GitError):
            if cause.errno:
                # Of memory, git may also need more than its limit.
                certainty: Certainty = "doubtful" if cause.errno == errno.ENOMEM else "passing"
                return Fault(service="the bot's machine", certainty=certainty, public=_MACHINE[cause.errno])
            if cause.certainty == "definite":
                return None
            public = f"{cause.symptom}."
            return Fault(
                service="git on GitHub", certainty=cause.certainty, public=public, retry_after=cause.retry_after
            )
        if (fault := _local_fault(cause)) is not None:
            return fault
        cause = cause.__cause__
    return None


def is_passing(error: BaseException) -> bool:
    fault = classify(error)
    return fault is not None and fault.certainty == "passing"


def public_text(error: GitHubError) -> str:
    """Return the text of an error for the public; without an answer, it may name an address of the operator."""
    fault = classify(error)
    return str(error) if error.status or fault is None else f"{fault.public} {error.remedy}".strip()


def _github_fault(error: GitHubError) -> Fault | None:
    if error.status == 0 and error.__cause__ is not None and (fault := _local_fault(error.__cause__)) is not None:
        return fault
    if error.certainty == "definite":
        return None
    verb = "answered" if error.certainty == "passing" else "refused a request:"
    public = f"GitHub {verb} {error.status}." if error.status else "GitHub did not answer."
    if error.limited:
        public = "GitHub limits the bot's requests."
    return Fault(service="GitHub", certainty=error.certainty, public=public, retry_after=error.retry_after)


def _local_fault(error: BaseException) -> Fault | None:
    if isinstance(error, StorageError):
        return Fault(service="the store for unfinished work", certainty="passing", public=_STORE_GONE)
    if isinstance(error, AuthoritiesError):
        public = f"{CA_FILE_UNREADABLE[0].upper()}{CA_FILE_UNREADABLE[1:]}."
    else:
        public = _MACHINE.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    return Fault(service="the bot's machine", certainty="passing", public=public) if public else None


PATIENCE_SECONDS = 6 * 3600.0
"""Longer than GitHub's rate limit windows and most outages."""
ACCESS_PATIENCE_SECONDS = 600.0
"""For doubtful answers."""
_FIRST_PAUSE_SECONDS = 2.0
_QUIET_SECONDS = 1800.0
"""Time after a due attempt from which a fault starts a new outage."""


def _steps_of(record: JobRecord) -> int:
    # The last steps of a run are not stored yet when it is published.
    return max(record.steps, 0 if record.result is None else record.result.outcome.steps)


def _present_outage(record: JobRecord) -> ServiceOutage | None:
    """Return the outage that another fault now would continue."""
    last = record.service_outage
    is_present = last is not None and time.time() - last.retry_at < _QUIET_SECONDS and _steps_of(record) <= last.steps
    return last if is_present else None


def is_patience_over(record: JobRecord) -> bool:
    """Whether the next fault of the present outage ends the job."""
    outage = _present_outage(record)
    return outage is not None and outage.until < time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits of the wait for the end of faults; `seconds` is the total per outage, of any services."""

    seconds: float = PATIENCE_SECONDS
    longest_pause: float = 60.0

    async def pause(self, record: StoredRecord, fault: Fault | None) -> float | None:
        """Record the outage and return the seconds until the next attempt; None after the limit, or without a fault."""
        if fault is None:
            return None
        now = time.time()
        stored = await record.read()
        last = _present_outage(stored)
        since = last.since if last is not None else now
        until, doubtful_since = since + self.seconds, None
        if fault.certainty == "doubtful":
            doubtful_since = (last.doubtful_since if last is not None else None) or now
            until = min(until, doubtful_since + ACCESS_PATIENCE_SECONDS)
        pause = max(fault.retry_after, min(self.longest_pause, max(_FIRST_PAUSE_SECONDS, (now - since) / 2)))
        pause = min(pause, max(0.0, until - now) + 1.0)
        outage = ServiceOutage(
            service=fault.service,
            reason=fault.public,
            since=since,
            retry_at=now + pause,
            until=until,
            doubtful_since=doubtful_since,
            steps=last.steps if last is not None else _steps_of(stored),
        )
        await record.update(lambda before: replace(before, service_outage=outage))
        return None if now > until else pause
