"""Failures of a workflow run, as values. Strangers wrote the texts in them; code that shows one cleans it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a failing check says about lines of a file."""

    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a job, as it ended, and as the workflow's file has it.

    Attributes:
        number: GitHub's, from 1.
        name: as GitHub shows it.
        conclusion: in GitHub's words, e.g. `success`, `failure`, `skipped`; empty while it is under way.
        run: the commands of its `run:`, matrix values filled in; empty for a step that is none, or was not found.
        shell: its `shell:`; empty for the runner's own.
        working_directory: its `working-directory:`; empty for the repository's root.
        uses: the action of its `uses:`, e.g. `actions/setup-python@v6`.
        inputs: its `with:`.
    """

    number: int
    name: str
    conclusion: str
    run: str = ""
    shell: str = ""
    working_directory: str = ""
    uses: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it is what went wrong."""
        return self.conclusion in {"failure", "timed_out", "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A job that went red.

    Attributes:
        id: GitHub's.
        name: as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        url: its page.
        steps: all of them, in order.
        runs_on: the runner's labels.
        environment: the variables of the failed step: workflow, job and step, one over the other. A secret is named
            and never had: `${{ secrets.NAME }}`.
        services: names of the job's services and their images.
        container: the image that it runs in; empty for none.
        excerpt: what its log says of the first failures, or its end; no colours, no times. Redacted.
        more: how many failures the log has beside those in the excerpt.
        no_log: why there is no excerpt, in one sentence; else empty.
        annotations: what it says about lines.
    """

    id: int
    name: str
    conclusion: str
    url: str = ""
    steps: tuple[Step, ...] = ()
    runs_on: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    container: str = ""
    excerpt: str = ""
    more: int = 0
    no_log: str = ""
    annotations: tuple[Remark, ...] = ()

    @property
    def failed_steps(self) -> tuple[Step, ...]:
        """What went wrong in it; nothing for a job that never began."""
        return tuple(each for each in self.steps if each.failed)

    @property
    def commands(self) -> tuple[str, ...]:
        """The `run:` of the steps that failed."""
        return tuple(each.run for each in self.failed_steps if each.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A workflow run that went red.

    Attributes:
        id: GitHub's.
        attempt: which attempt of it, from 1.
        name: the workflow's.
        path: the workflow's file.
        event: what it ran for, e.g. `push`.
        conclusion: in GitHub's words.
        url: its page.
        head_sha: the commit that it ran on.
        head_branch: the branch that it ran on.
        jobs: those that went red, in GitHub's order; not more than are read.
        unread: how many more went red.
        green_sha: the commit of the workflow's last successful run on this branch; empty for none.
        changes: the diff between that commit and `head_sha`.
        is_current: whether `head_sha` is the commit that is worked on.
    """

    id: int
    attempt: int = 1
    name: str
    path: str = ""
    event: str = ""
    conclusion: str = ""
    url: str
    head_sha: str
    head_branch: str = ""
    jobs: tuple[FailedJob, ...]
    unread: int = 0
    green_sha: str = ""
    changes: str = ""
    is_current: bool = True
