"""Carry jobs from one workflow run to another.

A waiting job is saved as an encrypted artifact, and resumed in the workflow run that an answer starts. Other commands
find the jobs of earlier runs in the stamps of status comments (`stamps.py`); `stop` cancels their runs.

The status comment proves that no answer was processed: it must be unchanged since the save. Artifacts can come from
anyone, so a worker process unpacks them.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

from agent_runtime import BoundExceededError, run_bounded
from bot.domain.commands import Approve, Continue, Deny, Retry, Steering, Stop
from bot.domain.job import LIVE_STATES, JobState
from bot.git.tree import CarriedChanges
from bot.github.downloads import LogError, save_log
from bot.github.types import BODY_LIMIT, ArtifactFacts, CommentFacts, CommentTarget, GitHubError
from bot.jobs import reports
from bot.jobs.access import ThreadSnapshot
from bot.jobs.context import JobContext, WorkflowResume
from bot.jobs.posts import locate_comment
from bot.jobs.record import decode_record, encode_record
from bot.jobs.stamps import Stamp, Stamps
from bot.jobs.steering import find_plan, steer
from bot.jobs.storage import MAX_SEALED_BYTES, SavedJob, SealError, comment_digest, seal, unseal
from bot.permissions.levels import Refusal
from bot.publishing.markdown import code
from bot.publishing.outcome import Failed, Finished, JobOutcome, Stopped

log = logging.getLogger(__name__)
SESSION_FILE = "session.codepilot"
_MAX_SESSION_BYTES = 64 * 1024 * 1024
_NO_REQUEST = "The comment with the request has been deleted."


async def save(context: JobContext) -> Path:
    """Save a waiting job to a file.

    Raises:
        SealError: it is too large, or its request is not visible.
        WorkspaceError: its files cannot be stored.
    """
    handover, record = context.services.handover, await context.record.read()
    request = record.approvals.open_request
    located = await locate_comment(context.github, context.job, record.comment)
    if handover is None or request is None or located is None:
        raise SealError(_NO_REQUEST)
    if record.result is None:
        # The files stay until the job is saved: one that cannot be saved continues in them.
        async with context.services.workspaces.reopen(context.job.id, keep=lambda: True) as tree:
            patch, work = None, await tree.read_carried()
    else:
        patch, work = await asyncio.to_thread(context.services.work.read, context.job.id), CarriedChanges()
    session = await asyncio.to_thread(handover.sessions.files, context.job.id, max_bytes=_MAX_SESSION_BYTES)
    if session is None:
        raise SealError("The run's conversation is too long to be stored between two workflow runs.")
    saved = SavedJob(
        job=context.job,
        request_id=request.request_id,
        until=request.until,
        record=encode_record(record),
        session=session,
        patch=patch,
        work=work,
        comment=comment_digest(located[1].body),
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


_MAX_LISTED = 100
_MAX_READ = 20
_ZIP_BYTES = MAX_SEALED_BYTES + 1024 * 1024
_SECONDS = 120.0
_EXPIRED_SECONDS = 600.0
_REPEAT = "Give the original command again."
_DEAF = (
    "A job in a workflow hears no message while it runs. Wait until it has ended, or stop it; then give a new command."
)
_BUSY = "A job is running in this thread. Answer when it has ended."
_LOST = "The workflow run ended before the job could report."
_UNANSWERED = "Nobody answered in time."
_CANCEL_PAUSES = (1.0, 2.0, 3.0, 5.0, 10.0, 10.0)
"""GitHub gives a cancelled step ten seconds to end."""
_ANSWERED = "That request was already answered, or its run has ended."


async def handle_steering(context: JobContext, command: Steering, snapshot: ThreadSnapshot) -> JobOutcome:
    """Handle a steering command, including one for jobs of earlier workflow runs.

    Raises:
        GitHubError: a request failed.
    """
    handover, stamps, problem = context.services.handover, context.services.stamps, ""
    if handover is not None and not isinstance(command, Retry):
        problem = await _restore_saved_jobs(context, snapshot, handover)
    if stamps is not None:
        await stamps.restore(context.github, context.job, [context.job.thread.key])
        await _report_lost_jobs(context, stamps)
        running = [stamp for stamp in stamps.restored.values() if await _has_state(context, stamp, JobState.RUNNING)]
        if running and isinstance(command, Stop):
            if (refusal := await _stop_runs(context, stamps, running)) is not None:
                return await context.refuse(refusal)
            if not await context.queue.is_live(context.job.repo.id, context.job.thread.key):
                await context.react("+1")
                return Finished(is_silent=True)
        elif running and isinstance(command, Approve | Deny | Continue):
            # The work of a resumed job would wait here for the end of another run.
            reason = _DEAF if isinstance(command, Continue) else _BUSY
            return await context.refuse(Refusal(reason=reason, cause="deaf"))
    jobs = await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key)
    if problem and isinstance(command, Approve | Deny | Continue) and await find_plan(context, jobs) is None:
        return await context.refuse(Refusal(reason=problem, cause="no-saved-job"))
    outcome = await steer(context, command, snapshot)
    return outcome if handover is None else await _claim_saved_jobs(context, handover) or outcome


async def _claim_saved_jobs(context: JobContext, handover: WorkflowResume) -> JobOutcome | None:
    """Say in the comments of answered jobs that this run resumes them; refuse if another one does."""
    stamps = context.services.stamps
    for stored in await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key):
        saved = handover.saved.get(stored.job.id)
        if saved is None or stored.state is not JobState.QUEUED or saved.job.id in handover.claimed:
            continue
        mark = context.services.marker(saved.job)
        text = f"▶️ Answered. [This workflow run]({context.services.run_url}) continues the work.\n\n{mark}"
        # The comment is to say that somebody has answered, unless it does not wait for that any more. An attempt before
        # this one may have said so, and not have been told that GitHub took it.
        located = await _waiting_comment(context, saved, text)
        if located is None:
            await context.queue.cancel(stored.job.id, JobState.STOPPED, _ANSWERED)
            return await context.refuse(Refusal(reason=_ANSWERED, cause="answered"))
        room = BODY_LIMIT - len(text)
        stamp = "" if stamps is None else await stamps.make(saved.job, context.github.redact_text, room)
        await context.github.comments.edit(saved.job.repo.full_name, located[0], located[1].id, f"{text}{stamp}")
        handover.claimed.add(saved.job.id)
    return None


async def _report_lost_jobs(context: JobContext, stamps: Stamps) -> None:
    """Correct the comments of jobs that ended without a report."""
    for stamp in stamps.restored.values():
        if stamp.state in LIVE_STATES and await _has_state(context, stamp, JobState.FAILED):
            is_lost = stamp.state is JobState.RUNNING
            await _report_end(context, stamp, Failed(reason=_LOST) if is_lost else Stopped(reason=_UNANSWERED))


async def _has_state(context: JobContext, stamp: Stamp, state: JobState) -> bool:
    stored = await context.queue.get(stamp.job.id)
    return stored is not None and stored.state is state


async def _stop_runs(context: JobContext, stamps: Stamps, running: Collection[Stamp]) -> Refusal | None:
    """Cancel the workflow runs of running jobs, and report the jobs that do not report themselves; or say why not."""
    for stamp in running:
        try:
            await context.github.runs.cancel(context.job.repo.full_name, stamp.run_id)
        except GitHubError as error:
            if not error.lacks_permission:
                raise
            reason = (
                f"The workflow's token may not cancel workflow runs. Cancel [the run]({stamp.run_url}) on its page; or "
                "add `actions: write` to the `permissions:` of this job, and give the command again."
            )
            return Refusal(reason=reason, cause="no-cancel")
    for stamp in running:
        for pause in _CANCEL_PAUSES:
            if await stamp.has_ended(context.github):
                break
            await asyncio.sleep(pause)
        comment = (await context.record_of(stamp.job).read()).comment
        located = await locate_comment(context.github, stamp.job, comment)
        last = None if located is None else stamps.read(located[1].body, stamp.job.repo.id, stamp.job.thread.key)
        # The job may have reported its end itself, in the seconds that GitHub gave it.
        if last is not None and last.state in LIVE_STATES:
            await _report_end(context, stamp, Stopped(reason=f"Stopped by @{context.job.actor.login}."))
        await stamps.engine.end(stamp.job.id, JobState.STOPPED)
    return None


async def _report_end(context: JobContext, stamp: Stamp, outcome: JobOutcome) -> None:
    target = context.for_job(stamp.job)
    await reports.store_ending(target.record, await reports.render_report(target, outcome))
    await reports.post_ending(target)


async def _waiting_comment(
    context: JobContext, saved: SavedJob, text: str = ""
) -> tuple[CommentTarget, CommentFacts] | None:
    """Return the status comment if it is unchanged since the save, or already begins with our text."""
    located = await locate_comment(context.github, saved.job, decode_record(saved.record).comment)
    if located is None:
        return None
    body = located[1].body
    return located if (text and body.startswith(text)) or comment_digest(body) == saved.comment else None


async def _restore_saved_jobs(context: JobContext, snapshot: ThreadSnapshot, handover: WorkflowResume) -> str:
    """Restore the saved jobs of a thread; return why there are none, or an empty text."""
    repo, name = snapshot.repo, handover.name_for(context.job)
    try:
        artifacts = await context.github.runs.artifacts(repo.full_name, name, _MAX_LISTED)
    except GitHubError as error:
        if not error.lacks_permission:
            raise
        return (
            "The workflow's token cannot read artifacts, so the waiting run cannot resume. Add `actions: read` "
            "to the `permissions:` of its job, and answer again."
        )
    # A fork's pull request can keep an artifact of any name here.
    trusted = [artifact for artifact in artifacts if artifact.head_repo_id == repo.id and artifact.size <= _ZIP_BYTES]
    available = sorted((entry for entry in trusted if not entry.expired), key=lambda entry: entry.id, reverse=True)
    restored, unfit = set(handover.saved), ""
    for artifact in available[:_MAX_READ]:
        try:
            saved = await _download(context, snapshot, handover, artifact)
        except (SealError, LogError, ValueError, BoundExceededError) as error:
            log.warning("artifact %d, %s, is not used: %s", artifact.id, name, error)
            unfit = (
                f"The artifact {code(name)} cannot be used: {str(error).rstrip('.')}. A waiting run is lost if "
                f"the input `session-key` or the model service's key changes. {_REPEAT}"
            )
            continue
        if saved.job.id not in restored and await _waiting_comment(context, saved):
            restored.add(saved.job.id)
            await asyncio.to_thread(handover.sessions.put, saved.job.id, saved.session)
            if saved.patch is not None:
                await asyncio.to_thread(context.services.work.put, saved.job.id, saved.patch)
            handover.saved[saved.job.id] = saved
            # One that has expired is reported when it is answered.
            until = max(saved.until, time.time() + _EXPIRED_SECONDS)
            await handover.engine.restore(saved.job, saved.record, until=until)
    if restored:
        return ""
    if not trusted:
        return (
            f"There is no waiting run to resume: no run has stored an artifact {code(name)}. If the run "
            f"that asked is still in progress, answer again when it has ended. Otherwise: {_REPEAT}"
        )
    if not available:
        return f"The artifact {code(name)} of the waiting run has expired. {_REPEAT}"
    return unfit or _ANSWERED


async def _download(
    context: JobContext, snapshot: ThreadSnapshot, handover: WorkflowResume, artifact: ArtifactFacts
) -> SavedJob:
    """Download and decrypt the job in an artifact."""
    address = await context.github.runs.artifact_url(snapshot.repo.full_name, artifact.id)
    with tempfile.TemporaryDirectory(prefix="codepilot-artifact-") as folder:
        file = Path(folder, "artifact.zip")
        ca_file = context.services.ca_file
        await save_log(address, file, most=_ZIP_BYTES, tail=0, seconds=_SECONDS, plain=handover.plain, ca_file=ca_file)
        data = await run_bounded(
            read_member, str(file), SESSION_FILE, MAX_SEALED_BYTES, seconds=_SECONDS, task="Reading the artifact"
        )
    return await asyncio.to_thread(unseal, data, handover.key, repo_id=snapshot.repo.id, thread=context.job.thread.key)


_MAX_ENTRIES = 100


def read_member(path: str, name: str, most: int) -> bytes:
    """Return the content of a zip member without unpacking to disk; ValueError if invalid or too large."""
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > _MAX_ENTRIES:
                raise ValueError(f"it has more than {_MAX_ENTRIES} files")
            with archive.open(name) as member:
                content = member.read(most + 1)
    except KeyError as error:
        raise ValueError(f"it has no file {name}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError("it is not a readable zip file") from error
    if len(content) > most:
        raise ValueError(f"its file has more than {most:,} bytes")
    return content
