"""A change in the words of GraphQL's `createCommitOnBranch`. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from bot.github.errors import CannotExpressError
from bot.github.facts import CommitFacts, PullLink
from bot.workspace.change import Change, FileChange

_COMMIT = """
createCommitOnBranch(input: $commit) { commit { oid url message tree { oid } parents(first: 2) { nodes { oid } } } }
"""
MUTATION = f"mutation ($commit: CreateCommitOnBranchInput!) {{ {_COMMIT} }}"

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
  createPullRequest(input: $pull) {{ pullRequest {{ number url }} }}
}}
"""

MAX_BYTES = 20 * 1024 * 1024
"""Of file contents; GitHub refuses request bodies of about twice that, and base64 adds a third."""

_PLAIN_FILE = "100644"
_SUBMODULE = "160000"


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
    return None if pull is None else PullLink(number=int(pull["number"]), html_url=str(pull["url"]))


def is_made(facts: CommitFacts, *, parent: str, tree_sha: str, message: str) -> bool:
    """Whether a commit is the one that an earlier try made: these files, on that parent, and in our own words.

    A person may well commit the same files; the message names the job.
    """
    same = facts.parents == (parent,) and facts.tree_sha == tree_sha
    return same and " ".join(facts.message.split()).startswith(" ".join(message.split()))


def check_expressible(change: Change) -> None:
    """See whether the mutation can say all of a change.

    Raises:
        CannotExpressError: as for `commit_input`.
    """
    for file in change.files:
        _check(file)
    if sum(len(file.content or b"") for file in change.files) > MAX_BYTES:
        raise CannotExpressError(f"the contents exceed {MAX_BYTES // 1024**2} MiB")


def _check(file: FileChange) -> None:
    if file.old_mode == _SUBMODULE:
        raise CannotExpressError(f"{file.path!r} is a submodule")
    if file.new_mode not in {"", _PLAIN_FILE} or (file.new_mode and file.old_mode not in {"", _PLAIN_FILE}):
        raise CannotExpressError(f"{file.path!r} has mode {file.new_mode}, before {file.old_mode or 'none'}")
    try:
        file.path.encode()
    except UnicodeEncodeError as error:
        raise CannotExpressError(f"the name {file.path!r} is no UTF-8") from error
