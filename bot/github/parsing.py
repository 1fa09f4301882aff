"""GitHub's JSON to values. Pure; a field that GitHub leaves out now and then is tolerated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from bot.domain.access import Role
from bot.github.drafts import Annotation
from bot.github.models import (
    Account,
    ArtifactFacts,
    BotIdentity,
    CheckFacts,
    CommentFacts,
    CommitFacts,
    JobFacts,
    PullFacts,
    PullLink,
    RedCheck,
    RepoFacts,
    ReviewCommentFacts,
    ReviewFacts,
    RunFacts,
    StepFacts,
    ThreadFacts,
)

Json = Mapping[str, Any]

_LEVELS: dict[str, Literal["notice", "warning", "failure"]] = {"notice": "notice", "warning": "warning"}


def role(data: Json, known: Sequence[str]) -> Role:
    """The answer of the collaborator-permission API.

    `role_name` may be an organisation's own role; then `permission` names the basic one it builds on:
    https://docs.github.com/rest/collaborators/collaborators#get-repository-permissions-for-a-user
    """
    for field in ("role_name", "permission"):
        if data.get(field) in known:
            return cast("Role", data[field])
    return "none"


def repo(data: Json) -> RepoFacts:
    """A repository."""
    return RepoFacts(
        id=int(data["id"]),
        full_name=str(data["full_name"]),
        private=bool(data["private"]),
        archived=bool(data.get("archived", False)),
        default_branch=str(data["default_branch"]),
        clone_url=str(data["clone_url"]),
        html_url=str(data["html_url"]),
        node_id=str(data.get("node_id") or ""),
    )


def thread(data: Json) -> ThreadFacts:
    """An issue, which may be a pull request."""
    return ThreadFacts(
        kind="pull" if "pull_request" in data else "issue",
        number=int(data["number"]),
        state="closed" if data["state"] == "closed" else "open",
        locked=bool(data.get("locked", False)),
        title=str(data["title"]),
        body=str(data.get("body") or ""),
        author=login(data),
        author_id=account_id(data),
        labels=label_names(data.get("labels", [])),
        html_url=str(data["html_url"]),
    )


def pull(data: Json) -> PullFacts:
    """A pull request in full."""
    head, base = data["head"], data["base"]
    head_repo = head.get("repo")
    return PullFacts(
        number=int(data["number"]),
        state="closed" if data["state"] == "closed" else "open",
        merged=bool(data.get("merged", False)),
        draft=bool(data.get("draft", False)),
        locked=bool(data.get("locked", False)),
        author=login(data),
        author_id=account_id(data),
        head_ref=str(head["ref"]),
        head_sha=str(head["sha"]),
        head_repo=str(head_repo["full_name"]) if head_repo else None,
        head_repo_id=int(head_repo["id"]) if head_repo else None,
        base_ref=str(base["ref"]),
        base_sha=str(base["sha"]),
        from_fork=not head_repo or head_repo["id"] != base["repo"]["id"],
        html_url=str(data["html_url"]),
        body=str(data.get("body") or ""),
    )


def commit(data: Json) -> CommitFacts:
    """A commit of the git database API."""
    return CommitFacts(
        sha=str(data["sha"]),
        tree_sha=str(data["tree"]["sha"]),
        parents=tuple(str(each["sha"]) for each in data["parents"]),
        message=str(data["message"]),
        html_url=str(data["html_url"]),
    )


def pull_link(data: Json) -> PullLink:
    """Where a pull request is."""
    return PullLink(number=int(data["number"]), html_url=str(data["html_url"]), draft=bool(data.get("draft")))


def account(data: Json) -> Account:
    """An account."""
    return Account(id=int(data["id"]), login=str(data["login"]), kind=str(data.get("type") or "User"))


def identity(data: Json, *, app_id: int | None = None) -> BotIdentity:
    """Our own account."""
    return BotIdentity(id=int(data["id"]), login=str(data["login"]), app_id=app_id)


def run(data: Json) -> RunFacts:
    """A workflow run."""
    head = data.get("head_repository")
    return RunFacts(
        id=int(data["id"]),
        workflow_id=int(data["workflow_id"]),
        name=str(data.get("name") or ""),
        conclusion=str(data.get("conclusion") or ""),
        head_sha=str(data["head_sha"]),
        head_branch=str(data.get("head_branch") or ""),
        head_repo_id=int(head["id"]) if head else None,
        html_url=str(data["html_url"]),
        path=str(data.get("path") or "").partition("@")[0],
        event=str(data.get("event") or ""),
        number=int(data.get("run_number") or 0),
        attempt=int(data.get("run_attempt") or 1),
    )


def workflow_job(data: Json) -> JobFacts:
    """A job of a workflow run."""
    check_id = str(data.get("check_run_url") or "").rpartition("/")[2]
    return JobFacts(
        id=int(data["id"]),
        name=str(data["name"]),
        conclusion=str(data.get("conclusion") or ""),
        steps=tuple(map(_step, data.get("steps") or ())),
        labels=label_names(data.get("labels") or ()),
        check_id=int(check_id) if check_id.isdecimal() else 0,
        html_url=str(data.get("html_url") or ""),
    )


def artifact(data: Json) -> ArtifactFacts:
    """An artifact of a workflow run."""
    of_run = data.get("workflow_run") or {}
    return ArtifactFacts(
        id=int(data["id"]),
        name=str(data["name"]),
        size=int(data.get("size_in_bytes") or 0),
        expired=bool(data.get("expired")),
        run_id=int(of_run.get("id") or 0),
        head_repo_id=of_run.get("head_repository_id"),
    )


def comment(data: Json) -> CommentFacts:
    """A comment of an issue, or on lines."""
    created = str(data.get("created_at") or "")
    return CommentFacts(
        id=int(data["id"]),
        author=login(data),
        author_id=account_id(data),
        body=str(data.get("body") or ""),
        created_at=created,
        updated_at=str(data.get("updated_at") or created),
        html_url=str(data["html_url"]),
    )


def review_comment(data: Json) -> ReviewCommentFacts:
    """A comment on lines of a pull request."""
    return ReviewCommentFacts(
        comment=comment(data),
        root=int(data.get("in_reply_to_id") or data["id"]),
        review_id=_number(data.get("pull_request_review_id")),
        path=str(data["path"]),
        line=_number(data.get("line")),
        start_line=_number(data.get("start_line")),
        side="LEFT" if data.get("side") == "LEFT" else "RIGHT",
        hunk=str(data.get("diff_hunk") or ""),
        commit_sha=str(data.get("commit_id") or ""),
    )


def review(data: Json) -> ReviewFacts:
    """A review."""
    return ReviewFacts(
        id=int(data["id"]),
        author=login(data),
        author_id=account_id(data),
        body=str(data.get("body") or ""),
        state=str(data["state"]),
        submitted_at=str(data.get("submitted_at") or ""),
        commit_sha=str(data.get("commit_id") or ""),
        html_url=str(data["html_url"]),
    )


def check(data: Json) -> CheckFacts:
    """A check run."""
    output = data.get("output") or {}
    return CheckFacts(
        id=int(data["id"]),
        html_url=str(data.get("html_url") or ""),
        annotations=int(output.get("annotations_count") or 0),
    )


def annotation(data: Json) -> Annotation:
    """A check run's word about lines."""
    start = int(data.get("start_line") or 1)
    return Annotation(
        path=str(data["path"]),
        start_line=start,
        end_line=int(data.get("end_line") or start),
        level=_LEVELS.get(str(data.get("annotation_level")), "failure"),
        message=str(data.get("message") or ""),
        title=str(data.get("title") or ""),
    )


def red_check(data: Json, annotations: tuple[Annotation, ...]) -> RedCheck:
    """A check run that went wrong."""
    output = data.get("output") or {}
    return RedCheck(
        name=str(data["name"]),
        conclusion=str(data["conclusion"]),
        summary="\n\n".join(
            str(part) for part in (output.get(field) for field in ("title", "summary", "text")) if part
        ),
        annotations=annotations,
        html_url=str(data.get("html_url") or ""),
    )


def red_status(data: Json) -> RedCheck:
    """A commit status that went wrong."""
    return RedCheck(
        name=str(data["context"]),
        conclusion=str(data["state"]),
        summary=str(data.get("description") or ""),
        annotations=(),
        html_url=str(data.get("target_url") or ""),
    )


def _step(data: Json) -> StepFacts:
    return StepFacts(
        number=int(data["number"]),
        name=str(data["name"]),
        conclusion=str(data.get("conclusion") or ""),
        started_at=str(data.get("started_at") or ""),
        completed_at=str(data.get("completed_at") or ""),
    )


def label_names(data: Sequence[str | Json]) -> tuple[str, ...]:
    """Names of labels, which GitHub writes as objects and once in a while as bare names."""
    return tuple(each if isinstance(each, str) else str(each.get("name", "")) for each in data)


def login(data: Json, field: str = "user") -> str:
    """Who it is by; a deleted account is called `ghost`, as on GitHub's pages."""
    return str((data.get(field) or {}).get("login", "ghost"))


def account_id(data: Json, field: str = "user") -> int:
    """The numeric id of who it is by; 0 for a deleted account."""
    return int((data.get(field) or {}).get("id", 0))


def is_stale(said: str) -> bool:
    """Whether `createCommitOnBranch` says that the branch moved."""
    return "STALE_DATA" in said or "expected branch to point to" in said.lower()


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
