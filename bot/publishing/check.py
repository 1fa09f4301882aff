"""The check run of a job: the same content as the comment, for those who look at the commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_runtime import Status
from bot.domain.job import Job
from bot.github.drafts import (
    ANNOTATION_LIMIT,
    CHECK_TEXT_LIMIT,
    TITLE_LIMIT,
    Annotation,
    Button,
    CheckDraft,
    CheckStatus,
    Conclusion,
    ReviewDraft,
)
from bot.publishing.live import sealed
from bot.publishing.pieces import may_be_approved
from bot.publishing.render import STARTED_BY_CI, framing, render_status, title_of
from bot.publishing.text import clean, clip, duration, fenced, one_line
from bot.publishing.verdict import Verdict, failing
from bot.publishing.view import StatusView

_STOP = Button(label="Stop", description="Stop the run and keep its work", identifier="stop")
_RETRY = Button(label="Retry", description="Run it again from the start", identifier="retry")
_APPROVE, _DENY = ("Approve", "Approve the request"), ("Deny", "Deny it; the run continues")
_PATCH_READ = 4 * CHECK_TEXT_LIMIT
# `approve ` and this much fit into a button's identifier; intake takes no more.
_ID_LIMIT = 8

_UNDER_WAY: Mapping[str, CheckStatus] = {"queued": "queued", "working": "in_progress", "parked": "queued"}
# A run that waits is `completed` to GitHub: only then does it show the buttons, and `action_required` is made for it.
_CONCLUSIONS: Mapping[str, Conclusion] = {
    "waiting": "action_required",
    "done": "success",
    "stopped": "cancelled",
    "failed": "failure",
    "refused": "skipped",
}
_VERDICTS: Mapping[Verdict, Conclusion] = {
    Verdict.VERIFIED: "success",
    Verdict.UNVERIFIED: "neutral",
    Verdict.RED: "failure",
    Verdict.UNCHANGED: "neutral",
    Verdict.SETUP_FAILED: "failure",
}
_ENDED = frozenset({"done", "failed", "stopped", "refused"})
_BUTTONS: Mapping[str, tuple[Button, ...]] = {
    "queued": (_STOP,),
    "working": (_STOP,),
    "parked": (_STOP,),
    "waiting": (_STOP,),
    "stopped": (_RETRY,),
    "failed": (_RETRY,),
}
# These pass where a rule asks for green checks: https://docs.github.com/pull-requests/collaborating-with-pull-requests/collaborating-on-repositories-with-code-quality-features/about-status-checks
_HARMLESS: frozenset[Conclusion] = frozenset({"success", "neutral", "skipped"})

NO_FILE = ".github"
"""Where GitHub's own runner puts what belongs to no line."""


def render_check(
    view: StatusView,
    *,
    job: Job,
    head_sha: str,
    status: Status | None = None,
    patch: str = "",
    review: ReviewDraft | None = None,
) -> CheckDraft:
    """The check run that says what `view` says.

    Args:
        view: how the job is doing.
        job: what was asked, and where.
        head_sha: the commit it stands on: a pull request's head, the branch's, or the default branch's for an issue.
        status: how the agent's run ended, when it has.
        patch: the change, attached as far as it fits.
        review: comments on lines, shown as annotations.
    """
    under_way = _UNDER_WAY.get(view.state)
    thread = job.thread
    # No branch has a colon in its name.
    place = f"branch:{thread.branch}" if thread.kind == "branch" else f"{thread.kind}:{thread.number}"
    asked = f"{STARTED_BY_CI} {view.failed} failed" if view.failed else view.unasked or view.asked
    summary = render_status(view).removesuffix(view.marker).rstrip()
    if len(summary) > CHECK_TEXT_LIMIT:
        cut = clip(summary, CHECK_TEXT_LIMIT, "_Truncated: see the comment for the rest._")
        summary = sealed(cut, view.allowed, replace(framing(view), marker=""), limit=CHECK_TEXT_LIMIT)
    buttons, pending = _BUTTONS.get(view.state, ()), view.pending
    if view.state == "waiting" and pending is not None and pending.kind != "question":  # which takes words
        # They name what they were drawn for: a page may be older than what waits now.
        request, offered = pending.request_id[:_ID_LIMIT], (_APPROVE, _DENY) if may_be_approved(pending) else (_DENY,)
        answers = (
            Button(label=label, description=description, identifier=f"{label.lower()} {request}")
            for label, description in offered
        )
        buttons = (*answers, *buttons)
    return CheckDraft(
        # One line in the list of checks for each thing that can be asked for; many issues share one commit.
        name=f"Codepilot {job.command.verb}" + (f" #{thread.number}" if thread.kind == "issue" else ""),
        head_sha=head_sha,
        external_id=f"{job.id}:{place}:{view.pending.request_id if view.pending else '-'}",
        status=under_way or "completed",
        conclusion=None if under_way else conclusion(view, status, blocking=job.thread.kind == "pull"),
        title=one_line(f"{title_of(view)[1]}: {asked}", TITLE_LIMIT),
        summary=summary,
        text=_patch_text(patch, job.id),
        annotations=annotations_of(view, review) if view.state in _ENDED else (),
        buttons=buttons,
    )


def conclusion(view: StatusView, status: Status | None, *, blocking: bool) -> Conclusion:
    """How a job ended, in GitHub's words.

    Args:
        view: what the comment says; its state is no longer `queued` or `working`.
        status: how the agent's run ended, when it did.
        blocking: whether the mark may keep others from merging; else whatever is not green is `neutral`.
    """
    ended = _CONCLUSIONS[view.state]
    if view.state == "failed" and status is Status.TIMEOUT:
        ended = "timed_out"
    if view.state == "done" and view.verdict is not None:
        ended = _VERDICTS[view.verdict]
    if ended == "success" and view.withheld:
        ended = "neutral"
    return ended if blocking or ended in _HARMLESS else "neutral"


def _patch_text(patch: str, job_id: str) -> str:
    if not patch:
        return ""
    heading = "### The patch\n\n"
    # A carriage return would count as a redrawn line, and it is part of the lines of some files.
    # Of a patch of many megabytes no more is looked at than could be shown.
    read = patch[:_PATCH_READ]
    shown = "\r".join(map(clean, read.split("\r")))
    unseen = "Shown without invisible characters. " if shown != read else ""
    note = f"_{unseen}The bot keeps the patch under job `{job_id}`._" if unseen else ""
    whole = f"{heading}{fenced(shown, 'diff')}\n\n{note}".rstrip()
    if len(whole) <= CHECK_TEXT_LIMIT and read == patch:
        return whole
    note = f"_{unseen}Truncated: the whole patch has {len(patch):,} characters. The bot keeps it under job `{job_id}`._"
    # A fence may be as long as the longest run of back ticks, and the patch of a hostile file may be all of those.
    room = CHECK_TEXT_LIMIT - len(heading) - len(note) - 20
    while room > 0:
        cut = f"{heading}{fenced(clip(shown, room, ''), 'diff')}\n\n{note}"
        if len(cut) <= CHECK_TEXT_LIMIT:
            return cut
        room //= 2
    return note


def annotations_of(view: StatusView, review: ReviewDraft | None) -> tuple[Annotation, ...]:
    """What is to be said beside lines, and of checks that failed, once a job has ended."""
    failed = failing(view.checks)
    hanging = [each for each in view.checks if each.standing == "counts" and each.exit_code is None]
    of_checks = (
        Annotation(
            path=NO_FILE,
            start_line=1,
            end_line=1,
            level="failure",
            title=one_line(check.command, TITLE_LIMIT),
            message=f"Ended with exit code {check.exit_code} after {duration(check.seconds)}."
            if check.exit_code is not None
            else f"Did not finish within {duration(check.seconds)}.",
        )
        for check in (*failed, *hanging)
    )
    # An annotation stands on lines of the file as it is now; a note on removed lines has none.
    of_lines = (
        Annotation(
            path=note.path,
            start_line=note.line if note.start_line is None else note.start_line,
            end_line=note.line,
            level="notice",
            message=clip(note.body, ANNOTATION_LIMIT, "_Truncated: see the review for the rest._"),
        )
        for note in (review.notes if review else ())
        if note.side == "RIGHT"
    )
    return (*of_checks, *of_lines)
