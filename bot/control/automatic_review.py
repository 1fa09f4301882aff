"""Automatic reviews: where they are enabled, and of which commits."""

from __future__ import annotations

from bot.domain.commands import Review
from bot.domain.job import Job
from bot.jobs.context import JobContext
from bot.jobs.repo_settings import lately_on_default_branch
from bot.jobs.resume_base import resume_base
from bot.jobs.snapshot import ThreadSnapshot
from bot.publishing.marker import is_marked


async def early_skip_reason(context: JobContext) -> str:
    """Why the job is a review that neither the repository nor the operator wants; empty for any other job."""
    command = context.job.command
    if not is_unasked_review(context.job) or not isinstance(command, Review) or command.on is None:
        return ""
    config = await lately_on_default_branch(context)
    wanted = config.reviews(command.on, context.services.bounds.review_on)
    return "" if wanted else f"`review_on` in `{config.path}` does not list `{command.on}`."


def is_unasked_review(job: Job) -> bool:
    """Whether a job is a review that nobody gave a command for."""
    return isinstance(job.command, Review) and job.command.on is not None and job.is_unasked


async def review_skip_reason(context: JobContext, here: ThreadSnapshot) -> str:
    """Why a pull request is not to be reviewed now; empty when it is, or when its review is under way."""
    if await resume_base(context) is not None:
        return ""
    pull, head = here.snapshot.pull, here.thread.head_sha
    if pull is not None and pull.draft:
        return "It is a draft again."
    if not context.services.comes_back and context.job.head_sha != head:
        return "It has a newer commit; that push has its own run."
    me = (await context.github.accounts.me()).id
    reviews = await here.reader.reviews(here.repo.full_name, context.job.thread.number)
    done = any(each.author_id == me and each.commit_sha == head and is_marked(each.body) for each in reviews)
    return "This commit has already been reviewed." if done else ""
