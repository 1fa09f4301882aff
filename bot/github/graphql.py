"""GraphQL documents, their variables and answers.

Fields are named as in REST, so that one class reads both.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import AliasPath, Field

from bot.git.change import Change
from bot.github.types import CannotExpressError, CommitFacts, Facts, PullLink

MAX_BYTES = 20 * 1024 * 1024
"""Of file contents. GitHub's limit is about twice that, and base64 adds a third."""
_PLAIN_FILE = "100644"
_SUBMODULE = "160000"
_ACTOR = """
login ... on Bot { id: databaseId }
... on Mannequin { id: databaseId } ... on Organization { id: databaseId } ... on User { id: databaseId }
"""
_THREAD = f"""
number title body html_url: url locked user: author {{ {_ACTOR} }}
labels(first: 100) {{ nodes {{ name }} }}
"""
COMMENT = f"""
query ($id: ID!) {{
  node(id: $id) {{ ... on IssueComment {{ body author {{ {_ACTOR} }} editor {{ {_ACTOR} }} }} }}
}}
"""
_REPOSITORY = """
node_id: id id: databaseId full_name: nameWithOwner private: isPrivate archived: isArchived html_url: url
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
        {_THREAD} pullState: state merged draft: isDraft from_fork: isCrossRepository
        head_ref: headRefName head_sha: headRefOid base_ref: baseRefName base_sha: baseRefOid
        head: headRepository {{ repo_id: databaseId repo_name: nameWithOwner }} baseRef {{ target {{ oid }} }}
      }}
    }}
  }}
}}
"""
_LABELLED = f"""
settings: timelineItems(last: 100, itemTypes: [LABELED_EVENT]) {{
  nodes {{ ... on LabeledEvent {{ createdAt label {{ name }} actor {{ __typename {_ACTOR} }} }} }}
}}
"""
# Strangers rename and edit their issues, but set no labels: each kind of event has a list of its own.
LABELS = f"""
query ($owner: String!, $name: String!, $number: Int!) {{
  repository(owner: $owner, name: $name) {{
    issueOrPullRequest(number: $number) {{
      ... on Issue {{
        {_LABELLED} title body lastEditedAt
        renames: timelineItems(last: 1, itemTypes: [RENAMED_TITLE_EVENT]) {{
          nodes {{ ... on RenamedTitleEvent {{ createdAt }} }}
        }}
      }}
      ... on PullRequest {{ {_LABELLED} }}
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


_COMMIT = """
createCommitOnBranch(input: $commit) {
  commit { oid html_url: url message tree { oid } parents(first: 2) { nodes { oid } } }
}
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
  createPullRequest(input: $pull) {{ pullRequest {{ number html_url: url draft: isDraft }} }}
}}
"""


def commit_input(
    *, repo: str, branch: str, expected_head: str, title: str, body: str, change: Change
) -> Mapping[str, Any]:
    """Return the mutation's input.

    https://docs.github.com/graphql/reference/input-objects#createcommitonbranchinput

    Raises:
        CannotExpressError: a file mode, a name or the size is not supported.
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
    """Check that the mutation supports a change.

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


class CommitResult(Facts):
    commit: CommitFacts = Field(validation_alias=AliasPath("createCommitOnBranch", "commit"))
    pull: PullLink | None = Field(default=None, validation_alias=AliasPath("createPullRequest", "pullRequest"))


def blobs_query(count: int) -> str:
    """Return a query for blobs with fields `a0`, `a1` and so on."""
    ids = "".join(f", $a{number}: GitObjectID!" for number in range(count))
    fields = "\n".join(
        f"a{number}: object(oid: $a{number}) {{ ... on Blob {{ oid byteSize isTruncated text }} }}"
        for number in range(count)
    )
    return f"query ($owner: String!, $name: String!{ids}) {{ repository(owner: $owner, name: $name) {{ {fields} }} }}"


_PATTERNS = "\n".join(
    f"... on {kind}PatternParameters {{ operator pattern negate }}"
    for kind in ("BranchName", "CommitAuthorEmail", "CommitMessage")
)
_RULES = f"""
refUpdateRule {{ requiresSignatures requiresLinearHistory }}
rules(first: 100) {{ nodes {{ type repositoryRuleset {{ databaseId }} parameters {{ {_PATTERNS} }} }} }}
"""


def branches_query(count: int, *, with_rules: bool) -> str:
    """Return a query for branches with fields `a0`, `a1` and so on."""
    names = "".join(f", $a{number}: String!" for number in range(count))
    fields = "\n".join(
        f"a{number}: ref(qualifiedName: $a{number}) {{ name {_RULES if with_rules else ''} }}"
        for number in range(count)
    )
    return f"query ($owner: String!, $name: String!{names}) {{ repository(owner: $owner, name: $name) {{ {fields} }} }}"


_TARGET = f"""
__typename
... on Issue {{
  {_THREAD} issueState: state assignees(first: 20) {{ nodes {{ id: databaseId login }} }}
}}
... on PullRequest {{
  {_THREAD} pullState: state merged draft: isDraft assignees(first: 20) {{ nodes {{ id: databaseId login }} }}
}}
"""
_DISCUSSION = f"node_id: id number body html_url: url locked user: author {{ {_ACTOR} }}"
_BY_NAME = {
    "thread": ("Int", f"issueOrPullRequest(number: $N) {{ {_TARGET} }}"),
    "discussion": ("Int", f"discussion(number: $N) {{ {_DISCUSSION} }}"),
    "label": ("String", "label(name: $N) { name }"),
    "login": ("String", "assignableUsers(query: $N, first: 100) { nodes { login } }"),
    "branch": (
        "String",
        "ref(qualifiedName: $N) { refUpdateRule { requiresSignatures } rules(first: 100) { nodes { type } } }",
    ),
}
_LISTS = {
    "milestones": "milestones(first: 100, states: OPEN) { nodes { title } }",
    "categories": "discussionCategories(first: 100) { nodes { id name } }",
}


def state_query(counts: Mapping[str, int], lists: Collection[str]) -> str:
    """Return a query for numbered objects by kind, with fields such as `label0`, and for whole lists."""
    names = [(kind, f"{kind}{number}") for kind, count in counts.items() for number in range(count)]
    variables = "".join(f", ${name}: {_BY_NAME[kind][0]}!" for kind, name in names)
    fields = [f"{name}: {_BY_NAME[kind][1].replace('$N', f'${name}')}" for kind, name in names]
    fields += [f"{name}: {_LISTS[name]}" for name in lists]
    body = "\n".join(["id", *fields])
    return (
        f"query ($owner: String!, $name: String!{variables}) {{ repository(owner: $owner, name: $name) {{ {body} }} }}"
    )


PULL_ID = """
query ($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { id isDraft } }
}
"""
DRAFT = "mutation ($id: ID!) { convertPullRequestToDraft(input: {pullRequestId: $id}) { clientMutationId } }"
READY = "mutation ($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { clientMutationId } }"
DISCUSSIONS = f"""
query ($owner: String!, $name: String!) {{
  repository(owner: $owner, name: $name) {{
    discussions(last: 100, orderBy: {{field: CREATED_AT, direction: ASC}}) {{ nodes {{ {_DISCUSSION} }} }}
  }}
}}
"""
_DISCUSSION_COMMENT = f"node_id: id body html_url: url user: author {{ {_ACTOR} }}"
DISCUSSION_COMMENTS = f"""
query ($owner: String!, $name: String!, $number: Int!) {{
  repository(owner: $owner, name: $name) {{
    discussion(number: $number) {{ comments(last: 100) {{ nodes {{ {_DISCUSSION_COMMENT} }} }} }}
  }}
}}
"""
NEW_DISCUSSION = f"""
mutation ($new: CreateDiscussionInput!) {{ createDiscussion(input: $new) {{ discussion {{ {_DISCUSSION} }} }} }}
"""
NEW_DISCUSSION_COMMENT = f"""
mutation ($new: AddDiscussionCommentInput!) {{
  addDiscussionComment(input: $new) {{ comment {{ {_DISCUSSION_COMMENT} }} }}
}}
"""


class Blob(Facts):
    """A blob; empty for another object. Binary files have no text, and other encodings than UTF-8 are guessed."""

    oid: str = ""
    size: int = Field(default=0, validation_alias="byteSize")
    truncated: bool = Field(default=False, validation_alias="isTruncated")
    text: str | None = None

    @property
    def content(self) -> bytes | None:
        """The bytes; None unless the text represents them exactly."""
        content = None if self.text is None or self.truncated else self.text.encode()
        return content if content is not None and len(content) == self.size else None
