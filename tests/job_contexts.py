"""A job's context for tests of one module: an engine in memory, and only as much of GitHub as the test gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from bot.domain.job import Job
from bot.github.client import GitHub
from bot.github.types import RunFacts, Snapshot
from bot.jobs.access import AccessChecks, PhaseReader, ThreadSnapshot
from bot.jobs.context import JobContext, JobServices
from bot.jobs.posts import StatusComment
from bot.jobs.record import StoredRecord
from bot.jobs.state import RunState
from bot.permissions.levels import Conventions
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import Ledger
from tests.builders import REPO, thread_facts

_T = TypeVar("_T")

RED_RUN = RunFacts(
    id=501,
    workflow_id=5,
    name="CI",
    conclusion="failure",
    head_sha="a" * 40,
    head_branch="mona/patch-1",
    head_repo_id=REPO.id,
    html_url=f"{REPO.html_url}/actions/runs/501",
)
"""A run of a workflow that failed on the branch of a pull request."""


def context_of(
    engine: InMemoryEngine,
    job: Job,
    *,
    github: object = None,
    services: object = None,
    ledger: object = None,
) -> JobContext:
    """The context of a job; what it asks of anything that is not given is an error."""
    record, services = StoredRecord(engine, job.id), SimpleNamespace() if services is None else services
    if isinstance(services, SimpleNamespace):
        services = SimpleNamespace(**{"conventions": Conventions(), "stamps": None, "spending": None} | vars(services))
    return JobContext(
        job=job,
        services=cast("JobServices", services),
        github=cast("GitHub", github),
        queue=engine,
        ledger=cast("Ledger", ledger),
        access_checks=AccessChecks(),
        marker="",
        state=RunState(record=record, comment=StatusComment(cast("GitHub", github), record.comment, job, marker="")),
    )


def snapshot(*, labels: tuple[str, ...] = (), reader: object = None, **thread: Any) -> ThreadSnapshot:  # noqa: ANN401 - see `thread_facts`
    """The place of `a_job` with these facts of its thread."""
    return ThreadSnapshot(
        facts=Snapshot(repo=REPO, default_head="d" * 40),
        roles=("write",),
        reader=cast("PhaseReader", reader),
        thread=thread_facts(**thread),
        labels=labels,
    )


def answering(value: _T) -> Callable[..., Awaitable[_T]]:
    """A call that answers with this, whatever it is given."""

    async def answer(*_: object, **__: object) -> _T:
        return value

    return answer


def account(account_id: int = 99) -> SimpleNamespace:
    """The bot's own account, as `GitHub.accounts` tells it."""
    return SimpleNamespace(me=answering(SimpleNamespace(id=account_id, login="codepilot[bot]")))
