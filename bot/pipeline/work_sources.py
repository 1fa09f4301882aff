"""Find the commits that a job works on and compares its work with."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.commands import Bare, Undo, Work
from bot.jobs.context import JobContext
from bot.jobs.setup import RepoSettings
from bot.jobs.snapshot import ThreadSnapshot, head_of
from bot.workspace import Source


async def work_source(context: JobContext, here: ThreadSnapshot) -> Source:
    """The commit to work on; of a run that waits or is to be published, the one that it began on."""
    thread = context.job.thread
    ref = f"refs/pull/{thread.number}/head" if thread.kind == "pull" else f"refs/heads/{here.thread.head_ref}"
    token = await context.github.tokens.for_clone(here.repo.full_name)
    return Source(url=here.repo.clone_url, token=token, ref=ref, sha=here.thread.head_sha)


async def base_of(context: JobContext, here: ThreadSnapshot, source: Source) -> Source:
    """The base branch's commit as it is now; other work than a pull request's begins at that very commit."""
    if context.job.thread.kind != "pull":
        return source
    branch = here.thread.base_ref
    return replace(source, ref=f"refs/heads/{branch}", sha=await head_of(context.github, here, branch))


def wanted_base(context: JobContext, asked: RepoSettings) -> str | None:
    """The branch that new pull requests are for; None for the usual one."""
    command = context.job.command
    if context.job.thread.kind == "branch":  # it is for that branch, whatever the file wants for issues
        return None
    named = command.options.base if isinstance(command, Work | Bare) else None
    return named or context.services.conventions.base or asked.config.base


async def at_base(context: JobContext, here: ThreadSnapshot, base: str | None) -> ThreadSnapshot:
    """An issue's place, at the branch that the repository wants new pull requests to be for."""
    if base is None or context.job.thread.kind != "issue" or isinstance(context.job.command, Undo):
        return here
    sha = await head_of(context.github, here, base)
    return replace(here, thread=replace(here.thread, head_sha=sha, head_ref=base, base_ref=base))
