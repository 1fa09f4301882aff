"""The values of GraphQL: threads, comments and reviews, people, commits with their checks, and releases.

A value is a mapping from GitHub's field names; a field with arguments, or one that is costly, is a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from graphql import GraphQLResolveInfo

from localhub.api import rules
from localhub.api.auth import can_write, demand
from localhub.api.routing import Call
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.operations import branches
from localhub.operations.threads import mentioned
from localhub.state.model import (
    CheckRun,
    Comment,
    CommitStatus,
    Issue,
    IssueEvent,
    Label,
    Milestone,
    Pull,
    PullRequestReview,
    Release,
    Repo,
    ReviewComment,
    Ruleset,
    User,
    WorkflowJob,
    reaction_kind,
)
from localhub.state.store import Json, Site, iso, iso_or_none, node_id
from localhub.views import accounts as account_views
from localhub.views import git as git_views
from localhub.views import merge_state
from localhub.views import threads as threads_views

T = TypeVar("T")
Lazy = Callable[..., Any]
_BAD = frozenset({"FAILURE", "ERROR", "TIMED_OUT", "CANCELLED", "ACTION_REQUIRED"})
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


def connection(items: Callable[[], Sequence[T]], show: Callable[[T], Any]) -> Lazy:
    """A list with pages, as GraphQL has it; nothing is looked up before it is asked for."""

    def page(
        _info: GraphQLResolveInfo[Any],
        *,
        first: int | None = None,
        last: int | None = None,
        after: str | None = None,
        before: str | None = None,
        **_unused: object,
    ) -> Json:
        found = items()
        start = int(after) if after and after.isdecimal() else 0
        end = int(before) - 1 if before and before.isdecimal() else len(found)
        if first is not None:
            end = min(end, start + first)
        if last is not None:
            start = max(start, end - last)
        return {
            "nodes": [show(each) for each in found[start:end]],
            "totalCount": len(found),
            "pageInfo": {
                "hasNextPage": end < len(found),
                "hasPreviousPage": start > 0,
                "startCursor": str(start + 1) if start < end else None,
                "endCursor": str(end) if start < end else None,
            },
        }

    return page


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
        "activeLockReason": (value.lock_reason or "").upper().replace("-", "_").replace(" ", "_") or None,
        "isPinned": False,
        "milestone": None if value.milestone_id is None else milestone(site.store.milestones[value.milestone_id]),
        "projectCards": connection(list, dict),
        "repository": lambda _info: repository(call, repo),
        "labels": connection(lambda: labels_of(call, repo, value), partial(label)),
        "assignees": connection(lambda: value.assignees, partial(person, call)),
        "comments": connection(lambda: site.store.comments_of(value), partial(comment, call, repo)),
        "lastEditedAt": iso_or_none(value.body_edited_at),
        "timelineItems": partial(_timeline, call, value),
        **_authored_fields(call, repo, value),
    }
    return shown if value.pull is None else shown | _pull(call, repo, value, value.pull)


_TIMELINE: Mapping[str, str] = {"labeled": "LABELED_EVENT", "renamed": "RENAMED_TITLE_EVENT"}
"""The events of a timeline that the hub shows here, with the names of their types."""


def _timeline(
    call: Call,
    value: Issue,
    info: GraphQLResolveInfo[Any],
    *,
    itemTypes: Sequence[str] = (),  # noqa: N803 - GraphQL's name
    **page: Any,  # noqa: ANN401 - GraphQL's names
) -> Json:
    wanted = set(itemTypes or _TIMELINE.values())
    found = [each for each in call.site.store.history_of(value) if _TIMELINE.get(each.event) in wanted]
    shown: Json = connection(lambda: found, partial(_timeline_event, call))(info, **page)
    return shown


def _timeline_event(call: Call, value: IssueEvent) -> Json:
    """`LabeledEvent` or `RenamedTitleEvent`."""
    shown: Json = {"actor": person(call, value.actor_id), "createdAt": iso(value.created_at)}
    if value.label is not None:
        return shown | {
            "__typename": "LabeledEvent",
            "id": node_id("LabeledEvent", value.id),
            "label": label(value.label),
        }
    old, new = value.renamed or ("", "")
    kind = "RenamedTitleEvent"
    return shown | {
        "__typename": kind,
        "id": node_id(kind, value.id),
        "previousTitle": old,
        "currentTitle": new,
    }


def matches_filter(call: Call, value: Issue, criteria: Mapping[str, Any]) -> bool:
    """Whether a thread is among those that are wanted: by state, labels, and people."""
    store = call.site.store
    merged = value.pull is not None and value.pull.merged_at is not None
    state = "MERGED" if merged else value.state.upper()
    names = {name.lower() for name in value.labels}
    assignees = {store.users[each].login.lower() for each in value.assignees}
    asked = criteria.get("assignee")
    return (
        state in (criteria.get("states") or (state,))
        and {name.lower() for name in criteria.get("labels") or ()} <= names
        and (criteria.get("createdBy") or "").lower() in {"", store.users[value.author_id].login.lower()}
        and (asked is None or (bool(assignees) if asked == "*" else asked.lower() in assignees))
        and (criteria.get("mentioned") or "").lower() in {"", *mentioned(call.site, value)}
    )


def repository(call: Call, repo: Repo) -> Json:
    """The part of `Repository` that a thread or a fork shows."""
    return {
        "id": node_id("Repository", repo.id),
        "databaseId": repo.id,
        "name": repo.name,
        "nameWithOwner": repo.full_name,
        "url": call.site.repo_html(repo),
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


def _authored_fields(call: Call, repo: Repo, value: Issue | Comment | ReviewComment) -> Json:
    """The fields that threads and comments share."""
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
    return [{"content": name, "users": partial(_count, given.count(content))} for content, name in _REACTIONS.items()]


def _count(count: int, _info: GraphQLResolveInfo[Any], **_page: object) -> Json:
    return {"totalCount": count}


def milestone(value: Milestone) -> Json:
    """`Milestone`."""
    return {
        "id": node_id("Milestone", value.id),
        "number": value.number,
        "title": value.title,
        "description": value.description,
        "dueOn": iso_or_none(value.due_on),
        "state": value.state.upper(),
    }


def comment(call: Call, repo: Repo, value: Comment) -> Json:
    """`IssueComment`."""
    return {
        "editor": person(call, value.editor_id),
        "url": threads_views.comment(call.site, repo, value)["html_url"],
        "includesCreatedEdit": value.updated_at != value.created_at,
        **_comment_fields(call, "IssueComment", value),
        **_authored_fields(call, repo, value),
    }


def _comment_fields(call: Call, kind: str, value: Comment | ReviewComment) -> Json:
    global_id = node_id(kind, value.id)
    reason = call.site.store.minimized.get(global_id)
    return {
        "__typename": kind,
        "id": global_id,
        "databaseId": value.id,
        "isMinimized": reason is not None,
        "minimizedReason": reason,
    }


def review_comment(call: Call, repo: Repo, value: ReviewComment) -> Json:
    """`PullRequestReviewComment`."""
    parent = call.site.store.review_comments.get(value.in_reply_to) if value.in_reply_to else None
    return {
        "path": value.path,
        "diffHunk": value.diff_hunk,
        "outdated": False,
        "replyTo": None if parent is None else lambda _info: review_comment(call, repo, parent),
        "url": threads_views.review_comment(call.site, repo, value)["html_url"],
        **_comment_fields(call, "PullRequestReviewComment", value),
        **_authored_fields(call, repo, value),
    }


def review_thread(call: Call, repo: Repo, first: ReviewComment) -> Json:
    """`PullRequestReviewThread`: a conversation on lines, by its first comment."""
    resolver = call.site.store.users.get(call.site.store.resolved.get(first.id, 0))
    said = [each for each in call.site.store.review_comments if first.id in {each.id, each.in_reply_to}]
    return {
        "id": node_id("PullRequestReviewThread", first.id),
        "comments": connection(lambda: said, partial(review_comment, call, repo)),
        "diffSide": first.side,
        "isCollapsed": resolver is not None,
        "isOutdated": False,
        "isResolved": resolver is not None,
        "line": first.line,
        "originalLine": first.line,
        "startLine": first.start_line,
        "path": first.path,
        "resolvedBy": None if resolver is None else user(call, resolver),
        "subjectType": "FILE" if first.line is None else "LINE",
    }


def review(call: Call, repo: Repo, value: PullRequestReview) -> Json:
    """`PullRequestReview`."""
    return {
        "__typename": "PullRequestReview",
        "id": node_id("PullRequestReview", value.id),
        "databaseId": value.id,
        "comments": connection(
            lambda: [each for each in call.site.store.review_comments if each.review_id == value.id],
            partial(review_comment, call, repo),
        ),
        "author": person(call, value.author_id),
        "authorAssociation": account_views.association(call.site, repo, value.author_id),
        "body": value.body,
        "state": value.state,
        "submittedAt": iso(value.submitted_at),
        "commit": lambda _info: commit(call, repo, git.commit(repo.path, value.commit_sha)),
        "reactionGroups": [],
        "url": threads_views.review(call.site, repo, value)["html_url"],
    }


def _pull(call: Call, repo: Repo, value: Issue, pull: Pull) -> Json:
    site = call.site
    head_repo = site.store.repos.get(pull.head_repo_id)
    base = git.ref(repo.path, f"refs/heads/{pull.base_ref}")
    asked = [person(call, each) for each in pull.reviewers]

    @cache
    def state() -> str:
        known = merge_state.read(site, repo, value, pull)
        merge_state.start(site, value, pull)
        return known

    return {
        "state": "MERGED" if pull.merged_at is not None else value.state.upper(),
        "isDraft": pull.draft,
        "headRefName": pull.head_ref,
        "headRefOid": pull.head_sha,
        "headRepository": None if head_repo is None else repository(call, head_repo),
        "headRepositoryOwner": None if head_repo is None else actor(call, head_repo.owner),
        "isCrossRepository": pull.head_repo_id != repo.id,
        "maintainerCanModify": pull.maintainer_can_modify,
        "baseRef": None if base is None else ref(call, repo, base),
        "baseRefName": pull.base_ref,
        "baseRefOid": pull.base_sha if base is None else base.sha,
        "merged": pull.merged_at is not None,
        "mergedAt": iso_or_none(pull.merged_at),
        "mergedBy": person(call, pull.merged_by),
        "mergeable": lambda _info: {"unknown": "UNKNOWN", "dirty": "CONFLICTING"}.get(state(), "MERGEABLE"),
        "mergeStateStatus": lambda _info: state().upper(),
        "mergeCommit": lambda _info: _commit_or_none(call, repo, pull.merge_commit_sha),
        "potentialMergeCommit": lambda _info: _commit_or_none(call, repo, merge_state.test_merge(repo, value, pull)),
        "files": connection(lambda: git_diff.pull_files(repo.path, pull), _changed_file),
        "latestReviews": connection(lambda: _latest_reviews(site, value), partial(review, call, repo)),
        "projectItems": connection(list, dict),
        "reviewThreads": connection(
            lambda: [each for each in site.store.review_comments_of(value) if each.in_reply_to is None],
            partial(review_thread, call, repo),
        ),
        "additions": lambda _info: sum(file.additions for file in git_diff.pull_files(repo.path, pull)),
        "deletions": lambda _info: sum(file.deletions for file in git_diff.pull_files(repo.path, pull)),
        "changedFiles": lambda _info: len(git_diff.pull_files(repo.path, pull)),
        "commits": connection(
            lambda: threads_views.pull_commits(repo, value),
            lambda value: {"commit": commit(call, repo, value)},
        ),
        "reviews": connection(lambda: site.store.reviews_of(value), partial(review, call, repo)),
        "reviewRequests": connection(lambda: asked, lambda reviewer: {"requestedReviewer": reviewer}),
        "reviewDecision": lambda _info: _decision(site, value),
    }


def ref(call: Call, repo: Repo, value: git.Ref) -> Json:
    """`Ref`."""
    prefix, _, name = value.name.removeprefix("refs/").partition("/")
    return {
        "id": ref_id(repo, value.name),
        "name": name,
        "prefix": f"refs/{prefix}/",
        "refUpdateRule": lambda _info: _update_rule(call, repo, name),
        "rules": connection(lambda: _rules_of(call, repo, name), lambda entry: _rule(*entry)),
        "target": lambda _info: commit(call, repo, git.commit(repo.path, value.sha)),
    }


def _update_rule(call: Call, repo: Repo, branch: str) -> Json | None:
    """`RefUpdateRule`, which is about protection of the older kind."""
    classic = [each for each in rules.rulesets_of(call.site, repo, branch) if each.classic]
    if not classic:
        return None
    types = {rule["type"] for each in classic for rule in each.rules}
    return {
        "allowsDeletions": False,
        "allowsForcePushes": False,
        "blocksCreations": "creation" in types,
        "pattern": classic[0].branches,
        "requiresLinearHistory": "required_linear_history" in types,
        "requiresSignatures": "required_signatures" in types,
        "viewerCanPush": "update" not in types,
    }


def _rules_of(call: Call, repo: Repo, branch: str) -> list[tuple[Ruleset, Json]]:
    rulesets = rules.rulesets_of(call.site, repo, branch)
    return [(each, dict(rule)) for each in rulesets if not each.classic for rule in each.rules]


def _rule(ruleset: Ruleset, rule: Json) -> Json:
    """`RepositoryRule`; the hub shows no parameters but those of patterns."""
    kind = "".join(word.capitalize() for word in rule["type"].split("_"))
    parameters = {"negate": False, **rule.get("parameters", {})}
    return {
        "id": node_id("RepositoryRule", f"{ruleset.id}:{rule['type']}"),
        "type": rule["type"].upper(),
        "repositoryRuleset": {
            "databaseId": ruleset.id,
            "id": node_id("RepositoryRuleset", ruleset.id),
            "name": ruleset.branches,
        },
        "parameters": {"__typename": f"{kind}Parameters", **parameters} if "pattern" in parameters else None,
    }


def ref_id(repo: Repo, name: str) -> str:
    """The global id of a reference; as `branch.id` it names the branch to commit to."""
    return node_id("Ref", f"{repo.id}:{name}")


def _commit_or_none(call: Call, repo: Repo, sha: str | None) -> Json | None:
    return None if sha is None else commit(call, repo, git.commit(repo.path, sha))


def _changed_file(value: git_diff.FileDiff) -> Json:
    """`PullRequestChangedFile`."""
    kind = "DELETED" if value.status == "removed" else value.status.upper()
    return {
        "additions": value.additions,
        "deletions": value.deletions,
        "path": value.path,
        "changeType": kind,
    }


def _latest_reviews(site: Site, value: Issue) -> list[PullRequestReview]:
    """The newest review of each person who was not asked for another one since."""
    asked = value.pull.reviewers if value.pull else ()
    newest = {each.author_id: each for each in site.store.reviews_of(value)}
    return [each for each in newest.values() if each.author_id not in asked]


def _decision(site: Site, value: Issue) -> str | None:
    """`reviewDecision`; None while no reviewer asks for changes or approves."""
    verdicts = merge_state.newest_verdicts(site, value)
    return next((state for state in ("CHANGES_REQUESTED", "APPROVED") if state in verdicts), None)


def person(call: Call, user_id: int | None) -> Json | None:
    """`Actor`, by number."""
    found = None if user_id is None else call.site.store.users.get(user_id)
    return None if found is None else actor(call, found.login)


def actor(call: Call, login: str) -> Json | None:
    """`Actor`: a user, a bot or an organisation."""
    found = call.site.store.user(login)
    if found is None:
        return None
    # As an actor a bot goes without the suffix that REST gives its login, and that it has as a user.
    name = found.login.removesuffix("[bot]") if found.type == "Bot" else found.login
    return user(call, found) | {"__typename": found.type, "login": name}


def user(call: Call, value: User) -> Json:
    """`User`, which a bot is, too, where it signs in or commits."""
    return {
        "__typename": "User",
        "id": node_id(value.type, value.id),
        "databaseId": value.id,
        "login": value.login,
        "name": value.name,
        "url": call.site.html(value.login),
    }


def commit(call: Call, repo: Repo, value: git.Commit) -> Json:
    """`Commit`."""
    signature = {"isValid": True, "state": "VALID", "wasSignedByGitHub": True}
    return {
        "__typename": "Commit",
        "id": node_id("Commit", f"{repo.id}:{value.sha}"),
        "oid": value.sha,
        "url": git_views.commit_page(call.site, repo, value.sha),
        "message": value.message,
        "messageHeadline": value.message.partition("\n")[0],
        "messageBody": value.message.partition("\n")[2].strip("\n"),
        "authoredDate": iso(value.author.date),
        "authors": connection(lambda: [value.author], lambda person: _git_actor(call, person)),
        "author": _git_actor(call, value.author),
        "committer": _git_actor(call, value.committer),
        "parents": connection(lambda: value.parents, lambda sha: commit(call, repo, git.commit(repo.path, sha))),
        "tree": {"id": node_id("Tree", f"{repo.id}:{value.tree}"), "oid": value.tree},
        "committedDate": iso(value.committer.date),
        "signature": signature if value.sha in call.site.store.signed else None,
        "statusCheckRollup": lambda _info: _status_rollup(call, repo, value.sha),
    }


def _git_actor(call: Call, person: git.Person) -> Json:
    found = git_views.account_of(call.site, person)
    shown = None if found is None else user(call, found)
    return {"name": person.name, "email": person.email, "date": iso(person.date), "user": shown}


def _status_rollup(call: Call, repo: Repo, sha: str) -> Json | None:
    """The newest check run of each name and the newest status of each context; None when there is neither."""
    checks = list(merge_state.newest_checks(call.site, repo, sha).values())
    if not checks:
        return None
    words = {_status_word(each) for each in checks}
    bad = "FAILURE" if words & _BAD else None
    state = bad or ("PENDING" if words & {"PENDING", "QUEUED", "IN_PROGRESS"} else "SUCCESS")
    return {"state": state, "contexts": connection(lambda: checks, partial(_context, call, repo))}


def _status_word(value: CheckRun | CommitStatus) -> str:
    return (value.state if isinstance(value, CommitStatus) else value.conclusion or value.status).upper()


def _context(call: Call, repo: Repo, value: CheckRun | CommitStatus) -> Json:
    if isinstance(value, CommitStatus):
        return {
            "__typename": "StatusContext",
            "context": value.context,
            "state": value.state.upper(),
            "description": value.description,
            "targetUrl": value.target_url,
            "createdAt": iso(value.created_at),
            "isRequired": partial(_is_required, call, repo, value.context),
        }

    job = call.site.store.workflow_jobs.get(value.id)
    return {
        "__typename": "CheckRun",
        "name": value.name,
        "status": value.status.upper(),
        "conclusion": value.conclusion.upper() if value.conclusion else None,
        "startedAt": iso(value.started_at),
        "completedAt": iso_or_none(value.completed_at),
        "detailsUrl": value.details_url,
        "checkSuite": {"workflowRun": None if job is None else _workflow_run(call, job)},
        "id": node_id("CheckRun", value.id),
        "databaseId": value.id,
        "isRequired": partial(_is_required, call, repo, value.name),
    }


def _workflow_run(call: Call, job: WorkflowJob) -> Json:
    run = call.site.store.workflow_runs[job.run_id]
    return {"databaseId": run.id, "workflow": {"name": call.site.store.workflows[run.workflow_id].name}}


def _is_required(
    call: Call,
    repo: Repo,
    name: str,
    _info: GraphQLResolveInfo[Any],
    *,
    pullRequestId: str = "",  # noqa: N803 - GraphQL's name
    pullRequestNumber: int = 0,  # noqa: N803 - the same
) -> bool:
    """Whether the base branch of a pull request requires a check."""
    return any(
        issue.pull is not None and name in merge_state.required_checks(call.site, repo, issue.pull)
        for issue in call.site.store.issues_of(repo)
        if node_id("PullRequest", issue.id) == pullRequestId or issue.number == pullRequestNumber
    )


def _visible_releases(call: Call, repo: Repo) -> list[Release]:
    demand(call.site, call.viewer, repo, permission="contents", level="read", role="read")
    return branches.releases_of(call.site, repo, drafts=can_write(call.site, call.viewer, repo))


def release_of_tag(call: Call, repo: Repo, _info: GraphQLResolveInfo[Any], *, tagName: str) -> Json | None:  # noqa: N803 - GraphQL's name
    """The release of a tag."""
    found = next((each for each in _visible_releases(call, repo) if each.tag == tagName), None)
    return None if found is None else _release(call, repo, found)


def list_releases(
    call: Call,
    repo: Repo,
    info: GraphQLResolveInfo[Any],
    *,
    orderBy: Json | None = None,  # noqa: N803 - GraphQL's name
    **page: Any,  # noqa: ANN401 - whatever pages have
) -> Json:
    """A repository's releases, newest first unless asked otherwise."""
    found = _visible_releases(call, repo)
    ascending = orderBy is not None and orderBy["direction"] == "ASC"
    shown: Json = connection(lambda: found[::-1] if ascending else found, partial(_release, call, repo))(info, **page)
    return shown


def _release(call: Call, repo: Repo, value: Release) -> Json:
    """`Release`."""
    rest, newest = git_views.release(call.site, repo, value), branches.latest_release(call.site, repo)
    return {
        "id": rest["node_id"],
        "databaseId": value.id,
        "createdAt": rest["created_at"],
        "description": value.body,
        "isDraft": value.draft,
        "isLatest": newest is not None and newest.id == value.id,
        "isPrerelease": value.prerelease,
        "name": value.name,
        "publishedAt": rest["published_at"],
        "tagName": value.tag,
        "url": rest["html_url"],
    }
