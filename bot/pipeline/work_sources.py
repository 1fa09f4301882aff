"""Which commits a job works on, and compares its work with."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.commands import Bare, Undo, Work
from bot.jobs.context import Case
from bot.jobs.setup import Asked
from bot.jobs.snapshot import Here, head_of
from bot.workspace import Source


async def source_of(case: Case, here: Here) -> Source:
    """The commit to work on; of a run that waits or is to be published, the one that it began on."""
    thread = case.job.thread
    ref = f"refs/pull/{thread.number}/head" if thread.kind == "pull" else f"refs/heads/{here.thread.head_ref}"
    token = await case.github.clone_token(here.repo.full_name)
    return Source(url=here.repo.clone_url, token=token, ref=ref, sha=here.thread.head_sha)


async def base_of(case: Case, here: Here, source: Source) -> Source:
    """The base branch's commit as it is now; other work than a pull request's begins at that very commit."""
    if case.job.thread.kind != "pull":
        return source
    branch = here.thread.base_ref
    return replace(source, ref=f"refs/heads/{branch}", sha=await head_of(case.github, here, branch))


def wanted_base(case: Case, asked: Asked) -> str | None:
    """The branch that new pull requests are for; None for the usual one."""
    command = case.job.command
    if case.job.thread.kind == "branch":  # it is for that branch, whatever the file wants for issues
        return None
    named = command.options.base if isinstance(command, Work | Bare) else None
    return named or case.house.conventions.base or asked.config.base


async def at_base(case: Case, here: Here, base: str | None) -> Here:
    """An issue's place, at the branch that the repository wants new pull requests to be for."""
    if base is None or case.job.thread.kind != "issue" or isinstance(case.job.command, Undo):
        return here
    sha = await head_of(case.github, here, base)
    return replace(here, thread=replace(here.thread, head_sha=sha, head_ref=base, base_ref=base))
