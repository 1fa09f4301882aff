"""Reviews of pull requests, and comments on their lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localhub.api.auth import demand_author_or_writer, demand_unlocked
from localhub.api.errors import HubError, invalid, not_found, unprocessable
from localhub.api.routing import Call, Response, Routes, check_length, listed
from localhub.operations import reviews
from localhub.rest.pulls import pull_of
from localhub.state.model import Issue, PullRequestReview, ReviewComment, ReviewState, Side
from localhub.views import reviews as reviews_views

routes = Routes()
READ, WRITE = "pull_requests:read", "pull_requests:write"
BASE = "/repos/{owner}/{repo}/pulls"
ONE = BASE + "/{pull_number}"
COMMENT = BASE + "/comments/{comment_id}"
RESOURCE = "PullRequestReviewComment"
_STATES: Mapping[str, ReviewState] = {
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
}
_REVIEW = "PullRequestReview"


def review_comment_of(call: Call) -> ReviewComment:
    """The comment that the path names.

    Raises:
        HubError: 404, there is none, or its review is not submitted.
    """
    found = call.site.store.review_comments.get(call.number("comment_id"))
    if found is None or found.repo_id != call.repo.id or call.site.store.is_pending(found):
        raise not_found()
    return found


def _listed(call: Call, found: list[ReviewComment]) -> Response:
    newest_first = call.query.get("direction") == "desc"
    return listed(
        call,
        found[::-1] if newest_first else found,
        lambda value: reviews_views.review_comment(call.site, call.repo, value),
    )


def _shown(call: Call, value: ReviewComment, status: int = 200) -> Response:
    shown = reviews_views.review_comment(call.site, call.repo, value)
    return Response(status=status, body=shown, headers={"Location": shown["url"]} if status == 201 else {})  # noqa: PLR2004 - Created


@routes.on("GET", BASE + "/comments", allow=READ)
def all_comments(call: Call) -> Response:
    """Comments on lines in the whole repository."""
    store = call.site.store
    return _listed(call, [c for c in store.review_comments if c.repo_id == call.repo.id and not store.is_pending(c)])


@routes.on("GET", COMMENT, allow=READ)
def one_comment(call: Call) -> Response:
    """One comment on a line."""
    return _shown(call, review_comment_of(call))


@routes.on("PATCH", COMMENT, allow=WRITE, role="read")
def edit_comment(call: Call) -> Response:
    """Change a comment on a line."""
    old = review_comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    return _shown(call, reviews.edit(call.site, old, call.user, _body(call)))


@routes.on("DELETE", COMMENT, allow=WRITE, role="read")
def delete_comment(call: Call) -> Response:
    """Remove a comment on a line."""
    old = review_comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    reviews.delete(call.site, old, call.user)
    return Response(status=204)


@routes.on("GET", ONE + "/comments", allow=READ)
def comments(call: Call) -> Response:
    """A pull request's comments on lines."""
    issue, _ = pull_of(call)
    return _listed(call, call.site.store.review_comments_of(issue))


@routes.on("POST", ONE + "/comments", allow=WRITE, role="read")
def create_comment(call: Call) -> Response:
    """Comment on a line of the difference; `in_reply_to` answers another comment instead."""
    issue = _writable(call)
    if "in_reply_to" in call.body:
        return _reply(call, issue, call.body["in_reply_to"])
    call.text("commit_id", RESOURCE)
    wanted = _new_comment({**call.body, "body": _body(call)})
    try:
        _, [made] = reviews.submit(call.site, issue, call.user, state="COMMENTED", body="", comments=[wanted])
    except reviews.UnplacedError as error:
        field = f"pull_request_review_thread.{error.field}"
        raise invalid(RESOURCE, field, "custom", f"{field} must be part of the diff") from error
    return _shown(call, made, 201)


@routes.on("POST", ONE + "/comments/{comment_id}/replies", allow=WRITE, role="read")
def reply(call: Call) -> Response:
    """Answer a comment; GitHub takes no replies to replies."""
    return _reply(call, _writable(call), call.number("comment_id"))


def _reply(call: Call, issue: Issue, to: int) -> Response:
    parent = call.site.store.review_comments.get(to)
    wrong = parent is not None and (parent.repo_id, parent.number) != (call.repo.id, issue.number)
    if parent is None or wrong or call.site.store.is_pending(parent):
        raise not_found()
    return _shown(call, reviews.reply(call.site, issue, call.user, parent, _body(call)), 201)


def _writable(call: Call) -> Issue:
    issue, _ = pull_of(call)
    demand_unlocked(call.site, call.viewer, call.repo, issue, "comment")
    return issue


def _body(call: Call) -> str:
    text = call.text("body", RESOURCE)
    if not text.strip():
        raise invalid(RESOURCE, "body", "missing_field")
    return text


def _new_comment(given: Mapping[str, Any]) -> reviews.NewComment:
    """A comment as the body of a request has it.

    Raises:
        HubError: 422, something is missing or of the wrong kind.
    """
    for name in ("path", "body"):
        if not isinstance(given.get(name), str) or not given[name]:
            raise invalid(RESOURCE, name, "missing_field")
    check_length(given["body"], RESOURCE, "body")
    if not isinstance(given.get("line"), int):
        raise invalid(RESOURCE, "line", "missing_field")
    return reviews.NewComment(
        path=given["path"],
        body=given["body"],
        line=given["line"],
        side=_side(given.get("side")) or "RIGHT",
        start_line=given.get("start_line"),
        start_side=_side(given.get("start_side")),
    )


def _side(value: object) -> Side | None:
    match value:
        case None:
            return None
        case "LEFT":
            return "LEFT"
        case "RIGHT":
            return "RIGHT"
        case _:
            raise invalid(RESOURCE, "side", "invalid")


@routes.on("GET", ONE + "/reviews", allow=READ)
def list_reviews(call: Call) -> Response:
    """A pull request's reviews, oldest first; last the viewer's own that is pending."""
    issue, _ = pull_of(call)
    pending = _pending(call, issue)
    found = call.site.store.reviews_of(issue) + ([pending] if pending else [])
    return listed(call, found, lambda value: reviews_views.review(call.site, call.repo, value))


@routes.on("POST", ONE + "/reviews", allow=WRITE, role="read")
def create_review(call: Call) -> Response:
    """Review a pull request in one go; without an event the review is pending."""
    issue = _writable(call)
    given, body = call.body.get("comments") or [], call.text("body", _REVIEW, "")
    state: ReviewState = "PENDING"
    if call.body.get("event") is not None:
        state = _submitted(call, body, blank=not given)
    head = issue.pull.head_sha if issue.pull else ""
    if call.body.get("commit_id", head) != head:
        raise unprocessable("The local hub reviews the head of a pull request only; commit_id is another commit.")
    wanted = [_new_comment(each) for each in given]
    try:
        made, _ = reviews.submit(call.site, issue, call.user, state=state, body=body, comments=wanted)
    except reviews.UnplacedError as error:
        name = error.field.replace("_", " ").capitalize()
        raise HubError(422, "Unprocessable Entity", errors=(f"{name} could not be resolved",)) from error
    return Response(body=reviews_views.review(call.site, call.repo, made))


def _review_of(call: Call) -> PullRequestReview:
    issue, _ = pull_of(call)
    found = call.site.store.reviews.get(call.number("review_id"))
    if found is None or found not in (*call.site.store.reviews_of(issue), _pending(call, issue)):
        raise not_found()
    return found


def _pending(call: Call, issue: Issue) -> PullRequestReview | None:
    return None if call.viewer.user is None else call.site.store.pending_review_of(issue, call.viewer.user)


def _submitted(call: Call, body: str, *, blank: bool) -> ReviewState:
    """The state that the request's event asks for; `blank` when the review holds no comment."""
    event = call.text("event", _REVIEW)
    if event not in _STATES:
        raise invalid(_REVIEW, "event", "invalid")
    if event != "APPROVE" and blank and not body.strip():
        raise HubError(422, "Unprocessable Entity", errors=("Body can't be blank",))
    return _STATES[event]


@routes.on("GET", ONE + "/reviews/{review_id}", allow=READ)
def one_review(call: Call) -> Response:
    """One review."""
    return Response(body=reviews_views.review(call.site, call.repo, _review_of(call)))


@routes.on("PUT", ONE + "/reviews/{review_id}", allow=WRITE, role="read")
def edit_review(call: Call) -> Response:
    """Change the words of a review."""
    old = _review_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    made = call.site.store.reviews.put(replace(old, body=call.text("body", _REVIEW)))
    return Response(body=reviews_views.review(call.site, call.repo, made))


@routes.on("POST", ONE + "/reviews/{review_id}/events", allow=WRITE, role="read")
def submit_review(call: Call) -> Response:
    """Submit a pending review."""
    issue, old = _writable(call), _review_of(call)
    if old.state != "PENDING":
        raise unprocessable("Can not submit a review that is not pending")
    body = call.text("body", _REVIEW, old.body)
    state = _submitted(call, body, blank=not any(c.review_id == old.id for c in call.site.store.review_comments))
    made = reviews.publish(call.site, issue, old, call.user, state=state, body=body)
    return Response(body=reviews_views.review(call.site, call.repo, made))


@routes.on("DELETE", ONE + "/reviews/{review_id}", allow=WRITE, role="read")
def discard_review(call: Call) -> Response:
    """Remove a pending review."""
    old = _review_of(call)
    if old.state != "PENDING":
        raise unprocessable("Can not delete a non-pending pull request review")
    reviews.discard(call.site, old)
    return Response(body=reviews_views.review(call.site, call.repo, old))


@routes.on("PUT", ONE + "/reviews/{review_id}/dismissals", allow=WRITE)
def dismiss(call: Call) -> Response:
    """Take the weight from an approval or a request for changes."""
    old = _review_of(call)
    call.text("message", _REVIEW)
    if old.state not in {"APPROVED", "CHANGES_REQUESTED"}:
        raise unprocessable("Can not dismiss a commented pull request review")
    made = reviews.dismiss(call.site, old, call.user)
    return Response(body=reviews_views.review(call.site, call.repo, made))


@routes.on("GET", ONE + "/reviews/{review_id}/comments", allow=READ)
def comments_of_review(call: Call) -> Response:
    """The comments on lines that a review brought."""
    review = _review_of(call)
    return _listed(call, [c for c in call.site.store.review_comments if c.review_id == review.id])
