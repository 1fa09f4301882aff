"""Pull requests, their commits, files and review comments."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from bot.localhub import actions, git, git_diff, pulls, views_git, views_threads, webhooks
from bot.localhub.errors import HubError, invalid, not_found
from bot.localhub.model import Issue, Pull, ReviewComment
from bot.localhub.routing import Answer, Call, Routes, check_length, listed

routes = Routes()
READ, WRITE = "pull_requests:read", "pull_requests:write"
BASE = "/repos/{owner}/{repo}/pulls"
ONE = BASE + "/{pull_number}"


def _pull_of(call: Call) -> tuple[Issue, Pull]:
    issue = call.issue("pull_number")
    if issue.pull is None:
        raise not_found()
    return issue, issue.pull


@routes.on("GET", BASE, allow=READ)
def list_pulls(call: Call) -> Answer:
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
    return listed(call, found, lambda issue: views_threads.pull_simple(site, call.repo, issue))


@routes.on("POST", BASE, allow=WRITE, role="read")
def create_pull(call: Call) -> Answer:
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
    shown = views_threads.pull(call.site, call.repo, issue)
    return Answer(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("GET", BASE + "/comments", allow=READ)
def all_review_comments(call: Call) -> Answer:
    """Review comments of the whole repository."""
    found = [c for c in call.site.store.review_comments if c.repo_id == call.repo.id]
    return listed(call, found, lambda c: views_threads.review_comment(call.site, call.repo, c))


@routes.on("GET", BASE + "/comments/{comment_id}", allow=READ)
def one_review_comment(call: Call) -> Answer:
    """One review comment."""
    found = call.site.store.review_comments.get(call.number("comment_id"))
    if found is None or found.repo_id != call.repo.id:
        raise not_found()
    return Answer(body=views_threads.review_comment(call.site, call.repo, found))


@routes.on("GET", ONE, allow=READ)
def one_pull(call: Call) -> Answer:
    """One pull request, or its difference or patch as text."""
    issue, inner = _pull_of(call)
    if "diff" in call.accept:
        parted = git_diff.merge_base(call.repo.path, inner.base_sha, inner.head_sha) or git_diff.EMPTY_TREE
        return Answer(body=git_diff.unified(call.repo.path, parted, inner.head_sha), media_type="text/plain")
    if "patch" in call.accept:
        return Answer(body=git_diff.mailbox(call.repo.path, inner.base_sha, inner.head_sha), media_type="text/plain")
    return Answer(body=views_threads.pull(call.site, call.repo, issue))


@routes.on("PATCH", ONE, allow=WRITE)
def edit_pull(call: Call) -> Answer:
    """Change title, text, base or state."""
    issue, inner = _pull_of(call)
    site, repo, body = call.site, call.repo, call.body
    title = call.text("title", "PullRequest", issue.title)
    text = call.optional_text("body", "PullRequest") if "body" in body else issue.body
    issue = actions.retitle(site, issue, call.user, title, text)
    if body.get("base", inner.base_ref) != inner.base_ref:
        ref = git.ref(repo.path, f"refs/heads/{body['base']}")
        if ref is None:
            raise invalid("PullRequest", "base", "invalid")
        moved = replace(inner, base_ref=str(body["base"]), base_sha=ref.sha)
        issue = site.store.issues.put(replace(issue, pull=moved))
    state = body.get("state", issue.state)
    if state not in {"open", "closed"}:
        raise invalid("PullRequest", "state", "invalid")
    issue = actions.set_state(site, issue, call.user, state)
    return Answer(body=views_threads.pull(site, repo, issue))


@routes.on("GET", ONE + "/files", allow=READ)
def files(call: Call) -> Answer:
    """The changed files."""
    _, inner = _pull_of(call)
    path = call.repo.path
    parted = git_diff.merge_base(path, inner.base_sha, inner.head_sha) or git_diff.EMPTY_TREE
    found = git_diff.files(path, parted, inner.head_sha)
    return listed(call, found, lambda f: views_git.diff_entry(call.site, call.repo, f, inner.head_sha))


@routes.on("GET", ONE + "/commits", allow=READ)
def commits(call: Call) -> Answer:
    """The commits, oldest first."""
    issue, _ = _pull_of(call)
    found = views_threads.pull_commits(call.repo, issue)
    return listed(call, found, lambda value: views_git.commit(call.site, call.repo, value))


@routes.on("GET", ONE + "/merge", allow=READ)
def is_merged(call: Call) -> Answer:
    """204 when it was merged, else 404."""
    _, inner = _pull_of(call)
    if inner.merged_at is None:
        raise not_found()
    return Answer(status=204)


@routes.on("PUT", ONE + "/merge", allow="contents:write")
def merge(call: Call) -> Answer:
    """Merge."""
    issue, inner = _pull_of(call)
    if call.body.get("sha", inner.head_sha) != inner.head_sha:
        raise HubError(409, "Head branch was modified. Review and try the merge again.")
    method = call.text("merge_method", "PullRequest", "merge")
    message = "\n\n".join(
        filter(None, (call.text(name, "PullRequest", "") for name in ("commit_title", "commit_message")))
    )
    sha = pulls.merge(call.site, issue, call.user, method=method, message=message)
    return Answer(body={"sha": sha, "merged": True, "message": "Pull Request successfully merged"})


@routes.on("GET", ONE + "/comments", allow=READ)
def review_comments(call: Call) -> Answer:
    """The pull request's review comments."""
    issue, _ = _pull_of(call)
    found = [c for c in call.site.store.review_comments if (c.repo_id, c.number) == (call.repo.id, issue.number)]
    return listed(call, found, lambda c: views_threads.review_comment(call.site, call.repo, c))


@routes.on("POST", ONE + "/comments", allow=WRITE, role="read")
def create_review_comment(call: Call) -> Answer:
    """Comment on a line of the difference."""
    issue, inner = _pull_of(call)
    path = call.text("path", "PullRequestReviewComment")
    parted = git_diff.merge_base(call.repo.path, inner.base_sha, inner.head_sha) or git_diff.EMPTY_TREE
    changed = {file.path: file for file in git_diff.files(call.repo.path, parted, inner.head_sha)}
    line = call.body.get("line")
    if path not in changed:
        raise invalid("PullRequestReviewComment", "path", "invalid")
    if not isinstance(line, int):
        raise invalid("PullRequestReviewComment", "line", "missing_field")
    side: Literal["LEFT", "RIGHT"] = "LEFT" if call.body.get("side") == "LEFT" else "RIGHT"
    body = call.text("body", "PullRequestReviewComment")
    check_length(body, "PullRequestReviewComment", "body")
    made = call.site.store.review_comments.put(
        ReviewComment(
            id=call.site.store.new_id(),
            repo_id=call.repo.id,
            number=issue.number,
            author_id=call.user.id,
            body=body,
            path=path,
            commit_sha=call.text("commit_id", "PullRequestReviewComment"),
            line=line,
            side=side,
            diff_hunk=changed[path].patch or "",
            in_reply_to=call.body.get("in_reply_to"),
            created_at=call.site.now(),
        )
    )
    shown = views_threads.review_comment(call.site, call.repo, made)
    comment = shown | {"position": line, "original_position": line, "start_line": None, "start_side": None}
    payload = {
        "action": "created",
        "comment": comment | {"original_start_line": None, "reactions": _no_reactions(shown["url"])},
        "pull_request": views_threads.pull_simple(call.site, call.repo, issue),
    }
    webhooks.emit(call.site, "pull_request_review_comment", call.repo, call.user, payload)
    return Answer(status=201, body=shown, headers={"Location": shown["url"]})


def _no_reactions(url: str) -> dict[str, str | int]:
    names = ("total_count", "+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")
    return {"url": f"{url}/reactions", **dict.fromkeys(names, 0)}
