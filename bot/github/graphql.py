"""GraphQL documents, their variables, and their answers as values. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from bot.git.change import Change
from bot.github.types import CannotExpressError, CommitFacts, PullFacts, PullLink, RepoFacts, Snapshot, ThreadFacts

Json = Mapping[str, Any]
MAX_BYTES = 20 * 1024 * 1024
"""Of file contents; GitHub refuses request bodies of about twice that, and base64 adds a third."""
_PLAIN_FILE = "100644"
_SUBMODULE = "160000"
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
THREAD = f"""
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
BRANCH = f"""
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
    thread, pull, base_head = None, None, None
    if found is not None:
        login, account = _author(found)
        is_pull = found["__typename"] == "PullRequest"
        state = found["pullState"] if is_pull else found["issueState"]
        thread = ThreadFacts(
            kind="pull" if is_pull else "issue",
            number=int(found["number"]),
            state="open" if state == "OPEN" else "closed",
            locked=bool(found["locked"]),
            title=str(found["title"]),
            body=str(found["body"] or ""),
            author=login,
            author_id=account,
            labels=tuple(str(each["name"]) for each in (found.get("labels") or {}).get("nodes") or () if each),
            html_url=str(found["url"]),
        )
        if is_pull:
            home, base_head = found.get("headRepository"), _head(found["baseRef"])
            pull = PullFacts(
                number=thread.number,
                state=thread.state,
                merged=state == "MERGED",
                draft=bool(found["isDraft"]),
                locked=thread.locked,
                author=login,
                author_id=account,
                head_ref=str(found["headRefName"]),
                head_sha=str(found["headRefOid"]),
                head_repo=str(home["nameWithOwner"]) if home else None,
                head_repo_id=int(home["databaseId"]) if home else None,
                base_ref=str(found["baseRefName"]),
                base_sha=str(found["baseRefOid"]),
                from_fork=bool(found["isCrossRepository"]),
                html_url=thread.html_url,
            )
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
        thread=thread,
        pull=pull,
        base_head=base_head,
        branch_head=_head(data.get("ref")),
    )


def _head(ref: Json | None) -> str | None:
    return str(ref["target"]["oid"]) if ref else None


def _author(data: Json) -> tuple[str, int]:
    """Login and numeric id; a deleted account is called `ghost` and has no id, as in `types`."""
    author = data.get("author") or {}
    return str(author.get("login", "ghost")), int(author.get("databaseId") or 0)


_COMMIT = """
createCommitOnBranch(input: $commit) { commit { oid url message tree { oid } parents(first: 2) { nodes { oid } } } }
"""
COMMIT = f"mutation ($commit: CreateCommitOnBranchInput!) {{ {_COMMIT} }}"

# GitHub does the parts of a mutation one after the other:
# https://docs.github.com/graphql/guides/forming-calls-with-graphql#about-mutations
NEW_BRANCH = f"""
mutation ($ref: CreateRefInput!, $commit: CreateCommitOnBranchInput!) {{
  createRef(input: $ref) {{ ref {{ name }} }}
  {_COMMIT}
}}
"""
NEW_BRANCH_WITH_PULL = f"""
mutation ($ref: CreateRefInput!, $commit: CreateCommitOnBranchInput!, $pull: CreatePullRequestInput!) {{
  createRef(input: $ref) {{ ref {{ name }} }}
  {_COMMIT}
  createPullRequest(input: $pull) {{ pullRequest {{ number url isDraft }} }}
}}
"""


def commit_input(
    *, repo: str, branch: str, expected_head: str, title: str, body: str, change: Change
) -> Mapping[str, Any]:
    """The mutation's input; see https://docs.github.com/graphql/reference/input-objects#createcommitonbranchinput.

    Raises:
        CannotExpressError: a mode other than an ordinary file's, a name that is no UTF-8, or too much content.
    """
    check_expressible(change)
    additions = [
        {"path": file.path, "contents": base64.b64encode(file.content).decode()}
        for file in change.files
        if file.content is not None
    ]
    deletions = [{"path": file.path} for file in change.files if file.content is None]
    return {
        "branch": {"repositoryNameWithOwner": repo, "branchName": branch},
        "message": {"headline": title, "body": body},
        "fileChanges": {"additions": additions, "deletions": deletions},
        "expectedHeadOid": expected_head,
    }


def check_expressible(change: Change) -> None:
    """See whether the mutation can say all of a change.

    Raises:
        CannotExpressError: as for `commit_input`.
    """
    for file in change.files:
        if file.old_mode == _SUBMODULE:
            raise CannotExpressError(f"{file.path!r} is a submodule")
        if file.new_mode not in {"", _PLAIN_FILE} or (file.new_mode and file.old_mode not in {"", _PLAIN_FILE}):
            raise CannotExpressError(f"{file.path!r} has mode {file.new_mode}, before {file.old_mode or 'none'}")
        try:
            file.path.encode()
        except UnicodeEncodeError as error:
            raise CannotExpressError(f"the name {file.path!r} is not UTF-8") from error
    if sum(len(file.content or b"") for file in change.files) > MAX_BYTES:
        raise CannotExpressError(f"the contents exceed {MAX_BYTES // 1024**2} MiB")


def committed(data: Mapping[str, Any]) -> CommitFacts:
    """The commit that a mutation answered."""
    commit = data["createCommitOnBranch"]["commit"]
    return CommitFacts(
        sha=str(commit["oid"]),
        tree_sha=str(commit["tree"]["oid"]),
        parents=tuple(str(each["oid"]) for each in commit["parents"]["nodes"]),
        message=str(commit["message"]),
        html_url=str(commit["url"]),
    )


def opened(data: Mapping[str, Any]) -> PullLink | None:
    """The pull request that a mutation answered; None when there is none."""
    pull = (data.get("createPullRequest") or {}).get("pullRequest")
    if pull is None:
        return None
    return PullLink(number=int(pull["number"]), html_url=str(pull["url"]), draft=bool(pull["isDraft"]))


def blobs_query(count: int) -> str:
    """A query of so many blobs by their ids: variables `a0`, `a1` and so on, and fields of the same names."""
    ids = "".join(f", $a{number}: GitObjectID!" for number in range(count))
    fields = "\n".join(
        f"a{number}: object(oid: $a{number}) {{ ... on Blob {{ oid byteSize isTruncated text }} }}"
        for number in range(count)
    )
    return f"query ($owner: String!, $name: String!{ids}) {{ repository(owner: $owner, name: $name) {{ {fields} }} }}"


def blob_texts(data: Json) -> dict[str, bytes]:
    """The contents of the blobs that `repository` answered, by id, without those that it does not give as they are.

    A binary one has no text, and that of one in another encoding than UTF-8 is what GitHub took it for.
    """
    found = {}
    for each in filter(None, data.values()):  # GitHub answers null for an id that it does not have
        content = (each["text"] or "").encode()
        if each["text"] is not None and not each["isTruncated"] and len(content) == each["byteSize"]:
            found[str(each["oid"])] = content
    return found
