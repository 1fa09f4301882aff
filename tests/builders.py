"""Values for tests: a job, a comment's payload, a signed request; each complete, and any part of it replaceable."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from agent_runtime import RunLimits, Task
from bot.domain.access import Bounds, Tally
from bot.domain.commands import Command, Fix
from bot.domain.job import Actor, Job, Origin, Repo, Thread
from bot.github.types import Annotation, CheckFacts, CommentFacts, RepoFacts, ReviewCommentFacts, ReviewFacts
from bot.permissions.levels import AccessRequest, ThreadState
from bot.permissions.repo_config import RepoConfig
from bot.prompt.brief import Material, brief_for

SECRET = "It's a Secret to Everybody"
REPO = RepoFacts(
    id=10,
    full_name="octo/calc",
    private=False,
    archived=False,
    default_branch="main",
    clone_url="https://github.com/octo/calc.git",
    html_url="https://github.com/octo/calc",
)
"""The repository of `a_job`, with what GitHub says about it."""


def a_job(
    job_id: str = "j1",
    *,
    number: int = 7,
    kind: str = "issue",
    command: Command | None = None,
    delivery_id: str = "",
    comment_id: int = 900,
    title: str = "Adding is off by one",
    body: str = "`add(1, 1)` gives 3.",
    thread: Thread | None = None,
) -> Job:
    return Job(
        id=job_id,
        delivery_id=delivery_id or f"delivery-of-{job_id}",
        repo=Repo(id=10, full_name="octo/calc", private=False),
        thread=thread
        or Thread(kind="issue" if kind == "issue" else "pull", number=number, title=title, body=body, author="mona"),
        actor=Actor(id=20, login="hubot-owner"),
        origin=Origin(kind="comment", id=comment_id, at="2026-01-02T03:04:05Z"),
        command=command or Fix(goal="mend it"),
        installation=30,
    )


def thread_facts(**changes: Any) -> ThreadState:  # noqa: ANN401 - whatever ThreadFacts takes
    """An open pull request from `mona/patch-1` to `main`, in the repository of `a_job`."""
    usual: dict[str, Any] = {
        "repo": REPO,
        "head_sha": "a" * 40,
        "head_ref": "mona/patch-1",
        "head_repo_id": 10,
        "base_ref": "main",
        "is_open": True,
        "locked": False,
        "author_id": 3,
    }
    return ThreadState(**{**usual, **changes})


def a_comment(
    comment_id: int = 1,
    body: str = "Words.",
    *,
    author: str = "eve",
    author_id: int = 5,
    at: str = "",
    edited: str = "",
) -> CommentFacts:
    by = Actor(id=author_id, login=author)
    return CommentFacts(id=comment_id, author=by, body=body, created_at=at, updated_at=edited or at, html_url="")


def on_lines(
    comment: CommentFacts, path: str = "a.py", *, root: int = 0, line: int | None = None, hunk: str = ""
) -> ReviewCommentFacts:
    """The comment on lines of a pull request; without `root` it begins a thread."""
    return ReviewCommentFacts(**dict(comment), root=root or comment.id, path=path, line=line, hunk=hunk)


def in_a_review(comment: CommentFacts, *, state: str = "COMMENTED", commit_sha: str = "") -> ReviewFacts:
    """The comment as the body of a review."""
    return ReviewFacts(**dict(comment), state=state, commit_sha=commit_sha)


def a_failed_check(name: str = "test", **changes: Any) -> CheckFacts:  # noqa: ANN401 - whatever CheckFacts takes
    return CheckFacts(**{"id": 1, "name": name, "conclusion": "failure", **changes})


def an_annotation(message: str, path: str = ".github", line: int = 1) -> Annotation:
    return Annotation(path=path, start_line=line, end_line=line, level="failure", message=message)


def a_request_for(job: Job, **changes: Any) -> AccessRequest:  # noqa: ANN401 - whatever AccessRequest takes
    """A request by who may write, for the job's own command, with nothing configured, labelled or done before."""
    usual: dict[str, Any] = {
        "job": job,
        "command": job.command,
        "roles": ("write", *("write" for _ in job.other_actors)),
        "facts": thread_facts(),
        "labels": (),
        "config": RepoConfig(),
        "bounds": Bounds(limits=RunLimits(), model="the-model"),
        "tally": Tally(),
    }
    return AccessRequest(**{**usual, **changes})


_COMMENT: dict[str, Any] = {
    "action": "created",
    "issue": {"number": 7, "title": "Adding is off by one", "body": "It is.", "user": {"id": 3, "login": "mona"}},
    "comment": {"id": 900, "body": "/codepilot fix it", "user": {"id": 20, "login": "octo-owner"}},
    "repository": {"id": 10, "full_name": "octo/calc", "private": False},
    "sender": {"id": 20, "login": "octo-owner", "type": "User"},
    "installation": {"id": 30},
}


def a_comment_event(body: str | None = None, /, **changes: object) -> dict[str, Any]:
    """The payload of an `issue_comment`; a change is named by its path, e.g. `sender__type="Bot"`."""
    payload = copy.deepcopy(_COMMENT)
    if body is not None:
        changes["comment__body"] = body
    return changed(payload, changes)


def changed(payload: dict[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """The payload itself, with what stands at these paths replaced; `sender__type` is `payload["sender"]["type"]`."""
    for path, value in changes.items():
        *parents, last = path.split("__")
        part: dict[str, Any] = payload
        for parent in parents:
            part = part[parent]
        part[last] = value
    return payload


def signature(body: bytes, secret: str = SECRET) -> str:
    """The value of `X-Hub-Signature-256`."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def a_request(
    payload: object, *, event: str = "issue_comment", delivery_id: str = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
) -> tuple[dict[str, str], bytes]:
    """The headers and the body with which GitHub would deliver a payload."""
    body = json.dumps(payload).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery_id,
        "X-Hub-Signature-256": signature(body),
    }
    return headers, body


def task_for(job: Job, command: Command | None = None, material: Material | None = None) -> Task:
    """The brief of an agent without pictures."""
    return brief_for(job, command, material).task()
