"""Work that nobody asked for: a workflow's run that went red."""

from __future__ import annotations

from bot.gate.caps import RedRun, red_run_refusal
from bot.github import GitHubError
from bot.jobs.case import Case
from bot.jobs.configuration import on_default_branch
from bot.jobs.look import Here

_OWN = "codepilot/"
_LINEAGE = 10


async def unwanted(case: Case, here: Here) -> str:
    """Why this is left alone; empty when the repository's default branch wants it."""
    config = await on_default_branch(case.github, here.repo.full_name)
    if case.job.head_sha != here.thread.head_sha:
        return "The pull request has moved on since that run."
    try:
        red_on_base = await case.github.red_on_base(here.repo.full_name, case.job.origin.id, here.thread.base_ref)
    except GitHubError as error:
        if error.passing:
            raise
        red_on_base = None
    own = here.thread.head_ref.startswith(_OWN)
    run = RedRun(attempts=await _attempts(case), own_branch=own, red_on_base=red_on_base)
    refusal = red_run_refusal(run, config)
    return refusal.reason if refusal else ""


async def _attempts(case: Case) -> int:
    """How often CI has started work on this commit, or on one that the bot made it from."""
    jobs = [each.job for each in await case.queue.of_thread(case.job.repo.id, case.job.thread.key)]
    made = {(await case.of(job).recall("commit") or "").partition(" ")[0]: job for job in jobs if job.id != case.job.id}
    count, head = 0, case.job.head_sha
    for _ in range(_LINEAGE):
        count += sum(job.origin.kind == "ci" and job.head_sha == head and job.id != case.job.id for job in jobs)
        before = made.get(head)
        if before is None or before.origin.kind != "ci":
            break
        head = before.head_sha
    return count
