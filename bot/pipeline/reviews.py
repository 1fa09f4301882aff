"""The review that a run came to: read from its completion, and sent."""

from __future__ import annotations

import asyncio

from agent_runtime import Outcome
from bot.github import ReviewDraft
from bot.jobs.assignment import Assignment
from bot.jobs.context import JobContext
from bot.jobs.snapshot import ThreadSnapshot
from bot.pipeline.material import pull_diff
from bot.publishing.publish import Delivered
from bot.publishing.review import parse_review, words_of
from bot.publishing.reviewing import ReviewPlace, publish_review

_WHOLE_DIFF = 2_000_000


async def read_review(context: JobContext, begun: Assignment, outcome: Outcome) -> ReviewDraft:
    """The review that the agent wrote, as far as GitHub takes it."""
    diff = await pull_diff(context, begun, limit=_WHOLE_DIFF)
    me = (await context.github.accounts.me()).id
    earlier = await context.github.reviews.line_comments(begun.here.repo.full_name, context.job.thread.number)
    said = {words_of(each.path, each.comment.body) for each in earlier if each.comment.author_id == me}
    return await asyncio.to_thread(
        parse_review,
        outcome.summary or "",
        diff,
        context.services.allowed(context.job),
        commit_sha=begun.grant.bound_to_sha,
        earlier=said,
    )


async def send_review(context: JobContext, begun: Assignment, here: ThreadSnapshot, review: ReviewDraft) -> Delivered:
    """Send it, once however often this is started again."""
    place = ReviewPlace(repo=here.repo.full_name, number=context.job.thread.number, marker=context.marker)
    return await publish_review(
        context.github, context.record.published, review, place=place, dry_run=begun.grant.dry_run
    )
