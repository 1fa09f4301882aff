"""Makes the agents of jobs, each with a model of its own, from the operator's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_runtime import Agent, AsyncRuntime, McpServer, ModelOptions, Provider, Sandbox, provider_for
from bot.jobs.services import AgentMaker, AgentSpec, Listener
from bot.settings.agent import AgentSettings


def agent_maker(
    settings: AgentSettings,
    provider: Callable[[], Provider] | None,
    sandbox: Sandbox,
    *,
    servers: Mapping[str, McpServer],
    state_key: bytes,
    scrub: Callable[[str], str],
) -> AgentMaker:
    """What makes the agent of each job.

    Args:
        settings: the operator's; they name the model of a job that names none.
        provider: makes every model, in place of those that the settings name.
        sandbox: where commands run.
        servers: the MCP servers that the operator defines, by name.
        state_key: signs runs that wait for a person.
        scrub: takes the bot's secrets out of what is recorded.
    """

    def make(order: AgentSpec, listeners: Sequence[Listener]) -> AsyncRuntime:
        named = replace(settings, model=order.model) if order.model not in {"", "scripted"} else settings
        agent = Agent(
            provider=provider() if provider is not None else model_of(named),
            work_dir=order.work_dir,
            sandbox=sandbox,
            network=order.network,
            policy=order.policy,
            repository_instructions=order.instructions,
            skills=order.skills,
            tools=order.tools,
            chat=False,
            scrub=scrub,
            start_in=order.start_in,
            kept_index=order.kept_index,
            separates_commands=True,
            mcp=tuple(servers[name] for name in order.servers),
            transport=None if settings.model_transport == "auto" else settings.model_transport,
        )
        if order.session is None:
            return AsyncRuntime(agent, listeners=listeners, state_key=state_key)
        return AsyncRuntime(
            agent,
            order.session,
            listeners=listeners,
            state_key=state_key,
            resumable=True,
        )

    return make


def model_of(settings: AgentSettings) -> Provider:
    """The model that the settings name.

    Raises:
        SettingsError: there is no such model service, or it cannot be used as it is set.
    """
    scripted = settings.provider == "scripted"
    return provider_for(
        settings.provider,
        model=None if scripted else settings.model or None,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        base_url=settings.base_url,
        options=ModelOptions(
            silence=settings.model_silence,
            script=Path(settings.model) if scripted else None,
            images=True if settings.pictures == "on" else None,
            key_variable=settings.key_variable,
            cloud=settings.cloud,
        ),
    )
