"""Schedule the next attempt of a job that waits for a model service; kept with the job."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from agent_runtime import Outcome
from bot.engine.job_record import Outage, StoredRecord
from bot.publishing.text import duration

FIRST_PAUSE = 120.0
LONGEST_PAUSE = 1800.0


async def last_outage(record: StoredRecord) -> Outage | None:
    """The outage that a job has met last, if it ever met one."""
    return (await record.read()).outage


async def is_waited_out(record: StoredRecord, until: float | None) -> bool:
    """Whether a job that waits until `until` waits for the model service, and not for a person."""
    outage = await last_outage(record)
    return outage is not None and outage.until == until


async def wait_out(
    record: StoredRecord, outcome: Outcome, *, patience: float, chance: Callable[[], float] = random.random
) -> Outage | None:
    """Keep that a job waits for the model service; None when it has waited for as long as it may.

    Args:
        record: the job's.
        outcome: of its run, which is `model_unavailable`.
        patience: seconds for which one outage is waited for.
        chance: a number in [0, 1) to spread the tries of many jobs by.
    """
    now, last = time.time(), await last_outage(record)
    same = last is not None and last.steps == outcome.steps
    since, tries = (last.since, last.tries) if last is not None and same else (now, 0)
    pause = min(FIRST_PAUSE * 2.0**tries, LONGEST_PAUSE) * (0.75 + chance() / 2)
    outage = Outage(
        since=since, tries=tries + 1, steps=outcome.steps, until=now + max(pause, outcome.retry_after or 0.0)
    )
    if outage.until - since > patience:
        return None
    await record.update(lambda kept: replace(kept, outage=outage))
    return outage


def told(outage: Outage, reason: str, *, patience: float) -> str:
    """What is said of a job that waits for the model service."""
    until, last = _clock(outage.until), _clock(outage.since + patience)
    return (
        f"The model service is unavailable: {reason}\n\nThe work so far is kept. The job continues automatically: it "
        f"retries at {until}, and until {last} at the latest. `stop` ends it."
    )


def given_up(outcome: Outcome, patience: float) -> str:
    """Why a job ends that met an outage of the model service."""
    most = f"`CODEPILOT_MODEL_PATIENCE` allows ({duration(patience)})"
    return f"{outcome.reason or ''} Waiting for it would take longer than {most}.".strip()


def _clock(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%H:%M} UTC on {when.day} {when:%B}"
