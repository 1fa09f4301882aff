"""Makes the agents of jobs, each with a model of its own, from the operator's settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from agent_runtime import Agent, AsyncRuntime, ModelOptions, Provider, Sandbox, provider_for
from bot.jobs.services import AgentMaker, AgentSpec, Listener
from bot.settings.agent import AgentSettings

Models = Callable[[str], Provider]
"""From the name of a model to the model; the empty name is the operator's own."""


def agent_maker(
    make_provider: Models,
    sandbox: Sandbox,
    *,
    state_key: bytes,
    scrub: Callable[[str], str],
    transport: Literal["blocks", "tools"] | None = None,
) -> AgentMaker:
    """What makes the agent of each job.

    Args:
        make_provider: makes the model of a run.
        sandbox: where commands run.
        state_key: signs runs that wait for a person.
        scrub: takes the bot's secrets out of what is recorded.
        transport: how models call tools; None for what suits each.
    """

    def make(order: AgentSpec, listeners: Sequence[Listener]) -> AsyncRuntime:
        agent = Agent(
            provider=make_provider(order.model),
            work_dir=order.work_dir,
            sandbox=sandbox,
            network=order.network,
            policy=order.policy,
            repository_instructions=order.instructions,
            tools=order.tools,
            chat=False,
            scrub=scrub,
            start_in=order.start_in,
            kept_index=order.kept_index,
            transport=transport,
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


def models(settings: AgentSettings, provider: Callable[[], Provider] | None = None) -> Models:
    """What makes the model of each run.

    Args:
        settings: the operator's.
        provider: makes every model, in place of those that the settings name.
    """
    if provider is not None:
        return lambda _name: provider()
    return lambda name: model_of(replace(settings, model=name) if name not in {"", "scripted"} else settings)


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
        ),
    )
