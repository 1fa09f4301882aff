"""Pull requests: their commits, files and merge, their reviews and the comments on lines of their difference.

A review without an event is pending: only its author sees it and its comments. A reply to a comment on a line is a
comment of the same thread; GitHub takes no replies to replies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from localhub.api.auth import (
    HubError,
    demand_author_or_writer,
    demand_unlocked,
    invalid,
    not_found,
    or_404,
    unprocessable,
)
from localhub.api.routing import DIFF, PATCH, Call, Response, Routes, check_length, listed
from localhub.git import diff as git_diff
from localhub.operations import pulls, threads
from localhub.state.model import Issue, Pull, PullRequestReview, ReviewComment, ReviewState, Side
from localhub.views import accounts as account_views
from localhub.views import git as git_views
from localhub.views import merge_state
from localhub.views import threads as threads_views

routes = Routes()
MAX_FILES = 3_000
"""Of a pull request: https://docs.github.com/rest/pulls/pulls#list-pull-requests-files"""
READ, WRITE = "pull_requests:read", "pull_requests:write"
PULLS = "/repos/{owner}/{repo}/pulls"
PULL = PULLS + "/{pull_number}"
COMMENT = PULLS + "/comments/{comment_id}"
REVIEW = PULL + "/reviews/{review_id}"
_STATES: Mapping[str, ReviewState] = {
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
}
REVIEW_RESOURCE = "PullRequestReview"
COMMENT_RESOURCE = "PullRequestReviewComment"


@routes.on("GET", PULLS, allow=READ, takes="base direction head sort state")
def list_pulls(call: Call) -> Response:
    """Pull requests, newest first unless asked otherwise."""
    state, site = call.query.get("state", "open"), call.site
    found = []
    for issue in site.store.issues_of(call.repo):
        if issue.pull is None or state not in {"all", issue.state}:
            continue
        label = f"{site.store.repos[issue.pull.head_repo_id].owner}:{issue.pull.head_ref}"
        if (
            call.query.get("head", label) == label
            and call.query.get("base", issue.pull.base_ref) == issue.pull.base_ref
        ):
            found.append(issue)
    found.sort(
        key=lambda issue: issue.updated_at if call.query.get("sort") == "updated" else issue.created_at,
        reverse=call.query.get("direction", "desc") == "desc",
    )
    return listed(call, found, lambda issue: threads_views.pull_simple(site, call.repo, issue))


@routes.on("POST", PULLS, allow=WRITE, role="read", takes="base body draft head maintainer_can_modify title")
def create_pull(call: Call) -> Response:
    """Open a pull request."""
    wanted = pulls.NewPull(
        head=call.text("head", "PullRequest"),
        base=call.text("base", "PullRequest"),
        title=call.text("title", "PullRequest"),
        body=call.optional_text("body", "PullRequest"),
        draft=bool(call.body.get("draft", False)),
        maintainer_can_modify=bool(call.body.get("maintainer_can_modify", False)),
    )
    if not wanted.title.strip():
        raise invalid("PullRequest", "title", "missing_field")
    issue = pulls.open_pull(call.site, call.repo, call.user, wanted, app_id=call.app_id)
    shown = threads_views.pull(call.site, call.repo, issue)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("GET", PULLS + "/comments", allow=READ, takes="direction sort")
def all_comments(call: Call) -> Response:
    """Comments on lines in the whole repository."""
    store = call.site.store
    return _list_review_comments(
        call, [c for c in store.review_comments if c.repo_id == call.repo.id and not store.is_pending(c)]
    )


@routes.on("GET", PULL, allow=READ)
def one_pull(call: Call) -> Response:
    """One pull request, or its difference or patch as text."""
    issue, inner = pull_of(call)
    if call.wants("diff"):
        text = git_diff.unified(call.repo.path, git_diff.pull_base(call.repo.path, inner), inner.head_sha)
        return Response(body=text, media_type=DIFF)
    if call.wants("patch"):
        return Response(body=git_diff.mailbox(call.repo.path, f"{inner.base_sha}..{inner.head_sha}"), media_type=PATCH)
    body = threads_views.pull(call.site, call.repo, issue)
    merge_state.start(call.site, issue, inner)
    return Response(body=body)


@routes.on("PATCH", PULL, allow=WRITE, role="read", takes="base body maintainer_can_modify state title")
def edit_pull(call: Call) -> Response:
    """Change title, text, base or state; an author may, whose branch is in a fork."""
    issue, inner = pull_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, issue.author_id)
    site, repo, body = call.site, call.repo, call.body
    if call.body.get("maintainer_can_modify") is not None:
        allowed = call.body["maintainer_can_modify"] and inner.head_repo_id != repo.id
        issue = site.store.issues.put(replace(issue, pull=replace(inner, maintainer_can_modify=allowed)))
    title = call.text("title", "PullRequest", issue.title)
    text = call.optional_text("body", "PullRequest") if "body" in body else issue.body
    issue = threads.retitle(site, issue, call.user, title, text)
    issue = pulls.retarget(site, issue, call.user, call.text("base", "PullRequest", inner.base_ref))
    state = body.get("state", issue.state)
    if state not in {"open", "closed"}:
        raise invalid("PullRequest", "state", "invalid")
    issue = threads.set_state(site, issue, call.user, state)
    return Response(body=threads_views.pull(site, repo, issue))


@routes.on("GET", PULL + "/files", allow=READ)
def files(call: Call) -> Response:
    """The changed files, as many as GitHub lists."""
    _, inner = pull_of(call)
    found = git_diff.pull_files(call.repo.path, inner)[:MAX_FILES]
    return listed(call, found, lambda f: git_views.diff_entry(call.site, call.repo, f, inner.head_sha))


@routes.on("GET", PULL + "/commits", allow=READ)
def commits(call: Call) -> Response:
    """The commits, oldest first."""
    issue, _ = pull_of(call)
    found = threads_views.pull_commits(call.repo, issue)
    return listed(call, found, lambda value: git_views.commit(call.site, call.repo, value))


@routes.on("GET", PULL + "/requested_reviewers", allow=READ)
def requested_reviewers(call: Call) -> Response:
    """The requested reviewers; there are no teams here."""
    _, inner = pull_of(call)
    return Response(
        body={"users": [account_views.user_by_id(call.site, each) for each in inner.reviewers], "teams": []}
    )


@routes.on("POST", PULL + "/requested_reviewers", allow=WRITE, takes="reviewers")
def request_reviewers(call: Call) -> Response:
    """Ask more people for a review."""
    return _respond_reviewers(call, call.texts("reviewers", "PullRequest"), 201)


@routes.on("DELETE", PULL + "/requested_reviewers", allow=WRITE, takes="reviewers")
def unrequest_reviewers(call: Call) -> Response:
    """Ask people for a review no longer."""
    return _respond_reviewers(call, [], 200, without=call.texts("reviewers", "PullRequest"))


def _respond_reviewers(call: Call, more: list[str], status: int, *, without: Collection[str] = ()) -> Response:
    issue, inner = pull_of(call)
    there = [call.site.store.users[each] for each in inner.reviewers]
    wanted = [*(user for user in there if user.login not in without)]
    wanted += [threads.require_user(call.site, login) for login in more]
    changed = pulls.set_reviewers(call.site, issue, call.user, wanted)
    return Response(status=status, body=threads_views.pull_simple(call.site, call.repo, changed))


@routes.on("GET", PULL + "/merge", allow=READ)
def is_merged(call: Call) -> Response:
    """204 when it was merged, else 404."""
    _, inner = pull_of(call)
    if inner.merged_at is None:
        raise not_found()
    return Response(status=204)


@routes.on("PUT", PULL + "/merge", allow="contents:write", takes="commit_message commit_title merge_method sha")
def merge(call: Call) -> Response:
    """Merge."""
    issue, inner = pull_of(call)
    if call.body.get("sha", inner.head_sha) != inner.head_sha:
        raise HubError(409, "Head branch was modified. Review and try the merge again.")
    method = call.text("merge_method", "PullRequest", "merge")
    message = "\n\n".join(
        filter(None, (call.text(name, "PullRequest", "") for name in ("commit_title", "commit_message")))
    )
    sha = pulls.merge(call.site, issue, call.user, method=method, message=message)
    return Response(body={"sha": sha, "merged": True, "message": "Pull Request successfully merged"})


@routes.on("PUT", PULL + "/update-branch", allow=WRITE, takes="expected_head_sha")
def update_branch(call: Call) -> Response:
    """Merge the base branch into the head."""
    issue, _ = pull_of(call)
    pulls.update_branch(call.site, issue, call.user, expected=call.optional_text("expected_head_sha", "PullRequest"))
    url = call.site.repo_api(call.repo, "pulls", issue.number)
    return Response(status=202, body={"message": "Updating pull request branch.", "url": url})


@routes.on("GET", COMMENT, allow=READ)
def one_comment(call: Call) -> Response:
    """One comment on a line."""
    return _respond_comment(call, review_comment_of(call))


@routes.on("PATCH", COMMENT, allow=WRITE, role="read", takes="body")
def edit_comment(call: Call) -> Response:
    """Change a comment on a line."""
    old = review_comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    return _respond_comment(call, pulls.edit_review_comment(call.site, old, call.user, _body(call)))


@routes.on("DELETE", COMMENT, allow=WRITE, role="read")
def delete_comment(call: Call) -> Response:
    """Remove a comment on a line."""
    old = review_comment_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    pulls.delete_review_comment(call.site, old, call.user)
    return Response(status=204)


@routes.on("GET", PULL + "/comments", allow=READ, takes="direction sort")
def comments(call: Call) -> Response:
    """A pull request's comments on lines."""
    issue, _ = pull_of(call)
    return _list_review_comments(call, call.site.store.review_comments_of(issue))


@routes.on(
    "POST",
    PULL + "/comments",
    allow=WRITE,
    role="read",
    takes="body commit_id in_reply_to line path position side start_line start_side subject_type",
)
def create_comment(call: Call) -> Response:
    """Comment on a line of the difference; `in_reply_to` answers another comment instead."""
    issue = _writable(call)
    if "in_reply_to" in call.body:
        return _reply(call, issue, call.body["in_reply_to"])
    call.text("commit_id", COMMENT_RESOURCE)
    wanted = _new_comment({**call.body, "body": _body(call)})
    try:
        _, [made] = pulls.submit_review(call.site, issue, call.user, state="COMMENTED", body="", comments=[wanted])
    except pulls.UnplacedError as error:
        field = f"pull_request_review_thread.{error.field}"
        raise invalid(COMMENT_RESOURCE, field, "custom", f"{field} must be part of the diff") from error
    return _respond_comment(call, made, 201)


@routes.on("POST", PULL + "/comments/{comment_id}/replies", allow=WRITE, role="read", takes="body")
def reply(call: Call) -> Response:
    """Answer a comment; GitHub takes no replies to replies."""
    return _reply(call, _writable(call), call.number("comment_id"))


@routes.on("GET", PULL + "/reviews", allow=READ)
def list_reviews(call: Call) -> Response:
    """A pull request's reviews, oldest first; last the viewer's own that is pending."""
    issue, _ = pull_of(call)
    pending = _pending(call, issue)
    found = call.site.store.reviews_of(issue) + ([pending] if pending else [])
    return listed(call, found, lambda value: threads_views.review(call.site, call.repo, value))


@routes.on("POST", PULL + "/reviews", allow=WRITE, role="read", takes="body comments commit_id event")
def create_review(call: Call) -> Response:
    """Review a pull request in one go; without an event the review is pending."""
    issue = _writable(call)
    given, body = call.body.get("comments") or [], call.text("body", REVIEW_RESOURCE, "")
    state: ReviewState = "PENDING"
    if call.body.get("event") is not None:
        state = _submitted(call, body, blank=not given)
    head = issue.pull.head_sha if issue.pull else ""
    if call.body.get("commit_id", head) != head:
        raise unprocessable("The local hub reviews the head of a pull request only; commit_id is another commit.")
    wanted = [_new_comment(each) for each in given]
    try:
        made, _ = pulls.submit_review(call.site, issue, call.user, state=state, body=body, comments=wanted)
    except pulls.UnplacedError as error:
        name = error.field.replace("_", " ").capitalize()
        raise HubError(422, "Unprocessable Entity", errors=(f"{name} could not be resolved",)) from error
    return Response(body=threads_views.review(call.site, call.repo, made))


@routes.on("GET", REVIEW, allow=READ)
def one_review(call: Call) -> Response:
    """One review."""
    return Response(body=threads_views.review(call.site, call.repo, _review_of(call)))


@routes.on("PUT", REVIEW, allow=WRITE, role="read", takes="body")
def edit_review(call: Call) -> Response:
    """Change the words of a review."""
    old = _review_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, old.author_id)
    made = call.site.store.reviews.put(replace(old, body=call.text("body", REVIEW_RESOURCE)))
    return Response(body=threads_views.review(call.site, call.repo, made))


@routes.on("POST", REVIEW + "/events", allow=WRITE, role="read", takes="body event")
def submit_review(call: Call) -> Response:
    """Submit a pending review."""
    issue, old = _writable(call), _review_of(call)
    if old.state != "PENDING":
        raise unprocessable("Can not submit a review that is not pending")
    body = call.text("body", REVIEW_RESOURCE, old.body)
    state = _submitted(call, body, blank=not any(c.review_id == old.id for c in call.site.store.review_comments))
    made = pulls.publish_review(call.site, issue, old, call.user, state=state, body=body)
    return Response(body=threads_views.review(call.site, call.repo, made))


@routes.on("DELETE", REVIEW, allow=WRITE, role="read")
def discard_review(call: Call) -> Response:
    """Remove a pending review."""
    old = _review_of(call)
    if old.state != "PENDING":
        raise unprocessable("Can not delete a non-pending pull request review")
    pulls.discard_review(call.site, old)
    return Response(body=threads_views.review(call.site, call.repo, old))


@routes.on("PUT", REVIEW + "/dismissals", allow=WRITE, takes="event message")
def dismiss(call: Call) -> Response:
    """Take the weight from an approval or a request for changes."""
    old = _review_of(call)
    call.text("message", REVIEW_RESOURCE)
    if old.state not in {"APPROVED", "CHANGES_REQUESTED"}:
        raise unprocessable("Can not dismiss a commented pull request review")
    made = pulls.dismiss_review(call.site, old, call.user)
    return Response(body=threads_views.review(call.site, call.repo, made))


@routes.on("GET", REVIEW + "/comments", allow=READ)
def comments_of_review(call: Call) -> Response:
    """The comments on lines that a review brought."""
    review = _review_of(call)
    return _list_review_comments(call, [c for c in call.site.store.review_comments if c.review_id == review.id])


def pull_of(call: Call) -> tuple[Issue, Pull]:
    """The pull request that the path names.

    Raises:
        HubError: 404, there is none.
    """
    issue = call.issue("pull_number")
    return issue, or_404(issue.pull)


def review_comment_of(call: Call) -> ReviewComment:
    """The comment that the path names.

    Raises:
        HubError: 404, there is none, or its review is not submitted.
    """
    found = call.site.store.review_comments.get(call.number("comment_id"))
    if found is None or found.repo_id != call.repo.id or call.site.store.is_pending(found):
        raise not_found()
    return found


def _list_review_comments(call: Call, comments: list[ReviewComment]) -> Response:
    newest_first = call.query.get("direction") == "desc"
    return listed(
        call,
        comments[::-1] if newest_first else comments,
        lambda value: threads_views.review_comment(call.site, call.repo, value),
    )


def _respond_comment(call: Call, value: ReviewComment, status: int = 200) -> Response:
    view = threads_views.review_comment(call.site, call.repo, value)
    return Response(status=status, body=view, headers={"Location": view["url"]} if status == 201 else {})  # noqa: PLR2004 - Created


def _reply(call: Call, issue: Issue, to: int) -> Response:
    parent = call.site.store.review_comments.get(to)
    wrong = parent is not None and (parent.repo_id, parent.number) != (call.repo.id, issue.number)
    if parent is None or wrong or call.site.store.is_pending(parent):
        raise not_found()
    return _respond_comment(call, pulls.reply(call.site, issue, call.user, parent, _body(call)), 201)


def _writable(call: Call) -> Issue:
    issue, _ = pull_of(call)
    demand_unlocked(call.site, call.viewer, call.repo, issue, "comment")
    return issue


def _body(call: Call) -> str:
    text = call.text("body", COMMENT_RESOURCE)
    if not text.strip():
        raise invalid(COMMENT_RESOURCE, "body", "missing_field")
    return text


def _new_comment(fields: Mapping[str, Any]) -> pulls.NewComment:
    """A comment as the body of a request has it.

    Raises:
        HubError: 422, something is missing or of the wrong kind.
    """
    for name in ("path", "body"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise invalid(COMMENT_RESOURCE, name, "missing_field")
    check_length(fields["body"], COMMENT_RESOURCE, "body")
    position, is_of_file = fields.get("position"), fields.get("subject_type") == "file"
    if not isinstance(fields.get("line"), int) and not isinstance(position, int) and not is_of_file:
        raise invalid(COMMENT_RESOURCE, "line", "missing_field")
    return pulls.NewComment(
        path=fields["path"],
        body=fields["body"],
        line=None if is_of_file else fields.get("line"),
        position=None if is_of_file or fields.get("line") is not None else position,
        side=_side(fields.get("side")) or "RIGHT",
        start_line=fields.get("start_line"),
        start_side=_side(fields.get("start_side")),
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
            raise invalid(COMMENT_RESOURCE, "side", "invalid")


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
    event = call.text("event", REVIEW_RESOURCE)
    if event not in _STATES:
        raise invalid(REVIEW_RESOURCE, "event", "invalid")
    if event != "APPROVE" and blank and not body.strip():
        raise HubError(422, "Unprocessable Entity", errors=("Body can't be blank",))
    return _STATES[event]
