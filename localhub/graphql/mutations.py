"""GraphQL's mutations of threads."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

from localhub.api.auth import demand, demand_unlocked
from localhub.api.errors import HubError
from localhub.api.routing import Call, check_length
from localhub.graphql import threads as nodes
from localhub.operations import pulls, reviews, threads
from localhub.state.model import Issue, Repo, ReviewState, Role
from localhub.state.site import Json, node_id

Wanted = Mapping[str, Any]
_EVENTS: Mapping[str | None, ReviewState] = {
    None: "PENDING",
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
}


def thread_of(
    call: Call, given: str, *, level: Literal["read", "write"] = "write", role: Role | None = None
) -> tuple[Repo, Issue]:
    """The thread that a global id names.

    Args:
        call: the request.
        given: the global id.
        level: what the viewer wants to do with it.
        role: the weakest role of a user that may; by default the level.

    Raises:
        HubError: there is none, or the viewer may not.
    """
    try:
        kind, _, number = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        kind, number = "", ""
    found = call.site.store.issues.get(int(number)) if number.isdecimal() else None
    if found is None or kind != ("Issue" if found.pull is None else "PullRequest"):
        raise HubError(404, f"Could not resolve to a node with the global id of '{given}'.")
    repo = call.site.store.repos[found.repo_id]
    permission = "issues|pull_requests"
    demand(call.site, call.viewer, repo, permission=permission, level=level, role=role or level)
    if repo.archived and level == "write":
        raise HubError(403, "Repository was archived so is read-only.")
    return repo, found


def _answered(wanted: Wanted, **parts: object) -> Json:
    return {"clientMutationId": wanted.get("clientMutationId"), **parts}


def open_pull(call: Call, repo: Repo, wanted: Wanted) -> Json:
    """Do `createPullRequest`.

    Raises:
        HubError: a branch is missing, there is nothing between them, or they already have one.
    """
    if not wanted["title"].strip():
        raise HubError(422, "Title can't be blank")
    check_length(wanted["title"], "PullRequest", "title")
    new = pulls.NewPull(
        head=wanted["headRefName"],
        base=wanted["baseRefName"],
        title=wanted["title"],
        body=wanted.get("body"),
        draft=bool(wanted.get("draft")),
        maintainer_can_modify=wanted.get("maintainerCanModify", True),
    )
    made = pulls.open_pull(call.site, repo, call.user, new, app_id=call.app_id)
    return _answered(wanted, pullRequest=nodes.thread(call, repo, made))


def open_issue(call: Call, repo: Repo, wanted: Wanted) -> Json:
    """Do `createIssue`."""
    if not wanted["title"].strip():
        raise HubError(422, "Title can't be blank")
    check_length(wanted["title"], "Issue", "title")
    labels = {node_id("Label", label.id): label.name for label in call.site.store.labels.values()}
    made = threads.open_issue(
        call.site,
        repo,
        call.user,
        title=wanted["title"],
        body=wanted.get("body"),
        labels=[labels[each] for each in wanted.get("labelIds") or () if each in labels],
        app_id=call.app_id,
    )
    return _answered(wanted, issue=nodes.thread(call, repo, made))


def add_comment(call: Call, wanted: Wanted) -> Json:
    """Do `addComment`."""
    repo, issue = thread_of(call, wanted["subjectId"], role="read")
    demand_unlocked(call.site, call.viewer, repo, issue, "comment")
    if not wanted["body"].strip():
        raise HubError(422, "Body can't be blank")
    check_length(wanted["body"], "IssueComment", "body")
    made = threads.comment(call.site, issue, call.user, wanted["body"], app_id=call.app_id)
    edge = {"node": nodes.comment(call, repo, made)}
    return _answered(wanted, commentEdge=edge, subject=nodes.thread(call, repo, issue))


def add_review(call: Call, wanted: Wanted) -> Json:
    """Do `addPullRequestReview`; without an event the review is pending."""
    repo, issue = thread_of(call, wanted["pullRequestId"], role="read")
    state, body = _EVENTS[wanted.get("event")], wanted.get("body") or ""
    if state in {"COMMENTED", "CHANGES_REQUESTED"} and not body.strip():
        raise HubError(422, "Body can't be blank")
    made, _ = reviews.submit(call.site, issue, call.user, state=state, body=body)
    return _answered(wanted, pullRequestReview=nodes.review(call, repo, made))


def set_state(
    call: Call, wanted: Wanted, kind: Literal["issue", "pullRequest"], state: Literal["open", "closed"]
) -> Json:
    """Do `closeIssue`, `reopenIssue`, `closePullRequest` or `reopenPullRequest`."""
    repo, issue = thread_of(call, wanted[f"{kind}Id"])
    reason = wanted.get("stateReason")
    changed = threads.set_state(call.site, issue, call.user, state, reason.lower() if reason else None)
    return _answered(wanted, **{kind: nodes.thread(call, repo, changed)})


def merge(call: Call, wanted: Wanted) -> Json:
    """Do `mergePullRequest`."""
    repo, issue = thread_of(call, wanted["pullRequestId"])
    pull = pulls.pull_in(issue)
    if (wanted.get("expectedHeadOid") or pull.head_sha) != pull.head_sha:
        raise HubError(422, "Head branch was modified. Review and try the merge again.")
    message = "\n\n".join(filter(None, (wanted.get("commitHeadline"), wanted.get("commitBody"))))
    method = wanted.get("mergeMethod", "MERGE").lower()
    pulls.merge(call.site, issue, call.user, method=method, message=message)
    return _answered(wanted, pullRequest=nodes.thread(call, repo, call.site.store.issues[issue.id]))
