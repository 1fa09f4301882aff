"""Show whole what is too long for a job's own comment, in comments of its own, before anybody is asked about it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bot.jobs.context import JobContext
from bot.publishing.render import render_part
from bot.publishing.showing import parts_of
from bot.publishing.view import StatusView
from bot.reporting.status_comment import further_comment


async def show_parts(context: JobContext, view: StatusView) -> tuple[str, ...]:
    """Show what waits in as many comments as it takes, once however often a worker dies; their pages.

    Without a thread there are none, and then nobody is asked.

    Args:
        context: the job.
        view: its status, with what waits.

    Raises:
        GitHubError: GitHub refused or stayed silent; nobody is asked then.
    """
    pending = view.pending
    if pending is None or not context.job.thread.has_comments:
        return ()
    texts = parts_of(pending.preview)
    counted = replace(pending, parts=("",) * len(texts))
    places = []
    for number, text in enumerate(texts, 1):
        name = f"part {pending.request_id} {number}"
        part = context.record.part(name)
        if (await part.read()).posted is None:
            comment = further_comment(context, name)
            shown = replace(view, pending=counted, marker=comment.marker)
            await comment.put(await asyncio.to_thread(render_part, shown, number, text))
        posted = (await part.read()).posted
        places.append(posted.url if posted is not None else "")
    return tuple(places)
