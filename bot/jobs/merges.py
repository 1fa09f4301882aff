"""Merge a pull request's base branch: plan the merge before any work is paid for, and publish one without conflicts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from agent_runtime import Quote
from bot.git.errors import WorkflowsForbiddenError
from bot.git.merge import Merge
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.jobs.access import ThreadSnapshot, check_access, fetch_snapshot
from bot.jobs.admission import Assignment, decide, pin_format, resume_base
from bot.jobs.context import JobContext
from bot.jobs.record import MergedCommits
from bot.permissions.levels import Refusal
from bot.prompt.sanitize import clean_code, clean_line
from bot.publishing.markdown import code
from bot.publishing.outcome import Failed, Finished, JobOutcome, Refused, Stopped
from bot.publishing.plan import plan_merge as plan_publication
from bot.publishing.publish import Target, publish

_LINE_CHARS = 300
_CONFLICT_CHARS = 8_000


async def plan_merge(context: JobContext, snapshot: ThreadSnapshot, head: Source, base_sha: str) -> Merge | JobOutcome:
    """Merge the base branch into `head`, or return why there is nothing to do; all attempts merge the same commits.

    Raises:
        CloneError: a commit could not be fetched.
        WorkspaceError: the branches have no common history.
    """
    commits = MergedCommits(head=head.sha, base=base_sha, branch=snapshot.thread.base_ref)
    stored = (await context.record.read()).merging
    if stored is not None and await _is_under_way(context, snapshot, stored, head.sha):
        commits = stored
    else:
        await context.record.update(lambda record: replace(record, merging=commits))
    base = replace(head, ref=f"refs/heads/{commits.branch}", sha=commits.base)
    merge = await context.services.workspaces.merge(snapshot.repo.id, replace(head, sha=commits.head), base)
    if merge is None:
        text = f"Already up to date: this branch contains {code(commits.branch)} at {commits.base[:10]}."
        return Finished(completion=text)
    if merge.writes_workflows and await context.github.tokens.can_write_workflows() is False:
        error = WorkflowsForbiddenError()
        return Refused(reason=f"The merge combines both sides of a workflow file. {error.reason}", remedy=error.remedy)
    return merge


async def _is_under_way(context: JobContext, snapshot: ThreadSnapshot, stored: MergedCommits, head_sha: str) -> bool:
    """Whether an earlier attempt has work for these commits, or has pushed their merge."""
    if await resume_base(context) is not None or (await context.record.read()).published.commit is not None:
        return True
    if head_sha == stored.head:
        return False
    head = await context.github.repos.commit(snapshot.repo.full_name, head_sha)
    return head.parents == (stored.head, stored.base)


async def publish_merge(context: JobContext, assignment: Assignment, merge: Merge) -> JobOutcome:
    """Publish a merge without conflicts, which needs no agent; nothing is run."""
    snapshot, grant = assignment.snapshot, assignment.grant
    async with context.services.workspaces.open(context.job.id, snapshot.repo.id, assignment.source) as tree:
        # Git may have taken minutes, in which people lose their role, or choose another base branch.
        access = await check_access(context.github, context.job, bounds=context.services.bounds)
        present, config = fetch_snapshot(context.job, access), assignment.settings.config
        decision = await decide(context, present, config, is_resumed=True)
        if (reason := context.state.inbox.stop_reason) and (await context.record.read()).published.commit is None:
            return Stopped(reason=reason)
        publication = plan_publication(
            context.job,
            grant,
            merge,
            branch=snapshot.thread.head_ref,
            run_url=context.state.run_url,
            commit_format=await pin_format(context, assignment.settings),
            refusal=decision.reason if isinstance(decision, Refusal) else "",
        )
        published = await publish(
            context.github,
            context.record.published,
            publication,
            job=context.job,
            target=Target(repo=access.repo, branch_prefix=context.branch_prefix),
            pusher=tree,
            redactor=context.services.redactor,
            dry_run=grant.dry_run,
        )
    if published.withheld:
        return Failed(published=published)
    text = (
        f"I merged {code(merge.branch)} at {merge.base[:10]} into this branch. There were no conflicts, so no agent "
        "ran, and nothing was checked: that is left to CI."
    )
    return Finished(completion=None if published.dry_run_note else text, published=published)


def conflict_quotes(merge: Merge) -> list[Quote]:
    """Return a quote for each conflict: git's message, the versions, and the text of both sides."""
    quotes = []
    for conflict in merge.conflicts:
        lines = [clean_line(conflict.message, limit=_LINE_CHARS)]
        for path in conflict.paths:
            versions = [
                f"{_SIDES[number]} {stage.mode} {stage.blob[:10]}"
                for number, stage in sorted(merge.stages.get(path, {}).items())
            ]
            lines += [f"{clean_line(path, limit=_LINE_CHARS)}: {', '.join(versions)}"] if versions else []
        text = "\n".join([*lines, *filter(None, (merge.excerpts.get(path) for path in conflict.paths))])
        names = ", ".join(clean_line(path, limit=_LINE_CHARS) for path in conflict.paths)
        source = f"conflict ({conflict.kind}) in {names}"
        quotes.append(Quote(source=source, text=clean_code(text, limit=_CONFLICT_CHARS)))
    return quotes


_SIDES = {1: "common ancestor", 2: "HEAD", 3: "base"}
"""Versions of a conflicted file, by git's number."""


def object_to_merge(merge: Merge, tree: Tree) -> Callable[..., Awaitable[str | None]]:
    """Return a completion handler that objects while conflicts are left, or changes are not explained."""

    async def find_objection(completion: str, **_: object) -> str | None:
        # Thousands of names in a long text take seconds.
        problems = await asyncio.to_thread(merge.find_problems, await tree.change(), completion)
        return "\n".join(problems) or None

    return find_objection
