"""One kind of event a file; each is named once, in `TRIGGERS`."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import Field

from bot.domain.access import Listening, text_binding
from bot.domain.commands import Assigned, Closed, Command, Fix, Labelled, Pushed, Review
from bot.domain.job import Job, Lines, Origin, OriginKind, Thread
from bot.events import ci_triggers
from bot.events.delivery import (
    Delivery,
    EventPayload,
    Id,
    IgnoredDelivery,
    Issue,
    Label,
    PayloadPart,
    PullRequest,
    Sender,
    Sha,
    Text,
    ThreadText,
    User,
    asked_in_description,
    asked_in_words,
    departed,
    job_of,
    no_commander,
    other_action,
    read,
)

# ---- The App was removed from an account, or suspended. Pure.


EVENT_INSTALLATION = "installation"


def job_from_installation(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What to end, or why nothing has to."""
    if delivery.action not in ("deleted", "suspend"):
        return other_action(delivery, "deleted", "suspend")
    event = read(_EventInstallation, delivery)
    return event if isinstance(event, IgnoredDelivery) else departed(delivery, listening, sender=event.sender)


class _EventInstallation(PayloadPart):
    sender: Sender


# ---- The App was removed from repositories of an account. Pure.


EVENT_INSTALLATION_REPOSITORIES = "installation_repositories"


def job_from_installation_repositories(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What to end, or why nothing has to."""
    if delivery.action != "removed":
        return other_action(delivery, "removed")
    event = read(_EventInstallationRepositories, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    if not event.repositories_removed:
        return IgnoredDelivery(reason="no repository was removed")
    lost = tuple(repository.id for repository in event.repositories_removed)
    return departed(delivery, listening, sender=event.sender, repo_ids=lost)


class _Removed(PayloadPart):
    id: Id


class _EventInstallationRepositories(PayloadPart):
    sender: Sender
    repositories_removed: list[_Removed]


# ---- Events of an issue: a command that opens it, labels, assignment, its end. Pure.


EVENT_ISSUES = "issues"

_ENDS = ("closed", "deleted", "transferred", "locked")


def job_from_issues(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that an issue asks for as it is opened, labelled or assigned, or what happened to it; or why none."""
    match delivery.action:
        case "opened":
            return _opened(delivery, listening)
        case "labeled":
            return _labelled(delivery, listening)
        case "assigned":
            return _assigned(delivery, listening)
        case action if action in _ENDS:
            event = read(_EventIssues, delivery)
            if isinstance(event, IgnoredDelivery):
                return event
            return _job(delivery, listening, event, "event", Closed(how=action), event.issue.thread.wordless)
        case _:
            return other_action(delivery, "opened", "labeled", "assigned", *_ENDS)


def _opened(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Opened, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    if event.changes is not None and event.changes.old_issue is not None:
        return IgnoredDelivery(
            reason="the issue was transferred here: its description was written in another repository"
        )
    return asked_in_description(delivery, listening, event=event, about=event.issue)


def _labelled(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Labelled, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    name = event.label.name
    if name.casefold() == listening.start_label.casefold():
        return no_commander(event.sender, listening) or _job(delivery, listening, event, "label", Fix())
    if listening.is_own(event.sender.id, event.sender.login):
        return IgnoredDelivery(reason="the bot itself set the label")
    words = event.issue.thread
    bound_to = text_binding(words.title, words.body)
    labelled = Labelled(label=name, bound_to=bound_to, at=event.issue.updated_at)
    return _job(delivery, listening, event, "label", labelled, words.wordless)


def _assigned(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_Assigned, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    command: Command
    if listening.is_own(event.assignee.id, event.assignee.login):
        command = Fix()
    elif event.assignee.is_bot and listening.own_app_id is not None:
        command = Assigned(assignee_id=event.assignee.id)
    else:
        return IgnoredDelivery(reason="the issue was assigned to somebody else")
    return no_commander(event.sender, listening) or _job(delivery, listening, event, "assignment", command)


def _job(  # noqa: PLR0917 - what `job_of` takes
    delivery: Delivery,
    listening: Listening,
    event: _EventIssues,
    kind: OriginKind,
    command: Command,
    thread: Thread | None = None,
) -> Job:
    return job_of(
        delivery,
        event=event,
        thread=thread or event.issue.thread,
        origin=Origin(kind=kind, id=0),
        command=command,
        trigger=listening.triggers[0],
    )


class _EventIssues(EventPayload):
    issue: Issue


class _Changes(PayloadPart):
    old_issue: dict[str, object] | None = None


class _Opened(_EventIssues):
    changes: _Changes | None = None


class _Labelled(_EventIssues):
    label: Label


class _Assigned(_EventIssues):
    assignee: Sender


# ---- A comment on an issue or pull request. Pure.


EVENT_ISSUE_COMMENT = "issue_comment"


def job_from_issue_comment(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that a new comment asks for, or why it asks for none."""
    if delivery.action != "created":
        return other_action(delivery, "created")
    event = read(_EventIssueComment, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    comment = event.comment
    words = ThreadText(
        text=comment.body,
        author=comment.user,
        origin=Origin(kind="comment", id=comment.id, at=comment.created_at),
        unique=str(comment.id),
    )
    return asked_in_words(delivery, listening, event=event, thread=event.issue.thread, words=words)


class _Comment(PayloadPart):
    id: Id
    created_at: Text = ""
    body: Text
    user: User


class _EventIssueComment(EventPayload):
    issue: Issue
    comment: _Comment


# ---- Events of a pull request: a command that opens it, labels, pushes, readiness, its end. Pure.


EVENT_PULL_REQUEST = "pull_request"

_HEARD = ("opened", "synchronize", "ready_for_review", "closed", "locked")


def job_from_pull_request(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that its description, a label or readiness asks for, or what happened; or why there is nothing to do."""
    if delivery.action == "labeled":
        return _labelled_pull_request(delivery, listening)
    if delivery.action not in _HEARD:
        return other_action(delivery, "labeled", *_HEARD)
    event = read(_EventPullRequest, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    if delivery.action == "opened":
        # The command that it was opened with, or else the review that the repository may want of it.
        asked = asked_in_description(delivery, listening, event=event, about=event.pull_request)
        if isinstance(asked, Job) or event.pull_request.draft:
            return asked
    if delivery.action in {"opened", "ready_for_review"}:
        review = Review(on="opened" if delivery.action == "opened" else "ready")
        return no_commander(event.sender, listening) or _job_pull_request(delivery, listening, event, "event", review)
    pushed = delivery.action == "synchronize"
    happened = Pushed(head_sha=event.pull_request.head.sha) if pushed else Closed(how=delivery.action)
    words = event.pull_request.thread
    # A review of what was pushed may follow.
    return _job_pull_request(delivery, listening, event, "event", happened, words if pushed else words.wordless)


def _labelled_pull_request(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    event = read(_LabelledPullRequest, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    name = event.label.name
    if name.casefold() == listening.start_label.casefold():
        return no_commander(event.sender, listening) or _job_pull_request(delivery, listening, event, "label", Fix())
    if listening.is_own(event.sender.id, event.sender.login):
        return IgnoredDelivery(reason="the bot itself set the label")
    pull = event.pull_request
    words = text_binding(pull.thread.title, pull.thread.body)
    labelled = Labelled(label=name, bound_to=pull.head.sha, words=words, at=pull.updated_at)
    return _job_pull_request(delivery, listening, event, "label", labelled, pull.thread.wordless)


def _job_pull_request(  # noqa: PLR0917 - what `job_of` takes
    delivery: Delivery,
    listening: Listening,
    event: _EventPullRequest,
    kind: OriginKind,
    command: Command,
    thread: Thread | None = None,
) -> Job:
    return job_of(
        delivery,
        event=event,
        thread=thread or event.pull_request.thread,
        origin=Origin(kind=kind, id=0),
        command=command,
        trigger=listening.triggers[0],
        head_sha=event.pull_request.head.sha,
    )


class _EventPullRequest(EventPayload):
    pull_request: PullRequest


class _LabelledPullRequest(_EventPullRequest):
    label: Label


# ---- The words of a review; its comments on lines come as events of their own. Pure.


EVENT_PULL_REQUEST_REVIEW = "pull_request_review"


def job_from_pull_request_review(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that the words of a review ask for, or why they ask for none."""
    if delivery.action != "submitted":
        return other_action(delivery, "submitted")
    event = read(_EventPullRequestReview, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    words = ThreadText(
        text=event.review.body or "",
        author=event.review.user,
        origin=Origin(kind="review", id=event.review.id, at=event.review.submitted_at or ""),
        head_sha=event.pull_request.head.sha,
        unique=str(event.review.id),
    )
    return asked_in_words(delivery, listening, event=event, thread=event.pull_request.thread, words=words)


class _Review(PayloadPart):
    id: Id
    submitted_at: Text | None = None
    body: Text | None = None
    user: User


class _EventPullRequestReview(EventPayload):
    pull_request: PullRequest
    review: _Review


# ---- A comment on lines of a pull request. Pure.


EVENT_PULL_REQUEST_REVIEW_COMMENT = "pull_request_review_comment"


def job_from_pull_request_review_comment(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that a new comment asks for, with the lines it is about, or why it asks for none."""
    if delivery.action != "created":
        return other_action(delivery, "created")
    event = read(_EventPullRequestReviewComment, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    comment = event.comment
    origin = Origin(
        kind="review_comment",
        id=comment.id,
        at=comment.created_at,
        root=comment.in_reply_to_id or comment.id,
        lines=comment.lines,
    )
    words = ThreadText(
        text=comment.body,
        author=comment.user,
        origin=origin,
        head_sha=event.pull_request.head.sha,
        unique=str(comment.id),
    )
    return asked_in_words(delivery, listening, event=event, thread=event.pull_request.thread, words=words)


_Line = Annotated[int, Field(gt=0, lt=2**31)]


class _CommentPullRequestReviewComment(PayloadPart):
    id: Id
    created_at: Text = ""
    body: Text
    user: User
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
    def lines(self) -> Lines:
        of_file = self.subject_type == "file"
        return Lines(
            path=self.path,
            line=None if of_file else self.line,
            start_line=None if of_file else self.start_line,
            side=self.side,
            hunk=self.diff_hunk,
            # The lines' numbers count in `commit_id`; an outdated comment has none, and only its first commit shows it.
            commit_sha=self.commit_id if self.line else self.original_commit_id,
        )


class _EventPullRequestReviewComment(EventPayload):
    pull_request: PullRequest
    comment: _CommentPullRequestReviewComment


# ---- A repository was deleted. Pure.


EVENT_REPOSITORY = "repository"

_LOOKED_AT_AGAIN = ("renamed", "transferred", "archived", "privatized", "publicized")


def job_from_repository(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What to end, or why nothing has to."""
    if delivery.action in _LOOKED_AT_AGAIN:
        return IgnoredDelivery(
            reason=f"a repository that was {delivery.action} is checked again before anything is published"
        )
    if delivery.action != "deleted":
        return other_action(delivery, "deleted")
    event = read(EventPayload, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    return departed(delivery, listening, sender=event.sender, repo_ids=(event.repository.id,))


class Trigger(Protocol):
    """Turns one kind of event into a job, or says why it asks for none. Never raises for what a payload holds."""

    def __call__(self, delivery: Delivery, listening: Listening, /) -> Job | IgnoredDelivery:
        """See `job_from`."""


TRIGGERS: dict[str, Trigger] = {
    ci_triggers.EVENT_CHECK_RUN: ci_triggers.job_from_check_run,
    ci_triggers.EVENT_CHECK_SUITE: ci_triggers.job_from_check_suite,
    EVENT_INSTALLATION: job_from_installation,
    EVENT_INSTALLATION_REPOSITORIES: job_from_installation_repositories,
    EVENT_ISSUE_COMMENT: job_from_issue_comment,
    EVENT_ISSUES: job_from_issues,
    EVENT_PULL_REQUEST: job_from_pull_request,
    EVENT_PULL_REQUEST_REVIEW: job_from_pull_request_review,
    EVENT_PULL_REQUEST_REVIEW_COMMENT: job_from_pull_request_review_comment,
    EVENT_REPOSITORY: job_from_repository,
    ci_triggers.EVENT_WORKFLOW_RUN: ci_triggers.job_from_workflow_run,
}
"""From an event's name to what reads it."""


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that a delivery asks for, or why it asks for none.

    Events that only narrow what the bot may do, such as a closed thread, count from everyone, bots too. All else
    is asked for by people, and by the bots that the operator lists.
    """
    read = TRIGGERS.get(delivery.event)
    if read is None:
        return IgnoredDelivery(reason=f"no trigger handles the event {delivery.event}")
    return read(delivery, listening)
