"""Functions that turn GitHub's events into jobs; `ci_triggers` has those about checks.

To handle another event, register a function in `router`, and add a payload to `tests/payloads.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from bot.domain.access import BotProfile, text_binding
from bot.domain.commands import AccessLost, AssignEvent, CloseEvent, Command, Fix, LabelEvent, PushEvent, Review
from bot.domain.grammar import parse_command
from bot.domain.job import Job, LineRange, Origin, OriginKind, Repo, Thread
from bot.domain.mail_reply import parse_reply
from bot.events import ci_triggers
from bot.events.delivery import (
    Delivery,
    EventPayload,
    Id,
    IgnoredDelivery,
    Issue,
    JobRouter,
    ObjectId,
    PayloadPart,
    PullRequest,
    Sender,
    Sha,
    Text,
    User,
    job_id,
    make_job,
    reject_sender,
)

_RECHECKED = ("renamed", "transferred", "archived", "privatized", "publicized")
"""Actions without a trigger: the bot reads the repository again before it publishes."""


router = JobRouter(ci_triggers.router)


def job_from(delivery: Delivery, profile: BotProfile) -> Job | IgnoredDelivery:
    """Return a delivery's job, or the reason to ignore it. No payload makes it raise.

    Every account, a bot too, can end work; only people and listed bots can start it.
    """
    if (job := router.route(delivery, profile)) is not None:
        return job
    actions = router.actions.get(delivery.event)
    if actions is None:
        return IgnoredDelivery(reason=f"no trigger handles the event {delivery.event}")
    if delivery.event == "repository" and delivery.action in _RECHECKED:
        return IgnoredDelivery(
            reason=f"a repository that was {delivery.action} is checked again before anything is published"
        )
    return IgnoredDelivery(
        reason=f"{delivery.event} is handled if its action is {', '.join(actions)}; this one is "
        f"{delivery.action or 'without an action'}"
    )


class IssuePayload(EventPayload):
    issue: Issue

    @property
    def subject(self) -> Issue:
        return self.issue


class _Changes(PayloadPart):
    old_issue: dict[str, object] | None = None


class OpenedIssuePayload(IssuePayload):
    """An issue was opened or transferred."""

    changes: _Changes | None = None


class _Label(PayloadPart):
    name: Text


class LabeledIssuePayload(IssuePayload):
    label: _Label


class AssignedIssuePayload(IssuePayload):
    assignee: Sender


class _Comment(ObjectId):
    created_at: Text = ""
    body: Text
    user: User

    @property
    def origin(self) -> Origin:
        return Origin(kind="comment", id=self.id, at=self.created_at)


class IssueCommentPayload(IssuePayload):
    comment: _Comment


class PullRequestPayload(EventPayload):
    pull_request: PullRequest

    @property
    def subject(self) -> PullRequest:
        return self.pull_request


class LabeledPullRequestPayload(PullRequestPayload):
    label: _Label


class _Review(ObjectId):
    submitted_at: Text | None = None
    body: Text | None = None
    user: User


class PullRequestReviewPayload(PullRequestPayload):
    """A review, without its comments on lines."""

    review: _Review


_Line = Annotated[int, Field(gt=0, lt=2**31)]


class _ReviewComment(_Comment):
    in_reply_to_id: Id | None = None
    path: Text
    line: _Line | None = None
    start_line: _Line | None = None
    side: Literal["LEFT", "RIGHT"] = "RIGHT"
    subject_type: str = "line"
    diff_hunk: Text = ""
    commit_id: Sha
    original_commit_id: Sha

    @property
    @override
    def origin(self) -> Origin:
        of_file = self.subject_type == "file"
        lines = LineRange(
            path=self.path,
            line=None if of_file else self.line,
            start_line=None if of_file else self.start_line,
            side=self.side,
            hunk=self.diff_hunk,
            # The lines' numbers count in `commit_id`; an outdated comment has none, and only its first commit shows it.
            commit_sha=self.commit_id if self.line else self.original_commit_id,
        )
        root = self.in_reply_to_id or self.id
        return Origin(kind="review_comment", id=self.id, at=self.created_at, root=root, lines=lines)


class PullRequestReviewCommentPayload(PullRequestPayload):
    comment: _ReviewComment


class InstallationPayload(PayloadPart):
    """The App was uninstalled or suspended."""

    sender: Sender


class InstallationRepositoriesPayload(InstallationPayload):
    """The App was removed from repositories."""

    repositories_removed: list[ObjectId]


ThreadPayload = IssuePayload | PullRequestPayload


@router.register("issue_comment", IssueCommentPayload, action="created")
@router.register("pull_request_review_comment", PullRequestReviewCommentPayload, action="created")
def job_from_comment(
    delivery: Delivery, profile: BotProfile, payload: IssueCommentPayload | PullRequestReviewCommentPayload
) -> Job | IgnoredDelivery:
    comment = payload.comment
    unique = str(comment.id)
    return _job_from_text(
        delivery, profile, payload, text=comment.body, author=comment.user, origin=comment.origin, unique=unique
    )


@router.register("pull_request_review", PullRequestReviewPayload, action="submitted")
def job_from_review(
    delivery: Delivery, profile: BotProfile, payload: PullRequestReviewPayload
) -> Job | IgnoredDelivery:
    review = payload.review
    origin = Origin(kind="review", id=review.id, at=review.submitted_at or "")
    unique = str(review.id)
    return _job_from_text(
        delivery, profile, payload, text=review.body or "", author=review.user, origin=origin, unique=unique
    )


@router.register("issues", OpenedIssuePayload, action="opened")
def job_from_opened_issue(
    delivery: Delivery, profile: BotProfile, payload: OpenedIssuePayload
) -> Job | IgnoredDelivery:
    if payload.changes is not None and payload.changes.old_issue is not None:
        return IgnoredDelivery(
            reason="the issue was transferred here: its description was written in another repository"
        )
    return _job_from_description(delivery, profile, payload)


@router.register("pull_request", PullRequestPayload, action="opened")
def job_from_opened_pull_request(
    delivery: Delivery, profile: BotProfile, payload: PullRequestPayload
) -> Job | IgnoredDelivery:
    """Return the job for a new pull request's command, else a review."""
    job = _job_from_description(delivery, profile, payload)
    if isinstance(job, Job) or payload.pull_request.draft:
        return job
    return _review_job(delivery, profile, payload, "opened")


@router.register("pull_request", PullRequestPayload, action="ready_for_review")
def job_from_ready_pull_request(
    delivery: Delivery, profile: BotProfile, payload: PullRequestPayload
) -> Job | IgnoredDelivery:
    """Return a review of a draft that became ready."""
    return _review_job(delivery, profile, payload, "ready")


def _review_job(
    delivery: Delivery, profile: BotProfile, payload: PullRequestPayload, on: Literal["opened", "ready"]
) -> Job | IgnoredDelivery:
    refusal = reject_sender(payload.sender, profile)
    return refusal or _thread_job(delivery, profile, payload, "event", Review(on=on))


@router.register("pull_request", PullRequestPayload, action="synchronize")
def job_from_push(delivery: Delivery, profile: BotProfile, payload: PullRequestPayload) -> Job | IgnoredDelivery:
    """Return the job that records new commits."""
    return _thread_job(delivery, profile, payload, "event", PushEvent(head_sha=payload.pull_request.head.sha))


@router.register("issues", IssuePayload, action="closed")
@router.register("issues", IssuePayload, action="deleted")
@router.register("issues", IssuePayload, action="transferred")
@router.register("issues", IssuePayload, action="locked")
@router.register("pull_request", PullRequestPayload, action="closed")
@router.register("pull_request", PullRequestPayload, action="locked")
def job_from_closed_thread(delivery: Delivery, profile: BotProfile, payload: ThreadPayload) -> Job | IgnoredDelivery:
    """Return the job that ends a thread's work."""
    subject = payload.subject
    merged_into = subject.base.ref if isinstance(subject, PullRequest) and subject.merged else ""
    closed = CloseEvent(how=delivery.action, merged_into=merged_into)
    return _thread_job(delivery, profile, payload, "event", closed, payload.subject.thread.without_text)


@router.register("issues", LabeledIssuePayload, action="labeled")
@router.register("pull_request", LabeledPullRequestPayload, action="labeled")
def job_from_label(
    delivery: Delivery, profile: BotProfile, payload: LabeledIssuePayload | LabeledPullRequestPayload
) -> Job | IgnoredDelivery:
    """Return a fix for the start label, else the job that records the label."""
    name = payload.label.name
    if name.casefold() == profile.start_label.casefold():
        return reject_sender(payload.sender, profile) or _thread_job(delivery, profile, payload, "label", Fix())
    if profile.is_own(payload.sender.id, payload.sender.login):
        return IgnoredDelivery(reason="the bot itself set the label")
    subject = payload.subject
    words = text_binding(subject.thread.title, subject.thread.body)
    if isinstance(subject, PullRequest):
        labelled = LabelEvent(label=name, bound_to=subject.head.sha, words=words, at=subject.updated_at)
    else:
        labelled = LabelEvent(label=name, bound_to=words, at=subject.updated_at)
    return _thread_job(delivery, profile, payload, "label", labelled, subject.thread.without_text)


@router.register("issues", AssignedIssuePayload, action="assigned")
def job_from_assignment(
    delivery: Delivery, profile: BotProfile, payload: AssignedIssuePayload
) -> Job | IgnoredDelivery:
    """Return a fix for an assignment to the bot, else the job that records another bot's."""
    command: Command
    if profile.is_own(payload.assignee.id, payload.assignee.login):
        command = Fix()
    elif payload.assignee.is_bot and profile.own_app_id is not None:
        command = AssignEvent(assignee_id=payload.assignee.id)
    else:
        return IgnoredDelivery(reason="the issue was assigned to somebody else")
    refusal = reject_sender(payload.sender, profile)
    return refusal or _thread_job(delivery, profile, payload, "assignment", command)


@router.register("installation", InstallationPayload, action="deleted")
@router.register("installation", InstallationPayload, action="suspend")
def job_from_installation(
    delivery: Delivery, profile: BotProfile, payload: InstallationPayload
) -> Job | IgnoredDelivery:
    return _job_for_uninstall(delivery, profile, sender=payload.sender)


@router.register("installation_repositories", InstallationRepositoriesPayload, action="removed")
def job_from_installation_repositories(
    delivery: Delivery, profile: BotProfile, payload: InstallationRepositoriesPayload
) -> Job | IgnoredDelivery:
    if not payload.repositories_removed:
        return IgnoredDelivery(reason="no repository was removed")
    repo_ids = tuple(repository.id for repository in payload.repositories_removed)
    return _job_for_uninstall(delivery, profile, sender=payload.sender, repo_ids=repo_ids)


@router.register("repository", EventPayload, action="deleted")
def job_from_deleted_repository(
    delivery: Delivery, profile: BotProfile, payload: EventPayload
) -> Job | IgnoredDelivery:
    return _job_for_uninstall(delivery, profile, sender=payload.sender, repo_ids=(payload.repository.id,))


def _job_for_uninstall(
    delivery: Delivery, profile: BotProfile, *, sender: Sender, repo_ids: tuple[int, ...] = ()
) -> Job | IgnoredDelivery:
    """Return the job that ends the work in `repo_ids`, or of the installation."""
    if delivery.installation is None:
        return IgnoredDelivery(reason=f"the event {delivery.event} names no installation of the App")
    return Job(
        id=job_id(delivery.event, delivery.installation, delivery.delivery_id),
        delivery_id=delivery.delivery_id,
        repo=Repo(id=0, full_name="", private=True),
        thread=Thread.from_number("issue", 0),
        actor=sender.actor,
        origin=Origin(kind="event", id=0),
        command=AccessLost(repo_ids=repo_ids),
        installation=delivery.installation,
        trigger=profile.triggers[0],
    )


def _job_from_description(delivery: Delivery, profile: BotProfile, payload: ThreadPayload) -> Job | IgnoredDelivery:
    subject = payload.subject
    if subject.user is None:
        return IgnoredDelivery(reason="the author of the description is unknown")
    origin = Origin(kind="description", id=0, at=subject.created_at)
    unique = f"description:{subject.number}"
    return _job_from_text(
        delivery, profile, payload, text=subject.body or "", author=subject.user, origin=origin, unique=unique
    )


def _job_from_text(
    delivery: Delivery,
    profile: BotProfile,
    payload: ThreadPayload,
    *,
    text: str,
    author: User,
    origin: Origin,
    unique: str,
) -> Job | IgnoredDelivery:
    """Return the job for the command in the sender's text; its id comes from the text."""
    refusal = reject_sender(payload.sender, profile)
    if refusal is not None:
        return refusal
    if author.id != payload.sender.id:
        return IgnoredDelivery(reason="the author of this text is not the sender of the delivery")
    parsed = parse_command(text, triggers=profile.triggers)
    if parsed is None:
        # A workflow is not started by such comments, and a bot's are no answers.
        is_person = not profile.trusted_bots.has_account(payload.sender.id, payload.sender.login)
        is_reply = origin.kind in {"comment", "review_comment"} and profile.own_app_id and is_person
        reply = parse_reply(text, triggers=profile.triggers) if is_reply else None
        if reply is None:
            return IgnoredDelivery(reason=f"the {origin.kind.replace('_', ' ')} contains no command")
        thread = payload.subject.thread.without_text
        return make_job(delivery, profile, payload, thread=thread, origin=origin, command=reply, unique=unique)
    return make_job(
        delivery,
        profile,
        payload,
        thread=payload.subject.thread,
        origin=origin,
        command=parsed.command,
        trigger=parsed.trigger,
        head_sha=payload.subject.head_sha,
        left_out=parsed.left_out,
        unique=unique,
    )


def _thread_job(  # noqa: PLR0917 - as the registered functions, and the job
    delivery: Delivery,
    profile: BotProfile,
    payload: ThreadPayload,
    kind: OriginKind,
    command: Command,
    thread: Thread | None = None,
) -> Job:
    return make_job(
        delivery,
        profile,
        payload,
        thread=thread or payload.subject.thread,
        origin=Origin(kind=kind, id=0),
        command=command,
        head_sha=payload.subject.head_sha,
    )
