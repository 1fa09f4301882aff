"""GitHub's JSON of comments, reviews and check runs to values. Pure; a field that GitHub leaves out is tolerated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bot.github.drafts import Annotation
from bot.github.facts import CheckFacts, RedCheck
from bot.github.parsing import Json, account_id, login
from bot.github.talk import CommentFacts, ReviewCommentFacts, ReviewFacts

_LEVELS: dict[str, Literal["notice", "warning", "failure"]] = {"notice": "notice", "warning": "warning"}


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


def red_check(data: Json, annotations: Sequence[Json]) -> RedCheck:
    """A check run that went wrong."""
    output = data.get("output") or {}
    return RedCheck(
        name=str(data["name"]),
        conclusion=str(data["conclusion"]),
        summary="\n\n".join(
            str(part) for part in (output.get(field) for field in ("title", "summary", "text")) if part
        ),
        annotations=tuple(map(annotation, annotations)),
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


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
