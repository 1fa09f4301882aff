"""Pull requests, their commits and files."""

from __future__ import annotations

from collections.abc import Collection

from localhub.api.auth import demand_author_or_writer
from localhub.api.errors import HubError, invalid, not_found
from localhub.api.routing import DIFF, PATCH, Call, Response, Routes, listed
from localhub.git import diff as git_diff
from localhub.operations import pulls, threads
from localhub.state.model import Issue, Pull
from localhub.views import accounts as account_views
from localhub.views import git as git_views
from localhub.views import threads as threads_views

routes = Routes()
READ, WRITE = "pull_requests:read", "pull_requests:write"
BASE = "/repos/{owner}/{repo}/pulls"
ONE = BASE + "/{pull_number}"


def pull_of(call: Call) -> tuple[Issue, Pull]:
    """The pull request that the path names.

    Raises:
        HubError: 404, there is none.
    """
    issue = call.issue("pull_number")
    if issue.pull is None:
        raise not_found()
    return issue, issue.pull


@routes.on("GET", BASE, allow=READ)
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
    found.sort(key=lambda issue: issue.number, reverse=call.query.get("direction", "desc") == "desc")
    return listed(call, found, lambda issue: threads_views.pull_simple(site, call.repo, issue))


@routes.on("POST", BASE, allow=WRITE, role="read")
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


@routes.on("GET", ONE, allow=READ)
def one_pull(call: Call) -> Response:
    """One pull request, or its difference or patch as text."""
    issue, inner = pull_of(call)
    if call.wants("diff"):
        text = git_diff.unified(call.repo.path, git_diff.parted(call.repo.path, inner), inner.head_sha)
        return Response(body=text, media_type=DIFF)
    if call.wants("patch"):
        return Response(body=git_diff.mailbox(call.repo.path, f"{inner.base_sha}..{inner.head_sha}"), media_type=PATCH)
    return Response(body=threads_views.pull(call.site, call.repo, issue))


@routes.on("PATCH", ONE, allow=WRITE, role="read")
def edit_pull(call: Call) -> Response:
    """Change title, text, base or state; an author may, whose branch is in a fork."""
    issue, inner = pull_of(call)
    demand_author_or_writer(call.site, call.viewer, call.repo, issue.author_id)
    site, repo, body = call.site, call.repo, call.body
    title = call.text("title", "PullRequest", issue.title)
    text = call.optional_text("body", "PullRequest") if "body" in body else issue.body
    issue = threads.retitle(site, issue, call.user, title, text)
    issue = pulls.retarget(site, issue, call.user, call.text("base", "PullRequest", inner.base_ref))
    state = body.get("state", issue.state)
    if state not in {"open", "closed"}:
        raise invalid("PullRequest", "state", "invalid")
    issue = threads.set_state(site, issue, call.user, state)
    return Response(body=threads_views.pull(site, repo, issue))


@routes.on("GET", ONE + "/files", allow=READ)
def files(call: Call) -> Response:
    """The changed files."""
    _, inner = pull_of(call)
    found = git_diff.of_pull(call.repo.path, inner)
    return listed(call, found, lambda f: git_views.diff_entry(call.site, call.repo, f, inner.head_sha))


@routes.on("GET", ONE + "/commits", allow=READ)
def commits(call: Call) -> Response:
    """The commits, oldest first."""
    issue, _ = pull_of(call)
    found = threads_views.pull_commits(call.repo, issue)
    return listed(call, found, lambda value: git_views.commit(call.site, call.repo, value))


@routes.on("GET", ONE + "/requested_reviewers", allow=READ)
def requested_reviewers(call: Call) -> Response:
    """Who was asked for a review; there are no teams here."""
    _, inner = pull_of(call)
    return Response(
        body={"users": [account_views.user_by_id(call.site, each) for each in inner.reviewers], "teams": []}
    )


@routes.on("POST", ONE + "/requested_reviewers", allow=WRITE)
def request_reviewers(call: Call) -> Response:
    """Ask more people for a review."""
    return _asked(call, call.texts("reviewers", "PullRequest"), 201)


@routes.on("DELETE", ONE + "/requested_reviewers", allow=WRITE)
def unrequest_reviewers(call: Call) -> Response:
    """Ask people for a review no longer."""
    return _asked(call, [], 200, without=call.texts("reviewers", "PullRequest"))


def _asked(call: Call, more: list[str], status: int, *, without: Collection[str] = ()) -> Response:
    issue, inner = pull_of(call)
    there = [call.site.store.users[each] for each in inner.reviewers]
    wanted = [*(user for user in there if user.login not in without)]
    wanted += [threads.require_user(call.site, login) for login in more]
    changed = pulls.set_reviewers(call.site, issue, call.user, wanted)
    return Response(status=status, body=threads_views.pull_simple(call.site, call.repo, changed))


@routes.on("GET", ONE + "/merge", allow=READ)
def is_merged(call: Call) -> Response:
    """204 when it was merged, else 404."""
    _, inner = pull_of(call)
    if inner.merged_at is None:
        raise not_found()
    return Response(status=204)


@routes.on("PUT", ONE + "/merge", allow="contents:write")
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
