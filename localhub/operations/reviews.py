"""Reviews of pull requests and comments on their lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from localhub.api.errors import HubError
from localhub.git import diff as git_diff
from localhub.git import rows
from localhub.operations import webhooks
from localhub.state.model import Issue, PullRequestReview, Repo, ReviewComment, ReviewState, Side, User
from localhub.state.site import Json, Site
from localhub.views import reviews as reviews_views
from localhub.views import threads as threads_views


class UnplacedError(Exception):
    """The difference does not show what a comment is about; `field` is `path`, `line` or `start_line`."""

    def __init__(self, field: Literal["path", "line", "start_line"]) -> None:
        super().__init__(f"{field} could not be resolved")
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class NewComment:
    """What somebody wants to say about a line, or about the lines from `start_line` to `line`."""

    path: str
    body: str
    line: int
    side: Side = "RIGHT"
    start_line: int | None = None
    start_side: Side | None = None


def submit(
    site: Site, issue: Issue, author: User, *, state: ReviewState, body: str, comments: Sequence[NewComment] = ()
) -> tuple[PullRequestReview, list[ReviewComment]]:
    """Review a pull request at its present head; nothing is kept when one of the comments has no place.

    A `PENDING` review is kept and told to nobody, until `publish` submits it.

    Raises:
        HubError: 422, the author reviews work of their own in another way than by commenting, or has begun a review.
        UnplacedError: a comment is about a line that the difference does not show.
    """
    _demand_other_author(issue, author, state)
    if site.store.pending_review_of(issue, author) is not None:
        told = "User can only have one pending review per pull request"
        raise HubError(422, "Unprocessable Entity", errors=(told,))
    review = _review(site, issue, author, state=state, body=body)
    made = [_placed(site, issue, review, wanted) for wanted in comments]
    if state != "PENDING":
        _keep(site, issue, author, review, made)
        return review, made
    site.store.reviews.put(review)
    for comment in made:
        site.store.review_comments.put(comment)
    return review, made


def publish(
    site: Site, issue: Issue, old: PullRequestReview, author: User, *, state: ReviewState, body: str
) -> PullRequestReview:
    """Submit a pending review with its comments.

    Raises:
        HubError: 422, the author reviews work of their own in another way than by commenting.
    """
    _demand_other_author(issue, author, state)
    review = replace(old, state=state, body=body, submitted_at=site.now())
    _keep(site, issue, author, review, [c for c in site.store.review_comments if c.review_id == old.id])
    return review


def discard(site: Site, old: PullRequestReview) -> None:
    """Remove a pending review with its comments."""
    for comment in [c for c in site.store.review_comments if c.review_id == old.id]:
        site.store.review_comments.remove(comment.id)
    site.store.reviews.remove(old.id)


def _demand_other_author(issue: Issue, author: User, state: ReviewState) -> None:
    if state in {"APPROVED", "CHANGES_REQUESTED"} and author.id == issue.author_id:
        verb = "approve" if state == "APPROVED" else "request changes on"
        raise HubError(422, "Unprocessable Entity", errors=(f"Can not {verb} your own pull request",))


def dismiss(site: Site, old: PullRequestReview, sender: User) -> PullRequestReview:
    """Dismiss a review and report it."""
    repo = site.store.repos[old.repo_id]
    new = site.store.reviews.put(replace(old, state="DISMISSED"))
    issue = site.store.issue(repo, old.number)
    if issue is None:
        raise LookupError(f"review {old.id} belongs to #{old.number} of {repo.full_name}, which is not there")
    payload: Json = {"action": "dismissed", "review": reviews_views.told_review(site, repo, new)}
    pull = {"pull_request": threads_views.pull_simple(site, repo, issue)}
    webhooks.emit(site, "pull_request_review", repo, sender, payload | pull)
    return new


def reply(site: Site, issue: Issue, author: User, to: ReviewComment, body: str) -> ReviewComment:
    """Answer in the conversation that a comment belongs to."""
    review = _review(site, issue, author, state="COMMENTED", body="")
    made = replace(
        to,
        id=site.store.new_id(),
        review_id=review.id,
        author_id=author.id,
        body=body,
        in_reply_to=to.in_reply_to or to.id,
        created_at=site.now(),
        updated_at=site.now(),
    )
    _keep(site, issue, author, review, [made])
    return made


def _review(site: Site, issue: Issue, author: User, *, state: ReviewState, body: str) -> PullRequestReview:
    if issue.pull is None:
        raise HubError(404, "Not Found")
    return PullRequestReview(
        id=site.store.new_id(),
        repo_id=issue.repo_id,
        number=issue.number,
        author_id=author.id,
        state=state,
        body=body,
        commit_sha=issue.pull.head_sha,
        submitted_at=site.now(),
    )


def _keep(site: Site, issue: Issue, author: User, review: PullRequestReview, comments: list[ReviewComment]) -> None:
    """GitHub makes a review around every comment, also around a single one, and reports both."""
    repo = site.store.repos[issue.repo_id]
    site.store.reviews.put(review)
    for comment in comments:
        site.store.review_comments.put(comment)
    payload: Json = {"action": "submitted", "review": reviews_views.told_review(site, repo, review)}
    pull = {"pull_request": threads_views.pull_simple(site, repo, issue)}
    webhooks.emit(site, "pull_request_review", repo, author, payload | pull)
    for comment in comments:
        _announce(site, comment, author, "created")


def _placed(site: Site, issue: Issue, review: PullRequestReview, wanted: NewComment) -> ReviewComment:
    patch = _patch(site.store.repos[issue.repo_id], issue, wanted.path)
    found = rows.rows(patch)
    at = rows.position(found, wanted.line, wanted.side)
    if at is None:
        raise UnplacedError("line")
    start_side = None if wanted.start_line is None else wanted.start_side or wanted.side
    if wanted.start_line is not None and start_side is not None:
        start = rows.position(found, wanted.start_line, start_side)
        if start is None or start >= at or rows.hunk_start(found, start) != rows.hunk_start(found, at):
            raise UnplacedError("start_line")
    return ReviewComment(
        id=site.store.new_id(),
        review_id=review.id,
        repo_id=issue.repo_id,
        number=issue.number,
        author_id=review.author_id,
        body=wanted.body,
        path=wanted.path,
        commit_sha=review.commit_sha,
        line=wanted.line,
        side=wanted.side,
        start_line=wanted.start_line,
        start_side=start_side,
        position=at,
        diff_hunk=rows.excerpt(patch, at),
        in_reply_to=None,
        created_at=review.submitted_at,
        updated_at=review.submitted_at,
    )


def _patch(repo: Repo, issue: Issue, path: str) -> str:
    changed = {} if issue.pull is None else {file.path: file for file in git_diff.of_pull(repo.path, issue.pull)}
    if path not in changed:
        raise UnplacedError("path")
    return changed[path].patch or ""


def edit(site: Site, old: ReviewComment, editor: User, body: str) -> ReviewComment:
    """Change a comment's text."""
    new = site.store.review_comments.put(replace(old, body=body, updated_at=site.now()))
    _announce(site, new, editor, "edited", {"changes": {"body": {"from": old.body}}})
    return new


def delete(site: Site, old: ReviewComment, sender: User) -> None:
    """Remove a comment."""
    site.store.review_comments.remove(old.id)
    _announce(site, old, sender, "deleted")


def _announce(site: Site, comment: ReviewComment, sender: User, action: str, more: Json | None = None) -> None:
    repo = site.store.repos[comment.repo_id]
    issue = site.store.issue(repo, comment.number)
    if issue is None:
        raise LookupError(f"comment {comment.id} belongs to #{comment.number} of {repo.full_name}, which is not there")
    payload: Json = {
        "action": action,
        "comment": reviews_views.review_comment(site, repo, comment),
        "pull_request": threads_views.pull_simple(site, repo, issue),
    }
    webhooks.emit(site, "pull_request_review_comment", repo, sender, payload | (more or {}))
