"""Commits as history, comparisons and statuses."""

from __future__ import annotations

from localhub.api.errors import HubError, invalid, not_found
from localhub.api.routing import DIFF, PATCH, Call, Response, Routes, listed, moment_of, page_of
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.state.model import CommitStatus
from localhub.views import accounts as account_views
from localhub.views import checks as checks_views
from localhub.views import git as git_views
from localhub.views import threads as threads_views

routes = Routes()
BASE = "/repos/{owner}/{repo}"
STATES = ("error", "failure", "pending", "success")


def commit_named(call: Call, revision: str) -> git.Commit:
    """The commit that a SHA, branch or tag names.

    Raises:
        HubError: 422 when nothing has that name; 409 when the repository is empty.
    """
    sha = git.resolve(call.repo.path, revision)
    if sha is None:
        if not git.refs(call.repo.path):
            raise HubError(409, "Git Repository is empty.")
        raise HubError(422, f"No commit found for SHA: {revision}")
    return git.commit(call.repo.path, sha)


@routes.on("GET", BASE + "/commits", allow="contents:read")
def list_commits(call: Call) -> Response:
    """History from a branch, tag or SHA, newest first."""
    start = commit_named(call, call.query.get("sha", call.repo.default_branch))
    found = [
        value for value in git.commits(call.repo.path, start.sha, of=call.query.get("path")) if _asked(call, value)
    ]
    return listed(call, found, lambda value: git_views.commit(call.site, call.repo, value))


def _asked(call: Call, value: git.Commit) -> bool:
    """Whether the query's people and times fit a commit."""
    query, moment = call.query, value.committer.date
    return (
        _is_by(call, value.author, query.get("author"))
        and _is_by(call, value.committer, query.get("committer"))
        and ("since" not in query or moment >= moment_of(query["since"], "since"))
        and ("until" not in query or moment <= moment_of(query["until"], "until"))
    )


def _is_by(call: Call, person: git.Person, wanted: str | None) -> bool:
    """Whether a person is who the query names by login or address."""
    user = git_views.account_of(call.site, person)
    return wanted is None or wanted in {person.email, user.login if user else None}


@routes.on("GET", BASE + "/compare/{basehead}", allow="contents:read")
def compare(call: Call) -> Response:
    """What `head` brings over `base`."""
    base, separator, head = call.params["basehead"].partition("...")
    revisions = [git.resolve(call.repo.path, name) for name in (base, head)]
    if not separator or None in revisions:
        raise not_found()
    old, new = (git.commit(call.repo.path, str(sha)) for sha in revisions)
    if call.wants("diff"):
        parted = git_diff.merge_base(call.repo.path, old.sha, new.sha) or old.sha
        return Response(body=git_diff.unified(call.repo.path, parted, new.sha), media_type=DIFF)
    if call.wants("patch"):
        return Response(body=git_diff.mailbox(call.repo.path, f"{old.sha}..{new.sha}"), media_type=PATCH)
    return Response(body=git_views.comparison(call.site, call.repo, old, new))


def _statuses(call: Call, sha: str) -> list[CommitStatus]:
    """Newest first."""
    return [s for s in call.site.store.statuses if s.repo_id == call.repo.id and s.sha == sha][::-1]


@routes.on("GET", BASE + "/commits/{ref}/statuses", allow="statuses:read")
def list_statuses(call: Call) -> Response:
    """All statuses of a commit."""
    sha = commit_named(call, call.params["ref"]).sha
    return listed(call, _statuses(call, sha), lambda value: checks_views.status(call.site, call.repo, value))


@routes.on("GET", BASE + "/commits/{ref}/status", allow="statuses:read")
def combined_status(call: Call) -> Response:
    """The newest status of each context, and what they come to."""
    site, repo = call.site, call.repo
    sha = commit_named(call, call.params["ref"]).sha
    newest: dict[str, CommitStatus] = {}
    for value in _statuses(call, sha):
        newest.setdefault(value.context, value)
    states = {value.state for value in newest.values()}
    bad = bool(states & {"error", "failure"})
    some, headers = page_of(call, list(newest.values()))
    url = git_views.api(site, repo, "commits", sha)
    return Response(
        body={
            "state": "failure" if bad else "success" if states == {"success"} else "pending",
            "statuses": [checks_views.simple_status(site, repo, value) for value in some],
            "sha": sha,
            "total_count": len(newest),
            "repository": account_views.simple_repository(site, repo),
            "commit_url": url,
            "url": f"{url}/status",
        },
        headers=headers,
    )


@routes.on("POST", BASE + "/statuses/{sha}", allow="statuses:write")
def create_status(call: Call) -> Response:
    """Add a status to a commit."""
    state = call.text("state", "CommitStatus")
    if state not in STATES:
        raise invalid("CommitStatus", "state", "inclusion")
    value = call.site.store.statuses.put(
        CommitStatus(
            id=call.site.store.new_id(),
            repo_id=call.repo.id,
            sha=commit_named(call, call.params["sha"]).sha,
            state=state,
            context=call.text("context", "CommitStatus", "default"),
            description=call.optional_text("description", "CommitStatus"),
            target_url=call.optional_text("target_url", "CommitStatus"),
            creator_id=call.user.id,
            created_at=call.site.now(),
        )
    )
    shown = checks_views.status(call.site, call.repo, value)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("GET", BASE + "/commits/{commit_sha}/pulls", allow="pull_requests:read")
def pulls_with(call: Call) -> Response:
    """Open pull requests that bring a commit."""
    sha = commit_named(call, call.params["commit_sha"]).sha
    found = [
        issue
        for issue in call.site.store.issues_of(call.repo)
        if issue.pull is not None and sha in {commit.sha for commit in threads_views.pull_commits(call.repo, issue)}
    ]
    return listed(call, found, lambda issue: threads_views.pull_simple(call.site, call.repo, issue))


@routes.on("GET", BASE + "/commits/{ref}", allow="contents:read")
def one_commit(call: Call) -> Response:
    """One commit with its files, or its difference as text."""
    value = commit_named(call, call.params["ref"])
    if call.wants("diff"):
        text = git_diff.unified(call.repo.path, git_views.first_parent(value), value.sha)
        return Response(body=text, media_type=DIFF)
    if call.wants("patch"):
        return Response(body=git_diff.mailbox(call.repo.path, "-1", value.sha), media_type=PATCH)
    if call.wants("sha"):
        return Response(body=value.sha, media_type="application/vnd.github.sha")
    return Response(body=git_views.commit_with_files(call.site, call.repo, value))
