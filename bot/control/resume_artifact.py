"""Goes on with a job that waits since an earlier workflow run: its sealed state is in an artifact of that run.

GitHub keeps what has to be known of it: the artifact, and the status comment, which stands as the run left it for as
long as nobody has answered. Whoever answers changes the comment before any work is done, so an artifact is good for one
answer.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from pathlib import Path

from agent_runtime import BoundExceededError, run_bounded
from bot.control.artifact_file import member_of
from bot.control.save_artifact import SESSION_FILE, comment_of
from bot.control.steering import steer
from bot.domain.commands import Approve, Continue, Deny, Retry, Steering
from bot.domain.job import JobState
from bot.engine.job_record import decode_record
from bot.gate.decision import Refusal
from bot.github import ArtifactFacts, CommentFacts, GitHubError, LogError, Spot, save_log
from bot.jobs.context import Ending, JobContext
from bot.jobs.sealed_state import MAX_SEALED_BYTES, SavedJob, SealError, digest_of, unseal
from bot.jobs.services import Handover
from bot.jobs.snapshot import ThreadSnapshot
from bot.publishing.text import code

log = logging.getLogger(__name__)

_MOST_LISTED = 100
_MOST_READ = 20
_ZIP_BYTES = MAX_SEALED_BYTES + 1024 * 1024
_SECONDS = 120.0
_EXPIRED_SECONDS = 600.0
_AGAIN = "Give the original command again."
_ANSWERED = "That request was already answered, or its run has ended."


async def steered(context: JobContext, command: Steering, here: ThreadSnapshot) -> Ending:
    """Do what someone with the right to command asks, of jobs that earlier workflow runs have left waiting, too.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
    """
    handover = context.services.handover
    if handover is None or isinstance(command, Retry):
        return await steer(context, command, here)
    why = await _Fetching(context, here, handover).fetch()
    if why and isinstance(command, (Approve, Deny, Continue)):
        return await context.refuse(Refusal(reason=why, cause="no-saved-job"))
    ending = await steer(context, command, here)
    for stored in await context.queue.of_thread(context.job.repo.id, context.job.thread.key):
        saved = handover.saved.get(stored.job.id)
        if saved is not None and stored.state is JobState.QUEUED and not await _claim(context, saved, handover):
            await context.queue.cancel(stored.job.id, JobState.STOPPED, _ANSWERED)
            return await context.refuse(Refusal(reason=_ANSWERED, cause="answered"))
    return ending


async def _claim(context: JobContext, saved: SavedJob, handover: Handover) -> bool:
    """Have the comment say that somebody has answered; False when it does not wait for that any more."""
    if saved.job.id in handover.claimed:
        return True
    found = await _waiting_comment(context, saved)
    if found is None:
        return False
    mark = context.services.marker(saved.job)
    said = f"▶️ Answered. [This workflow run]({context.services.run_url}) continues the work.\n\n{mark}"
    await context.github.comments.edit(saved.job.repo.full_name, found[0], found[1].id, said)
    handover.claimed.add(saved.job.id)
    return True


async def _waiting_comment(context: JobContext, saved: SavedJob) -> tuple[Spot, CommentFacts] | None:
    """The job's status comment, if it still stands as the run has left it: nobody has answered since."""
    found = await comment_of(context.github, saved.job, decode_record(saved.record).comment)
    return found if found is not None and digest_of(found[1].body) == saved.comment else None


class _Fetching:
    """One look for the jobs that wait in a thread."""

    def __init__(self, context: JobContext, here: ThreadSnapshot, handover: Handover) -> None:
        self._context, self._here, self._handover = context, here, handover
        self._name = handover.name_for(context.job)
        self._unfit = ""

    async def fetch(self) -> str:
        """Put the jobs that wait into the queue; why there is none, in a sentence or two, or nothing."""
        artifacts = await self._listed()
        if isinstance(artifacts, str):
            return artifacts
        known = set(self._handover.saved)
        kept = [each for each in artifacts if not each.expired]
        for each in kept[:_MOST_READ]:
            saved = await self._opened(each)
            if saved is not None and saved.job.id not in known and await _waiting_comment(self._context, saved):
                known.add(saved.job.id)
                await self._restore(saved)
        if known:
            return ""
        if not artifacts:
            return (
                f"There is no waiting run to resume: no run has stored an artifact {code(self._name)}. If the run "
                f"that asked is still in progress, answer again when it has ended. Otherwise: {_AGAIN}"
            )
        if not kept:
            return f"The artifact {code(self._name)} of the waiting run has expired. {_AGAIN}"
        return self._unfit or _ANSWERED

    async def _listed(self) -> list[ArtifactFacts] | str:
        """The artifacts that runs of the repository's own branches have kept under the name, newest first."""
        context, repo = self._context, self._here.repo
        try:
            found = await context.github.runs.artifacts(repo.full_name, self._name, _MOST_LISTED)
        except GitHubError as error:
            if not error.lacks_permission:
                raise
            return (
                "The workflow's token cannot read artifacts, so the waiting run cannot resume. Add `actions: read` "
                "to the `permissions:` of its job, and answer again."
            )
        # A fork's pull request can keep an artifact of any name here.
        own = [each for each in found if each.head_repo_id == repo.id and each.size <= _ZIP_BYTES]
        return sorted(own, key=lambda each: each.id, reverse=True)

    async def _opened(self, artifact: ArtifactFacts) -> SavedJob | None:
        """The job in an artifact; None when it is none that this repository's workflow has kept."""
        context, handover = self._context, self._handover
        try:
            sealed = await self._downloaded(artifact)
            return await asyncio.to_thread(
                unseal, sealed, handover.key, repo_id=self._here.repo.id, thread=context.job.thread.key
            )
        except (SealError, LogError, ValueError, BoundExceededError) as error:
            log.warning("artifact %d, %s, is not used: %s", artifact.id, self._name, error)
            self._unfit = (
                f"The artifact {code(self._name)} cannot be used: {str(error).rstrip('.')}. A waiting run is lost if "
                f"the input `session-key` or the model service's key changes. {_AGAIN}"
            )
            return None

    async def _downloaded(self, artifact: ArtifactFacts) -> bytes:
        github, repo = self._context.github, self._here.repo.full_name
        address = await github.runs.artifact_url(repo, artifact.id)
        with tempfile.TemporaryDirectory(prefix="codepilot-artifact-") as folder:
            file = Path(folder, "artifact.zip")
            plain = self._handover.plain
            await save_log(address, file, most=_ZIP_BYTES, tail=0, seconds=_SECONDS, plain=plain)
            return await run_bounded(
                member_of, str(file), SESSION_FILE, MAX_SEALED_BYTES, seconds=_SECONDS, what="Reading the artifact"
            )

    async def _restore(self, saved: SavedJob) -> None:
        """Have the job wait in this run's queue, as it did in the other's."""
        context, job_id = self._context, saved.job.id
        await asyncio.to_thread(self._put, saved)
        self._handover.saved[job_id] = saved
        # One that has expired is told so by whoever answers it.
        until = max(saved.until, time.time() + _EXPIRED_SECONDS)
        await context.queue.restore(saved.job, decode_record(saved.record), until=until)

    def _put(self, saved: SavedJob) -> None:
        services = self._context.services
        folder = services.session_of(saved.job)
        if folder is not None and saved.session:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in saved.session.items():
                (folder / Path(name).name).write_bytes(content)
        if saved.patch is not None:
            services.work.put(saved.job.id, saved.patch)
