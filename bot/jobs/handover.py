"""Waiting jobs between workflow runs: saved as a sealed artifact, resumed by the run that the answer starts.

GitHub keeps what has to be known of it: the artifact, and the status comment, which stands as the run left it for as
long as nobody has answered. The answering run changes the comment before any work, so an artifact is good for one
answer. Anybody may have made an artifact, so it is unpacked in a worker process.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

from agent_runtime import BoundExceededError, run_bounded
from bot.domain.commands import Approve, Continue, Deny, Retry, Steering
from bot.domain.job import Job, JobState
from bot.git.tree import CarriedChanges
from bot.github.client import GitHub
from bot.github.downloads import LogError, save_log
from bot.github.types import ArtifactFacts, CommentFacts, GitHubError, Spot
from bot.jobs import waiting
from bot.jobs.access import ThreadSnapshot
from bot.jobs.context import Ending, Handover, JobContext, spot_of
from bot.jobs.steering import steer
from bot.jobs.storage import MAX_SEALED_BYTES, SavedJob, SealError, digest_of, seal, unseal
from bot.permissions.levels import Refusal
from bot.publishing.markdown import code
from bot.queue.records import CommentRecord, decode_record, encode_record

log = logging.getLogger(__name__)
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
    handover, asked = context.services.handover, await waiting.awaited(context.record)
    record = await context.record.read()
    found = await comment_of(context.github, context.job, record.comment)
    if handover is None or asked is None or found is None:
        raise SealError(_UNASKED)
    if record.result is None:
        # The files stay until the job is saved: one that cannot be saved continues in them.
        async with context.services.workspaces.reopen(context.job.id, keep=lambda: True) as tree:
            patch, work = None, await tree.read_carried()
    else:
        patch, work = await asyncio.to_thread(context.services.work.whole, context.job.id), CarriedChanges()
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


def _write(folder: Path, sealed: bytes) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / SESSION_FILE
    path.write_bytes(sealed)
    return path


async def comment_of(github: GitHub, job: Job, comment: CommentRecord) -> tuple[Spot, CommentFacts] | None:
    """A job's status comment as it is now, and where it is; None when it is gone."""
    if comment.posted is None:
        return None
    spot = Spot(kind="thread", number=job.thread.number) if comment.below else spot_of(job)
    found = await github.comments.get(job.repo.full_name, spot, comment.posted.id)
    return None if found is None else (spot, found)


_MOST_LISTED = 100
_MOST_READ = 20
_ZIP_BYTES = MAX_SEALED_BYTES + 1024 * 1024
_SECONDS = 120.0
_EXPIRED_SECONDS = 600.0
_AGAIN = "Give the original command again."
_ANSWERED = "That request was already answered, or its run has ended."


async def handle_steering(context: JobContext, command: Steering, here: ThreadSnapshot) -> Ending:
    """Do what someone with the right to command asks, of jobs that earlier workflow runs have left waiting, too.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
    """
    handover = context.services.handover
    if handover is None or isinstance(command, Retry):
        return await steer(context, command, here)
    why = await _fetch(context, here, handover)
    if why and isinstance(command, (Approve, Deny, Continue)):
        return await context.refuse(Refusal(reason=why, cause="no-saved-job"))
    ending = await steer(context, command, here)
    for stored in await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key):
        saved = handover.saved.get(stored.job.id)
        if saved is None or stored.state is not JobState.QUEUED or saved.job.id in handover.claimed:
            continue
        mark = context.services.marker(saved.job)
        said = f"▶️ Answered. [This workflow run]({context.services.run_url}) continues the work.\n\n{mark}"
        # The comment is to say that somebody has answered, unless it does not wait for that any more. An attempt before
        # this one may have said so, and not have been told that GitHub took it.
        found = await _waiting_comment(context, saved, said)
        if found is None:
            await context.queue.cancel(stored.job.id, JobState.STOPPED, _ANSWERED)
            return await context.refuse(Refusal(reason=_ANSWERED, cause="answered"))
        await context.github.comments.edit(saved.job.repo.full_name, found[0], found[1].id, said)
        handover.claimed.add(saved.job.id)
    return ending


async def _waiting_comment(context: JobContext, saved: SavedJob, said: str = "") -> tuple[Spot, CommentFacts] | None:
    """The job's status comment, if it still stands as the run has left it, or `said` it: nobody else has answered."""
    found = await comment_of(context.github, saved.job, decode_record(saved.record).comment)
    return found if found is not None and (digest_of(found[1].body) == saved.comment or found[1].body == said) else None


async def _fetch(context: JobContext, here: ThreadSnapshot, handover: Handover) -> str:
    """Put the jobs that wait in a thread into the queue; why there is none, in a sentence or two, or nothing."""
    repo, name = here.repo, handover.name_for(context.job)
    try:
        found = await context.github.runs.artifacts(repo.full_name, name, _MOST_LISTED)
    except GitHubError as error:
        if not error.lacks_permission:
            raise
        return (
            "The workflow's token cannot read artifacts, so the waiting run cannot resume. Add `actions: read` "
            "to the `permissions:` of its job, and answer again."
        )
    # A fork's pull request can keep an artifact of any name here.
    own = [each for each in found if each.head_repo_id == repo.id and each.size <= _ZIP_BYTES]
    kept = sorted((each for each in own if not each.expired), key=lambda each: each.id, reverse=True)
    known, unfit = set(handover.saved), ""
    for each in kept[:_MOST_READ]:
        try:
            saved = await _opened(context, here, handover, each)
        except (SealError, LogError, ValueError, BoundExceededError) as error:
            log.warning("artifact %d, %s, is not used: %s", each.id, name, error)
            unfit = (
                f"The artifact {code(name)} cannot be used: {str(error).rstrip('.')}. A waiting run is lost if "
                f"the input `session-key` or the model service's key changes. {_AGAIN}"
            )
            continue
        if saved.job.id not in known and await _waiting_comment(context, saved):
            known.add(saved.job.id)
            await asyncio.to_thread(handover.sessions.put, saved.job.id, saved.session)
            if saved.patch is not None:
                await asyncio.to_thread(context.services.work.put, saved.job.id, saved.patch)
            handover.saved[saved.job.id] = saved
            # One that has expired is reported when it is answered.
            until = max(saved.until, time.time() + _EXPIRED_SECONDS)
            await context.queue.restore(saved.job, decode_record(saved.record), until=until)
    if known:
        return ""
    if not own:
        return (
            f"There is no waiting run to resume: no run has stored an artifact {code(name)}. If the run "
            f"that asked is still in progress, answer again when it has ended. Otherwise: {_AGAIN}"
        )
    if not kept:
        return f"The artifact {code(name)} of the waiting run has expired. {_AGAIN}"
    return unfit or _ANSWERED


async def _opened(context: JobContext, here: ThreadSnapshot, handover: Handover, artifact: ArtifactFacts) -> SavedJob:
    """Download the job in an artifact.

    Raises:
        SealError: this repository's workflow has not kept it.
        LogError, ValueError, BoundExceededError: it cannot be read.
    """
    address = await context.github.runs.artifact_url(here.repo.full_name, artifact.id)
    with tempfile.TemporaryDirectory(prefix="codepilot-artifact-") as folder:
        file = Path(folder, "artifact.zip")
        ca_file = context.services.ca_file
        await save_log(address, file, most=_ZIP_BYTES, tail=0, seconds=_SECONDS, plain=handover.plain, ca_file=ca_file)
        sealed = await run_bounded(
            member_of, str(file), SESSION_FILE, MAX_SEALED_BYTES, seconds=_SECONDS, task="Reading the artifact"
        )
    return await asyncio.to_thread(unseal, sealed, handover.key, repo_id=here.repo.id, thread=context.job.thread.key)


_MOST_ENTRIES = 100


def member_of(path: str, name: str, most: int) -> bytes:
    """What a zip file holds under a name; nothing is unpacked to the disk, and no more than `most` bytes at all.

    Args:
        path: the zip file.
        name: of the member, exactly.
        most: bytes that it may have.

    Raises:
        ValueError: it is no such zip file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > _MOST_ENTRIES:
                raise ValueError(f"it has more than {_MOST_ENTRIES} files")
            with archive.open(name) as member:
                content = member.read(most + 1)
    except KeyError as error:
        raise ValueError(f"it has no file {name}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError("it is not a readable zip file") from error
    if len(content) > most:
        raise ValueError(f"its file has more than {most:,} bytes")
    return content
