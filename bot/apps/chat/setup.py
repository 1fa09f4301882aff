"""Make an agent from the options of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agent_runtime import (
    Agent,
    AgentFile,
    ModelOptions,
    ModelSettings,
    Rule,
    SettingsError,
    read_instructions,
    read_skills,
)
from bot.apps.chat.answers import Permissions

AGENT_FILE = Path("agent.yaml")
"""Read from the current directory when no other is named."""

KEY_VARIABLE = "CODEPILOT_API_KEY"
"""Holds the key for an address that the command line names; no other key is sent there."""

_NO_SANDBOX = "no sandbox isolates it from this machine"
_BY_REQUEST = "you chose to approve every one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What somebody asked for; None leaves it to the agent file, or else to the built-in agent.

    Attributes:
        agent: the agent file.
        directory: where the agent works.
        provider: the model service.
        model: the model's name.
        base_url: the model service's address; without a `provider` it is an OpenAI-compatible server.
        script: replies to replay instead of asking a model.
        max_steps: model replies that may act, in one run.
        budget: US dollars that one run may cost.
        permissions: who approves what waits for approval.
        session: the session's id; None for one that ends with the program.
        record: the file that takes every request, reply and event, for `codepilot replay`.
    """

    agent: Path | None = None
    directory: Path | None = None
    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    script: Path | None = None
    max_steps: int | None = None
    budget: float | None = None
    permissions: Permissions = "auto"
    session: str | None = None
    record: Path | None = None


def agent_file(options: ChatOptions) -> AgentFile:
    """The settings that the options amount to.

    Raises:
        SettingsError: there is no model to ask, or the agent file does not fit.
    """
    path = options.agent or (AGENT_FILE if AGENT_FILE.is_file() else None)
    if path is not None:
        settings = AgentFile.load(path)
        model = _named(options) or settings.model
    else:
        model = _named(options) or (ModelSettings.named("openai") if options.base_url else ModelSettings.found())
        settings = AgentFile.built_in(Path.cwd(), model=model)
    limits = settings.limits
    return replace(
        settings,
        model=replace(model, name=options.model or model.name).at(options.base_url, key_variable=KEY_VARIABLE),
        fallback=() if model is not settings.model else settings.fallback,
        work_dir=settings.work_dir if options.directory is None else options.directory,
        limits=replace(
            limits,
            max_steps=options.max_steps or limits.max_steps,
            max_cost_usd=options.budget or limits.max_cost_usd,
        ),
        rules=(*_rules(settings, options.permissions),),
    )


def agent(options: ChatOptions, settings: AgentFile | None = None) -> Agent:
    """The agent that the options amount to, ready to work.

    Args:
        options: what somebody asked for.
        settings: `agent_file` of the options, where it was read already.

    Raises:
        SettingsError: as for `agent_file`; or a key is not set, or the session has no place, or one within the
            agent's reach.
        SandboxError: this machine has no sandbox of the kind that is asked for.
    """
    settings = settings or agent_file(options)
    if options.session is not None:
        try:
            home = Path.home()
        except RuntimeError as error:
            raise SettingsError(
                "The session cannot be stored: this user has no home directory. Set HOME, or leave out --session."
            ) from error
        if home.is_relative_to(settings.work_dir):
            raise SettingsError(
                f"The agent would work in {settings.work_dir}, where it could change its own session and the key that "
                "signs approvals (~/.codepilot). Choose a directory below it with --dir, or leave out --session."
            )
    own = Agent.from_file(settings)
    return replace(
        own,
        repository_instructions=read_instructions(settings.work_dir),
        skills={**own.skills, **read_skills(settings.work_dir)},
    )


def _named(options: ChatOptions) -> ModelSettings | None:
    """The model that the command line names, if it names one."""
    if options.script is not None:
        return ModelSettings.named("scripted", options=ModelOptions(script=options.script))
    return None if options.provider is None else ModelSettings.named(options.provider)


def _rules(settings: AgentFile, permissions: Permissions) -> Iterator[Rule]:
    """The file's own rules, and those of the command line; what is denied stays denied."""
    if permissions == "ask":
        yield from (rule for rule in settings.rules if rule.decision == "deny")
        yield from (Rule(decision="ask", tool=tool, reason=_BY_REQUEST) for tool in ("write_file", "execute"))
    yield from settings.rules
    if settings.sandbox == "local":
        yield Rule(decision="ask", tool="execute", reason=_NO_SANDBOX)
