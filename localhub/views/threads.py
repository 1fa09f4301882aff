"""Issues and pull requests as GitHub's JSON, with their comments, reviews, reactions and history."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.state.model import (
    Comment,
    Issue,
    IssueEvent,
    IssueField,
    IssueType,
    Pull,
    PullRequestReview,
    Reaction,
    Repo,
    ReviewComment,
)
from localhub.state.store import Json, Site, iso, iso_or_none, node_id
from localhub.views import accounts as account_views
from localhub.views import merge_state

REACTIONS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")


def reaction(site: Site, value: Reaction) -> Json:
    """`reaction`."""
    return {
        "id": value.id,
        "node_id": node_id("Reaction", value.id),
        "user": account_views.user_by_id(site, value.user_id),
        "content": value.content,
        "created_at": iso(value.created_at),
    }


def rollup(site: Site, url: str, subject: Issue | Comment | ReviewComment) -> Json:
    """`reaction-rollup`: reactions by kind."""
    given = [reaction.content for reaction in site.store.reactions_to(subject)]
    return {"url": f"{url}/reactions", "total_count": len(given)} | {name: given.count(name) for name in REACTIONS}


def issue(site: Site, repo: Repo, value: Issue) -> Json:
    """`issue`, also for a pull request."""
    url = site.repo_api(repo, "issues", value.number)
    assignees = [account_views.user_by_id(site, number) for number in value.assignees]
    shown: Json = {
        "id": value.id,
        "node_id": node_id("Issue", value.id),
        "url": url,
        "repository_url": site.repo_api(repo),
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "timeline_url": f"{url}/timeline",
        "html_url": thread_page(site, repo, value),
        "number": value.number,
        "state": value.state,
        "state_reason": value.state_reason,
        "title": value.title,
        "body": value.body,
        "user": account_views.user_by_id(site, value.author_id),
        "labels": account_views.labels_of(site, repo, value),
        "assignee": assignees[0] if assignees else None,
        "assignees": assignees,
        "milestone": account_views.milestone_of(site, repo, value),
        "locked": value.locked,
        "active_lock_reason": value.lock_reason,
        "comments": len(site.store.comments_of(value)),
        "closed_at": iso_or_none(value.closed_at),
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "author_association": account_views.association(site, repo, value.author_id),
        "performed_via_github_app": account_views.app_by_id(site, value.app_id),
        "reactions": rollup(site, url, value),
    }
    if value.pull is None:
        shown |= _planning(site, value) | ({"type": issue_type_of(site, value)} if site.store.types_of(repo) else {})
    if value.pull is not None:
        shown |= {"draft": value.pull.draft, "pull_request": _pull_links(site, repo, value, value.pull)}
    return shown


def _planning(site: Site, value: Issue) -> Json:
    """The place of an issue among its parent and its sub-issues."""
    children = site.store.sub_issues_of(value)
    done = sum(child.state == "closed" for child in children)
    percent = 100 * done // len(children) if children else 0
    summary = {"total": len(children), "completed": done, "percent_completed": percent}
    if value.parent_id is None:
        return {"sub_issues_summary": summary}
    parent = site.store.issues[value.parent_id]
    url = site.repo_api(site.store.repos[parent.repo_id], "issues", parent.number)
    return {"sub_issues_summary": summary, "parent_issue_url": url}


def issue_type(value: IssueType) -> Json:
    """`issue-type`."""
    return {
        "id": value.id,
        "node_id": node_id("IssueType", value.id),
        "name": value.name,
        "description": None,
        "color": None,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
        "is_enabled": True,
    }


def issue_type_of(site: Site, value: Issue) -> Json | None:
    """The type of an issue."""
    return None if value.type_id is None else issue_type(site.store.issue_types[value.type_id])


def issue_field(value: IssueField) -> Json:
    """`issue-field`."""
    shown: Json = {
        "id": value.id,
        "node_id": node_id("IssueField", value.id),
        "name": value.name,
        "description": None,
        "data_type": value.data_type,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
    }
    options = [{"id": number, "name": name, "color": "gray"} for number, name in value.options]
    return shown | ({"options": options} if options else {})


def field_values(site: Site, value: Issue) -> list[Json]:
    """`issue-field-value` of each field that is set; a selection's value is its option, or the names of several."""
    shown: list[Json] = []
    for number, set_value in value.fields:
        field = site.store.issue_fields[number]
        names = set_value if isinstance(set_value, tuple) else (set_value,)
        options = [{"id": each, "name": name, "color": "gray"} for each, name in field.options if name in names]
        one = {"single_select_option": options[0]} if field.data_type == "single_select" else {}
        several = {"multi_select_options": options} if field.data_type == "multi_select" else {}
        shown.append(
            {
                "issue_field_id": field.id,
                "issue_field_name": field.name,
                "node_id": node_id("IssueField", field.id),
                "data_type": field.data_type,
                "value": ", ".join(set_value) if isinstance(set_value, tuple) else set_value,
                **one,
                **several,
            }
        )
    return shown


def _pull_links(site: Site, repo: Repo, value: Issue, pull: Pull) -> Json:
    page = thread_page(site, repo, value)
    return {
        "url": site.repo_api(repo, "pulls", value.number),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "merged_at": iso_or_none(pull.merged_at),
    }


def thread_page(site: Site, repo: Repo, value: Issue) -> str:
    """The address of the thread's page."""
    return site.repo_html(repo, "pull" if value.pull else "issues", value.number)


def comment(site: Site, repo: Repo, value: Comment) -> Json:
    """`issue-comment`."""
    url = site.repo_api(repo, "issues", "comments", value.id)
    page = thread_page(site, repo, site.store.thread_of(value))
    return {
        "id": value.id,
        "node_id": node_id("IssueComment", value.id),
        "url": url,
        "body": value.body,
        "html_url": f"{page}#issuecomment-{value.id}",
        "user": account_views.user_by_id(site, value.author_id),
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "issue_url": site.repo_api(repo, "issues", value.number),
        "author_association": account_views.association(site, repo, value.author_id),
        "performed_via_github_app": account_views.app_by_id(site, value.app_id),
        "reactions": rollup(site, url, value),
    }


def pull_simple(site: Site, repo: Repo, value: Issue) -> Json:
    """`pull-request-simple`, as lists show it."""
    pull = _pull(value)
    links = _pull_addresses(site, repo, value)
    page = links["html"]
    assignees = [account_views.user_by_id(site, number) for number in value.assignees]
    return {
        "url": links["self"],
        "id": pull.id,
        "node_id": node_id("PullRequest", pull.id),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": links["issue"],
        **{f"{name}_url": links[name] for name in _LINKED},
        "number": value.number,
        "state": value.state,
        "locked": value.locked,
        "title": value.title,
        "user": account_views.user_by_id(site, value.author_id),
        "body": value.body,
        "labels": account_views.labels_of(site, repo, value),
        "milestone": account_views.milestone_of(site, repo, value),
        "active_lock_reason": value.lock_reason,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "closed_at": iso_or_none(value.closed_at),
        "merged_at": iso_or_none(pull.merged_at),
        "merge_commit_sha": merge_state.test_merge(repo, value, pull),
        "assignee": assignees[0] if assignees else None,
        "assignees": assignees,
        "requested_reviewers": [account_views.user_by_id(site, number) for number in pull.reviewers],
        "requested_teams": [],
        "head": _side(site, pull.head_repo_id, pull.head_ref, pull.head_sha),
        "base": _side(site, repo.id, pull.base_ref, pull.base_sha),
        "_links": {name: {"href": address} for name, address in links.items()},
        "author_association": account_views.association(site, repo, value.author_id),
        "auto_merge": None,
        "draft": pull.draft,
    }


_LINKED = ("commits", "review_comments", "review_comment", "comments", "statuses")


def _pull_addresses(site: Site, repo: Repo, value: Issue) -> dict[str, str]:
    """The addresses in `_links`, by their names there."""
    api = site.repo_api(repo)
    url, issue_url = f"{api}/pulls/{value.number}", f"{api}/issues/{value.number}"
    return {
        "self": url,
        "html": thread_page(site, repo, value),
        "issue": issue_url,
        "comments": f"{issue_url}/comments",
        "review_comments": f"{url}/comments",
        "review_comment": f"{api}/pulls/comments{{/number}}",
        "commits": f"{url}/commits",
        "statuses": f"{api}/statuses/{_pull(value).head_sha}",
    }


def pull(site: Site, repo: Repo, value: Issue) -> Json:
    """`pull-request`, with the counts that need git."""
    inner = _pull(value)
    changed = git_diff.pull_files(repo.path, inner)
    commits = len(pull_commits(repo, value))
    state = merge_state.read(site, repo, value, inner)
    mergeable = {"unknown": None, "dirty": False}.get(state, True)
    return pull_simple(site, repo, value) | {
        "merged": inner.merged_at is not None,
        "mergeable": mergeable,
        # A single commit is rebased as it is merged; of more, as on GitHub, it is not known for a time.
        "rebaseable": mergeable if commits == 1 or not mergeable else None,
        "mergeable_state": state,
        "merged_by": account_views.user_by_id(site, inner.merged_by),
        "comments": len(site.store.comments_of(value)),
        "review_comments": len(site.store.review_comments_of(value)),
        "maintainer_can_modify": inner.maintainer_can_modify,
        "commits": commits,
        "additions": sum(file.additions for file in changed),
        "deletions": sum(file.deletions for file in changed),
        "changed_files": len(changed),
    }


def pull_commits(repo: Repo, value: Issue) -> list[git.Commit]:
    """The commits that a pull request brings, oldest first."""
    inner = _pull(value)
    return git.commits(repo.path, f"{inner.base_sha}..{inner.head_sha}")[::-1]


def pulls_at(site: Site, repo: Repo, sha: str) -> list[Json]:
    """The open pull requests whose head is this commit; those from forks are left out, as on GitHub."""
    return [
        pull_minimal(site, repo, issue)
        for issue in site.store.issues_of(repo)
        if issue.pull is not None
        and issue.state == "open"
        and (issue.pull.head_repo_id, issue.pull.head_sha) == (repo.id, sha)
    ]


def found_issue(site: Site, repo: Repo, value: Issue) -> Json:
    """`issue-search-result-item`."""
    shown = issue(site, repo, value)
    kept = {name: part for name, part in shown.items() if name not in {"closed_by", "repository"}}
    return kept | {"body": value.body or "", "score": 1.0}


def pull_minimal(site: Site, repo: Repo, value: Issue) -> Json:
    """`pull-request-minimal`, as check runs name it."""
    inner = _pull(value)
    head_repo = site.store.repos[inner.head_repo_id]

    def side(where: Repo, ref: str, sha: str) -> dict[str, Any]:
        named = {"id": where.id, "url": site.repo_api(where), "name": where.name}
        return {"ref": ref, "sha": sha, "repo": named}

    return {
        "id": inner.id,
        "number": value.number,
        "url": site.repo_api(repo, "pulls", value.number),
        "head": side(head_repo, inner.head_ref, inner.head_sha),
        "base": side(repo, inner.base_ref, inner.base_sha),
    }


def _side(site: Site, repo_id: int, ref: str, sha: str) -> Json:
    repo = site.store.repos[repo_id]
    return {
        "label": f"{repo.owner}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": account_views.simple_user(site, account_views.owner_of(site, repo)),
        "repo": account_views.repository(site, repo),
    }


def _pull(value: Issue) -> Pull:
    if value.pull is None:
        raise ValueError(f"#{value.number} is an issue, not a pull request")
    return value.pull


def review(site: Site, repo: Repo, value: PullRequestReview) -> Json:
    """`pull-request-review`."""
    page = f"{site.repo_html(repo, 'pull', value.number)}#pullrequestreview-{value.id}"
    pull = site.repo_api(repo, "pulls", value.number)
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


def review_payload(site: Site, repo: Repo, value: PullRequestReview) -> Json:
    """`pull-request-review` as events carry it: the state in small letters, and null for an empty text."""
    return review(site, repo, value) | {"state": value.state.lower(), "body": value.body or None}


def review_comment(site: Site, repo: Repo, value: ReviewComment) -> Json:
    """`pull-request-review-comment`."""
    pull = site.repo_api(repo, "pulls", value.number)
    url = site.repo_api(repo, "pulls", "comments", value.id)
    page = f"{site.repo_html(repo, 'pull', value.number)}#discussion_r{value.id}"
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
        "reactions": rollup(site, url, value),
        "position": value.position,
        "original_position": value.position,
        "start_line": value.start_line,
        "original_start_line": value.start_line,
        "start_side": value.start_side,
        **({} if value.line is None else {"line": value.line, "original_line": value.line}),
        "side": value.side,
        "subject_type": "file" if value.line is None else "line",
    }
    return shown if value.in_reply_to is None else shown | {"in_reply_to_id": value.in_reply_to}


Entry: TypeAlias = IssueEvent | Comment | PullRequestReview
"""An entry of a timeline."""


def event(site: Site, repo: Repo, value: IssueEvent) -> Json:
    """`issue-event-for-issue`."""
    app = site.store.app_of(site.store.users[value.actor_id])
    shown: Json = {
        "id": value.id,
        "node_id": node_id("IssueEvent", value.id),
        "url": site.repo_api(repo, "issues", "events", value.id),
        "actor": account_views.user_by_id(site, value.actor_id),
        "event": value.event,
        "commit_id": None,
        "commit_url": None,
        "created_at": iso(value.created_at),
        "performed_via_github_app": None if app is None else account_views.integration(site, app),
    }
    if value.label is not None:
        shown["label"] = {"name": value.label.name, "color": value.label.color}
    if value.assignee_id is not None:
        shown["assignee"] = account_views.user_by_id(site, value.assignee_id)
        shown["assigner"] = shown["actor"]
    if value.renamed is not None:
        shown["rename"] = {"from": value.renamed[0], "to": value.renamed[1]}
    if value.event == "locked":
        shown["lock_reason"] = None
    if value.milestone is not None:
        shown["milestone"] = {"title": value.milestone}
    return shown


def moment(value: Entry) -> tuple[datetime, int]:
    """The sort key of a timeline."""
    return (value.submitted_at if isinstance(value, PullRequestReview) else value.created_at), value.id


def timeline_entry(site: Site, repo: Repo, value: Entry) -> Json:
    """`timeline-issue-events`: comments among events; an assignment does not name the assigner."""
    if isinstance(value, Comment):
        said = comment(site, repo, value)
        return said | {"event": "commented", "actor": said["user"]}
    if isinstance(value, PullRequestReview):
        return review_payload(site, repo, value) | {"event": "reviewed"}
    shown = event(site, repo, value)
    shown.pop("assigner", None)
    return shown
