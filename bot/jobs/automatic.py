"""Automatic work that is left alone: reviews and fixes of failed checks that nobody needs now.

Reviews are skipped where they are not enabled, for a draft, and for a commit that has one. For failed checks GitHub is
asked as little as decides: whether the commit is still the head, whether the bot itself made it, how often it has been
tried, whether the base branch fails alike. The reason is reported once for each commit.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from bot.ci_logs.failed_run import FailedJob, FailureFacts, Skip, skip_reason
from bot.domain.commands import Explain, Review
from bot.domain.job import Job, JobState
from bot.events.ci_triggers import RED
from bot.github.types import Annotation, GitHubError
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import resume_base
from bot.jobs.context import Ending, JobContext, ShortReply
from bot.jobs.material import remark_of, step_of
from bot.jobs.repo_settings import lately_on_default_branch
from bot.jobs.status import JobCheckRun, StatusReporter, lacking
from bot.publishing.markdown import code, escape_markdown, one_line
from bot.publishing.plan import CI_COMMIT_PATTERN, FIX_CI_PREFIX
from bot.publishing.render import COMPLETION_LIMIT, has_marker, signed_job

log = logging.getLogger(__name__)


async def early_skip_reason(context: JobContext) -> str:
    """Why the job is a review that neither the repository nor the operator wants; empty for any other job."""
    command = context.job.command
    if not is_unasked_review(context.job) or not isinstance(command, Review) or command.on is None:
        return ""
    config = await lately_on_default_branch(context)
    wanted = config.is_review_enabled(command.on, context.services.bounds.review_on)
    return "" if wanted else f"`review_on` in `{config.path}` does not list `{command.on}`."


def is_unasked_review(job: Job) -> bool:
    """Whether a job is a review that nobody gave a command for."""
    return isinstance(job.command, Review) and job.command.on is not None and job.is_from_event


async def review_skip_reason(context: JobContext, here: ThreadSnapshot) -> str:
    """Why a pull request is not to be reviewed now; empty when it is, or when its review is under way."""
    if await resume_base(context) is not None:
        return ""
    pull, head = here.snapshot.pull, here.thread.head_sha
    if pull is not None and pull.draft:
        return "It is a draft again."
    if not context.services.is_long_running and context.job.head_sha != head:
        return "It has a newer commit; that push has its own run."
    me = (await context.github.accounts.me()).id
    reviews = await here.reader.reviews(here.repo.full_name, context.job.thread.number)
    done = any(each.author_id == me and each.commit_sha == head and has_marker(each.body) for each in reviews)
    return "This commit has already been reviewed." if done else ""


_LINEAGE = 10
_LOOKED_AT = 3
_REMARKS = 10
_NAME_CHARS = 100
_TOLD_SECONDS = 30 * 24 * 3600.0


async def ci_skip_ending(context: JobContext, here: ThreadSnapshot) -> Ending | None:
    """The ending of work on failed checks that are left alone; None when they are worked on.

    Why is told once for each commit and reason: in the thread, and where there is none in the check run.
    """
    if await resume_base(context) is not None:
        return None
    job, thread = context.job, here.thread
    name = code(one_line(job.origin.name or "CI", _NAME_CHARS))
    facts = FailureFacts(
        subject=f"the workflow {name}" if job.origin.id else f"the check {name}",
        head_sha=job.head_sha,
        now_sha=thread.head_sha,
        conclusion=job.origin.conclusion,
        own_branch=job.thread.kind == "pull" and thread.head_ref.startswith(context.services.conventions.branch_prefix),
        base=thread.base_ref if job.thread.kind == "pull" else "",
    )
    try:
        facts = await _asked(context, here, facts)
    except GitHubError as error:
        if error.passing:
            raise
        log.warning("the failure was not read: %s", error)
        unknown = lacking(context, "actions" if job.origin.id else "checks") if error.lacks_permission else str(error)
        facts = replace(facts, unknown=unknown)
    skip = skip_reason(facts) or await _run_again(context, here, facts)
    if skip is None:
        return None
    ending = Ending(state=JobState.REFUSED, reason=skip.reason)
    if skip.silent:
        return ending
    if not context.services.is_long_running and job.thread.has_comments:  # what a workflow's run remembers ends with it
        me = (await context.github.accounts.me()).id
        said = await here.reader.comments(here.repo.full_name, job.thread.number)
        # As it was shown.
        text, allowed = context.services.rename_settings_to_inputs(skip.reason), context.services.allowed(job)
        words = escape_markdown(text, allowed, limit=COMPLETION_LIMIT)
        is_new = not any(each.author_id == me and context.github.redacted(words) in each.body for each in said)
    else:
        cause = f"ci {job.head_sha} {skip.cause}"
        is_new = await context.ledger.may_tell(job.repo.id, job.thread.key, cause, seconds=_TOLD_SECONDS, by=job.id)
    if not is_new:
        return ending
    if job.thread.has_comments or not context.services.is_long_running:
        return replace(ending, view=ShortReply(text=skip.reason))
    check = JobCheckRun(context.github, context.record.check, job, head_sha=facts.now_sha)
    await check.show(StatusReporter(context).now(state="refused", reason=skip.reason))
    return ending


async def _asked(context: JobContext, here: ThreadSnapshot, facts: FailureFacts) -> FailureFacts:
    """The facts that GitHub is asked for; as few as decide."""
    repo = here.repo.full_name
    # How many commits from this one backwards the bot made because checks failed.
    made, sha = 0, facts.now_sha
    while made < _LINEAGE:
        commit = await context.github.repos.commit(repo, sha)
        if not re.search(CI_COMMIT_PATTERN, commit.message, re.MULTILINE) or not commit.parents:
            break
        made, sha = made + 1, commit.parents[0]
    if facts.now_sha != facts.head_sha or facts.own_branch:
        return replace(facts, pushed_by_us=made > 0)
    of_fork = isinstance(context.job.command, Explain)
    attempts = max(made, await _attempts(context))
    # A workflow's run forgets what it did; what is remembered elsewhere is counted before, see `caps`. The owner of a
    # fork can push to it as often as they like, and each push would cause a pointless notice.
    if of_fork and not context.services.is_long_running:
        me, key = (await context.github.accounts.me()).id, context.services.marker_key
        number = context.job.thread.number
        ours = [each.body for each in await here.reader.comments(repo, number) if each.author_id == me]
        said = [each for each in ours if signed_job(each, context.job.repo.id, number, key=key, kind="ci") is not None]
        attempts = max(attempts, len(said))
    facts = replace(facts, attempts=attempts, is_from_fork=of_fork)
    if not facts.base:
        prefix, me = context.services.conventions.branch_prefix + FIX_CI_PREFIX, (await context.github.accounts.me()).id
        pull_url = await context.github.pulls.own_into(repo, here.thread.head_ref, prefix, author_id=me)
        facts = replace(facts, pull_url=pull_url)
    if not context.job.origin.id:
        return replace(facts, red_on_base=await _check_on_base(context, here, facts))
    run = await here.reader.run(repo, context.job.origin.id)
    facts = replace(
        facts,
        jobs=await _failed_jobs(here, run.id),
        passed_before=await context.github.runs.passed_before(repo, run),
    )
    there = await context.github.runs.red_on_base(repo, run, facts.base, here.repo.id) if facts.base else None
    if there is None:
        return facts
    jobs = await here.reader.jobs_of_run(repo, there.id)
    return replace(facts, red_on_base=frozenset(each.name for each in jobs if each.conclusion in RED))


async def _check_on_base(context: JobContext, here: ThreadSnapshot, facts: FailureFacts) -> frozenset[str] | None:
    """The same for a check of another App, which is known by its name; a suite has the App's, and stands for all."""
    repo, base = here.repo.full_name, here.snapshot.base_head
    if not facts.base or base is None:
        return None
    before = {each.name for each in await here.reader.failing_checks(repo, base)}
    failing = {each.name for each in await here.reader.failing_checks(repo, facts.head_sha)} if before else set[str]()
    mine = failing & {context.job.origin.name} or failing
    return frozenset() if mine and mine <= before else None


async def _failed_jobs(here: ThreadSnapshot, run_id: int) -> tuple[FailedJob, ...]:
    """The failed jobs without their logs; what GitHub remarks on the first of them tells whether a runner was lost.

    Remarks have a permission of their own, without which the steps alone decide.
    """
    repo, found = here.repo.full_name, []
    red = [each for each in await here.reader.jobs_of_run(repo, run_id) if each.conclusion in RED]
    for number, job in enumerate(red):
        remarks: tuple[Annotation, ...] = ()
        if number < _LOOKED_AT and job.check_id:
            try:
                remarks = await here.reader.annotations(repo, job.check_id)
            except GitHubError as error:
                if not error.lacks_permission:
                    raise
                log.warning("%s", error)
        found.append(
            FailedJob(
                id=job.id,
                name=job.name,
                conclusion=job.conclusion,
                steps=tuple(map(step_of, job.steps)),
                annotations=tuple(map(remark_of, remarks[:_REMARKS])),
            )
        )
    return tuple(found)


async def _attempts(context: JobContext) -> int:
    """How often failing checks have started work on this commit, or on one that the bot made it from."""
    stored = await context.queue.of_thread(context.job.repo.id, context.job.thread.key)
    tried = [
        each.job
        for each in stored
        if each.job.origin.kind == "ci" and each.state is not JobState.REFUSED and each.job.id != context.job.id
    ]
    made = {}
    for job in tried:
        if (commit := (await context.of(job).read()).published.commit) is not None:
            made[commit.sha] = job
    count, head = 0, context.job.head_sha
    for _ in range(_LINEAGE):
        count += sum(job.head_sha == head for job in tried)
        before = made.get(head)
        if before is None:
            break
        head = before.head_sha
    return count


async def _run_again(context: JobContext, here: ThreadSnapshot, facts: FailureFacts) -> Skip | None:
    """Have the failed jobs run once more where the repository wants that; then that attempt decides."""
    job = context.job
    if not job.origin.id or not (await lately_on_default_branch(context)).rerun_failed_jobs:
        return None
    run = await here.reader.run(here.repo.full_name, job.origin.id)
    if run.attempt > 1 and run.conclusion:
        return None
    try:
        if run.attempt == 1:  # else they run again since an attempt of this job that was cut off, or a person, asked
            await context.github.runs.rerun_failed_jobs(here.repo.full_name, run.id)
    except GitHubError as error:
        if not error.lacks_permission:
            raise
        log.warning("the failed jobs were not re-run: %s", error)
        return None
    what = facts.subject[:1].upper() + facts.subject[1:]
    reason = (
        f"{what} failed on {facts.head_sha[:10]}. I re-ran its failed jobs once: if they pass, the failure was "
        "flaky, and I change nothing."
    )
    return Skip(cause="run-again", reason=reason)
