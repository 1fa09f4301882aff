"""Reviews and comments on lines as GitHub's JSON."""

from __future__ import annotations

from localhub.state.model import PullRequestReview, Repo, ReviewComment
from localhub.state.site import Json, Site, iso, node_id
from localhub.views import accounts as account_views
from localhub.views import reactions as reactions_views


def review(site: Site, repo: Repo, value: PullRequestReview) -> Json:
    """`pull-request-review`."""
    page = f"{site.html(repo.owner, repo.name, 'pull', value.number)}#pullrequestreview-{value.id}"
    pull = site.api("repos", repo.owner, repo.name, "pulls", value.number)
    submitted = {} if value.state == "PENDING" else {"submitted_at": iso(value.submitted_at)}
    return submitted | {
        "id": value.id,
        "node_id": node_id("PullRequestReview", value.id),
        "user": account_views.user_by_id(site, value.author_id),
        "body": value.body,
        "state": value.state,
        "html_url": page,
        "pull_request_url": pull,
        "_links": {"html": {"href": page}, "pull_request": {"href": pull}},
        "commit_id": value.commit_sha,
        "author_association": account_views.association(site, repo, value.author_id),
    }


def told_review(site: Site, repo: Repo, value: PullRequestReview) -> Json:
    """The same as events tell it: the state in small letters, and no text where it is empty."""
    return review(site, repo, value) | {"state": value.state.lower(), "body": value.body or None}


def review_comment(site: Site, repo: Repo, value: ReviewComment) -> Json:
    """`pull-request-review-comment`."""
    pull = site.api("repos", repo.owner, repo.name, "pulls", value.number)
    url = site.api("repos", repo.owner, repo.name, "pulls", "comments", value.id)
    page = f"{site.html(repo.owner, repo.name, 'pull', value.number)}#discussion_r{value.id}"
    shown: Json = {
        "url": url,
        "pull_request_review_id": value.review_id,
        "id": value.id,
        "node_id": node_id("PullRequestReviewComment", value.id),
        "diff_hunk": value.diff_hunk,
        "path": value.path,
        "commit_id": value.commit_sha,
        "original_commit_id": value.commit_sha,
        "user": account_views.user_by_id(site, value.author_id),
        "body": value.body,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "html_url": page,
        "pull_request_url": pull,
        "author_association": account_views.association(site, repo, value.author_id),
        "_links": {"self": {"href": url}, "html": {"href": page}, "pull_request": {"href": pull}},
        "reactions": reactions_views.rollup(site, url, value),
        "position": value.position,
        "original_position": value.position,
        "start_line": value.start_line,
        "original_start_line": value.start_line,
        "start_side": value.start_side,
        "line": value.line,
        "original_line": value.line,
        "side": value.side,
        "subject_type": "line",
    }
    return shown if value.in_reply_to is None else shown | {"in_reply_to_id": value.in_reply_to}
