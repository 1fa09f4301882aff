"""Which of the branches that fix one workflow run is this job's: each attempt has its own, and no other is touched."""

from __future__ import annotations

from itertools import count

from bot.jobs.context import Case
from bot.publishing.wording import branch_name, is_named_by_run

_FACT = "branch-number"


async def branch_number(case: Case, repo: str) -> int:
    """The number for `branch_name`: the first one that is free, and then always the same.

    Args:
        case: the job.
        repo: `owner/name`, as GitHub has it now.
    """
    if not is_named_by_run(case.job):
        return 1
    noted = await case.memory.recall(_FACT)
    if noted is not None:
        return int(noted)
    prefix = case.house.conventions.branch_prefix
    taken = set(await case.github.branches_named(repo, branch_name(case.job, prefix=prefix)))
    for number in count(1):
        names = {branch_name(case.job, prefix=prefix, number=number, unfinished=wip) for wip in (False, True)}
        if taken.isdisjoint(names):
            break
    # Kept before anything is sent, so that an attempt which is cut off finds what it made.
    await case.memory.remember(_FACT, str(number))
    return number
