"""Number the branches that fix one workflow run: each attempt has its own, and no other is touched."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from bot.jobs.context import JobContext
from bot.publishing.wording import branch_name, is_named_by_run


async def branch_number(context: JobContext, repo: str) -> int:
    """The number for `branch_name`: the first one that is free, and then always the same.

    Args:
        context: the job.
        repo: `owner/name`, as GitHub has it now.
    """
    if not is_named_by_run(context.job):
        return 1
    noted = (await context.record.read()).branch_number
    if noted is not None:
        return noted
    prefix = context.services.conventions.branch_prefix
    taken = set(await context.github.repos.branches_named(repo, branch_name(context.job, prefix=prefix)))
    for number in count(1):
        names = {branch_name(context.job, prefix=prefix, number=number, unfinished=wip) for wip in (False, True)}
        if taken.isdisjoint(names):
            break
    # Kept before anything is sent, so that an attempt which is cut off finds what it made.
    await context.record.update(lambda record: replace(record, branch_number=number))
    return number
