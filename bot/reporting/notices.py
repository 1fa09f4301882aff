"""Mention the person who asked in a short comment, once for each event: GitHub notifies nobody of an edit."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from bot.domain.job import JobState
from bot.gate.repo_keys import Notify
from bot.jobs.context import Ending, JobContext
from bot.publishing.render import render_notice
from bot.publishing.text import code, duration
from bot.publishing.view import StatusView
from bot.reporting.status_comment import further_comment

LONG_SECONDS = 120.0
"""Who waits for less than this most likely still looks at the page."""
_ENDED = {JobState.DONE: "has finished", JobState.FAILED: "has failed"}


def notice_of(ending: Ending, wanted: tuple[Notify, ...]) -> str:
    """The words for the asker about an ending, or about a run that begins to wait for a person; empty for nothing.

    Args:
        ending: how the job ended, or what it waits for.
        wanted: what the repository wants people to be told.
    """
    view = ending.view
    if not isinstance(view, StatusView) or not view.allowed.login:
        return ""
    if ending.state is JobState.WAITING:
        until = datetime.fromtimestamp(ending.until, UTC)
        told = f"{code(view.asked)} is waiting for an answer until {until.day} {until:%B, %H:%M} UTC"
        return told if "waiting" in wanted and ending.request_id else ""
    if "done" not in wanted or ending.state not in _ENDED or view.seconds <= LONG_SECONDS:
        return ""
    return f"{code(view.asked)} {_ENDED[ending.state]} after {duration(view.seconds)}"


async def notify(context: JobContext, event: str, text: str) -> None:
    """Say it in a comment of its own, once however often a worker dies; nothing without a text, or a thread.

    Args:
        context: the job.
        event: names the event among all of this job; letters, digits, `-` and `_`.
        text: from `notice_of`.

    Raises:
        GitHubError: GitHub refused or stayed silent.
    """
    job, name = context.job, f"notice {event}"
    record = await context.record.read()
    if not text or not job.thread.has_comments or (name in record.parts and record.parts[name].posted is not None):
        return
    url = record.comment.posted.url if record.comment.posted is not None else ""
    comment, allowed = further_comment(context, name), context.services.allowed(job)
    await comment.put(await asyncio.to_thread(render_notice, text, allowed, url=url, marker=comment.marker))
