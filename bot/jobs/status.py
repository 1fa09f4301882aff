"""The view of a job's state (`status_view`), and the comments beside its status comment.

GitHub sends no notification for an edit, so a notice mentions the requester.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime

from bot.domain.commands import persona_of
from bot.jobs.context import JobContext
from bot.jobs.posts import StatusComment, locate_comment
from bot.permissions.levels import describe_network
from bot.permissions.repo_config import BUILT_IN_RECIPES, Notify
from bot.publishing.markdown import code, duration
from bot.publishing.markers import sign_marker
from bot.publishing.outcome import Failed, Finished, JobOutcome, Waiting
from bot.publishing.plan import event_label, requester_of
from bot.publishing.render import render_notice, render_part
from bot.publishing.review import describe_unread
from bot.publishing.screening import split_diff
from bot.publishing.status_view import StatusView

# https://docs.github.com/actions/concepts/security/github_token#when-github_token-triggers-workflow-runs
_NO_CI = (
    "GitHub starts no workflow for commits pushed with a workflow's own token. Push an empty commit, or close and "
    "reopen the pull request, to start the checks."
)


def status_view(context: JobContext, outcome: JobOutcome | None = None, *, is_queued: bool = False) -> StatusView:
    """Return the view of a job's state, and of its outcome if it has ended or waits."""
    services, job, state = context.services, context.job, context.state
    progress, grant, now = state.progress, state.grant, time.time()
    reach = progress.reach or describe_network(services.bounds.network)
    lost = f", which was lost: {progress.network_lost}" if progress.network_lost else ""
    # The command as it was given; a workflow's file gives the verb alone.
    command = job.trigger if job.command.verb == "bare" else f"{job.trigger} {job.command.verb}"
    if job.origin.kind in {"workflow", "recipe"}:
        command = job.command.verb
    if job.recipe is not None:
        verb = job.recipe.name if job.recipe.name in BUILT_IN_RECIPES else f"run {job.recipe.name}"
        command = f"{command.removesuffix(job.command.verb)}{verb}"
    command += f" --agent {persona}" if (persona := persona_of(job.command)) else ""
    # The check that failed, if that began the job.
    page, is_ci = f"{services.server_url}/{job.repo.full_name}/", job.origin.kind == "ci"
    notes, pull = grant.notes if grant else (), state.continues
    is_pushed = outcome is not None and outcome.published.commit is not None
    if outcome is not None:
        notes = (*notes, *outcome.notes, *filter(None, [outcome.published.note]))
        if progress.unread is not None and progress.unread.total and outcome.review is None:
            notes = (*notes, describe_unread(progress.unread, "read"))
        pull = outcome.published.pull if outcome.run is not None and not isinstance(outcome, Waiting) else pull
        reason, remedy = map(services.strip_local_paths, (outcome.reason, outcome.remedy))
        outcome = replace(
            outcome,
            reason=services.rename_settings_to_inputs(reason),
            remedy=services.rename_settings_to_inputs(remedy),
        )
    return StatusView(
        command=command,
        allowed=services.allowed(job),
        requester=requester_of(job),
        event_label=event_label(job),
        job_id=job.id,
        marker=services.status_marker(job),
        seconds=max(0.0, now - state.started_at),
        at=now,
        is_queued=is_queued,
        outcome=outcome,
        progress=replace(
            progress,
            warning=services.strip_local_paths(progress.warning),
            setup_failed=services.strip_local_paths(progress.setup_failed),
        ),
        stop=f"{job.trigger} stop" if job.thread.has_comments and services.place != "workflow without a key" else "",
        failed_check=job.origin.name or "CI" if is_ci else "",
        failed_url=job.origin.url if is_ci and job.origin.url.startswith(page) else "",
        run_url=state.run_url,
        pull=pull,
        ci_note=_NO_CI if not services.is_long_running and is_pushed else "",
        patch_note=context.patch_note
        if outcome is not None
        and (outcome.patch or (outcome.leftovers and services.is_long_running))
        and not isinstance(outcome, Waiting)
        else "",
        notes=tuple(map(services.rename_settings_to_inputs, notes)),
        model=grant.model if grant else services.bounds.model,
        level=grant.level if grant else "",
        sandbox=f"{services.bounds.sandbox}, {reach}{lost}",
    )


def extra_comment(context: JobContext, name: str) -> StatusComment:
    """Return an additional comment of the job; `name` is unique in it."""
    job, key = context.job, context.services.marker_key
    marker = sign_marker(f"{name.replace(' ', '-')}-{job.id}", job.repo.id, job.thread.number, key=key)
    return StatusComment(context.github, context.record.part(name), job, marker=marker)


NOTICE_SECONDS = 120.0
"""Users still watch the page of shorter jobs."""


def notice_text(view: StatusView, events: tuple[Notify, ...]) -> str:
    """Return the notice about an ending or a request; empty if the repository disables it."""
    outcome = view.outcome
    if not view.allowed.login:
        return ""
    if isinstance(outcome, Waiting):
        until = datetime.fromtimestamp(outcome.until, UTC)
        text = f"{code(view.command)} is waiting for an answer until {until.day} {until:%B, %H:%M} UTC"
        return text if "waiting" in events and outcome.pending is not None else ""
    if "done" not in events or not isinstance(outcome, Finished | Failed) or view.seconds <= NOTICE_SECONDS:
        return ""
    verb = "has finished" if isinstance(outcome, Finished) else "has failed"
    return f"{code(view.command)} {verb} after {duration(view.seconds)}"


_REQUEST_NOTICE = "notice waiting-"


async def notify(context: JobContext, event: str, text: str, view: StatusView | None = None) -> None:
    """Post a notice in its own comment, once across worker restarts; `event` is its unique name.

    Args:
        view: of a request, which the notice contains.

    Raises:
        GitHubError: the request failed.
    """
    job, name = context.job, f"notice {event}"
    record = await context.record.read()
    if not text or not job.thread.has_comments or (name in record.parts and record.parts[name].posted is not None):
        return
    url = record.comment.posted.url if record.comment.posted is not None else ""
    comment, allowed = extra_comment(context, name), context.services.allowed(job)
    await comment.put(await asyncio.to_thread(render_notice, text, allowed, url=url, marker=comment.marker, view=view))


async def close_notices(context: JobContext) -> None:
    """Say in the notices about requests that they no longer wait, once across worker restarts.

    Raises:
        GitHubError: a request failed.
    """
    job, record = context.job, await context.record.read()
    approvals, ending = record.approvals, record.ending
    waiting = approvals.open_request if ending is None else None
    for name, notice in record.parts.items():
        request_id = name.removeprefix(_REQUEST_NOTICE)
        is_open = waiting is not None and waiting.request_id == request_id
        if not name.startswith(_REQUEST_NOTICE) or notice.posted is None or notice.closed or is_open:
            continue
        answer, shown = approvals.answers.get(request_id), approvals.request_views.get(request_id)
        reason = ending.cause if ending is not None else ""
        if answer is not None:
            verb = "answered" if shown and shown.kind == "question" else "approved" if answer.approved else "denied"
            reason = f"{code(answer.by.login)} {verb} it"
        text = ": ".join(filter(None, [f"{code(status_view(context).command)} no longer waits", reason.rstrip(".")]))
        url = record.comment.posted.url if record.comment.posted is not None else ""
        marker, allowed = extra_comment(context, name).marker, context.services.allowed(job)
        body = await asyncio.to_thread(render_notice, text, allowed, url=url, marker=marker)
        located = await locate_comment(context.github, job, notice)
        if located is not None:  # people may have deleted it
            await context.github.comments.edit(job.repo.full_name, located[0], located[1].id, body)
        await context.record.part(name).update(lambda part: replace(part, closed=True))


async def post_parts(context: JobContext, view: StatusView) -> tuple[str, ...]:
    """Post a long request in several comments, once across worker restarts; return their URLs.

    Raises:
        GitHubError: the request failed; the request is not shown.
    """
    outcome, pending = view.outcome, view.pending
    if not isinstance(outcome, Waiting) or pending is None or not context.job.thread.has_comments:
        return ()
    texts = split_diff(pending.preview)
    counted = replace(pending, part_urls=("",) * len(texts))
    urls = []
    for number, text in enumerate(texts, 1):
        name = f"part {pending.request_id} {number}"
        part = context.record.part(name)
        if (await part.read()).posted is None:
            comment = extra_comment(context, name)
            part_view = replace(view, outcome=replace(outcome, pending=counted), marker=comment.marker)
            await comment.put(await asyncio.to_thread(render_part, part_view, number, text))
        posted = (await part.read()).posted
        urls.append(posted.url if posted is not None else "")
    return tuple(urls)


def read_hint(context: JobContext, permission: str) -> str:
    """Return the remedy for a missing read permission."""
    if not context.services.is_long_running:
        return f"The workflow's token cannot read {permission}: add `{permission}: read` to its `permissions:`."
    return (
        f"The App is missing the permission *{permission.capitalize()}: read-only*. Grant it in the App's settings, "
        "then accept it in the installation."
    )
