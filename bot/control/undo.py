"""Revert the bot's last commit of a thread with a new commit."""

from __future__ import annotations

import re
from dataclasses import replace

from bot.domain.job import JobState, Thread
from bot.gate.decision import Grant, Refusal
from bot.gate.permissions import NO_WRITE_ACCESS
from bot.jobs.context import Ending, JobContext
from bot.jobs.snapshot import ThreadSnapshot, check_access
from bot.publishing.plan import Publication, plan_undo
from bot.publishing.publish import Target, publish
from bot.publishing.published import CommitRef
from bot.publishing.text import code
from bot.publishing.withheld import Withheld
from bot.reporting.reporter import StatusReporter
from bot.workspace import Source

_OWN_BRANCH = re.compile(r"(?:(?:issue|pull)-([0-9]+)|branch|fix-ci)-[a-z0-9-]+$")


async def aimed(context: JobContext, here: ThreadSnapshot) -> ThreadSnapshot | Refusal:
    """The place with the branch and the commit that are to be taken back, or why there is nothing to undo."""
    before = (await context.record.read()).undoing
    aim = before or await _last_commit(context, here)
    if aim is None:
        return Refusal(cause="nothing-to-undo", reason="There is no commit of mine in this thread to revert.")
    sha, branch = aim.sha, aim.branch
    if before is None:
        head = await context.github.repos.branch_head(here.repo.full_name, branch)
        if head is None:
            return Refusal(cause="undo-gone", reason=f"The branch `{branch}` with my commit has been deleted.")
        if head != sha:
            reason = (
                f"`{branch}` has moved on to {head[:10]} since my commit {sha[:10]}. I only revert the last "
                f"commit of a branch; use `git revert {sha[:10]}`."
            )
            return Refusal(cause="undo-moved", reason=reason)
        await context.record.update(lambda record: replace(record, undoing=aim))
    thread = replace(here.thread, head_sha=sha, head_ref=branch, head_repo_id=here.repo.id)
    return replace(here, thread=thread)


async def undo(
    context: JobContext, reporter: StatusReporter, here: ThreadSnapshot, grant: Grant, source: Source
) -> Ending:
    """Make the opposite commit."""
    async with context.services.workspaces.open(context.job.id, here.repo.id, source) as tree:
        change = await tree.reversal(grant.bound_to_sha)
        publication = plan_undo(
            context.job,
            grant,
            change,
            branch=here.thread.head_ref,
            undone=grant.bound_to_sha,
            title=await tree.title(grant.bound_to_sha),
            run_url=reporter.run_url,
        )
        # Git may have taken minutes, in which people lose their role.
        access = await check_access(context.github, context.job, bounds=context.services.bounds)
        if not access.may_command:
            withheld = Withheld(cause="refused", reason=NO_WRITE_ACCESS.reason)
            publication = Publication(commit=None, pull_request=None, withheld=withheld)
        delivered = await publish(
            context.github,
            context.record.published,
            publication,
            job=context.job,
            target=Target.of(access.repo, context.services.conventions.branch_prefix),
            pusher=tree,
            redactor=context.services.redactor,
            dry_run=grant.dry_run,
        )
    why = delivered.withheld.reason if delivered.withheld else ""
    view = reporter.now(
        state="failed" if why else "done",
        completion=None if why or delivered.would else f"I reverted commit {code(grant.bound_to_sha[:10])}.",
        withheld=why,
        would=delivered.would,
        files=change.files,
        commit_sha=delivered.commit_sha,
        commit_url=delivered.commit_url,
        ci_note=context.services.ci_note if delivered.commit_sha else "",
    )
    return Ending(state=JobState.FAILED if why else JobState.DONE, reason=why, view=view)


async def _last_commit(context: JobContext, here: ThreadSnapshot) -> CommitRef | None:
    """The commit of the newest job of this thread that made one.

    In a pull request of the bot's own also of the jobs on its branch that were asked for in another thread.
    """
    job, thread = context.job, here.thread
    jobs = list(await context.queue.of_thread(job.repo.id, job.thread.key))
    is_ours = thread.head_ref.startswith(context.services.conventions.branch_prefix)
    is_here = job.thread.kind == "pull" and thread.head_repo_id == here.repo.id
    own = _OWN_BRANCH.search(thread.head_ref) if is_ours and is_here else None
    if own is not None:
        asked_in = int(own[1]) if own[1] else Thread.of_branch(thread.base_ref).key
        jobs += await context.queue.of_thread(job.repo.id, asked_in, limit=100)
    for each in sorted(jobs, key=lambda stored: stored.enqueued_at, reverse=True):
        noted = (await context.of(each.job).read()).published.commit
        if noted is not None and each.job.id != job.id and (own is None or noted.branch == thread.head_ref):
            return noted
    return None
