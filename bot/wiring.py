"""Builds the real objects from the operator's settings; the only place that knows them all."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets as random_text
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from agent_runtime import (
    Provider,
    Sandbox,
    SandboxSettings,
    pick_sandbox,
)
from bot.action import delivery_from, write_outputs, write_summary
from bot.agents import agent_maker, model_of
from bot.config import ActionSettings, AgentSettings, Settings
from bot.errors import ConfigError
from bot.github import GitHub
from bot.intake.deliveries import Ignored
from bot.intake.triggers import job_from
from bot.jobs.greeter import Greeter
from bot.jobs.house import House, Listener
from bot.jobs.job import TRANSITIONS, Job, JobState
from bot.jobs.presence import present
from bot.jobs.queue import SqliteQueue
from bot.jobs.setup import Setup
from bot.jobs.work import WorkStore
from bot.jobs.worker import POLL_SECONDS, Worker
from bot.publishing.redact import Redactor
from bot.webhook import Door, make_app, make_runner
from bot.workspace import SetupCache, Workspaces

EDIT_SECONDS = 10.0

ACTION_LEASE_SECONDS = 15.0
"""How long a workflow run waits before it takes a job up again that GitHub's silence broke off."""

# https://api.github.com/users/github-actions[bot]
_ACTIONS_BOT_ID = 41898282

# What Python compiles while the agent tests is not part of its change, and not every project ignores it.
_ENVIRONMENT = {"PYTHONPYCACHEPREFIX": "/tmp/pycache"}  # noqa: S108 - inside the sandbox, where it is a tmpfs of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A bot ready to run in one process.

    Attributes:
        queue: the hand-over.
        worker: takes jobs from it.
        runner: the webhook's web server, not yet listening.
    """

    queue: SqliteQueue
    worker: Worker
    runner: web.AppRunner


@asynccontextmanager
async def service(
    settings: Settings,
    *,
    listeners: Sequence[Listener] = (),
    edit_seconds: float = EDIT_SECONDS,
    provider: Callable[[], Provider] | None = None,
    seconds_between_writes: float = 0.25,
) -> AsyncIterator[Service]:
    """Everything that `serve` and `work` need; closed when the body ends.

    Args:
        settings: the operator's.
        listeners: told of every event of every run.
        edit_seconds: between two edits of a status comment.
        provider: makes the model of a run, in place of the one that the settings name.
        seconds_between_writes: the pause that GitHub asks for; a hub of ours needs none.

    Raises:
        SandboxError: agents could not run safely here.
        QueueError: the queue's file cannot be used.
    """
    webhook_secret = settings.webhook_secret.get_secret_value()
    redactor = redactor_for(settings)
    shared = house(
        settings.agent,
        server_url=settings.server_url,
        redactor=redactor,
        listeners=listeners,
        edit_seconds=edit_seconds,
        provider=provider,
    )
    await shared.workspaces.sweep()
    github_for = partial(_installed_app, settings, redactor, seconds_between_writes)
    name = _worker_name()
    async with AsyncExitStack() as stack:
        queue, greeter = SqliteQueue(settings.agent.data_dir / "queue.sqlite"), Greeter(github_for)
        stack.push_async_callback(queue.close)
        stack.push_async_callback(greeter.close)
        await stack.enter_async_context(present(settings.agent.data_dir / "workers", name, on_death=queue.take_back))
        worker = Worker(
            name,
            queue=queue,
            house=shared,
            github_for=github_for,
            marker_key=_marker_key(webhook_secret),
            jobs_at_once=settings.jobs,
        )
        app = make_app(_door(settings), queue, accepted=greeter.greet)
        yield Service(queue=queue, worker=worker, runner=make_runner(app))


def _door(settings: Settings) -> Door:
    return Door(
        secret=settings.webhook_secret,
        trigger=settings.agent.trigger,
        own_ids=frozenset(),
        trusted_bot_ids=settings.agent.trusted_bot_ids,
    )


async def act(
    settings: ActionSettings, *, listeners: Sequence[Listener] = (), lease_seconds: float = ACTION_LEASE_SECONDS
) -> JobState | Ignored:
    """One workflow run: the event that started it, through the same corridor, to the step's outputs.

    Args:
        settings: the runner's and the operator's.
        listeners: told of every event of the run.
        lease_seconds: before a job that GitHub's silence broke off is taken up again.

    Returns:
        How the job ended, or why the event asks for none.

    Raises:
        MalformedError: the event file is not what a runner writes.
        SandboxError: the agent could not run safely here.
    """
    job = job_from(
        delivery_from(settings),
        trigger=settings.agent.trigger,
        own_ids=frozenset({_ACTIONS_BOT_ID}),
        trusted_bot_ids=settings.agent.trusted_bot_ids,
    )
    if isinstance(job, Ignored):
        _report(settings, {"status": "ignored"}, f"Codepilot had nothing to do: {job.reason}")
        return job
    state, facts = await _see_through(settings, job, listeners, lease_seconds)
    outputs = {
        "status": state.value,
        "comment-url": facts.get("comment", "").partition(" ")[2],
        "commit-sha": facts.get("commit", ""),
        "pull-request-url": facts.get("pull", "").partition(" ")[2],
    }
    _report(settings, outputs, facts.get("ending", "").partition("\n")[2] or f"Codepilot: {state}")
    return state


async def _see_through(
    settings: ActionSettings, job: Job, listeners: Sequence[Listener], lease_seconds: float
) -> tuple[JobState, dict[str, str]]:
    """Store one job, walk it, and give back how it ended and what was remembered of it."""
    token = settings.token.get_secret_value()
    redactor = redactor_for(settings)
    shared = house(
        settings.agent,
        server_url=settings.server_url,
        redactor=redactor,
        listeners=listeners,
        edit_seconds=EDIT_SECONDS,
        provider=None,
    )
    queue = SqliteQueue(settings.agent.data_dir / "queue.sqlite")
    try:
        await queue.enqueue(job)
        worker = Worker(
            _worker_name(),
            queue=queue,
            house=shared,
            github_for=lambda _job: GitHub.for_token(token, settings.api_url, redact=redactor.redact),
            marker_key=_marker_key(token),
            lease_seconds=lease_seconds,
        )
        # Nobody comes after this process to try again, and an operator's own directory may hold other jobs.
        while (stored := await queue.get(job.id)) is not None and TRANSITIONS[stored.state]:
            if not await worker.step():
                await queue.wait_for_work(POLL_SECONDS)
        return stored.state if stored else JobState.FAILED, await queue.recall(job.id)
    finally:
        await queue.close()


def _installed_app(settings: Settings, redactor: Redactor, seconds_between_writes: float, job: Job) -> GitHub:
    if job.installation is None:
        raise ConfigError((f"the delivery of job {job.id} names no installation; point the App's webhook here",))
    # A client lives for one job, and so does what is known of the tokens that it mints.
    own = redactor.copy()
    return GitHub.for_installation(
        settings.app_id,
        settings.private_key.get_secret_value(),
        job.installation,
        settings.api_url,
        redact=own.redact,
        minted=own.learn,
        seconds_between_writes=seconds_between_writes,
    )


def house(
    agent: AgentSettings,
    *,
    server_url: str,
    redactor: Redactor,
    listeners: Sequence[Listener],
    edit_seconds: float,
    provider: Callable[[], Provider] | None,
) -> House:
    """What all jobs of a process share.

    Raises:
        SandboxError: no sandbox works here.
    """
    agent.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    sandbox = pick_sandbox(agent.sandbox, sandbox_settings(agent))
    return House(
        workspaces=Workspaces(agent.data_dir / "workspaces"),
        setup=_setup(agent, sandbox),
        agent=agent_maker(provider or partial(model_of, agent), sandbox),
        limits=agent.limits,
        redactor=redactor,
        trigger=agent.trigger,
        server_url=server_url.rstrip("/"),
        model=agent.model if agent.provider != "scripted" else "scripted",
        sandbox=sandbox.level,
        network=agent.network,
        work=WorkStore(agent.data_dir / "patches"),
        edit_seconds=edit_seconds,
        listeners=tuple(listeners),
    )


def _setup(agent: AgentSettings, sandbox: Sandbox) -> Setup:
    most = agent.setup_cache_gb * 10**9
    return Setup(
        sandbox=sandbox,
        network=agent.network if agent.setup_network is None else agent.setup_network,
        seconds=agent.setup_seconds,
        cache=SetupCache(agent.data_dir / "setup-cache", max_bytes=most) if most else None,
    )


def sandbox_settings(agent: AgentSettings) -> SandboxSettings:
    """Show the operator's toolchains, and put their `bin` before the system's programs."""
    return SandboxSettings(
        read_only=agent.toolchains,
        path=tuple(path / "bin" for path in agent.toolchains if (path / "bin").is_dir()),
        environment=_ENVIRONMENT,
        limits=agent.sandbox_limits,
        container=agent.container,
    )


def redactor_for(settings: Settings | ActionSettings) -> Redactor:
    """What takes the operator's secrets out of text."""
    door = [settings.webhook_secret, settings.private_key] if isinstance(settings, Settings) else [settings.token]
    key = settings.agent.api_key
    return Redactor(secret.get_secret_value() for secret in (*door, key) if secret is not None)


def _marker_key(secret: str) -> bytes:
    """A key of its own for the marks in comments, so that the secret itself signs one thing only."""
    return hmac.digest(secret.encode(), b"codepilot status comment", hashlib.sha256)


def _worker_name() -> str:
    """Readable in the log, and never used twice; process ids are, in containers above all."""
    return f"{socket.gethostname()}-{os.getpid()}-{random_text.token_hex(3)}"


def _report(settings: ActionSettings, outputs: dict[str, str], summary: str) -> None:
    if settings.output_path is not None:
        write_outputs(settings.output_path, outputs)
    if settings.summary_path is not None:
        write_summary(settings.summary_path, summary)
