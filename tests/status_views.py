"""Views of a status comment from flat facts, wherever in the view they belong."""

from __future__ import annotations

from typing import Any

from agent_runtime import Outcome, Status
from bot.github.types import PullLink
from bot.publishing.markdown import Allowlist
from bot.publishing.outcome import (
    CommitRef,
    Failed,
    Finished,
    JobOutcome,
    Omission,
    Published,
    Refused,
    Stopped,
    Waiting,
)
from bot.publishing.status_view import Progress, StatusView

_PROGRESS = ("activities", "checks", "edits", "denied", "attempts", "warning", "setup_failed")
_ENDED: dict[str, type[Finished | Refused | Failed | Stopped]] = {
    "done": Finished,
    "refused": Refused,
    "failed": Failed,
    "stopped": Stopped,
}
_SHARED = (
    "reason",
    "remedy",
    "completion",
    "verdict",
    "files",
    "patch",
    "partial",
    "withheld_diff",
    "review",
    "actions",
)
ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")


def a_status_view(state: str = "working", **facts: Any) -> StatusView:  # noqa: ANN401 - the facts of several types
    """Build a view in a state; `steps`, `usage` and `status` are of the agent's outcome once there is one."""
    run: dict[str, Any] = {name: facts.pop(name) for name in ("steps", "usage", "status") if name in facts}
    progress = {name: facts.pop(name) for name in _PROGRESS if name in facts}
    shared = {name: facts.pop(name) for name in _SHARED if name in facts}
    published, pull = _published(facts)
    outcome: JobOutcome | None = None
    if state in {"queued", "working"}:
        progress |= run
    else:
        if run:
            shared["run"] = Outcome(**{"status": Status.FINISHED, **run})
        shared["published"] = published
        if state in _ENDED:
            outcome = _ENDED[state](**shared)
        else:
            outcome = Waiting(
                until=facts.pop("until", 0.0),
                pending=facts.pop("pending", None),
                service=facts.pop("service", ""),
                **shared,
            )
    usual = {"command": "/codepilot fix", "allowed": ALLOWED, "job_id": "j1", "marker": "", "seconds": 34.0}
    return StatusView(
        is_queued=state == "queued", outcome=outcome, progress=Progress(**progress), pull=pull, **{**usual, **facts}
    )


def _published(facts: dict[str, Any]) -> tuple[Published, PullLink | None]:
    commit, pull = None, None
    if sha := facts.pop("commit_sha", None):
        commit = CommitRef(sha=sha, branch="topic", url=facts.pop("commit_url", ""))
    if number := facts.pop("pull_number", None):
        pull = PullLink(number=number, html_url=facts.pop("pull_url"), draft=facts.pop("pull_draft", False))
    withheld = facts.pop("withheld", "")
    published = Published(
        commit=commit,
        pull=pull,
        withheld=Omission(cause="refused", reason=withheld) if withheld else None,
        wip_url=facts.pop("wip_url", ""),
        review_url=facts.pop("review_url", None),
        dry_run_note=facts.pop("dry_run_note", ""),
    )
    return published, pull
