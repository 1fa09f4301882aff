"""Reactions to issues, pull requests and comments."""

from __future__ import annotations

from typing import TypeAlias

from localhub.api.errors import invalid, not_found
from localhub.api.routing import Call, Response, Routes, listed
from localhub.operations import threads
from localhub.rest.issues import comment_of
from localhub.rest.reviews import review_comment_of
from localhub.state.model import Comment, Issue, ReviewComment
from localhub.views import reactions as reactions_views

routes = Routes()
READ = "issues|pull_requests:read"
WRITE = "issues|pull_requests:write"
ISSUE = "/repos/{owner}/{repo}/issues/{issue_number}/reactions"
COMMENT = "/repos/{owner}/{repo}/issues/comments/{comment_id}/reactions"
LINE = "/repos/{owner}/{repo}/pulls/comments/{comment_id}/reactions"

Subject: TypeAlias = Issue | Comment | ReviewComment


def _list(call: Call, subject: Subject) -> Response:
    wanted = call.query.get("content")
    found = [given for given in call.site.store.reactions_to(subject) if wanted in {None, given.content}]
    return listed(call, found, lambda given: reactions_views.reaction(call.site, given))


def _create(call: Call, subject: Subject) -> Response:
    content = call.text("content", "Reaction")
    if content not in reactions_views.REACTIONS:
        raise invalid("Reaction", "content", "invalid")
    given, new = threads.react(call.site, subject, call.user, content)
    return Response(status=201 if new else 200, body=reactions_views.reaction(call.site, given))


def _delete(call: Call, subject: Subject) -> Response:
    given = call.site.store.reactions.get(call.number("reaction_id"))
    if given is None or given not in call.site.store.reactions_to(subject) or given.user_id != call.user.id:
        raise not_found()
    call.site.store.reactions.remove(given.id)
    return Response(status=204)


@routes.on("GET", COMMENT, allow=READ)
def of_comment(call: Call) -> Response:
    """A comment's reactions."""
    return _list(call, comment_of(call))


@routes.on("POST", COMMENT, allow=WRITE, role="read")
def to_comment(call: Call) -> Response:
    """React to a comment."""
    return _create(call, comment_of(call))


@routes.on("DELETE", COMMENT + "/{reaction_id}", allow=WRITE, role="read")
def off_comment(call: Call) -> Response:
    """Take back a reaction to a comment."""
    return _delete(call, comment_of(call))


@routes.on("GET", ISSUE, allow=READ)
def of_issue(call: Call) -> Response:
    """An issue's reactions."""
    return _list(call, call.issue())


@routes.on("POST", ISSUE, allow=WRITE, role="read")
def to_issue(call: Call) -> Response:
    """React to an issue."""
    return _create(call, call.issue())


@routes.on("DELETE", ISSUE + "/{reaction_id}", allow=WRITE, role="read")
def off_issue(call: Call) -> Response:
    """Take back a reaction to an issue."""
    return _delete(call, call.issue())


@routes.on("GET", LINE, allow="pull_requests:read")
def of_line(call: Call) -> Response:
    """Reactions to a comment on a line."""
    return _list(call, review_comment_of(call))


@routes.on("POST", LINE, allow="pull_requests:write", role="read")
def to_line(call: Call) -> Response:
    """React to a comment on a line."""
    return _create(call, review_comment_of(call))


@routes.on("DELETE", LINE + "/{reaction_id}", allow="pull_requests:write", role="read")
def off_line(call: Call) -> Response:
    """Take back a reaction to a comment on a line."""
    return _delete(call, review_comment_of(call))
