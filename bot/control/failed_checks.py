"""Failed checks: whether fixes are enabled, and one job for all failures on a commit."""

from __future__ import annotations

from dataclasses import replace

from bot.control.recipes import start_after_run
from bot.domain.access import may_command
from bot.domain.commands import ChecksFailed, Explain, Fix
from bot.domain.job import TRANSITIONS, Actor, Job, JobState, Origin, Thread
from bot.gate.repo_config import RepoConfig
from bot.intake.asking import job_id
from bot.jobs.context import Ending, JobContext
from bot.jobs.repo_settings import lately_on_default_branch


async def start_ci_fix(context: JobContext, command: ChecksFailed) -> Ending:
    """Begin work on a commit whose checks failed, where the repository or a label asks for it.

    All that fails on one commit comes together: whatever is told while the work waits or is under way begins no other.
    Where nobody asked for it, nobody is told.
    """
    config = await lately_on_default_branch(context)
    await start_after_run(context, command, config)
    thread = await _thread(context, command, config)
    if thread is None:
        return Ending(state=JobState.DONE, reason="fixing failed checks is not enabled here")
    beside = [
        each
        for each in await context.queue.of_thread(context.job.repo.id, thread.key)
        if each.job.origin.kind == "ci" and each.job.head_sha == command.head_sha
    ]
    if any(TRANSITIONS[each.state] for each in beside):
        return Ending(state=JobState.DONE, reason="a job for this commit is already running")
    event, me = context.job, await context.github.accounts.me()
    by_bot = all(who.login.endswith("[bot]") for who in (event.actor, *event.others))
    # Nobody is behind the check of another App, and nobody with rights behind a fork's commit; the repository's own
    # configuration is what lets the bot look. What machines merge into the default branch is there by its rules.
    nobody = not command.run_id or bool(command.fork) or (thread.kind == "branch" and by_bot)
    job = Job(
        id=job_id("ci", event.repo.id, f"{thread.key}:{command.head_sha}:{len(beside)}"),
        delivery_id=f"{event.delivery_id}.ci",
        repo=event.repo,
        thread=thread,
        actor=Actor(id=me.id, login=me.login) if nobody else event.actor,
        origin=Origin(
            kind="ci",
            id=command.run_id,
            at=event.origin.at,
            name=command.name,
            url=command.url,
            conclusion=command.conclusion,
        ),
        # In a fork's pull request it only reads, and nothing but the diagnosis leaves it.
        command=Explain() if command.fork else Fix(),
        installation=event.installation,
        others=() if nobody else event.others,
        trigger=event.trigger,
        head_sha=command.head_sha,
    )
    await context.queue.accept(job)
    await context.record.update(lambda record: replace(record, leads_to=job.id))
    return Ending(state=JobState.DONE)


async def _thread(context: JobContext, command: ChecksFailed, config: RepoConfig) -> Thread | None:
    """Where the work is to be; None where nobody wants any."""
    everywhere = not context.services.checks and "fix_ci" not in config.model_fields_set
    pulls = everywhere or "pull-requests" in config.fix_ci
    if command.fork:
        number = None
        if pulls:
            number = await context.github.pulls.of_fork(
                context.job.repo.full_name,
                fork=command.fork,
                fork_id=command.fork_id,
                branch=command.branch,
                sha=command.head_sha,
            )
        return None if number is None else Thread.numbered("pull", number)
    if command.pull:
        wanted = pulls or await _is_labelled(context, command.pull, config)
        return Thread.numbered("pull", command.pull) if wanted else None
    if not (everywhere or "default-branch" in config.fix_ci):
        return None
    return Thread.of_branch(command.branch)


async def _is_labelled(context: JobContext, number: int, config: RepoConfig) -> bool:
    """Whether the label that asks for it is set, by somebody who may ask for work."""
    repo = context.job.repo
    kept = [each for each in await context.ledger.labels(repo.id, number) if config.labels.is_fix_ci(each.name)]
    if not kept:
        return False
    standing = (await context.github.threads.get(repo.full_name, number)).labels
    if not any(map(config.labels.is_fix_ci, standing)):
        return False
    who = kept[0].labeller
    return context.services.bounds.hears(who.login) and may_command(
        await context.github.accounts.role_of(repo.full_name, who.id, who.login)
    )
