"""Issues, pull requests and what is said in them, in GraphQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from graphql import GraphQLResolveInfo

from localhub.api.routing import Call
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.graphql import checks
from localhub.graphql.basics import actor, connection, person
from localhub.operations.search import mentioned
from localhub.state.model import Comment, Issue, Label, Pull, PullRequestReview, Repo, ReviewComment, reaction_kind
from localhub.state.site import Json, iso, iso_or_none, node_id
from localhub.views import accounts as account_views
from localhub.views import reviews as reviews_views
from localhub.views import threads as threads_views

_REACTIONS: Mapping[str, str] = {
    "+1": "THUMBS_UP",
    "-1": "THUMBS_DOWN",
    "laugh": "LAUGH",
    "hooray": "HOORAY",
    "confused": "CONFUSED",
    "heart": "HEART",
    "rocket": "ROCKET",
    "eyes": "EYES",
}


def thread(call: Call, repo: Repo, value: Issue) -> Json:
    """`Issue` or `PullRequest`."""
    site, kind = call.site, "Issue" if value.pull is None else "PullRequest"
    shown: Json = {
        "__typename": kind,
        "id": node_id(kind, value.id),
        "databaseId": value.id,
        "number": value.number,
        "title": value.title,
        "state": value.state.upper(),
        "stateReason": value.state_reason.upper() if value.state_reason else None,
        "closed": value.state == "closed",
        "closedAt": iso_or_none(value.closed_at),
        "locked": value.locked,
        "url": threads_views.thread_page(site, repo, value),
        "milestone": None,
        "projectCards": connection(list, dict),
        "repository": lambda _info: repository(call, repo),
        "labels": connection(lambda: labels_of(call, repo, value), partial(label)),
        "assignees": connection(lambda: value.assignees, partial(person, call)),
        "comments": connection(lambda: site.store.comments_of(value), partial(comment, call, repo)),
        **_said(call, repo, value),
    }
    return shown if value.pull is None else shown | _pull(call, repo, value, value.pull)


def fits(call: Call, value: Issue, wanted: Mapping[str, Any]) -> bool:
    """Whether a thread is among those that are wanted: by state, labels, and people."""
    store = call.site.store
    merged = value.pull is not None and value.pull.merged_at is not None
    state = "MERGED" if merged else value.state.upper()
    names = {name.lower() for name in value.labels}
    assignees = {store.users[each].login.lower() for each in value.assignees}
    asked = wanted.get("assignee")
    return (
        state in (wanted.get("states") or (state,))
        and {name.lower() for name in wanted.get("labels") or ()} <= names
        and (wanted.get("createdBy") or "").lower() in {"", store.users[value.author_id].login.lower()}
        and (asked is None or (bool(assignees) if asked == "*" else asked.lower() in assignees))
        and (wanted.get("mentioned") or "").lower() in {"", *mentioned(call.site, value)}
    )


def repository(call: Call, repo: Repo) -> Json:
    """What a thread or a fork shows of a repository."""
    return {
        "id": node_id("Repository", repo.id),
        "databaseId": repo.id,
        "name": repo.name,
        "nameWithOwner": repo.full_name,
        "url": call.site.html(repo.owner, repo.name),
        "owner": actor(call, repo.owner),
        "isPrivate": repo.private,
        "isArchived": repo.archived,
    }


def labels_of(call: Call, repo: Repo, value: Issue) -> list[Label]:
    """A thread's labels."""
    return [call.site.store.labels[repo.id, name.lower()] for name in value.labels]


def label(value: Label) -> Json:
    """`Label`."""
    return {
        "id": node_id("Label", value.id),
        "name": value.name,
        "color": value.color,
        "description": value.description or None,
    }


def _said(call: Call, repo: Repo, value: Issue | Comment) -> Json:
    """What threads and comments share."""
    return {
        "author": person(call, value.author_id),
        "authorAssociation": account_views.association(call.site, repo, value.author_id),
        "body": value.body or "",
        "createdAt": iso(value.created_at),
        "updatedAt": iso(value.updated_at),
        "viewerDidAuthor": call.viewer.user is not None and call.viewer.user.id == value.author_id,
        "reactionGroups": lambda _info: _reactions(call, value),
    }


def _reactions(call: Call, subject: Issue | Comment | ReviewComment) -> list[Json]:
    given = [each.content for each in call.site.store.reactions_to(subject)]
    assert reaction_kind(subject)  # noqa: S101 - the type says so
    return [{"content": name, "users": partial(_counted, given.count(content))} for content, name in _REACTIONS.items()]


def _counted(count: int, _info: GraphQLResolveInfo[Any], **_page: object) -> Json:
    return {"totalCount": count}


def comment(call: Call, repo: Repo, value: Comment) -> Json:
    """`IssueComment`."""
    return {
        "__typename": "IssueComment",
        "id": node_id("IssueComment", value.id),
        "databaseId": value.id,
        "url": threads_views.comment(call.site, repo, value)["html_url"],
        "includesCreatedEdit": value.updated_at != value.created_at,
        "isMinimized": False,
        "minimizedReason": None,
        **_said(call, repo, value),
    }


def review(call: Call, repo: Repo, value: PullRequestReview) -> Json:
    """`PullRequestReview`."""
    return {
        "__typename": "PullRequestReview",
        "id": node_id("PullRequestReview", value.id),
        "author": person(call, value.author_id),
        "authorAssociation": account_views.association(call.site, repo, value.author_id),
        "body": value.body,
        "state": value.state,
        "submittedAt": iso(value.submitted_at),
        "commit": lambda _info: checks.commit(call, repo, git.commit(repo.path, value.commit_sha)),
        "reactionGroups": [],
        "url": reviews_views.review(call.site, repo, value)["html_url"],
    }


def _pull(call: Call, repo: Repo, value: Issue, pull: Pull) -> Json:
    site = call.site
    head_repo = site.store.repos.get(pull.head_repo_id)
    base = git.ref(repo.path, f"refs/heads/{pull.base_ref}")
    asked = [person(call, each) for each in pull.reviewers]
    return {
        "state": "MERGED" if pull.merged_at is not None else value.state.upper(),
        "isDraft": pull.draft,
        "headRefName": pull.head_ref,
        "headRefOid": pull.head_sha,
        "headRepository": None if head_repo is None else repository(call, head_repo),
        "headRepositoryOwner": None if head_repo is None else actor(call, head_repo.owner),
        "isCrossRepository": pull.head_repo_id != repo.id,
        "maintainerCanModify": pull.maintainer_can_modify,
        "baseRef": None if base is None else _ref(call, repo, base),
        "baseRefName": pull.base_ref,
        "baseRefOid": pull.base_sha if base is None else base.sha,
        "merged": pull.merged_at is not None,
        "mergedAt": iso_or_none(pull.merged_at),
        "mergedBy": person(call, pull.merged_by),
        "mergeable": lambda _info: _mergeable(repo, value, pull),
        "mergeStateStatus": lambda _info: _MERGE_STATES[_mergeable(repo, value, pull)],
        "mergeCommit": lambda _info: _merge_commit(call, repo, pull),
        "additions": lambda _info: sum(file.additions for file in git_diff.of_pull(repo.path, pull)),
        "deletions": lambda _info: sum(file.deletions for file in git_diff.of_pull(repo.path, pull)),
        "changedFiles": lambda _info: len(git_diff.of_pull(repo.path, pull)),
        "commits": connection(
            lambda: threads_views.pull_commits(repo, value),
            lambda each: {"commit": checks.commit(call, repo, each)},
        ),
        "reviews": connection(lambda: site.store.reviews_of(value), partial(review, call, repo)),
        "reviewRequests": connection(lambda: asked, lambda each: {"requestedReviewer": each}),
        "reviewDecision": lambda _info: _decision(site.store.reviews_of(value)),
    }


def _ref(call: Call, repo: Repo, value: git.Ref) -> Json:
    return {
        "name": value.name.removeprefix("refs/heads/"),
        "prefix": "refs/heads/",
        "target": lambda _info: checks.commit(call, repo, git.commit(repo.path, value.sha)),
    }


_MERGE_STATES = {"MERGEABLE": "CLEAN", "CONFLICTING": "DIRTY", "UNKNOWN": "UNKNOWN"}


def _mergeable(repo: Repo, value: Issue, pull: Pull) -> str:
    if value.state != "open":
        return "UNKNOWN"
    clean = git_diff.merge_tree(repo.path, pull.base_sha, pull.head_sha) is not None
    return "MERGEABLE" if clean else "CONFLICTING"


def _merge_commit(call: Call, repo: Repo, pull: Pull) -> Json | None:
    sha = pull.merge_commit_sha
    return None if sha is None else checks.commit(call, repo, git.commit(repo.path, sha))


def _decision(reviews: Sequence[PullRequestReview]) -> str | None:
    """What the newest word of each reviewer comes to; None as long as nobody must review."""
    newest = {each.author_id: each.state for each in reviews if each.state != "COMMENTED"}
    for state in ("CHANGES_REQUESTED", "APPROVED"):
        if state in newest.values():
            return state
    return None
