"""Decide what a job may do: collect the facts, and ask the one function that decides."""

from __future__ import annotations

from bot.domain.access import SetLabel, Tally
from bot.gate.decision import AccessRequest, Grant, Refusal
from bot.gate.permissions import grant_for
from bot.gate.repo_config import RepoConfig
from bot.jobs.context import JobContext
from bot.jobs.snapshot import ThreadSnapshot


async def decide(
    context: JobContext, here: ThreadSnapshot | Refusal, config: RepoConfig, *, again: bool = False
) -> Grant | Refusal:
    """What the job may do in this place, under this configuration.

    Args:
        context: the job.
        here: its place now, or why it has none.
        config: what the repository asks for.
        again: whether the work is under way already, so that it counts against no cap any more.
    """
    if isinstance(here, Refusal):
        return here
    # The permission labels that stand on the thread, each with who set it, and what they may do now.
    kept = {label.name.casefold(): label for label in await context.ledger.labels(here.repo.id, context.job.thread.key)}
    labels = []
    for name in here.labels:
        level = config.labels.level_of(name)
        if level is None:
            continue
        grant = kept.get(name.casefold())
        who = grant.labeller if grant else None
        heard = who is not None and context.services.bounds.hears(who.login)
        role = await here.reader.role_of(here.repo.full_name, who.id, who.login) if who and heard else "none"
        labels.append(
            SetLabel(name=name, level=level, labeller=who, role=role, bound_to=grant.bound_to if grant else "")
        )
    return grant_for(
        AccessRequest(
            job=context.job,
            command=context.job.command,
            roles=here.roles,
            facts=here.thread,
            labels=tuple(labels),
            config=config,
            bounds=context.services.bounds,
            tally=Tally() if again else await context.ledger.tally(context.job),
        )
    )
