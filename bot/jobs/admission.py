"""The decision about a job, and the commit, branch and pull request that it works on.

`decide` collects the facts for the one pure function that grants or refuses. An `Assignment` is a granted piece of
work. The rest finds its base: the commit, which stays the same over all attempts of a job; the branch that new pull
requests are for; the bot's own open pull request, in which another fix of an issue continues; a free branch name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from bot.domain.access import Tally, ThreadLabel
from bot.domain.commands import BareCommand, Fix, Undo, Work
from bot.git.change import Change
from bot.git.mirror import Source
from bot.github.types import PullFacts
from bot.jobs import waiting
from bot.jobs.access import ThreadSnapshot, head_of
from bot.jobs.context import JobContext
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import AccessRequest, Grant, Refusal
from bot.permissions.permissions import grant_for, resolve_command
from bot.permissions.repo_config import RepoConfig
from bot.publishing.plan import branch_name, branch_prefix, is_named_by_run
from bot.publishing.publish import SendResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a piece of work begins with.

    Attributes:
        command: what is to be done.
        here: where, as GitHub has it now.
        grant: what it may do.
        asked: what the repository's configuration asks for.
        source: the commit that is worked on.
        output_schema: what the result must fit; None for a result in words.
        closing: why it only ends what an attempt before this began: nothing is published any more; else empty.
    """

    command: Work
    here: ThreadSnapshot
    grant: Grant
    asked: RepoSettings
    source: Source
    closing: str = ""
    output_schema: dict[str, Any] | None = None


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
        heard = who is not None and context.services.bounds.is_allowed_user(who.login)
        role = await here.reader.role_of(here.repo.full_name, who.id, who.login) if who and heard else "none"
        labels.append(
            ThreadLabel(name=name, level=level, labeller=who, role=role, bound_to=grant.bound_to if grant else "")
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


async def resume_base(context: JobContext) -> str | None:
    """The commit that an attempt before this worked on, when it left something to go on with; else None."""
    goes_on = (
        await waiting.asked(context.record) is not None
        or await context.services.work.find(context.job.id, context.record) is not None
        or await asyncio.to_thread(context.services.has_session, context.job)
    )
    return (await context.record.read()).base_sha if goes_on else None


async def pin_base(context: JobContext, grant: Grant) -> Grant:
    """The grant for the commit that the job works on: that of an attempt before this, or from now on the grant's own.

    What one attempt did under a label for that commit follows no other commit in a later one.
    """
    before = await resume_base(context)
    base = before or grant.bound_to_sha
    bound = not grant.replay or (before is not None and (await context.record.read()).bound)
    await context.record.update(lambda record: replace(record, base_sha=base, bound=bound))
    return replace(grant, bound_to_sha=base, replay=not bound)


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
    named = command.options.base if isinstance(command, Work | BareCommand) else None
    return named or context.services.conventions.base or asked.config.base


async def at_base(context: JobContext, here: ThreadSnapshot, base: str | None) -> ThreadSnapshot:
    """An issue's place, at the branch that the repository wants new pull requests to be for."""
    if base is None or context.job.thread.kind != "issue" or isinstance(context.job.command, Undo):
        return here
    sha = await head_of(context.github, here, base)
    return replace(here, thread=replace(here.thread, head_sha=sha, head_ref=base, base_ref=base))


_MOST_BRANCHES = 20


async def continue_own_pull(context: JobContext, here: ThreadSnapshot, config: RepoConfig) -> ThreadSnapshot | Refusal:
    """The place with the ends of the bot's own open pull request, where a fix of an issue has one; else as it is.

    Args:
        context: the job.
        here: the issue, at the branch that new pull requests are for.
        config: the repository's; says what text without a verb means.

    Returns:
        A refusal where the pull request that an earlier attempt went on in is not open any more.
    """
    job = context.job
    command = resolve_command(job.command, kind=job.thread.kind, config=config)
    if job.thread.kind != "issue" or not isinstance(command, Fix) or command.options.new:
        return here
    noted = (await context.record.read()).continues
    if noted is not None and await resume_base(context) is not None:
        return await still_open(context, here, noted)
    # The newest that is open; into `base`, when somebody named one.
    base = command.options.base or context.services.conventions.base or None
    pulls: list[PullFacts] = []
    for branch in (await context.github.repos.branches_named(here.repo.full_name, _prefix(context)))[:_MOST_BRANCHES]:
        pulls += await context.github.pulls.open_from(here.repo.full_name, branch)
    ours = [each for each in pulls if await _is_ours(context, here, each)]
    found = max((each for each in ours if base in {None, each.base_ref}), key=lambda each: each.number, default=None)
    number = found.number if found else 0
    await context.record.update(lambda record: replace(record, continues=number))
    return _at(here, found) if found else here


async def still_open(context: JobContext, here: ThreadSnapshot, number: int) -> ThreadSnapshot | Refusal:
    """The place with the ends that the pull request has now; as it is for the number 0."""
    if not number:
        return here
    pull = await context.github.pulls.get(here.repo.full_name, number)
    if await _is_ours(context, here, pull):
        return _at(here, pull)
    how = "merged" if pull.merged else "closed, or its branch changed,"
    reason = (
        f"#{number} was {how} in the meantime, so the work cannot continue there. Give the command again to open a "
        "new pull request."
    )
    return Refusal(cause="pull-closed", reason=reason)


async def with_own_pull(context: JobContext, here: ThreadSnapshot, delivered: SendResult, change: Change) -> SendResult:
    """What was sent, with the pull request that the job went on in, unless what it changed is not there."""
    link = here.pull_link
    if link is None or delivered.pull_number is not None or (change and delivered.commit_sha is None):
        return delivered
    await context.record.published.update(lambda done: replace(done, pull=link))
    return replace(delivered, pull_number=link.number, pull_url=link.html_url)


async def _is_ours(context: JobContext, here: ThreadSnapshot, pull: PullFacts) -> bool:
    by_us = pull.author_id == (await context.github.accounts.me()).id and context.services.made(pull, context.job)
    here_and_open = pull.state == "open" and pull.head_repo_id == here.repo.id
    return by_us and here_and_open and pull.head_ref.startswith(_prefix(context))


def _prefix(context: JobContext) -> str:
    return branch_prefix(context.job, prefix=context.services.conventions.branch_prefix)


def _at(here: ThreadSnapshot, pull: PullFacts) -> ThreadSnapshot:
    thread = replace(
        here.thread,
        head_sha=pull.head_sha,
        head_ref=pull.head_ref,
        base_ref=pull.base_ref,
        continues=pull.number,
    )
    return replace(here, thread=thread)


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
