"""Skip automatic reviews and fixes of failed checks that are disabled or pointless.

Start with `skip_outcome`. Facts are requested only until they decide.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from bot.ci_logs.failed_run import FailedJob, FailureFacts, Skip, skip_reason
from bot.domain.commands import Explain, Resolve, Review
from bot.domain.job import Job, JobState
from bot.events.ci_triggers import RED
from bot.github.types import Annotation, GitHubError
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import base_source, head_source, resume_base
from bot.jobs.context import JobContext
from bot.jobs.posts import JobCheckRun
from bot.jobs.repo_settings import cached_default_settings, read_own_prefixes
from bot.jobs.status import read_hint, status_view
from bot.publishing.markdown import code, escape_markdown, one_line
from bot.publishing.markers import has_marker, signed_job
from bot.publishing.outcome import JobOutcome, Refused
from bot.publishing.plan import CI_COMMIT_PATTERN, FIX_CI_PREFIX
from bot.publishing.render import COMPLETION_LIMIT

log = logging.getLogger(__name__)


async def early_skip_reason(context: JobContext) -> str:
    """Return why an automatic review is disabled; empty for any other job."""
    command = context.job.command
    if not is_automatic_review(context.job) or not isinstance(command, Review) or command.on is None:
        return ""
    config = await cached_default_settings(context)
    is_enabled = config.is_review_enabled(command.on, context.services.bounds.review_on)
    return "" if is_enabled else f"`review_on` in `{config.path}` does not list `{command.on}`."


def is_automatic_review(job: Job) -> bool:
    return isinstance(job.command, Review) and job.command.on is not None and job.is_from_event


async def review_skip_reason(context: JobContext, snapshot: ThreadSnapshot) -> str:
    """Return why a pull request needs no review now; empty if it does."""
    if await resume_base(context) is not None:
        return ""
    pull, head = snapshot.facts.pull, snapshot.thread.head_sha
    if pull is not None and pull.draft:
        return "It is a draft again."
    if not context.services.is_long_running and context.job.head_sha != head:
        return "It has a newer commit; that push has its own run."
    me = (await context.github.accounts.me()).id
    reviews = await snapshot.reader.reviews(snapshot.repo.full_name, context.job.thread.number)
    reviewed = any(entry.author.id == me and entry.commit_sha == head and has_marker(entry.body) for entry in reviews)
    return "This commit has already been reviewed." if reviewed else ""


_MAX_ANCESTORS = 10
_MAX_ANNOTATED_JOBS = 3
_MAX_ANNOTATIONS = 10
_NAME_CHARS = 100
_NOTICE_SECONDS = 30 * 24 * 3600.0


async def skip_outcome(context: JobContext, snapshot: ThreadSnapshot) -> JobOutcome | None:
    """Return the ending of automatic work that is skipped, or None."""
    job, reason = context.job, ""
    if isinstance(job.command, Review):
        reason = await review_skip_reason(context, snapshot)
    elif not isinstance(job.command, Resolve):
        return await ci_skip_outcome(context, snapshot)
    elif await resume_base(context) is None:
        is_clean = (await context.github.pulls.get(snapshot.repo.full_name, job.thread.number)).mergeable
        if is_clean is None:  # GitHub does not know yet
            source = await head_source(context, snapshot)
            base = await base_source(context, snapshot, source)
            merge = await context.services.workspaces.merge(snapshot.repo.id, source, base)
            is_clean = merge is None or not merge.conflicts
        reason = "It has no conflict with its base branch." if is_clean else ""
    return Refused(reason=reason, is_silent=True) if reason else None


async def ci_skip_outcome(context: JobContext, snapshot: ThreadSnapshot) -> JobOutcome | None:
    """Return the ending of a skipped fix of failed checks, or None.

    A reason is reported once for each commit: in the thread, or in the check run of a branch.
    """
    if await resume_base(context) is not None:
        return None
    job, thread = context.job, snapshot.thread
    name = code(one_line(job.origin.name or "CI", _NAME_CHARS))
    facts = FailureFacts(
        subject=f"the workflow {name}" if job.origin.id else f"the check {name}",
        head_sha=job.head_sha,
        now_sha=thread.head_sha,
        conclusion=job.origin.conclusion,
        own_branch=job.thread.kind == "pull" and thread.head_ref.startswith(await read_own_prefixes(context)),
        base=thread.base_ref if job.thread.kind == "pull" else "",
    )
    try:
        facts = await _request_facts(context, snapshot, facts)
    except GitHubError as error:
        if error.is_transient:
            raise
        log.warning("the failure was not read: %s", error)
        unknown = read_hint(context, "actions" if job.origin.id else "checks") if error.lacks_permission else str(error)
        facts = replace(facts, unknown=unknown)
    skip = skip_reason(facts) or await _rerun_failed_jobs(context, snapshot, facts)
    if skip is None:
        return None
    silence = Refused(reason=skip.reason, is_silent=True)
    if skip.silent:
        return silence
    if not context.services.is_long_running and job.thread.has_comments:  # a workflow's run has no ledger
        me = (await context.github.accounts.me()).id
        comments = await snapshot.reader.comments(snapshot.repo.full_name, job.thread.number)
        # As rendered in the comment.
        text, allowed = context.services.rename_settings_to_inputs(skip.reason), context.services.allowed(job)
        excerpt = escape_markdown(text, allowed, limit=COMPLETION_LIMIT)
        is_new = not any(
            entry.author.id == me and context.github.redact_text(excerpt) in entry.body for entry in comments
        )
    else:
        cause = f"ci {job.head_sha} {skip.cause}"
        is_new = await context.ledger.claim_notice(
            job.repo.id, job.thread.key, cause, seconds=_NOTICE_SECONDS, by=job.id
        )
    if not is_new:
        return silence
    if job.thread.has_comments or not context.services.is_long_running:
        return Refused(reason=skip.reason, reply=skip.reason)
    check = JobCheckRun(context.github, context.record.check, job, head_sha=facts.now_sha)
    await check.show(status_view(context, Refused(reason=skip.reason)))
    return silence


async def _request_facts(context: JobContext, snapshot: ThreadSnapshot, facts: FailureFacts) -> FailureFacts:
    repo = snapshot.repo.full_name
    # How many commits from this one backwards the bot made because checks failed.
    own_commits, sha = 0, facts.now_sha
    while own_commits < _MAX_ANCESTORS:
        commit = await context.github.repos.commit(repo, sha)
        if not re.search(CI_COMMIT_PATTERN, commit.message, re.MULTILINE) or not commit.parents:
            break
        own_commits, sha = own_commits + 1, commit.parents[0]
    if facts.now_sha != facts.head_sha or facts.own_branch:
        return replace(facts, pushed_by_us=own_commits > 0)
    of_fork = isinstance(context.job.command, Explain)
    attempts = max(own_commits, await _count_attempts(context))
    # A workflow's run has no memory; elsewhere `caps` count. The owner of a fork can push any number of times, and
    # each push would cause a pointless notice.
    if of_fork and not context.services.is_long_running:
        me, key = (await context.github.accounts.me()).id, context.services.marker_key
        number = context.job.thread.number
        bodies = [entry.body for entry in await snapshot.reader.comments(repo, number) if entry.author.id == me]
        reports = [signed_job(body, context.job.repo.id, number, key=key, kind="ci") for body in bodies]
        attempts = max(attempts, sum(report is not None for report in reports))
    facts = replace(facts, attempts=attempts, is_from_fork=of_fork)
    if not facts.base:
        prefixes = tuple(prefix + FIX_CI_PREFIX for prefix in await read_own_prefixes(context))
        me = (await context.github.accounts.me()).id
        pulls = await context.github.pulls.list_own_into(repo, snapshot.thread.head_ref, prefixes, author_id=me)
        pull_url = pulls[0].html_url if pulls else ""
        facts = replace(facts, pull_url=pull_url)
    if not context.job.origin.id:
        return replace(facts, red_on_base=await _check_on_base(context, snapshot, facts))
    run = await snapshot.reader.run(repo, context.job.origin.id)
    facts = replace(
        facts,
        jobs=await _failed_jobs(snapshot, run.id),
        passed_before=await context.github.runs.has_passed_before(repo, run),
    )
    base_run = (
        await context.github.runs.find_failure_on_base(repo, run, facts.base, snapshot.repo.id) if facts.base else None
    )
    if base_run is None:
        return facts
    jobs = await snapshot.reader.jobs_of_run(repo, base_run.id)
    return replace(facts, red_on_base=frozenset(job.name for job in jobs if job.conclusion in RED))


async def _check_on_base(context: JobContext, snapshot: ThreadSnapshot, facts: FailureFacts) -> frozenset[str] | None:
    """Compare another App's checks with the base branch. A suite has the App's name and stands for all."""
    repo, reader, base = snapshot.repo.full_name, snapshot.reader, snapshot.facts.base_head
    if not facts.base or base is None:
        return None
    on_base = {check.name for check in await reader.failing_checks(repo, base)}
    failing = {check.name for check in await reader.failing_checks(repo, facts.head_sha)} if on_base else set[str]()
    relevant = failing & {context.job.origin.name} or failing
    return frozenset() if relevant and relevant <= on_base else None


async def _failed_jobs(snapshot: ThreadSnapshot, run_id: int) -> tuple[FailedJob, ...]:
    """Return the failed jobs without logs. Annotations of the first ones tell whether a runner was lost.

    Annotations need a permission of their own; without it, the steps decide.
    """
    repo, jobs = snapshot.repo.full_name, []
    failed = [job for job in await snapshot.reader.jobs_of_run(repo, run_id) if job.conclusion in RED]
    for number, job in enumerate(failed):
        annotations: tuple[Annotation, ...] = ()
        if number < _MAX_ANNOTATED_JOBS and job.check_id:
            try:
                annotations = await snapshot.reader.annotations(repo, job.check_id)
            except GitHubError as error:
                if not error.lacks_permission:
                    raise
                log.warning("%s", error)
        jobs.append(FailedJob(facts=job, annotations=annotations[:_MAX_ANNOTATIONS]))
    return tuple(jobs)


async def _count_attempts(context: JobContext) -> int:
    """Count the bot's earlier fixes on this commit and its ancestors."""
    stored = await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key)
    attempts = [
        entry.job
        for entry in stored
        if entry.job.origin.kind == "ci" and entry.state is not JobState.REFUSED and entry.job.id != context.job.id
    ]
    job_of_commit = {}
    for job in attempts:
        if (commit := (await context.record_of(job).read()).published.commit) is not None:
            job_of_commit[commit.sha] = job
    count, head = 0, context.job.head_sha
    for _ in range(_MAX_ANCESTORS):
        count += sum(job.head_sha == head for job in attempts)
        parent = job_of_commit.get(head)
        if parent is None:
            break
        head = parent.head_sha
    return count


async def _rerun_failed_jobs(context: JobContext, snapshot: ThreadSnapshot, facts: FailureFacts) -> Skip | None:
    """Rerun failed jobs once, if enabled; the second attempt decides."""
    job = context.job
    if not job.origin.id or not (await cached_default_settings(context)).rerun_failed_jobs:
        return None
    run = await snapshot.reader.run(snapshot.repo.full_name, job.origin.id)
    if run.attempt > 1 and run.conclusion:
        return None
    try:
        if run.attempt == 1:  # else they run again since an attempt of this job that was cut off, or a person, asked
            await context.github.runs.rerun_failed_jobs(snapshot.repo.full_name, run.id)
    except GitHubError as error:
        if not error.lacks_permission:
            raise
        log.warning("the failed jobs were not re-run: %s", error)
        return None
    subject = facts.subject[:1].upper() + facts.subject[1:]
    reason = (
        f"{subject} failed on {facts.head_sha[:10]}. I re-ran its failed jobs once: if they pass, the failure was "
        "flaky, and I change nothing."
    )
    return Skip(cause="run-again", reason=reason)
