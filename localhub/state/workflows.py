"""GitHub Actions as values: workflows, their runs, jobs and steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A workflow file of a repository, e.g. `.github/workflows/ci.yml`."""

    id: int
    repo_id: int
    name: str
    path: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRun:
    """A finished run of a workflow; nothing runs here, it is only announced.

    Attributes:
        conclusion: of the newest attempt that has ended.
        attempt: the newest attempt, from 1.
        earlier: how the attempts before it ended.
        is_queued: whether the newest attempt was asked for and has not ended.
        head_repo_id: where the commit came from; a fork's for a fork's pull request.
        actor_id: who caused the run.
        triggering_actor_id: who started this attempt of it.
    """

    id: int
    repo_id: int
    workflow_id: int
    suite_id: int
    run_number: int
    event: str
    head_branch: str
    head_sha: str
    head_repo_id: int
    conclusion: str
    actor_id: int
    triggering_actor_id: int
    created_at: datetime
    attempt: int = 1
    earlier: tuple[str, ...] = ()
    is_queued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    """One step of a workflow's job."""

    name: str
    conclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowJob:
    """A finished job of a workflow's run.

    Attributes:
        log: what its steps wrote, as GitHub keeps it; None once it expired.
        attempt: the attempt of the run that it belongs to.
        annotations: as a check run's.
    """

    id: int
    repo_id: int
    run_id: int
    name: str
    conclusion: str
    created_at: datetime
    steps: tuple[WorkflowStep, ...] = ()
    log: str | None = field(default="", repr=False)
    attempt: int = 1
    annotations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Files that a workflow's run kept.

    Attributes:
        run_id: the run; it need not be one that the hub knows.
        head_repo_id: the repository with the branch that the run was for.
        content: a zip file.
    """

    id: int
    repo_id: int
    run_id: int
    head_repo_id: int
    name: str
    content: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime
