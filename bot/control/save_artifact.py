"""Saves a job that waits for a person as one sealed file, for the workflow run that the answer starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.domain.job import Job
from bot.engine.job_record import CommentRecord, encode_record
from bot.github import CommentFacts, GitHub, Spot
from bot.jobs import approvals
from bot.jobs.context import JobContext, spot_of
from bot.jobs.sealed_state import SavedJob, SealError, digest_of, seal
from bot.workspace.carrying import Carried

SESSION_FILE = "session.codepilot"
"""What the file is called in its artifact."""

_MOST_SESSION_BYTES = 64 * 1024 * 1024
_UNASKED = "The comment with the request has been deleted."


async def save(context: JobContext) -> Path:
    """Write a waiting job to a file, and give back where.

    Raises:
        SealError: it is too large, or nobody can see what it waits for.
        WorkspaceError: its files cannot be kept.
        GitHubError: the comment could not be read.
    """
    handover, asked = context.services.handover, await approvals.awaited(context.record)
    record = await context.record.read()
    found = await comment_of(context.github, context.job, record.comment)
    if handover is None or asked is None or found is None:
        raise SealError(_UNASKED)
    if record.result is None:
        # The files stay until the job is saved: one that cannot be saved continues in them.
        async with context.services.workspaces.reopen(context.job.id, keep=lambda: True) as tree:
            patch, work = None, await tree.carried()
    else:
        patch, work = await asyncio.to_thread(context.services.work.whole, context.job.id), Carried()
    session = await asyncio.to_thread(handover.sessions.files, context.job.id, most=_MOST_SESSION_BYTES)
    if session is None:
        raise SealError("The run's conversation is too long to be stored between two workflow runs.")
    saved = SavedJob(
        job=context.job,
        request_id=asked.request_id,
        until=asked.until,
        record=encode_record(record),
        session=session,
        patch=patch,
        work=work,
        comment=digest_of(found[1].body),
    )
    sealed = await asyncio.to_thread(seal, saved, handover.key)
    path = await asyncio.to_thread(_write, handover.folder / context.job.id, sealed)
    await context.services.workspaces.discard(context.job.id)
    await asyncio.to_thread(context.services.forget_session, context.job)
    return path


async def comment_of(github: GitHub, job: Job, comment: CommentRecord) -> tuple[Spot, CommentFacts] | None:
    """A job's status comment as it is now, and where it is; None when it is gone."""
    if comment.posted is None:
        return None
    spot = Spot(kind="thread", number=job.thread.number) if comment.below else spot_of(job)
    found = await github.comments.get(job.repo.full_name, spot, comment.posted.id)
    return None if found is None else (spot, found)


def _write(folder: Path, sealed: bytes) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / SESSION_FILE
    path.write_bytes(sealed)
    return path
