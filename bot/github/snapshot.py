"""A repository, a thread or a branch of it, and the heads of both in one GraphQL request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.github.facts import PullFacts, RepoFacts, Snapshot, ThreadFacts

Json = Mapping[str, Any]

_THREAD = """
number title body url locked
author {
  login ... on Bot { databaseId }
  ... on Mannequin { databaseId } ... on Organization { databaseId } ... on User { databaseId }
}
labels(first: 100) { nodes { name } }
"""

_REPOSITORY = """
id databaseId nameWithOwner isPrivate isArchived url
defaultBranchRef { name target { oid } }
"""

# The states of issues and of pull requests are of different types, which GraphQL forbids to have one name.
QUERY = f"""
query ($owner: String!, $name: String!, $number: Int!) {{
  repository(owner: $owner, name: $name) {{
    {_REPOSITORY}
    issueOrPullRequest(number: $number) {{
      __typename
      ... on Issue {{ {_THREAD} issueState: state }}
      ... on PullRequest {{
        {_THREAD} pullState: state isDraft isCrossRepository headRefName headRefOid baseRefName baseRefOid
        headRepository {{ databaseId nameWithOwner }} baseRef {{ target {{ oid }} }}
      }}
    }}
  }}
}}
"""

BRANCH_QUERY = f"""
query ($owner: String!, $name: String!, $ref: String!) {{
  repository(owner: $owner, name: $name) {{
    {_REPOSITORY}
    ref(qualifiedName: $ref) {{ target {{ oid }} }}
  }}
}}
"""


def snapshot(data: Json, *, default_branch: str) -> Snapshot:
    """The answer as values.

    Args:
        data: what `repository` answered.
        default_branch: its name, where the answer cannot have it, since an empty repository has no branches.
    """
    head, found = data.get("defaultBranchRef"), data.get("issueOrPullRequest")
    url = str(data["url"])
    is_pull = found is not None and found["__typename"] == "PullRequest"
    return Snapshot(
        repo=RepoFacts(
            id=int(data["databaseId"]),
            full_name=str(data["nameWithOwner"]),
            private=bool(data["isPrivate"]),
            archived=bool(data["isArchived"]),
            default_branch=str(head["name"]) if head else default_branch,
            clone_url=f"{url}.git",
            html_url=url,
            node_id=str(data["id"]),
        ),
        default_head=_head(head),
        thread=None if found is None else _thread(found, is_pull=is_pull),
        pull=_pull(found) if found is not None and is_pull else None,
        base_head=_head(found["baseRef"]) if found is not None and is_pull else None,
        branch_head=_head(data.get("ref")),
    )


def _head(ref: Json | None) -> str | None:
    return str(ref["target"]["oid"]) if ref else None


def _thread(data: Json, *, is_pull: bool) -> ThreadFacts:
    login, number = _author(data)
    state = data["pullState"] if is_pull else data["issueState"]
    return ThreadFacts(
        kind="pull" if is_pull else "issue",
        number=int(data["number"]),
        state="open" if state == "OPEN" else "closed",
        locked=bool(data["locked"]),
        title=str(data["title"]),
        body=str(data["body"] or ""),
        author=login,
        author_id=number,
        labels=tuple(str(each["name"]) for each in (data.get("labels") or {}).get("nodes") or () if each),
        html_url=str(data["url"]),
    )


def _pull(data: Json) -> PullFacts:
    login, number = _author(data)
    home = data.get("headRepository")
    return PullFacts(
        number=int(data["number"]),
        state="open" if data["pullState"] == "OPEN" else "closed",
        merged=data["pullState"] == "MERGED",
        draft=bool(data["isDraft"]),
        locked=bool(data["locked"]),
        author=login,
        author_id=number,
        head_ref=str(data["headRefName"]),
        head_sha=str(data["headRefOid"]),
        head_repo=str(home["nameWithOwner"]) if home else None,
        head_repo_id=int(home["databaseId"]) if home else None,
        base_ref=str(data["baseRefName"]),
        base_sha=str(data["baseRefOid"]),
        from_fork=bool(data["isCrossRepository"]),
        html_url=str(data["url"]),
    )


def _author(data: Json) -> tuple[str, int]:
    """Login and numeric id; a deleted account is called `ghost` and has no id, as in `parsing`."""
    author = data.get("author") or {}
    return str(author.get("login", "ghost")), int(author.get("databaseId") or 0)
