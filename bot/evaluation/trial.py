"""One attempt at a task with a configuration: the bot fixes the task's issue on a local hub, as it would on GitHub.

A configuration has operator settings, and instructions for the repository's file.
"""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agent_runtime import (
    ChildWatched,
    Event,
    Provider,
    Replied,
    ReplyBroken,
    SettingsError,
    Status,
    StepStarted,
    Summarised,
    ToolReturned,
    Usage,
    read_settings,
)
from bot.demo.director import PERSON, open_hub
from bot.demo.project import repo_name
from bot.domain.access import BotProfile
from bot.domain.errors import BotError
from bot.domain.job import Job, JobState
from bot.evaluation.results import NAME, EvalResult, PhaseTokens
from bot.evaluation.suite import Task
from bot.events.delivery import Delivery
from bot.events.triggers import job_from
from bot.git.diff import make_signature
from bot.git.filesystem import run_thread
from bot.git.process import Git
from bot.github.connection import AppSession
from bot.jobs.context import JobContextFactory
from bot.jobs.faults import Patience
from bot.jobs.pipeline import Worker
from bot.jobs.record import JobRecord, StoredRecord
from bot.jobs.storage import PatchFiles
from bot.permissions.repo_config import MAX_BYTES, PATH, RepoConfigError, parse_config
from bot.publishing.checks import Verdict
from bot.publishing.outcome import JobOutcome
from bot.publishing.status_view import StatusView
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.records import StoredJob
from bot.server.build import EDIT_SECONDS, JobStorage, build_services, open_sessions, redactor_for
from bot.server.serve import installation_client
from bot.settings.load import load_evaluation, model_of
from bot.settings.models import AGENT, AgentSettings, Settings
from bot.settings.parsing import read_content
from localhub import LocalHub, Repo

Phase = Literal["first", "read", "write", "check", "summary", "delegate"]

_TITLE_CHARS, _ISSUE_CHARS = 256, 65_000
"""GitHub's limits of an issue are 256 and 65,536 characters."""
_KEPT_KEYS = {"setup", "cache", "network", "mcp", "instructions", "allow", "protected", "commit", "language"}
_DECIDE = "Nobody can be asked in this run: decide for yourself, and say in the completion what you decided."
_PATIENCE = Patience(seconds=120.0, longest_pause=15.0)
_SERVICE_FAULTS = {Status.FAILED, Status.MODEL_UNAVAILABLE, Status.NETWORK_LOST}
_MAX_CONFIG_BYTES = 64 * 1024
_FIELDS = (
    *("provider", "model", "base_url", "model_silence", "model_patience", "model_transport"),
    *("level", "allow_commands", "max_steps", "max_seconds", "mcp", "pictures"),
    *("sandbox", "docker_image", "docker_program", "sandbox_limits", "toolchains"),
    *("network", "setup_network", "setup_seconds"),
)
_SETTINGS = {AGENT[field].key: AGENT[field] for field in _FIELDS}


class EvaluationError(BotError):
    """The evaluation cannot start or continue; the text has the remedy."""


class ConfigKeys(BaseModel):
    """The keys of a configuration file, besides the operator's settings by their names in lower case.

    Attributes:
        name: by default that of the file.
        approvals: `deny` answers each request at once, as where nobody can be asked; `grant` approves it.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, StringConstraints(pattern=f"^{NAME}$")] | None = None
    budget_usd: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    instructions: Annotated[str, StringConstraints(max_length=8_000, strip_whitespace=True)] = ""
    approvals: Literal["deny", "grant"] = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """A configuration.

    Attributes:
        content: the bytes of the file.
    """

    name: str
    content: bytes
    instructions: str
    approvals: Literal["deny", "grant"]
    agent: AgentSettings


def read_configs(
    paths: Sequence[Path], *, toolchains: tuple[Path, ...], environ: Mapping[str, str] | None = None
) -> tuple[EvalConfig, ...]:
    """Read configuration files; what they do not set comes from the environment, as for the service.

    The path of a script is relative to its file.

    Raises:
        EvaluationError: a file is not valid, or two have the same name.
        ConfigError: a setting is missing or wrong.
    """
    files: dict[str, tuple[bytes, ConfigKeys]] = {}
    texts: dict[str, dict[str, str]] = {}
    for path in paths:
        content, keys = _read_keys(path)
        name = keys.name or path.stem
        if not re.fullmatch(NAME, name):
            raise EvaluationError(f"{path}: give the configuration a `name` of letters, digits, `.`, `_` and `-`.")
        if name in files:
            raise EvaluationError(f"{path}: another configuration is named {name}; give one of them another `name`.")
        files[name] = content, keys
        texts[name] = {setting.name: text for key, setting in _SETTINGS.items() if (text := getattr(keys, key))}
        if texts[name].get(AGENT["provider"].name) == "scripted" and (script := texts[name].get(AGENT["model"].name)):
            texts[name][AGENT["model"].name] = str(path.absolute().parent / script)
        if texts[name].get(AGENT["level"].name, "").lower() == "read-only":
            raise EvaluationError(f"{path}: `level`: at `read-only` no task can be solved; use `ask` or `auto`.")
    agents = load_evaluation(texts, toolchains=toolchains, environ=environ)
    return tuple(
        EvalConfig(
            name=name,
            content=content,
            instructions=keys.instructions,
            approvals=keys.approvals,
            agent=agents[name] if keys.budget_usd is None else replace(agents[name], max_cost_usd=keys.budget_usd),
        )
        for name, (content, keys) in files.items()
    )


def read_models(results: Path) -> dict[str, str]:
    """Read the models from the copies of the configurations; empty if the environment named it."""
    paths = sorted((results / "configs").glob("*.yaml"))
    return {path.stem: str(getattr(_read_keys(path)[1], "model", "")) for path in paths}


def _read_keys(path: Path) -> tuple[bytes, ConfigKeys]:
    try:
        content, _ = read_content(path, most=_MAX_CONFIG_BYTES)
        return content, read_settings(content.decode(), model_of(_SETTINGS.values(), ConfigKeys), source=str(path))
    except UnicodeDecodeError as error:
        raise EvaluationError(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8.") from error
    except SettingsError as error:
        raise EvaluationError(str(error)) from error
    except ValueError as error:
        raise EvaluationError(f"--config {error}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An attempt at a task with a configuration.

    Attributes:
        is_cut: whether the budget is what is left of the evaluation's.
    """

    task: Task
    issue: str
    config: EvalConfig
    attempt: int
    is_cut: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task.id, self.config.name, self.attempt

    @property
    def stem(self) -> str:
        return f"{self.task.id}@{self.config.name}.{self.attempt}"

    def end(self, **facts: Any) -> EvalResult:  # noqa: ANN401 - the fields of EvalResult
        return EvalResult(task=self.task.id, config=self.config.name, attempt=self.attempt, **facts)

    def fail(self, error: str, usage: Meter) -> EvalResult:
        return self.end(
            status="error",
            error=error,
            cost_usd=usage.total.cost_usd,
            requests=usage.total.requests,
            tokens=usage.tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd:
    """The end of an attempt; the change is between the commits of a bare repository, if it has a pull request."""

    result: EvalResult
    repository: Path
    base: str
    commit: str = ""
    has_pull: bool = False


@dataclass(slots=True)
class Meter:
    """Adds up the usage of a run's model by phase.

    The phases: `first` is the request with the first message; `read` has those before the first `write_file`, `write`
    those up to the last one, and `check` those after it. `summary` shortens the conversation, `delegate` is of child
    runs. Without a `write_file` all is `read`.
    """

    total: Usage = field(default_factory=Usage)
    _step: int = 0
    _steps: list[tuple[int, Usage]] = field(default_factory=list)
    _other_usages: list[tuple[Phase, Usage]] = field(default_factory=list)
    _writes: list[int] = field(default_factory=list)

    def record(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._step += 1
            case ToolReturned(tool="write_file", ok=True):
                self._writes.append(self._step)
            case Replied(usage=usage) | ReplyBroken(usage=usage):
                self._steps.append((self._step, usage))
                self.total += usage
            case Summarised(usage=usage):
                self._other_usages.append(("summary", usage))
                self.total += usage
            case ChildWatched(event=Replied(usage=usage) | ReplyBroken(usage=usage) | Summarised(usage=usage)):
                self._other_usages.append(("delegate", usage))
                self.total += usage
            case _:
                pass

    @property
    def tokens(self) -> Mapping[str, PhaseTokens]:
        usages: dict[Phase, Usage] = {}
        first_write, last_write = min(self._writes, default=math.inf), max(self._writes, default=math.inf)
        for step, usage in self._steps:
            later: Phase = "read" if step < first_write else "write" if step <= last_write else "check"
            phase = later if step > 1 else "first"
            usages[phase] = usages.get(phase, Usage()) + usage
        for phase, usage in self._other_usages:
            usages[phase] = usages.get(phase, Usage()) + usage
        return {
            phase: PhaseTokens(
                input=usage.input_tokens + usage.cache_write_tokens,
                cached=usage.cached_tokens,
                output=usage.output_tokens,
            )
            for phase, usage in usages.items()
        }


async def run_trial(
    trial: Trial, suite: Git, name: str, directory: Path, *, meter: Meter, provider: Callable[[], Provider] | None
) -> TrialEnd:
    """Have the bot fix a task's issue in a repository that has the task's files and nothing else of the suite.

    Args:
        suite: the repository with the suite's commits.
        name: of the suite's repository.
        provider: makes the model, in place of the configured one.
    """
    source = directory / "source.git"
    base = await prepare_source(trial, suite, source)
    full_name = f"{PERSON}/{repo_name(Path(name))}"
    async with open_hub(directory, full_name, source, trial.config.agent) as (hub, repo, settings):
        title, body = trial.task.title[:_TITLE_CHARS], trial.issue[:_ISSUE_CHARS]
        issue = hub.open_issue(repo, author=PERSON, title=title, body=body)
        can_ask = trial.config.approvals == "grant"
        bot = _Bot(hub, repo, issue.number, settings=settings, meter=meter, provider=provider, can_ask=can_ask)
        started = time.monotonic()
        job = await bot.command("fix")
        stored, approvals = await bot.grant_requests(job)
        seconds = time.monotonic() - started
        record = await bot.record_of(job)
    outcome = bot.outcomes.get(job.id)
    error = find_error(trial, stored, record, outcome)
    is_done = stored.state is JobState.DONE and not error
    result = trial.end(
        status="error" if error else stored.state.value,
        verdict=record.verdict.value if record.verdict is not None else "",
        said_done=is_done and record.verdict is Verdict.VERIFIED,
        cost_usd=meter.total.cost_usd,
        seconds=round(seconds, 3),
        requests=meter.total.requests,
        tokens=meter.tokens,
        approvals=approvals + len(record.denied or ()) + (outcome is not None and bool(outcome.withheld_diff)),
        error=error,
        job_id=job.id,
    )
    commit, pull = record.published.commit, record.published.pull
    return TrialEnd(
        result=result, repository=repo.path, base=base, commit=commit.sha if commit else "", has_pull=pull is not None
    )


async def prepare_source(trial: Trial, suite: Git, path: Path) -> str:
    """Create a repository with the task's base and, on top of it, the configuration's file; return that commit."""
    git = Git(git_dir=path, index=path / "evaluation.index")
    await git.run("init", "--quiet", "--bare", "--initial-branch=main", path)
    await git.run("fetch", "--quiet", "--no-tags", suite.git_dir or "", f"+{trial.task.ref}:refs/heads/main")
    existing = b""
    if await git.text("ls-tree", "main", PATH):
        existing = await git.read_head(MAX_BYTES + 1, "cat-file", "blob", f"main:{PATH}")
    content = await run_thread(_repository_file, trial, existing)
    blob = await git.text("hash-object", "-w", "--stdin", stdin=content)
    await git.run("read-tree", "main")
    await git.run("update-index", "--add", "--replace", "--cacheinfo", f"100644,{blob},{PATH}")
    tree, at = await git.text("write-tree"), int(await git.text("show", "-s", "--format=%ct", "main"))
    # The same commit in every run, so that a recording fits.
    signature = make_signature("Mona", "mona@users.noreply.github.com", at=at)
    commit = await git.text("commit-tree", "-p", "main", "-m", "Configure Codepilot", tree, variables=signature)
    await git.run("update-ref", "refs/heads/main", commit)
    return commit


def _repository_file(trial: Trial, existing: bytes) -> bytes:
    """Return the repository's file: its own keys that concern a fix, below those of task and configuration."""
    try:
        keys = parse_config(existing).model_dump(mode="json", include=_KEPT_KEYS, exclude_unset=True)
    except RepoConfigError:
        keys = {}
    keys["level"] = trial.config.agent.level
    if trial.task.setup:
        keys["setup"] = list(trial.task.setup)
    if trial.config.instructions:
        keys["instructions"] = trial.config.instructions
    return yaml.safe_dump(keys, allow_unicode=True, sort_keys=True).encode()


def find_error(trial: Trial, stored: StoredJob, record: JobRecord, outcome: JobOutcome | None) -> str:
    """Return why a run says nothing about its configuration, or an empty text."""
    run = outcome.run if outcome is not None else None
    if record.verdict is Verdict.SETUP_FAILED:
        return "The task's setup failed in the sandbox."
    if trial.is_cut and run is not None and run.status is Status.MAX_COST:
        return "The cost limit of the evaluation ended this run."
    if (stored.state is JobState.FAILED and run is None) or (run is not None and run.status in _SERVICE_FAULTS):
        reason = run.reason if run is not None else stored.reason
        return reason or "The bot failed without a reason."
    return f"The run waits: {stored.reason}" if stored.state is JobState.WAITING else ""


class _Bot:
    """The bot on an issue of a hub, with its queue in memory.

    Attributes:
        outcomes: by job id.
    """

    def __init__(
        self,
        hub: LocalHub,
        repo: Repo,
        number: int,
        *,
        settings: Settings,
        meter: Meter,
        provider: Callable[[], Provider] | None,
        can_ask: bool,
    ) -> None:
        self._hub, self._repo, self._number = hub, repo, number
        self._profile = BotProfile(triggers=settings.agent.triggers, own_app_id=settings.app_id)
        self._engine, self._payloads = InMemoryEngine(), dict[int, Mapping[str, Any]]()
        self.outcomes: dict[str, JobOutcome] = {}
        redactor, agent = redactor_for(settings), settings.agent
        services = build_services(
            agent,
            server_url=settings.server_url,
            secret=settings.webhook_secret,
            redactor=redactor,
            listeners=[meter.record],
            edit_seconds=EDIT_SECONDS,
            provider=provider,
            # Without sessions nobody can be asked, as in a workflow: requests are denied at once.
            storage=JobStorage(
                sessions=open_sessions(agent) if can_ask else None, patches=PatchFiles(agent.data_dir / "patches")
            ),
        )
        contexts = JobContextFactory(
            services=services,
            queue=self._engine,
            ledger=InMemoryLedger(self._engine, trusted_bots=agent.trusted_bots),
            github_for=partial(installation_client, settings, redactor, AppSession(0.0), self._engine.check),
            on_view=self._add_view,
        )
        self._worker = Worker(contexts, _PATIENCE)
        hub.observe(on_delivery=self._add_delivery)

    def _add_view(self, view: StatusView) -> None:
        if view.outcome is not None:
            self.outcomes[view.job_id] = view.outcome

    def _add_delivery(self, event: str, payload: Mapping[str, Any]) -> None:
        if event == "issue_comment" and payload["action"] == "created":
            self._payloads[payload["comment"]["id"]] = payload

    async def command(self, text: str) -> Job:
        """Give a command as the repository's owner, and run its job until it ends or waits."""
        body = f"{self._profile.triggers[0]} {text}"
        comment = self._hub.comment(self._repo, self._number, author=PERSON, body=body)
        payload = json.loads(json.dumps(self._payloads[comment.id]))
        job = job_from(Delivery(payload, event="issue_comment", delivery_id=str(uuid.uuid4())), self._profile)
        if not isinstance(job, Job):
            raise EvaluationError(f"The bot ignored the command `{body}`: {job.reason}.")
        await self._engine.accept(job)
        await self._engine.run_job(self._worker, job.id)
        return job

    async def grant_requests(self, job: Job) -> tuple[StoredJob, int]:
        """Approve each request until the job ends; return it and the number of requests."""
        answered = set[str]()
        while True:
            stored = await self._engine.run_job(self._worker, job.id)
            request = (await self.record_of(job)).approvals.open_request
            if stored.state is not JobState.WAITING or request is None or request.request_id in answered:
                return stored, len(answered)
            answered.add(request.request_id)
            is_question = request.kind == "question"
            await self.command(f"continue {_DECIDE}" if is_question else f"approve {request.request_id}")

    async def record_of(self, job: Job) -> JobRecord:
        return await StoredRecord(self._engine, job.id).read()
