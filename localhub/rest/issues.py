"""Issues, their comments, labels and assignees; pull requests answer here too."""

from __future__ import annotations

from typing import Any, TypeAlias

from localhub.api.auth import (
    HubError,
    demand_author_or_writer,
    demand_unlocked,
    invalid,
    may,
    not_accessible,
    not_found,
    role_of,
)
from localhub.api.routing import Call, Response, Routes, check_length, listed, moment_of, page_of
from localhub.operations import threads
from localhub.operations.threads import mentioned
from localhub.rest.pulls import review_comment_of
from localhub.state.model import Comment, Issue, ReviewComment, User
from localhub.views import accounts as account_views
from localhub.views import git as history_views
from localhub.views import threads as threads_views

routes = Routes()
READ = "issues|pull_requests:read"
WRITE = "issues|pull_requests:write"
BASE = "/repos/{owner}/{repo}/issues"
ONE = BASE + "/{issue_number}"


def show(call: Call, issue: Issue) -> dict[str, Any]:
    """An issue, with who closed it."""
    closer = account_views.user_by_id(call.site, issue.closed_by)
    return threads_views.issue(call.site, call.repo, issue) | {"closed_by": closer}


@routes.on("GET", BASE, allow=READ)
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


def _is_assigned(call: Call, issue: Issue, wanted: str) -> bool:
    """Whether a thread is assigned to somebody; `none` and `*` mean nobody and anybody."""
    if wanted in {"none", "*"}:
        return bool(issue.assignees) == (wanted == "*")
    return wanted.lower() in {call.site.store.users[number].login.lower() for number in issue.assignees}


@routes.on("POST", BASE, allow="issues:write", role="read")
def create_issue(call: Call) -> Response:
    """Open an issue; labels and assignees of those who may not set them are dropped silently, as on GitHub."""
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
        labels=_names(call) if allowed else (),
        app_id=call.app_id,
    )
    people = _people(call) if allowed else []
    if people:
        issue = threads.set_assignees(call.site, issue, call.user, people)
    return Response(status=201, body=show(call, issue), headers={"Location": _url(call, issue)})


def _url(call: Call, issue: Issue) -> str:
    return call.site.api("repos", call.repo.owner, call.repo.name, "issues", issue.number)


def _may_triage(call: Call) -> bool:
    return call.viewer.installation is not None or may(role_of(call.site, call.repo, call.viewer.user), "triage")


@routes.on("GET", BASE + "/comments", allow=READ)
def list_all_comments(call: Call) -> Response:
    """Comments of the whole repository, oldest first."""
    found = [c for c in call.site.store.comments if c.repo_id == call.repo.id]
    return listed(call, _recent(call, found), lambda c: threads_views.comment(call.site, call.repo, c))


def _recent(call: Call, found: list[Comment]) -> list[Comment]:
    if "since" not in call.query:
        return found
    since = moment_of(call.query["since"], "since")
    return [comment for comment in found if comment.updated_at >= since]


def comment_of(call: Call) -> Comment:
    """The comment that the path names."""
    found = call.site.store.comments.get(call.number("comment_id"))
    if found is None or found.repo_id != call.repo.id:
        raise not_found()
    return found


@routes.on("GET", BASE + "/comments/{comment_id}", allow=READ)
def one_comment(call: Call) -> Response:
    """One comment."""
    return Response(body=threads_views.comment(call.site, call.repo, comment_of(call)))


@routes.on("PATCH", BASE + "/comments/{comment_id}", allow=WRITE, role="read")
def edit_comment(call: Call) -> Response:
    """Change a comment."""
    old = comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    new = threads.edit_comment(call.site, old, call.user, _comment_body(call))
    return Response(body=threads_views.comment(call.site, call.repo, new))


@routes.on("DELETE", BASE + "/comments/{comment_id}", allow=WRITE, role="read")
def delete_comment(call: Call) -> Response:
    """Remove a comment."""
    old = comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    threads.delete_comment(call.site, old, call.user)
    return Response(status=204)


@routes.on("GET", ONE, allow=READ)
def one_issue(call: Call) -> Response:
    """One issue or pull request."""
    return Response(body=show(call, call.issue()))


@routes.on("PATCH", ONE, allow=WRITE, role="read")
def edit_issue(call: Call) -> Response:
    """Change title, text, state, labels or assignees."""
    issue, body, site = call.issue(), call.body, call.site
    demand_author_or_writer(call.site, call.viewer, call.repo, issue.author_id)
    title = call.text("title", "Issue", issue.title)
    text = call.optional_text("body", "Issue") if "body" in body else issue.body
    issue = threads.retitle(site, issue, call.user, title, text)
    if "labels" in body:
        issue = threads.set_labels(site, issue, call.user, _names(call))
    if "assignees" in body:
        issue = threads.set_assignees(site, issue, call.user, _people(call))
    state = body.get("state", issue.state)
    if state not in {"open", "closed"}:
        raise invalid("Issue", "state", "invalid")
    issue = threads.set_state(site, issue, call.user, state, body.get("state_reason"))
    return Response(body=show(call, issue))


@routes.on("GET", ONE + "/comments", allow=READ)
def list_comments(call: Call) -> Response:
    """A thread's comments, oldest first."""
    found = _recent(call, call.site.store.comments_of(call.issue()))
    return listed(call, found, lambda c: threads_views.comment(call.site, call.repo, c))


@routes.on("POST", ONE + "/comments", allow=WRITE, role="read")
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


def _comment_body(call: Call) -> str:
    text = call.text("body", "IssueComment")
    if not text.strip():
        raise invalid("IssueComment", "body", "missing_field")
    return text


def _names(call: Call) -> list[str]:
    """Labels come as names or as objects with a name."""
    given = call.body.get("labels") or []
    if not isinstance(given, list):
        raise invalid("Label", "labels", "invalid")
    names = [item.get("name") if isinstance(item, dict) else item for item in given]
    if not all(isinstance(name, str) and name for name in names):
        raise invalid("Label", "name", "invalid")
    return [str(name) for name in names]


def _people(call: Call) -> list[User]:
    return [threads.require_user(call.site, login) for login in call.texts("assignees", "Issue")]


@routes.on("PUT", ONE + "/lock", allow=WRITE)
def lock(call: Call) -> Response:
    """Close a thread's conversation to all but writers."""
    if call.text("lock_reason", "Issue", "resolved") not in {"off-topic", "too heated", "resolved", "spam"}:
        raise invalid("Issue", "lock_reason", "invalid")
    threads.set_locked(call.site, call.issue(), call.user, locked=True)
    return Response(status=204)


@routes.on("DELETE", ONE + "/lock", allow=WRITE)
def unlock(call: Call) -> Response:
    """Open a thread's conversation again."""
    threads.set_locked(call.site, call.issue(), call.user, locked=False)
    return Response(status=204)


@routes.on("GET", ONE + "/labels", allow=READ)
def labels_of(call: Call) -> Response:
    """A thread's labels."""
    repo = call.repo
    return listed(call, account_views.labels_of(call.site, repo, call.issue()), lambda label: label)


def _relabel(call: Call, names: list[str]) -> Response:
    changed = threads.set_labels(call.site, call.issue(), call.user, names)
    return Response(body=account_views.labels_of(call.site, call.repo, changed))


@routes.on("POST", ONE + "/labels", allow=WRITE, role="triage")
def add_labels(call: Call) -> Response:
    """Add labels to a thread."""
    return _relabel(call, [*call.issue().labels, *_names(call)])


@routes.on("PUT", ONE + "/labels", allow=WRITE, role="triage")
def set_labels(call: Call) -> Response:
    """Replace a thread's labels."""
    return _relabel(call, _names(call))


@routes.on("DELETE", ONE + "/labels", allow=WRITE, role="triage")
def remove_labels(call: Call) -> Response:
    """Take all labels off a thread."""
    _relabel(call, [])
    return Response(status=204)


@routes.on("DELETE", ONE + "/labels/{name}", allow=WRITE, role="triage")
def remove_label(call: Call) -> Response:
    """Take one label off a thread."""
    gone = call.params["name"].lower()
    labels = call.issue().labels
    if gone not in {name.lower() for name in labels}:
        raise HubError(404, "Label does not exist")
    return _relabel(call, [name for name in labels if name.lower() != gone])


@routes.on("POST", ONE + "/assignees", allow=WRITE, role="triage")
def add_assignees(call: Call) -> Response:
    """Assign more people."""
    issue = call.issue()
    already = [call.site.store.users[number] for number in issue.assignees]
    changed = threads.set_assignees(call.site, issue, call.user, [*already, *_people(call)])
    return Response(status=201, body=threads_views.issue(call.site, call.repo, changed))


@routes.on("DELETE", ONE + "/assignees", allow=WRITE, role="triage")
def remove_assignees(call: Call) -> Response:
    """Unassign people."""
    issue, gone = call.issue(), {user.id for user in _people(call)}
    stay = [call.site.store.users[number] for number in issue.assignees if number not in gone]
    changed = threads.set_assignees(call.site, issue, call.user, stay)
    return Response(body=threads_views.issue(call.site, call.repo, changed))


# ---- Reactions to issues, pull requests and comments.


routes_reactions = Routes()
ISSUE = "/repos/{owner}/{repo}/issues/{issue_number}/reactions"
COMMENT = "/repos/{owner}/{repo}/issues/comments/{comment_id}/reactions"
LINE = "/repos/{owner}/{repo}/pulls/comments/{comment_id}/reactions"

Subject: TypeAlias = Issue | Comment | ReviewComment


def _list(call: Call, subject: Subject) -> Response:
    wanted = call.query.get("content")
    found = [given for given in call.site.store.reactions_to(subject) if wanted in {None, given.content}]
    return listed(call, found, lambda given: threads_views.reaction(call.site, given))


def _create(call: Call, subject: Subject) -> Response:
    content = call.text("content", "Reaction")
    if content not in threads_views.REACTIONS:
        raise invalid("Reaction", "content", "invalid")
    given, new = threads.react(call.site, subject, call.user, content)
    return Response(status=201 if new else 200, body=threads_views.reaction(call.site, given))


def _delete(call: Call, subject: Subject) -> Response:
    given = call.site.store.reactions.get(call.number("reaction_id"))
    if given is None or given not in call.site.store.reactions_to(subject) or given.user_id != call.user.id:
        raise not_found()
    call.site.store.reactions.remove(given.id)
    return Response(status=204)


@routes_reactions.on("GET", COMMENT, allow=READ)
def of_comment(call: Call) -> Response:
    """A comment's reactions."""
    return _list(call, comment_of(call))


@routes_reactions.on("POST", COMMENT, allow=WRITE, role="read")
def to_comment(call: Call) -> Response:
    """React to a comment."""
    return _create(call, comment_of(call))


@routes_reactions.on("DELETE", COMMENT + "/{reaction_id}", allow=WRITE, role="read")
def off_comment(call: Call) -> Response:
    """Take back a reaction to a comment."""
    return _delete(call, comment_of(call))


@routes_reactions.on("GET", ISSUE, allow=READ)
def of_issue(call: Call) -> Response:
    """An issue's reactions."""
    return _list(call, call.issue())


@routes_reactions.on("POST", ISSUE, allow=WRITE, role="read")
def to_issue(call: Call) -> Response:
    """React to an issue."""
    return _create(call, call.issue())


@routes_reactions.on("DELETE", ISSUE + "/{reaction_id}", allow=WRITE, role="read")
def off_issue(call: Call) -> Response:
    """Take back a reaction to an issue."""
    return _delete(call, call.issue())


@routes_reactions.on("GET", LINE, allow="pull_requests:read")
def of_line(call: Call) -> Response:
    """Reactions to a comment on a line."""
    return _list(call, review_comment_of(call))


@routes_reactions.on("POST", LINE, allow="pull_requests:write", role="read")
def to_line(call: Call) -> Response:
    """React to a comment on a line."""
    return _create(call, review_comment_of(call))


@routes_reactions.on("DELETE", LINE + "/{reaction_id}", allow="pull_requests:write", role="read")
def off_line(call: Call) -> Response:
    """Take back a reaction to a comment on a line."""
    return _delete(call, review_comment_of(call))


# ---- Search.


routes_search = Routes()


@routes_search.on("GET", "/search/issues")
def issues(call: Call) -> Response:
    """Issues and pull requests that fit `q`."""
    found = threads.search(call.site, call.viewer, call.query.get("q", ""))
    if call.query.get("order") == "asc":
        found.reverse()
    some, headers = page_of(call, found)
    repos = call.site.store.repos
    shown = [threads_views.found_issue(call.site, repos[issue.repo_id], issue) for issue in some]
    body = {"total_count": len(found), "incomplete_results": False, "items": shown, "search_type": "lexical"}
    return Response(body=body, headers=headers)


# ---- The history of a thread: each action with its actor.


routes_history = Routes()
ONE_HISTORY = "/repos/{owner}/{repo}/issues/{issue_number}"


@routes_history.on("GET", ONE_HISTORY + "/events", allow=READ)
def events(call: Call) -> Response:
    """What was done to a thread besides talking, oldest first."""
    found = call.site.store.history_of(call.issue())
    return listed(call, found, lambda value: history_views.event(call.site, call.repo, value))


@routes_history.on("GET", ONE_HISTORY + "/timeline", allow=READ)
def timeline(call: Call) -> Response:
    """The same with the comments and reviews in between."""
    issue, store = call.issue(), call.site.store
    found: list[history_views.Entry] = [*store.history_of(issue), *store.comments_of(issue), *store.reviews_of(issue)]
    found.sort(key=history_views.moment)
    return listed(call, found, lambda value: history_views.timeline_entry(call.site, call.repo, value))
