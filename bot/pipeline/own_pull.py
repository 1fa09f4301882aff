"""The bot's open pull request for an issue: another fix continues in it."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.commands import Fix
from bot.gate.decision import Refusal
from bot.gate.permissions import resolved
from bot.gate.repo_config import RepoConfig
from bot.github import PullFacts
from bot.jobs.context import JobContext
from bot.jobs.resume_base import resume_base
from bot.jobs.snapshot import ThreadSnapshot
from bot.publishing.publish import Delivered
from bot.publishing.wording import branch_prefix
from bot.workspace.change import Change

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
    command = resolved(job.command, kind=job.thread.kind, config=config)
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


async def with_own_pull(context: JobContext, here: ThreadSnapshot, delivered: Delivered, change: Change) -> Delivered:
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
