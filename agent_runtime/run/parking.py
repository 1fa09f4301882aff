"""Wait for a model service that is down, and save the run when that takes too long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from agent_runtime.agent.agent import Agent
from agent_runtime.context.conversation import Conversation
from agent_runtime.core.errors import ModelOutageError
from agent_runtime.core.events import Event, ModelAwaited, Parked, Recorded, Recovered, ReplyBroken
from agent_runtime.prompts import notes
from agent_runtime.run.outage import PatientProvider, Waits
from agent_runtime.run.toolbox import Toolbox


def patient(
    agent: Agent,
    conversation: Conversation,
    *,
    record: Callable[[Recorded], None],
    emit: Callable[[Event], None],
    untimed: Callable[[], AbstractContextManager[None]],
) -> PatientProvider:
    """An agent's model, waited for when it is down; what its broken replies cost is recorded.

    Args:
        agent: who works.
        conversation: estimates that cost.
        record: appends an event to the session and tells watchers.
        emit: tells watchers only.
        untimed: while this is entered, the run's clock stands still.
    """
    world, seconds = agent.clock_and_random, agent.policy.limits.outage_seconds
    return PatientProvider(
        agent.provider,
        Waits(seconds=seconds, sleep=world.sleep, token=world.token, untimed=untimed),
        tell=lambda reason, pause: emit(ModelAwaited(reason=reason, seconds=pause)),
        charge=lambda reason, usage: record(ReplyBroken(reason=reason, usage=usage)),
        spent=conversation.spent,
    )


def parked(error: ModelOutageError, toolbox: Toolbox, seconds: float) -> Parked:
    """Where a run stands that waits for the model service; it has used `seconds`."""
    return Parked(
        reason=str(error),
        retry_after=error.retry_after,
        seconds=seconds,
        files={**toolbox.files.tracked()},
        terminals=tuple(toolbox.terminals),
    )


def unpark(event: Parked, toolbox: Toolbox) -> Recovered | None:
    """Give the tools back what they knew; what the model should know of the break, if anything was lost in it."""
    toolbox.files.restore(event.files)
    dead = [name for name in event.terminals if name not in toolbox.terminals]
    return Recovered(text=notes.terminals_died(dead)) if dead else None
