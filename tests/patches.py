"""What a person can do with a patch that the bot kept."""

from __future__ import annotations

from pathlib import Path

from tests.origin import git
from tests.stage import Stage


def kept_patch(stage: Stage, job_id: str) -> Path:
    """Where the operator finds the patch of a job, if it was kept."""
    return stage.data / "patches" / f"{job_id}.patch"


def applied(stage: Stage, job_id: str) -> Path:
    """A clone of the default branch with a job's patch applied by the ordinary git."""
    clone = stage.directory / f"clone-{job_id}"
    git(stage.directory, "clone", "--quiet", str(stage.repo.path), str(clone))
    git(clone, "apply", str(kept_patch(stage, job_id)))
    return clone
