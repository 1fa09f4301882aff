"""Makes the agents of jobs, each with a model of its own, from the operator's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent_runtime import Agent, AsyncRuntime, ModelOptions, Network, Policy, Provider, Sandbox, provider_for
from bot.config import AgentSettings
from bot.jobs.house import AgentMaker, Listener

_TOOLS = (
    "read_file",
    "write_file",
    "list_files",
    "find",
    "execute",
    "read_output",
    "send_input",
    "terminate_terminal",
)
"""What the bot's agent has: nobody sits there to be asked, and a job is one task, which leaves nothing to archive."""


def agent_maker(make_provider: Callable[[], Provider], sandbox: Sandbox) -> AgentMaker:
    """What makes the agent of each job.

    Args:
        make_provider: makes the model of a run.
        sandbox: where commands run.
    """

    def make(
        work_dir: Path,
        policy: Policy,
        listeners: Sequence[Listener],
        *,
        network: Network,
        instructions: Mapping[str, str],
    ) -> AsyncRuntime:
        agent = Agent(
            provider=make_provider(),
            work_dir=work_dir,
            sandbox=sandbox,
            network=network,
            policy=policy,
            repository_instructions=instructions,
            tools=_TOOLS,
            chat=False,
        )
        return AsyncRuntime(agent, listeners=listeners)

    return make


def model_of(settings: AgentSettings) -> Provider:
    """The model that the settings name.

    Raises:
        SettingsError: there is no such model service, or it cannot be used as it is set.
    """
    scripted = settings.provider == "scripted"
    return provider_for(
        settings.provider,
        model=None if scripted else settings.model,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        base_url=settings.base_url,
        options=ModelOptions(script=Path(settings.model) if scripted else None),
    )
