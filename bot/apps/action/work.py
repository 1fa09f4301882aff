"""Handle the event that started a workflow run, on an engine in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bot.apps.action.end import StepEnd
from bot.apps.action.event import job_of_run
from bot.apps.action.files import write_outputs, write_summary
from bot.apps.action.outputs import outputs_of
from bot.apps.action.running import run_jobs
from bot.apps.action.summary import summary
from bot.apps.keys import key_for
from bot.apps.services import EDIT_SECONDS, redactor_for, services
from bot.apps.storage import files_of, local_storage
from bot.engine.in_memory import InMemoryEngine
from bot.engine.in_memory_ledger import InMemoryLedger
from bot.github import GitHub
from bot.intake.deliveries import IgnoredDelivery
from bot.jobs.context import Ending, JobContextFactory
from bot.jobs.patience import Patience
from bot.jobs.services import Handover, JobServices, Listener
from bot.pipeline.worker import Worker
from bot.publishing.redact import Redactor
from bot.settings.model import ActionSettings

LONGEST_PAUSE_SECONDS = 15.0
"""How long a workflow run waits before it takes a job up again that GitHub's silence broke off."""

_WAIT_SECONDS = 900.0
"""A workflow run has nothing else to do while GitHub wants a pause."""


async def work_step(
    settings: ActionSettings, *, listeners: Sequence[Listener] = (), longest_pause: float = LONGEST_PAUSE_SECONDS
) -> StepEnd:
    """One workflow run: the event that started it, through the same pipeline, to the step's outputs.

    Args:
        settings: the runner's and the operator's.
        listeners: called with every event of the run.
        longest_pause: seconds until a job that GitHub's silence broke off is taken up again, at most.

    Returns:
        How the job ended, or why the event asks for none.

    Raises:
        MalformedError: the event file is not what a runner writes.
        InputsError: the inputs contradict each other or the event.
        SandboxError: the agent could not run safely here.
    """
    job, begun = job_of_run(settings), time.monotonic()
    if isinstance(job, IgnoredDelivery):
        end = StepEnd(ended=job)
        _report(settings, end)
        return end
    redactor = redactor_for(settings)
    shared = _services_of_step(settings, redactor, listeners)
    engine = InMemoryEngine()
    await engine.accept(job)
    endings: list[Ending] = []
    contexts = JobContextFactory(
        services=shared,
        queue=engine,
        ended=endings.append,
        ledger=InMemoryLedger(engine, trusted_bots=settings.agent.trusted_bots),
        github_for=lambda _job: GitHub.for_token(
            settings.token.get_secret_value(),
            settings.api_url,
            redact=redactor.redact,
            max_wait_seconds=_WAIT_SECONDS,
            ca_file=settings.agent.ca_file,
        ),
    )
    patience = 4 * longest_pause
    worker = Worker(contexts, Patience(seconds=patience, longest_pause=longest_pause))
    last, session_file = await run_jobs(contexts, partial(engine.run_job, worker), job)
    await engine.tell_ending(worker, last.job.id, until=time.time() + patience)
    patch = await asyncio.to_thread(shared.work.patch, last.job.id)
    patch_file = await asyncio.to_thread(shared.work.file, last.job.id)
    end = StepEnd(
        ended=last.state,
        job=last.job,
        ending=endings[-1] if endings else None,
        record=await engine.record(last.job.id),
        patch=patch,
        patch_file=patch_file,
        session_file=session_file,
        session_days=settings.agent.approval_hours // 24 + 1,
        seconds=time.monotonic() - begun,
        server_url=settings.server_url,
    )
    _report(settings, end)
    return end


def _services_of_step(settings: ActionSettings, redactor: Redactor, listeners: Sequence[Listener]) -> JobServices:
    sealing = settings.sealing_secret
    shared = services(
        settings.agent,
        server_url=settings.server_url,
        secret=settings.lasting_secret or settings.token,
        redactor=redactor,
        listeners=listeners,
        edit_seconds=EDIT_SECONDS,
        provider=None,
        storage=local_storage(settings.agent),
        inputs=settings.inputs,
        run_url=settings.run_page,
    )
    if sealing is None:
        return shared
    sessions = files_of(settings.agent)
    handover = Handover(
        key=key_for(sealing, "saved jobs"),
        folder=settings.agent.data_dir / "session",
        sessions=sessions,
        name=settings.inputs.session or "",
        plain=settings.api_url.startswith("http:"),
    )
    return replace(shared, handover=handover, sessions=sessions)


def _report(settings: ActionSettings, end: StepEnd) -> None:
    redact = redactor_for(settings).redact
    if settings.output_path is not None:
        write_outputs(settings.output_path, {name: redact(value) for name, value in outputs_of(end).items()})
    if settings.summary_path is not None:
        write_summary(settings.summary_path, redact(summary(end)))
