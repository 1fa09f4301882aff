"""Issues: comments, labels, assignees, locks, reactions, history and search.

A pull request is an issue, too, as on GitHub: its conversation, labels, assignees and history are served here, its
branches, files and reviews in `pulls.py`. Reactions to comments on lines are here with the other reactions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from localhub.api.auth import (
    HubError,
    can_read,
    demand_author_or_writer,
    demand_unlocked,
    invalid,
    may,
    not_accessible,
    not_found,
    role_of,
)
from localhub.api.routing import Call, Response, Routes, check_length, listed, moment_of, page_of
from localhub.operations import planning, threads
from localhub.operations.threads import mentioned
from localhub.rest.pulls import review_comment_of
from localhub.state.model import Comment, Issue, IssueType, Milestone, ReviewComment, User
from localhub.views import accounts as account_views
from localhub.views import threads as threads_views

routes = Routes()
READ = "issues|pull_requests:read"
WRITE = "issues|pull_requests:write"
ISSUES = "/repos/{owner}/{repo}/issues"
ISSUE = ISSUES + "/{issue_number}"
COMMENT = ISSUES + "/comments/{comment_id}"
LINE_COMMENT = "/repos/{owner}/{repo}/pulls/comments/{comment_id}"

SubjectOf: TypeAlias = Callable[[Call], Issue | Comment | ReviewComment]
"""Finds the subject of a reaction that a request's path names."""


@routes.on("GET", ISSUES, allow=READ, takes="assignee creator direction labels mentioned milestone since sort state")
def list_issues(call: Call) -> Response:
    """Issues and pull requests, newest first unless asked otherwise."""
    query = call.query
    state = query.get("state", "open")
    labels = {name.lower() for name in query.get("labels", "").split(",") if name}
    found = [
        issue
        for issue in call.site.store.issues_of(call.repo)
        if state in {"all", issue.state} and labels <= {name.lower() for name in issue.labels}
    ]
    if "creator" in query:
        found = [issue for issue in found if call.site.store.users[issue.author_id].login == query["creator"]]
    if "assignee" in query:
        found = [issue for issue in found if _is_assigned(call, issue, query["assignee"])]
    if "milestone" in query:
        found = [issue for issue in found if _is_under(call, issue, query["milestone"])]
    if "mentioned" in query:
        found = [issue for issue in found if query["mentioned"].lower() in mentioned(call.site, issue)]
    if "since" in query:
        found = [issue for issue in found if issue.updated_at >= moment_of(query["since"], "since")]
    newest_first = query.get("direction", "desc") == "desc"
    if query.get("sort") == "updated":
        found.sort(key=lambda issue: issue.updated_at, reverse=newest_first)
    else:
        found.sort(key=lambda issue: issue.number, reverse=newest_first)
    return listed(call, found, lambda issue: threads_views.issue(call.site, call.repo, issue))


def _is_under(call: Call, issue: Issue, number: str) -> bool:
    """Whether a thread is under a milestone; `none` matches no milestone, `*` any."""
    if number in {"none", "*"} or issue.milestone_id is None:
        return (issue.milestone_id is not None) == (number == "*") and number in {"none", "*"}
    return str(call.site.store.milestones[issue.milestone_id].number) == number


def _is_assigned(call: Call, issue: Issue, login: str) -> bool:
    """Whether a thread is assigned to a user; `none` matches no assignee, `*` any."""
    if login in {"none", "*"}:
        return bool(issue.assignees) == (login == "*")
    return login.lower() in {call.site.store.users[number].login.lower() for number in issue.assignees}


@routes.on(
    "POST", ISSUES, allow="issues:write", role="read", takes="assignee assignees body labels milestone title type"
)
def create_issue(call: Call) -> Response:
    """Open an issue; labels and assignees of those who may not set them are dropped silently, as on GitHub."""
    if not call.repo.has_issues:
        raise HubError(410, "Issues has been disabled in this repository.")
    title = call.body.get("title")
    if not isinstance(title, str | int) or not str(title).strip():
        raise invalid("Issue", "title", "missing_field")
    check_length(str(title), "Issue", "title")
    allowed = _may_triage(call)
    issue = threads.open_issue(
        call.site,
        call.repo,
        call.user,
        title=str(title),
        body=call.optional_text("body", "Issue"),
        labels=_label_names(call) if allowed else (),
        app_id=call.app_id,
    )
    people = [*_assignees(call), *_assignee(call)] if allowed else []
    if people:
        issue = threads.set_assignees(call.site, issue, call.user, people)
    if allowed and call.body.get("milestone"):
        issue = threads.set_milestone(call.site, issue, call.user, _milestone(call))
    if allowed and call.body.get("type"):
        issue = planning.set_type(call.site, issue, call.user, _type(call))
    return Response(status=201, body=show(call, issue), headers={"Location": _url(call, issue)})


@routes.on("GET", ISSUES + "/comments", allow=READ, takes="since")
def list_all_comments(call: Call) -> Response:
    """Comments of the whole repository, oldest first."""
    found = [c for c in call.site.store.comments if c.repo_id == call.repo.id]
    return listed(call, _updated_since(call, found), lambda c: threads_views.comment(call.site, call.repo, c))


@routes.on("GET", ISSUE, allow=READ)
def one_issue(call: Call) -> Response:
    """One issue or pull request."""
    return Response(body=show(call, call.issue()))


@routes.on(
    "PATCH",
    ISSUE,
    allow=WRITE,
    role="read",
    takes="assignee assignees body duplicate_issue_id labels milestone state state_reason title type",
)
def edit_issue(call: Call) -> Response:
    """Change title, text, state, labels or assignees."""
    issue, body, site = call.issue(), call.body, call.site
    demand_author_or_writer(call.site, call.viewer, call.repo, issue.author_id)
    title = call.text("title", "Issue", issue.title)
    text = call.optional_text("body", "Issue") if "body" in body else issue.body
    issue = threads.retitle(site, issue, call.user, title, text)
    if "labels" in body:
        issue = threads.set_labels(site, issue, call.user, _label_names(call))
    if "assignees" in body or "assignee" in body:
        issue = threads.set_assignees(site, issue, call.user, [*_assignees(call), *_assignee(call)])
    if "milestone" in body:
        issue = threads.set_milestone(site, issue, call.user, _milestone(call))
    if "type" in body:
        issue = planning.set_type(site, issue, call.user, _type(call))
    state, reason, original = body.get("state", issue.state), body.get("state_reason"), body.get("duplicate_issue_id")
    if state not in {"open", "closed"}:
        raise invalid("Issue", "state", "invalid")
    if reason not in {None, "completed", "not_planned", "duplicate", "reopened"}:
        raise invalid("Issue", "state_reason", "invalid")
    if reason == "duplicate" and original is not None:
        _demand_issue(call, original)
    original = original if reason == "duplicate" else None
    issue = threads.set_state(site, issue, call.user, state, reason, duplicate_of=original)
    return Response(body=show(call, issue))


def _type(call: Call) -> IssueType | None:
    given = call.body["type"]
    name = given.get("value") if isinstance(given, dict) else given
    return None if name is None else planning.find_type(call.site, call.repo, str(name))


def _demand_issue(call: Call, number: int) -> None:
    """Require an issue with this id that the viewer may read.

    Raises:
        HubError: 422.
    """
    found = call.site.store.issues.get(number)
    if found is None or not can_read(call.site, call.viewer, call.site.store.repos[found.repo_id]):
        raise invalid("Issue", "duplicate_issue_id", "invalid")


def show(call: Call, issue: Issue) -> dict[str, Any]:
    """An issue, with who closed it."""
    closer = account_views.user_by_id(call.site, issue.closed_by)
    return threads_views.issue(call.site, call.repo, issue) | {"closed_by": closer}


def _url(call: Call, issue: Issue) -> str:
    return call.site.repo_api(call.repo, "issues", issue.number)


def _may_triage(call: Call) -> bool:
    return call.viewer.installation is not None or may(role_of(call.site, call.repo, call.viewer.user), "triage")


@routes.on("GET", COMMENT, allow=READ)
def one_comment(call: Call) -> Response:
    """One comment."""
    return Response(body=threads_views.comment(call.site, call.repo, _comment_of(call)))


@routes.on("PATCH", COMMENT, allow=WRITE, role="read", takes="body")
def edit_comment(call: Call) -> Response:
    """Change a comment."""
    old = _comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    new = threads.edit_comment(call.site, old, call.user, _comment_body(call))
    return Response(body=threads_views.comment(call.site, call.repo, new))


@routes.on("DELETE", COMMENT, allow=WRITE, role="read")
def delete_comment(call: Call) -> Response:
    """Remove a comment."""
    old = _comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    threads.delete_comment(call.site, old, call.user)
    return Response(status=204)


@routes.on("GET", ISSUE + "/comments", allow=READ, takes="since")
def list_comments(call: Call) -> Response:
    """A thread's comments, oldest first."""
    found = _updated_since(call, call.site.store.comments_of(call.issue()))
    return listed(call, found, lambda c: threads_views.comment(call.site, call.repo, c))


@routes.on("POST", ISSUE + "/comments", allow=WRITE, role="read", takes="body")
def create_comment(call: Call) -> Response:
    """Add a comment; an App needs the permission for this kind of thread."""
    issue = call.issue()
    kind = "pull_requests" if issue.pull else "issues"
    held = call.viewer.permissions
    if call.viewer.installation is not None and "write" not in {held.get(kind), held.get("issues")}:
        raise not_accessible()
    demand_unlocked(call.site, call.viewer, call.repo, issue, "comment")
    made = threads.comment(call.site, issue, call.user, _comment_body(call), app_id=call.app_id)
    shown = threads_views.comment(call.site, call.repo, made)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


def _comment_of(call: Call) -> Comment:
    return call.row(call.site.store.comments, "comment_id")


def _updated_since(call: Call, comments: list[Comment]) -> list[Comment]:
    if "since" not in call.query:
        return comments
    since = moment_of(call.query["since"], "since")
    return [comment for comment in comments if comment.updated_at >= since]


def _comment_body(call: Call) -> str:
    text = call.text("body", "IssueComment")
    if not text.strip():
        raise invalid("IssueComment", "body", "missing_field")
    return text


@routes.on("PUT", ISSUE + "/lock", allow=WRITE, takes="lock_reason")
def lock(call: Call) -> Response:
    """Close a thread's conversation to all but writers."""
    reason = call.optional_text("lock_reason", "Issue")
    if reason not in {None, "off-topic", "too heated", "resolved", "spam"}:
        raise invalid("Issue", "lock_reason", "invalid")
    threads.set_locked(call.site, call.issue(), call.user, locked=True, reason=reason)
    return Response(status=204)


@routes.on("DELETE", ISSUE + "/lock", allow=WRITE)
def unlock(call: Call) -> Response:
    """Open a thread's conversation again."""
    threads.set_locked(call.site, call.issue(), call.user, locked=False)
    return Response(status=204)


@routes.on("GET", ISSUE + "/labels", allow=READ)
def labels_of(call: Call) -> Response:
    """A thread's labels."""
    repo = call.repo
    return listed(call, account_views.labels_of(call.site, repo, call.issue()), lambda label: label)


def _relabel(call: Call, names: list[str]) -> Response:
    changed = threads.set_labels(call.site, call.issue(), call.user, names)
    return Response(body=account_views.labels_of(call.site, call.repo, changed))


@routes.on("POST", ISSUE + "/labels", allow=WRITE, role="triage", takes="labels")
def add_labels(call: Call) -> Response:
    """Add labels to a thread."""
    return _relabel(call, [*call.issue().labels, *_label_names(call)])


@routes.on("PUT", ISSUE + "/labels", allow=WRITE, role="triage", takes="labels")
def set_labels(call: Call) -> Response:
    """Replace a thread's labels."""
    return _relabel(call, _label_names(call))


@routes.on("DELETE", ISSUE + "/labels", allow=WRITE, role="triage")
def remove_labels(call: Call) -> Response:
    """Take all labels off a thread."""
    _relabel(call, [])
    return Response(status=204)


@routes.on("DELETE", ISSUE + "/labels/{name}", allow=WRITE, role="triage")
def remove_label(call: Call) -> Response:
    """Take one label off a thread."""
    gone = call.params["name"].lower()
    labels = call.issue().labels
    if gone not in {name.lower() for name in labels}:
        raise HubError(404, "Label does not exist")
    return _relabel(call, [name for name in labels if name.lower() != gone])


def _label_names(call: Call) -> list[str]:
    """Labels come as names or as objects with a name."""
    given = call.body.get("labels") or []
    if not isinstance(given, list):
        raise invalid("Label", "labels", "invalid")
    names = [item.get("name") if isinstance(item, dict) else item for item in given]
    if not all(isinstance(name, str) and name for name in names):
        raise invalid("Label", "name", "invalid")
    return [str(name) for name in names]


@routes.on("POST", ISSUE + "/assignees", allow=WRITE, role="triage", takes="assignees")
def add_assignees(call: Call) -> Response:
    """Assign more people."""
    issue = call.issue()
    already = [call.site.store.users[number] for number in issue.assignees]
    changed = threads.set_assignees(call.site, issue, call.user, [*already, *_assignees(call)])
    return Response(status=201, body=threads_views.issue(call.site, call.repo, changed))


@routes.on("DELETE", ISSUE + "/assignees", allow=WRITE, role="triage", takes="assignees")
def remove_assignees(call: Call) -> Response:
    """Unassign people."""
    issue, gone = call.issue(), {user.id for user in _assignees(call)}
    stay = [call.site.store.users[number] for number in issue.assignees if number not in gone]
    changed = threads.set_assignees(call.site, issue, call.user, stay)
    return Response(body=threads_views.issue(call.site, call.repo, changed))


def _assignees(call: Call) -> list[User]:
    return [threads.require_user(call.site, login) for login in call.texts("assignees", "Issue")]


def _assignee(call: Call) -> list[User]:
    """The one assignee of the older kind of request."""
    login = call.text("assignee", "Issue", "")
    return [threads.require_user(call.site, login)] if login else []


def _milestone(call: Call) -> Milestone | None:
    number = call.body["milestone"]
    found = [each for each in call.site.store.milestones_of(call.repo) if str(each.number) == str(number)]
    if number is not None and not found:
        raise invalid("Issue", "milestone", "invalid")
    return found[0] if found else None


@routes.on("GET", "/search/issues", takes="order q sort")
def search_issues(call: Call) -> Response:
    """Issues and pull requests that fit `q`."""
    found = threads.search(call.site, call.viewer, call.query.get("q", ""))
    if call.query.get("order") == "asc":
        found.reverse()
    some, headers = page_of(call, found)
    repos = call.site.store.repos
    shown = [threads_views.found_issue(call.site, repos[issue.repo_id], issue) for issue in some]
    body = {"total_count": len(found), "incomplete_results": False, "items": shown, "search_type": "lexical"}
    return Response(body=body, headers=headers)


@routes.on("GET", ISSUE + "/events", allow=READ)
def events(call: Call) -> Response:
    """The events of a thread, without comments and reviews, oldest first."""
    found = call.site.store.history_of(call.issue())
    return listed(call, found, lambda value: threads_views.event(call.site, call.repo, value))


@routes.on("GET", ISSUE + "/timeline", allow=READ)
def timeline(call: Call) -> Response:
    """The events of a thread with its comments and reviews, oldest first."""
    issue, store = call.issue(), call.site.store
    found: list[threads_views.Entry] = [*store.history_of(issue), *store.comments_of(issue), *store.reviews_of(issue)]
    found.sort(key=threads_views.moment)
    return listed(call, found, lambda value: threads_views.timeline_entry(call.site, call.repo, value))


def _list_reactions(subject_of: SubjectOf, call: Call) -> Response:
    wanted = call.query.get("content")
    found = [given for given in call.site.store.reactions_to(subject_of(call)) if wanted in {None, given.content}]
    return listed(call, found, lambda value: threads_views.reaction(call.site, value))


def _react(subject_of: SubjectOf, call: Call) -> Response:
    subject, content = subject_of(call), call.text("content", "Reaction")
    if content not in threads_views.REACTIONS:
        raise invalid("Reaction", "content", "invalid")
    given, new = threads.react(call.site, subject, call.user, content)
    return Response(status=201 if new else 200, body=threads_views.reaction(call.site, given))


def _delete_reaction(subject_of: SubjectOf, call: Call) -> Response:
    subject, given = subject_of(call), call.site.store.reactions.get(call.number("reaction_id"))
    if given is None or given not in call.site.store.reactions_to(subject) or given.user_id != call.user.id:
        raise not_found()
    call.site.store.reactions.remove(given.id)
    return Response(status=204)


_REACTION_SUBJECTS: tuple[tuple[str, str, SubjectOf], ...] = (
    (COMMENT, "issues|pull_requests", _comment_of),
    (ISSUE, "issues|pull_requests", Call.issue),
    (LINE_COMMENT, "pull_requests", review_comment_of),
)

for _path, _permission, _subject_of in _REACTION_SUBJECTS:
    routes.on("GET", f"{_path}/reactions", allow=f"{_permission}:read", takes="content")(
        partial(_list_reactions, _subject_of)
    )
    routes.on("POST", f"{_path}/reactions", allow=f"{_permission}:write", role="read", takes="content")(
        partial(_react, _subject_of)
    )
    routes.on("DELETE", _path + "/reactions/{reaction_id}", allow=f"{_permission}:write", role="read")(
        partial(_delete_reaction, _subject_of)
    )
