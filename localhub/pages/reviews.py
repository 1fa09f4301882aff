"""Reviews of a pull request and comments on its lines, as people write them in the browser."""

from __future__ import annotations

from typing import get_args

from localhub.api.errors import HubError, not_found
from localhub.api.routing import check_length
from localhub.operations import reviews
from localhub.operations.reviews import NewComment, UnplacedError
from localhub.pages.people import actor
from localhub.pages.view import Page, PageVisit, digits
from localhub.state.model import ReviewState, Side


def _text(visit: PageVisit) -> str:
    value = visit.form.get("body", "").strip()
    check_length(value, "Page", "body")
    return value


def submit(visit: PageVisit) -> Page:
    """Take a review: a comment, an approval, or a request for changes."""
    states: dict[str, ReviewState] = {
        "comment": "COMMENTED",
        "approve": "APPROVED",
        "request_changes": "CHANGES_REQUESTED",
    }
    state, body = states.get(visit.form.get("verdict", "")), _text(visit)
    if state is None:
        raise HubError(422, "Choose what the review says: comment, approve, or request changes.")
    if not body and state != "APPROVED":
        raise HubError(422, "Please write something: only an approval needs no words.")
    reviews.submit(visit.site, visit.thread, actor(visit), state=state, body=body)
    return Page(location=visit.path.removesuffix("/reviews"))


def comment(visit: PageVisit) -> Page:
    """Take a comment on a line, or on several."""
    given, side = visit.form.get("start_line", ""), visit.form.get("side", "RIGHT")
    line, first = digits(visit.form.get("line", "")), digits(given)
    body = _text(visit)
    if not body:
        raise HubError(422, "Please write something.")
    if line is None or (given and first is None) or side not in get_args(Side):
        raise HubError(422, "A comment needs the number of a line.")
    wanted = NewComment(
        path=visit.form.get("path", ""),
        body=body,
        line=line,
        side="LEFT" if side == "LEFT" else "RIGHT",
        start_line=first if first is not None and first < line else None,
    )
    try:
        reviews.submit(visit.site, visit.thread, actor(visit), state="COMMENTED", body="", comments=[wanted])
    except UnplacedError as error:
        raise HubError(422, f"The difference does not show this {error.field.replace('_', ' ')}.") from error
    return Page(location=visit.path)


def reply(visit: PageVisit) -> Page:
    """Take an answer to a comment on a line."""
    number, body, issue = digits(visit.form.get("to", "")), _text(visit), visit.thread
    parent = None if number is None else visit.site.store.review_comments.get(number)
    if parent is None or (parent.repo_id, parent.number) != (visit.repo.id, issue.number):
        raise not_found()
    if not body:
        raise HubError(422, "Please write something.")
    made = reviews.reply(visit.site, issue, actor(visit), parent, body)
    return Page(location=f"{visit.path.removesuffix('/replies')}#discussion_r{made.id}")
