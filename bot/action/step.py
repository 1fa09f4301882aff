"""One step of a workflow, `codepilot act`.

`take_step` is the whole step. `work_step` sends the event through the server's pipeline on a queue in memory, and runs
each job that the first one starts or resumes. `report_problems` reports a step that cannot start.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agent_runtime import AgentError, SettingsError, require_output_schema
from bot.action import outputs
from bot.action.inputs import delivery_from, job_of_run, profile_from
from bot.action.outputs import (
    Conclusion,
    StepEnd,
    StepLog,
    exit_code,
    format_annotations,
    format_summary,
    outputs_of,
    outputs_without_run,
    write_outputs,
    write_summary,
)
from bot.domain.errors import BotError, ConfigError, InputProblem, InputsError
from bot.domain.job import Job, JobState
from bot.events.delivery import IgnoredDelivery
from bot.events.triggers import job_from
from bot.github.client import GitHub
from bot.github.connection import WAIT_SECONDS
from bot.jobs.access import check_access
from bot.jobs.context import JobContextFactory, JobServices, Listener, WorkflowResume
from bot.jobs.faults import Patience
from bot.jobs.handover import save
from bot.jobs.pipeline import Worker
from bot.jobs.posts import background, reply_target
from bot.jobs.record import StoredRecord
from bot.jobs.stamps import Stamps
from bot.publishing.markdown import Allowlist, code, fence
from bot.publishing.redact import Redactor
from bot.publishing.render import render_reply, settings_to_inputs
from bot.publishing.status_view import StatusView
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.records import Signal, StoredJob
from bot.server.build import EDIT_SECONDS, build_services, local_storage, open_sessions, redactor_for
from bot.server.process import protect_process, start_log
from bot.settings.load import derive_key
from bot.settings.models import ActionSettings, ActionSurvey, bounds_of

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 15.0
_PATIENCE_PAUSES = 40
"""Ten minutes for faults that are not the job's."""
_REPORT_PAUSES = 4
"""Limit of the wait before a job that GitHub's outage interrupted is resumed."""

_WAIT_SECONDS = 900.0
"""A workflow run has no other work while a rate limit lasts."""

_CANCELLED = Signal(kind="stop", text="The workflow run was cancelled.", by="", id="cancelled")

_ROOT = (
    "This runner works as root, and nothing on the machine is safe from root if the sandbox fails. Use another user "
    "for the runner; or, if the machine is discarded after the job, set the input `allow-root`."
)


async def take_step(survey: ActionSurvey, cancelled: asyncio.Event) -> int:
    """Take the whole step; return its exit code.

    Args:
        cancelled: set when the runner asks the step to end. GitHub's gives it ten seconds.
    """
    settings = survey.settings
    for secret in (settings.token, *settings.agent.secrets, settings.inputs.session_key):
        for line in outputs.mask_secret(secret.get_secret_value()) if secret is not None else ():
            say(line)
    redactor = redactor_for(settings)
    problems = survey.problems or _root_problem(settings) or await _schema_problem(settings)
    if not problems:
        try:
            start_log(redactor)
            end = await work_step(settings, listeners=[StepLog(say, redactor.redact)], cancelled=cancelled)
            for line in format_annotations(end):
                say(redactor.redact(line))
            return exit_code(end.conclusion)
        except InputsError as error:
            problems = error.input_problems
        except (BotError, AgentError) as error:
            problems = (InputProblem(text=settings_to_inputs(str(error))),)
    await report_problems(settings, problems, redactor=redactor, say=say)
    return exit_code(Conclusion.MISCONFIGURED)


def say(line: str) -> None:
    """Write to the step's output at once: the runner executes commands in order."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _root_problem(settings: ActionSettings) -> tuple[InputProblem, ...]:
    try:
        protect_process(allow_root=settings.agent.allow_root)
    except ConfigError:
        return (InputProblem(text=_ROOT, input="allow-root", line="allow-root: 'yes'"),)
    return ()


async def _schema_problem(settings: ActionSettings) -> tuple[InputProblem, ...]:
    schema = settings.inputs.output_schema
    try:
        if isinstance(schema, dict):
            await require_output_schema(schema)
    except SettingsError as error:
        return (InputProblem(text=f"The input `output-schema` is not valid. {error}", input="output-schema"),)
    return ()


async def work_step(
    settings: ActionSettings,
    *,
    listeners: Sequence[Listener] = (),
    longest_pause: float = LONGEST_PAUSE_SECONDS,
    cancelled: asyncio.Event | None = None,
) -> StepEnd:
    """Work on the event of the workflow run and write the step's outputs.

    Args:
        cancelled: stops the job when it is set; its work is kept and reported.

    Returns:
        The end of the job, or the reason for none.

    Raises:
        MalformedError: the event file is invalid.
        InputsError: the inputs contradict each other or the event.
        SandboxError: the agent cannot run safely here.
    """
    begun, redactor = time.monotonic(), redactor_for(settings)
    github_for = partial(_open_client, settings, redactor)
    job = await job_of_run(settings, github_for)
    if isinstance(job, IgnoredDelivery):
        end = StepEnd(ended=job)
        _write_results(settings, redactor, outputs_of(end), format_summary(end))
        return end
    engine = InMemoryEngine()
    shared = _job_services(settings, redactor, listeners, engine)
    await engine.accept(job)
    views: list[StatusView] = []
    contexts = JobContextFactory(
        services=shared,
        queue=engine,
        on_view=views.append,
        ledger=InMemoryLedger(engine, trusted_bots=settings.agent.trusted_bots),
        github_for=github_for,
    )
    worker = Worker(contexts, Patience(seconds=_PATIENCE_PAUSES * longest_pause, longest_pause=longest_pause))
    cancelled = cancelled or asyncio.Event()
    last, session_file = await run_jobs(contexts, engine, worker, job, cancelled)
    await engine.report_ends(worker, until=time.time() + _REPORT_PAUSES * longest_pause)
    end = StepEnd(
        ended=last.state,
        job=last.job,
        view=views[-1] if views else None,
        record=await StoredRecord(engine, last.job.id).read(),
        patch=await asyncio.to_thread(shared.work.excerpt, last.job.id),
        patch_file=await asyncio.to_thread(shared.work.file, last.job.id),
        session_file=session_file,
        session_days=settings.agent.approval_hours // 24 + 1,
        seconds=time.monotonic() - begun,
        server_url=settings.server_url,
        is_cancelled=cancelled.is_set() and last.state is JobState.STOPPED,
    )
    _write_results(settings, redactor, outputs_of(end), format_summary(end))
    return end


def _open_client(
    settings: ActionSettings, redactor: Redactor, _job: Job | None = None, *, max_wait_seconds: float = _WAIT_SECONDS
) -> GitHub:
    return GitHub.for_token(
        settings.token.get_secret_value(),
        settings.api_url,
        redact=redactor.redact,
        max_wait_seconds=max_wait_seconds,
        ca_file=settings.agent.ca_file,
    )


def _job_services(
    settings: ActionSettings, redactor: Redactor, listeners: Sequence[Listener], engine: InMemoryEngine
) -> JobServices:
    lasting = settings.lasting_secret
    shared = build_services(
        settings.agent,
        server_url=settings.server_url,
        secret=lasting or settings.token,
        redactor=redactor,
        listeners=listeners,
        edit_seconds=EDIT_SECONDS,
        provider=None,
        storage=local_storage(settings.agent),
        inputs=settings.inputs,
        run_url=settings.run_page,
    )
    if lasting is None:
        return shared
    stamps = Stamps(
        key=derive_key(lasting, "stamps"),
        run_id=settings.run_id,
        run_attempt=settings.run_attempt,
        run_url=settings.run_page,
        engine=engine,
    )
    shared = replace(shared, stamps=stamps)
    if settings.inputs.approvals == "denied":
        return shared
    sessions = open_sessions(settings.agent)
    handover = WorkflowResume(
        key=derive_key(lasting, "saved jobs"),
        engine=engine,
        folder=settings.agent.data_dir / "session",
        sessions=sessions,
        name=settings.inputs.session or "",
        plain=settings.api_url.startswith("http:"),
    )
    return replace(shared, handover=handover, sessions=sessions)


async def run_jobs(
    contexts: JobContextFactory, engine: InMemoryEngine, worker: Worker, job: Job, cancelled: asyncio.Event
) -> tuple[StoredJob, Path | None]:
    """Run a job, and then every job that it starts or resumes; stop them when the workflow run is cancelled."""

    async def stop_when_cancelled() -> None:
        await cancelled.wait()
        for job_id in await engine.live_ids():
            await engine.send(job_id, _CANCELLED)

    async def run_job(job_id: str) -> StoredJob:
        if cancelled.is_set():  # since before the job was accepted
            await engine.send(job_id, _CANCELLED)
        return await engine.run_job(worker, job_id)

    async with background(stop_when_cancelled()):
        last = await run_job(job.id)
        while True:
            next_id = (await StoredRecord(engine, last.job.id).read()).leads_to
            if next_id is None:
                of_thread = await engine.jobs_in_thread(job.repo.id, job.thread.key)
                # The oldest one that an answer has woken, or that a command or another job has started.
                next_id = next((each.job.id for each in reversed(of_thread) if each.state is JobState.QUEUED), None)
            if next_id is None:
                break
            last = await run_job(next_id)
        if contexts.services.handover is None or last.state is not JobState.WAITING:
            return last, None
        try:
            async with contexts.open(last.job) as context:
                return last, await save(context)
        except BotError as error:
            log.warning("job %s: not stored for a later run: %s", last.job.id, error)
            why = f"The run requires an answer and cannot wait for one. {error}"
        await engine.send(last.job.id, Signal(kind="stop", text=why, by="", id="not kept"))
        return await run_job(last.job.id), None


def _write_results(settings: ActionSettings, redactor: Redactor, values: Mapping[str, str], markdown: str) -> None:
    if settings.output_path is not None:
        write_outputs(settings.output_path, {name: redactor.redact(value) for name, value in values.items()})
    if settings.summary_path is not None:
        write_summary(settings.summary_path, redactor.redact(markdown))


_TITLE = "Codepilot cannot start"
_WITHOUT_SECRETS = frozenset({"pull_request", "pull_request_review", "pull_request_review_comment"})
"""Events from forks that get no secrets."""
_FORK = (
    "GitHub passes no secrets to a workflow that a pull request from a fork starts. A maintainer can give the "
    "command in a comment: the event `issue_comment` has them."
)
_DEPENDABOT = (
    "GitHub passes a workflow that Dependabot starts only Dependabot's secrets: add this one under *Settings → "
    "Secrets and variables → Dependabot*, too."
)
_NOT_STORED = (
    "If that line is already there, the secret is missing: add it under *Settings → Secrets and variables → "
    "Actions*. If it belongs to an environment, the job needs `environment:`. If the name of the input is misspelt, "
    "GitHub shows a warning in the same run."
)


async def report_problems(
    settings: ActionSettings, problems: Sequence[InputProblem], *, redactor: Redactor, say: Callable[[str], None]
) -> None:
    """Report at least one problem in the log, in the summary and, if the sender may give commands, in the thread."""
    problems, job, why = list(problems), None, _NOT_STORED
    try:
        delivery = delivery_from(settings)
        why = missing_secret_cause(delivery.event, delivery.data)
        found = job_from(delivery, profile_from(settings))
        job = found if isinstance(found, Job) else None
    except BotError as error:
        if str(error) not in {each.text for each in problems}:
            problems.append(InputProblem(text=str(error)))
    for line in error_annotations(problems, why):
        say(redactor.redact(line))
    told = redactor.redact(format_explanation(problems, why))
    summary = f"### ⚙️ {told}\n\n{outputs.format_rows([('Conclusion', code(Conclusion.MISCONFIGURED.value))])}"
    _write_results(settings, redactor, outputs_without_run(Conclusion.MISCONFIGURED, told), summary)
    if job is not None and settings.token.get_secret_value():
        try:
            await _comment_problems(settings, job, f"{told}\n\n[The run]({settings.run_page})", redactor)
        except BotError as error:
            say(
                outputs.format_annotation(
                    "warning", redactor.redact(f"The thread was not informed. {error}"), title=_TITLE
                )
            )


async def _comment_problems(settings: ActionSettings, job: Job, problems: str, redactor: Redactor) -> None:
    is_automatic = job.lane == "event" or job.is_from_event or job.thread.kind == "branch"
    if is_automatic or settings.run_attempt > 1 or settings.inputs.comment == "never":
        return
    async with _open_client(settings, redactor, max_wait_seconds=WAIT_SECONDS) as github:
        access = await check_access(github, job, bounds=bounds_of(settings.agent))
        if not access.may_command:
            return
        name = job.repo.full_name
        allowed = Allowlist(
            login=job.actor.login, number=job.thread.number, server=settings.server_url.rstrip("/"), repo=name
        )
        body = render_reply(f"🚫 {problems}", allowed, job_id=job.id)
        await github.comments.create(name, reply_target(job), body)


def missing_secret_cause(event: str, payload: Mapping[str, Any]) -> str:
    if _at(payload, "sender", "login") == "dependabot[bot]":
        return _DEPENDABOT
    head, base = (_at(payload, "pull_request", side, "repo", "id") for side in ("head", "base"))
    return _FORK if event in _WITHOUT_SECRETS and head != base else _NOT_STORED


def error_annotations(problems: Sequence[InputProblem], why: str) -> list[str]:
    told = (
        "\n".join(filter(None, (each.text, each.line and f"with:\n  {each.line}", why if each.secret else "")))
        for each in problems[: outputs.MAX_ANNOTATIONS]
    )
    return [outputs.format_annotation("error", each.replace("*", ""), title=_TITLE) for each in told]


def format_explanation(problems: Sequence[InputProblem], why: str) -> str:
    told = [each.text for each in problems]
    said = told[0] if len(told) == 1 else "\n".join(f"- {each}" for each in told)
    parts = [f"{_TITLE}.", said]
    if lines := [each.line for each in problems if each.line]:
        yaml = "\n".join(["with:", *(f"  {each}" for each in lines)])
        parts.append(f"In the step of the workflow that uses Codepilot:\n\n{fence(yaml, 'yaml')}")
    if any(each.secret for each in problems):
        parts.append(why)
    return "\n\n".join(parts)


def _at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
