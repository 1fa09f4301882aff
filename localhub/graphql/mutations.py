"""Mutations: change threads, comments and branches, and commit with `createCommitOnBranch`.

`MUTATIONS` has them by GitHub's names; each takes the call and its `input`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from localhub.api import rules
from localhub.api.auth import HubError, demand, demand_author_or_writer, demand_unlocked, not_found, or_404
from localhub.api.routing import Call, check_length
from localhub.git import plumbing as git
from localhub.graphql import threads
from localhub.operations import branches, pulls, workflow_files
from localhub.operations import threads as threads_module
from localhub.state.model import Comment, Issue, Milestone, Repo, ReviewComment, ReviewState, Role, User
from localhub.state.store import Json, node_id


class RefusedError(Exception):
    """A mutation that cannot be done; `kind` is GitHub's error type, e.g. `STALE_DATA`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def repo_named(call: Call, full_name: str, permission: str, level: str, *, role: Role | None = None) -> Repo:
    repo = call.site.store.repo(full_name) or call.site.store.moved_repo(full_name)
    if repo is None:
        raise RefusedError("NOT_FOUND", f"Could not resolve to a Repository with the name '{full_name}'.")
    needed: Role = role or ("write" if level == "write" else "read")
    demand(call.site, call.viewer, repo, permission=permission, level=level, role=needed)
    if repo.archived and level == "write":
        raise RefusedError("FORBIDDEN", "Repository was archived so is read-only.")
    return repo


def find_repo(call: Call, repository_id: str, permission: str, *, role: Role = "write") -> Repo:
    for repo in call.site.store.repos:
        if node_id("Repository", repo.id) == repository_id:
            return repo_named(call, repo.full_name, permission, "write", role=role)
    raise RefusedError("NOT_FOUND", f"Could not resolve to a node with the global id of '{repository_id}'.")


Inputs = Mapping[str, Any]
_EVENTS: Mapping[str | None, ReviewState] = {
    None: "PENDING",
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
}


def parse_id(global_id: str) -> tuple[str, int]:
    """The kind and the number in a global id; an empty kind for one that the hub did not make."""
    try:
        kind, _, number = base64.b64decode(global_id, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", 0
    return (kind, int(number)) if number.isdecimal() else ("", 0)


def unresolved(global_id: str) -> HubError:
    """404 for a global id that names nothing here."""
    return HubError(404, f"Could not resolve to a node with the global id of '{global_id}'.")


def thread_of(
    call: Call, global_id: str, *, level: Literal["read", "write"] = "write", role: Role | None = None
) -> tuple[Repo, Issue]:
    """The thread of a global id.

    Args:
        level: of the viewer's access.
        role: the weakest role of a permitted user; by default the level.

    Raises:
        HubError: there is no such thread, or access is refused.
    """
    kind, number = parse_id(global_id)
    found = call.site.store.issues.get(number)
    if found is None or kind != ("Issue" if found.pull is None else "PullRequest"):
        raise unresolved(global_id)
    repo = call.site.store.repos[found.repo_id]
    permission = "issues|pull_requests"
    demand(call.site, call.viewer, repo, permission=permission, level=level, role=role or level)
    if repo.archived and level == "write":
        raise HubError(403, "Repository was archived so is read-only.")
    return repo, found


def _people(call: Call, ids: Sequence[str] | None) -> list[User]:
    found = [call.site.store.users.get(parse_id(each)[1]) for each in ids or ()]
    return [or_404(user) for user in found]


def _label_names(call: Call, repo: Repo, ids: Sequence[str] | None) -> list[str]:
    numbers = {parse_id(each)[1] for each in ids or ()}
    found = [
        label.name for (owner, _), label in call.site.store.labels.items() if owner == repo.id and label.id in numbers
    ]
    if len(found) != len(numbers):
        raise HubError(404, "Could not resolve to a node with the global id of a label.")
    return found


def _demand_no_projects(inputs: Inputs) -> None:
    if inputs.get("projectIds"):
        raise HubError(422, "The local hub has no projects.")


def _milestone(call: Call, repo: Repo, global_id: str | None) -> Milestone | None:
    if global_id is None:
        return None
    found = call.site.store.milestones.get(parse_id(global_id)[1])
    if found is None or found.repo_id != repo.id:
        raise unresolved(global_id)
    return found


def payload(inputs: Inputs, **parts: object) -> Json:
    return {"clientMutationId": inputs.get("clientMutationId"), **parts}


def create_ref(call: Call, inputs: Inputs) -> Json:
    """Do `createRef`."""
    repo = find_repo(call, inputs["repositoryId"], "contents")
    made = branches.create_ref(call, repo, inputs["name"], inputs["oid"])
    return payload(inputs, ref=threads.ref(call, repo, made))


def open_pull(call: Call, inputs: Inputs) -> Json:
    """Do `createPullRequest`.

    Raises:
        HubError: a branch is missing, there is nothing between them, or they already have one.
    """
    repo = find_repo(call, inputs["repositoryId"], "pull_requests")
    _demand_title(inputs["title"], "PullRequest")
    new = pulls.NewPull(
        head=inputs["headRefName"],
        base=inputs["baseRefName"],
        title=inputs["title"],
        body=inputs.get("body"),
        draft=bool(inputs.get("draft")),
        maintainer_can_modify=inputs.get("maintainerCanModify", True),
    )
    made = pulls.open_pull(call.site, repo, call.user, new, app_id=call.app_id)
    return payload(inputs, pullRequest=threads.thread(call, repo, made))


def _demand_title(title: str, resource: str) -> None:
    if not title.strip():
        raise HubError(422, "Title can't be blank")
    check_length(title, resource, "title")


def open_issue(call: Call, inputs: Inputs) -> Json:
    """Do `createIssue`."""
    repo = find_repo(call, inputs["repositoryId"], "issues", role="read")
    _demand_title(inputs["title"], "Issue")
    _demand_no_projects(inputs)
    made = threads_module.open_issue(
        call.site,
        repo,
        call.user,
        title=inputs["title"],
        body=inputs.get("body"),
        labels=_label_names(call, repo, inputs.get("labelIds")),
        app_id=call.app_id,
    )
    made = threads_module.set_assignees(call.site, made, call.user, _people(call, inputs.get("assigneeIds")))
    made = threads_module.set_milestone(call.site, made, call.user, _milestone(call, repo, inputs.get("milestoneId")))
    return payload(inputs, issue=threads.thread(call, repo, made))


def add_comment(call: Call, inputs: Inputs) -> Json:
    """Do `addComment`."""
    repo, issue = thread_of(call, inputs["subjectId"], role="read")
    demand_unlocked(call.site, call.viewer, repo, issue, "comment")
    if not inputs["body"].strip():
        raise HubError(422, "Body can't be blank")
    check_length(inputs["body"], "IssueComment", "body")
    made = threads_module.comment(call.site, issue, call.user, inputs["body"], app_id=call.app_id)
    edge = {"node": threads.comment(call, repo, made)}
    return payload(inputs, commentEdge=edge, subject=threads.thread(call, repo, issue))


def add_review(call: Call, inputs: Inputs) -> Json:
    """Do `addPullRequestReview`; without an event the review is pending."""
    repo, issue = thread_of(call, inputs["pullRequestId"], role="read")
    state, body = _EVENTS[inputs.get("event")], inputs.get("body") or ""
    if state in {"COMMENTED", "CHANGES_REQUESTED"} and not body.strip():
        raise HubError(422, "Body can't be blank")
    made, _ = pulls.submit_review(call.site, issue, call.user, state=state, body=body)
    return payload(inputs, pullRequestReview=threads.review(call, repo, made))


def set_state(
    call: Call, inputs: Inputs, kind: Literal["issue", "pullRequest"], state: Literal["open", "closed"]
) -> Json:
    """Do `closeIssue`, `reopenIssue`, `closePullRequest` or `reopenPullRequest`."""
    repo, issue = thread_of(call, inputs[f"{kind}Id"])
    reason, original = inputs.get("stateReason"), inputs.get("duplicateIssueId")
    duplicate_of = None if original is None else thread_of(call, original, level="read")[1].id
    changed = threads_module.set_state(
        call.site, issue, call.user, state, reason.lower() if reason else None, duplicate_of=duplicate_of
    )
    return payload(inputs, **{kind: threads.thread(call, repo, changed)})


def merge(call: Call, inputs: Inputs) -> Json:
    """Do `mergePullRequest`."""
    repo, issue = thread_of(call, inputs["pullRequestId"])
    pull = or_404(issue.pull)
    if (inputs.get("expectedHeadOid") or pull.head_sha) != pull.head_sha:
        raise HubError(422, "Head branch was modified. Review and try the merge again.")
    message = "\n\n".join(filter(None, (inputs.get("commitHeadline"), inputs.get("commitBody"))))
    method = inputs.get("mergeMethod", "MERGE").lower()
    pulls.merge(call.site, issue, call.user, method=method, message=message)
    return payload(inputs, pullRequest=threads.thread(call, repo, call.site.store.issues[issue.id]))


def update_thread(call: Call, inputs: Inputs, kind: Literal["issue", "pullRequest"]) -> Json:
    """Do `updateIssue` or `updatePullRequest`."""
    site = call.site
    repo, issue = thread_of(call, inputs["id" if kind == "issue" else "pullRequestId"])
    title, body = inputs.get("title") or issue.title, inputs.get("body")
    _demand_title(title, "Issue")
    _demand_no_projects(inputs)
    issue = threads_module.retitle(site, issue, call.user, title, issue.body if body is None else body)
    if inputs.get("baseRefName"):
        issue = pulls.retarget(site, issue, call.user, inputs["baseRefName"])
    if inputs.get("labelIds") is not None:
        issue = threads_module.set_labels(site, issue, call.user, _label_names(call, repo, inputs["labelIds"]))
    if inputs.get("assigneeIds") is not None:
        issue = threads_module.set_assignees(site, issue, call.user, _people(call, inputs["assigneeIds"]))
    if "milestoneId" in inputs:
        issue = threads_module.set_milestone(site, issue, call.user, _milestone(call, repo, inputs["milestoneId"]))
    if inputs.get("state"):
        issue = threads_module.set_state(site, issue, call.user, "closed" if inputs["state"] == "CLOSED" else "open")
    if issue.pull is not None and inputs.get("maintainerCanModify") is not None:
        pull = replace(issue.pull, maintainer_can_modify=inputs["maintainerCanModify"])
        issue = site.store.issues.put(replace(issue, pull=pull))
    return payload(inputs, **{kind: threads.thread(call, repo, issue)})


def change_labels(call: Call, inputs: Inputs, *, adds: bool) -> Json:
    """Do `addLabelsToLabelable` or `removeLabelsFromLabelable`."""
    repo, issue = thread_of(call, inputs["labelableId"])
    given = _label_names(call, repo, inputs["labelIds"])
    names = [*issue.labels, *given] if adds else [name for name in issue.labels if name not in given]
    changed = threads_module.set_labels(call.site, issue, call.user, names)
    return payload(inputs, labelable=threads.thread(call, repo, changed))


def change_assignees(call: Call, inputs: Inputs, *, adds: bool) -> Json:
    """Do `addAssigneesToAssignable` or `removeAssigneesFromAssignable`."""
    repo, issue = thread_of(call, inputs["assignableId"])
    given = _people(call, inputs["assigneeIds"])
    there = [call.site.store.users[number] for number in issue.assignees]
    people = [*there, *given] if adds else [user for user in there if user not in given]
    changed = threads_module.set_assignees(call.site, issue, call.user, people)
    return payload(inputs, assignable=threads.thread(call, repo, changed))


def request_reviews(call: Call, inputs: Inputs) -> Json:
    """Do `requestReviews`; there are no teams here."""
    repo, issue = thread_of(call, inputs["pullRequestId"])
    if inputs.get("teamIds"):
        raise HubError(422, "The local hub has no teams.")
    there = or_404(issue.pull).reviewers if inputs.get("union") else ()
    people = [*(call.site.store.users[number] for number in there), *_people(call, inputs.get("userIds"))]
    changed = pulls.set_reviewers(call.site, issue, call.user, people)
    return payload(inputs, pullRequest=threads.thread(call, repo, changed))


def set_draft(call: Call, inputs: Inputs, *, draft: bool) -> Json:
    """Do `convertPullRequestToDraft` or `markPullRequestReadyForReview`."""
    repo, issue = thread_of(call, inputs["pullRequestId"])
    # Reported by many, and in no description: https://github.com/cli/cli/issues/8910
    demand(call.site, call.viewer, repo, permission="contents", level="write", role="write")
    changed = pulls.set_draft(call.site, issue, call.user, draft=draft)
    return payload(inputs, pullRequest=threads.thread(call, repo, changed))


def set_locked(call: Call, inputs: Inputs, *, locked: bool) -> Json:
    """Do `lockLockable` or `unlockLockable`."""
    repo, issue = thread_of(call, inputs["lockableId"])
    reason = (inputs.get("lockReason") or "").lower().replace("too_", "too ").replace("_", "-") or None
    changed = threads_module.set_locked(call.site, issue, call.user, locked=locked, reason=reason)
    shown = threads.thread(call, repo, changed)
    return payload(inputs, **{"lockedRecord" if locked else "unlockedRecord": shown})


def _comment_of(call: Call, global_id: str) -> tuple[Repo, Comment | ReviewComment]:
    """The comment of a global id that the viewer may change."""
    kind, number = parse_id(global_id)
    store = call.site.store
    found: Comment | ReviewComment | None = store.comments.get(number) if kind == "IssueComment" else None
    if kind == "PullRequestReviewComment":
        found = store.review_comments.get(number)
    if found is None:
        raise unresolved(global_id)
    repo = store.repos[found.repo_id]
    demand(call.site, call.viewer, repo, permission="issues|pull_requests", level="write", role="read")
    demand_author_or_writer(call.site, call.viewer, repo, found.author_id)
    return repo, found


def edit_comment(call: Call, inputs: Inputs) -> Json:
    """Do `updateIssueComment`."""
    repo, old = _comment_of(call, inputs["id"])
    if not isinstance(old, Comment):
        raise unresolved(inputs["id"])
    check_length(inputs["body"], "IssueComment", "body")
    new = threads_module.edit_comment(call.site, old, call.user, inputs["body"])
    return payload(inputs, issueComment=threads.comment(call, repo, new))


def set_minimized(call: Call, inputs: Inputs, *, minimized: bool) -> Json:
    """Do `minimizeComment` or `unminimizeComment`."""
    repo, found = _comment_of(call, inputs["subjectId"])
    call.site.store.minimized.pop(inputs["subjectId"], None)
    if minimized:
        call.site.store.minimized[inputs["subjectId"]] = inputs["classifier"].lower().replace("_", "-")
    shown = (
        threads.comment(call, repo, found) if isinstance(found, Comment) else threads.review_comment(call, repo, found)
    )
    return payload(inputs, **{"minimizedComment" if minimized else "unminimizedComment": shown})


def set_resolved(call: Call, inputs: Inputs, *, resolved: bool) -> Json:
    """Do `resolveReviewThread` or `unresolveReviewThread`."""
    kind, number = parse_id(inputs["threadId"])
    first = call.site.store.review_comments.get(number)
    if kind != "PullRequestReviewThread" or first is None or first.in_reply_to is not None:
        raise unresolved(inputs["threadId"])
    repo = call.site.store.repos[first.repo_id]
    demand(call.site, call.viewer, repo, permission="pull_requests", level="write", role="read")
    demand_author_or_writer(call.site, call.viewer, repo, call.site.store.thread_of(first).author_id)
    call.site.store.resolved.pop(first.id, None)
    if resolved:
        call.site.store.resolved[first.id] = call.user.id
    return payload(inputs, thread=threads.review_thread(call, repo, first))


def create_commit(call: Call, inputs: Mapping[str, Any]) -> Json:
    """Do `createCommitOnBranch`.

    Raises:
        RefusedError: the branch is missing or stands elsewhere, or a path or content cannot be.
        HubError: the viewer may not.
    """
    repo, branch = _branch_of(call, inputs["branch"])
    name = f"refs/heads/{branch}"
    head = git.ref(repo.path, name)
    if head is None:
        raise RefusedError("NOT_FOUND", f"No ref found for branch '{branch}'.")
    expected = inputs["expectedHeadOid"]
    if head.sha != expected:
        raise RefusedError(
            "STALE_DATA", f'Expected branch to point to "{expected}" but it did not. Pull and try again.'
        )
    changes = inputs.get("fileChanges") or {}
    old = {entry.path: entry for entry in git.tree(repo.path, head.sha, recursive=True)}
    edits = [
        *(_deletion(old, given["path"]) for given in changes.get("deletions") or ()),
        *(_addition(repo, old, given) for given in changes.get("additions") or ()),
    ]
    tree = git.write_tree(repo.path, head.sha, edits)
    message = "\n\n".join(filter(None, (inputs["message"]["headline"], inputs["message"].get("body"))))
    sha = threads_module.write_commit(call.site, repo, tree=tree, parents=[head.sha], message=message, author=call.user)
    workflow_files.demand_for_commit(repo.path, call.viewer, sha)
    rules.demand(call.site, repo, name, head.sha, sha, login=call.user.login)
    try:
        git.update_ref(repo.path, name, sha, head.sha)
    except git.HubGitError as error:
        text = f'Expected branch to point to "{expected}" but it did not. Pull and try again.'
        raise RefusedError("STALE_DATA", text) from error
    branches.sync(call.site, repo, call.user)
    made = git.Ref(name=name, sha=sha)
    return {
        "clientMutationId": inputs.get("clientMutationId"),
        "commit": threads.commit(call, repo, git.commit(repo.path, sha)),
        "ref": threads.ref(call, repo, made),
    }


def _branch_of(call: Call, branch: Mapping[str, str]) -> tuple[Repo, str]:
    if branch.get("id"):
        for repo in call.site.store.repos:
            for ref in git.refs(repo.path):
                if threads.ref_id(repo, ref.name) == branch["id"]:
                    checked = repo_named(call, repo.full_name, "contents", "write")
                    return checked, ref.name.removeprefix("refs/heads/")
        raise not_found()
    full_name, name = branch.get("repositoryNameWithOwner"), branch.get("branchName")
    if not full_name or not name:
        raise RefusedError("UNPROCESSABLE", "A branch needs an id, or repositoryNameWithOwner and branchName.")
    return repo_named(call, full_name, "contents", "write"), name.removeprefix("refs/heads/")


def _deletion(old: Mapping[str, git.TreeEntry], path: str) -> tuple[str, str | None, str]:
    if path not in old or old[path].type != "blob":
        raise RefusedError("UNPROCESSABLE", f"A path was requested for deletion which does not exist: {path}")
    return "0", None, path


def _addition(repo: Repo, old: Mapping[str, git.TreeEntry], file: Mapping[str, str]) -> tuple[str, str | None, str]:
    """A new file gets mode 100644; a file that is there keeps its own."""
    path = file["path"]
    parts = path.split("/")
    if any(part in {"", ".", ".."} or part.lower() == ".git" for part in parts):
        raise RefusedError("UNPROCESSABLE", f"A path is malformed: {path}")
    try:
        content = base64.b64decode(file["contents"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError("UNPROCESSABLE", f"The contents of {path} are not valid Base64") from error
    mode = old[path].mode if path in old and old[path].type == "blob" else "100644"
    return mode, git.write_blob(repo.path, content), path


MUTATIONS: Mapping[str, Callable[[Call, Inputs], Json]] = {
    "addAssigneesToAssignable": partial(change_assignees, adds=True),
    "addComment": add_comment,
    "addLabelsToLabelable": partial(change_labels, adds=True),
    "addPullRequestReview": add_review,
    "closeIssue": partial(set_state, kind="issue", state="closed"),
    "closePullRequest": partial(set_state, kind="pullRequest", state="closed"),
    "convertPullRequestToDraft": partial(set_draft, draft=True),
    "createCommitOnBranch": create_commit,
    "createIssue": open_issue,
    "createPullRequest": open_pull,
    "createRef": create_ref,
    "lockLockable": partial(set_locked, locked=True),
    "markPullRequestReadyForReview": partial(set_draft, draft=False),
    "mergePullRequest": merge,
    "minimizeComment": partial(set_minimized, minimized=True),
    "removeAssigneesFromAssignable": partial(change_assignees, adds=False),
    "removeLabelsFromLabelable": partial(change_labels, adds=False),
    "reopenIssue": partial(set_state, kind="issue", state="open"),
    "reopenPullRequest": partial(set_state, kind="pullRequest", state="open"),
    "requestReviews": request_reviews,
    "resolveReviewThread": partial(set_resolved, resolved=True),
    "unlockLockable": partial(set_locked, locked=False),
    "unminimizeComment": partial(set_minimized, minimized=False),
    "unresolveReviewThread": partial(set_resolved, resolved=False),
    "updateIssue": partial(update_thread, kind="issue"),
    "updateIssueComment": edit_comment,
    "updatePullRequest": partial(update_thread, kind="pullRequest"),
}
