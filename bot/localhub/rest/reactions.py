"""Reactions to issues, pull requests and comments."""

from __future__ import annotations

from typing import Literal

from bot.localhub import actions, views
from bot.localhub.errors import invalid, not_found
from bot.localhub.rest.issues import comment_of
from bot.localhub.routing import Answer, Call, Routes, listed

routes = Routes()
READ = "issues|pull_requests:read"
WRITE = "issues|pull_requests:write"
ISSUE = "/repos/{owner}/{repo}/issues/{issue_number}/reactions"
COMMENT = "/repos/{owner}/{repo}/issues/comments/{comment_id}/reactions"

Kind = Literal["issue", "comment"]


def _list(call: Call, kind: Kind, subject: int) -> Answer:
    wanted = call.query.get("content")
    found = [
        given
        for given in call.site.store.reactions
        if given.kind == kind and given.subject_id == subject and wanted in {None, given.content}
    ]
    return listed(call, found, lambda given: views.reaction(call.site, given))


def _create(call: Call, kind: Kind, subject: int) -> Answer:
    content = call.text("content", "Reaction")
    if content not in views.REACTIONS:
        raise invalid("Reaction", "content", "invalid")
    given, new = actions.react(call.site, kind, subject, call.user, content)
    return Answer(status=201 if new else 200, body=views.reaction(call.site, given))


def _delete(call: Call, kind: Kind, subject: int) -> Answer:
    given = call.site.store.reactions.get(call.number("reaction_id"))
    if given is None or (given.kind, given.subject_id) != (kind, subject) or given.user_id != call.user.id:
        raise not_found()
    call.site.store.reactions.remove(given.id)
    return Answer(status=204)


@routes.on("GET", COMMENT, allow=READ)
def of_comment(call: Call) -> Answer:
    """A comment's reactions."""
    return _list(call, "comment", comment_of(call).id)


@routes.on("POST", COMMENT, allow=WRITE, role="read")
def to_comment(call: Call) -> Answer:
    """React to a comment."""
    return _create(call, "comment", comment_of(call).id)


@routes.on("DELETE", COMMENT + "/{reaction_id}", allow=WRITE, role="read")
def off_comment(call: Call) -> Answer:
    """Take back a reaction to a comment."""
    return _delete(call, "comment", comment_of(call).id)


@routes.on("GET", ISSUE, allow=READ)
def of_issue(call: Call) -> Answer:
    """An issue's reactions."""
    return _list(call, "issue", call.issue().id)


@routes.on("POST", ISSUE, allow=WRITE, role="read")
def to_issue(call: Call) -> Answer:
    """React to an issue."""
    return _create(call, "issue", call.issue().id)


@routes.on("DELETE", ISSUE + "/{reaction_id}", allow=WRITE, role="read")
def off_issue(call: Call) -> Answer:
    """Take back a reaction to an issue."""
    return _delete(call, "issue", call.issue().id)
