"""Values of what GitHub knows; no object of a client library leaves this package. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.github.drafts import Annotation, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFacts:
    """A repository now, as opposed to when a delivery was made.

    Attributes:
        id: survives renames.
        full_name: `owner/name`.
        clone_url: what git fetches from and pushes to.
        html_url: its page.
        node_id: what GraphQL calls it.
    """

    id: int
    full_name: str
    private: bool
    archived: bool
    default_branch: str
    clone_url: str
    html_url: str
    node_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """An issue or pull request now.

    Attributes:
        author: login of its author; `ghost` for a deleted account.
        author_id: the author's numeric id; 0 for a deleted account.
        labels: names of its labels.
    """

    kind: Literal["issue", "pull"]
    number: int
    state: Literal["open", "closed"]
    locked: bool
    title: str
    body: str
    author: str
    author_id: int
    labels: tuple[str, ...]
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFacts:
    """A pull request's two ends now.

    Attributes:
        author: login of its author; `ghost` for a deleted account.
        author_id: the author's numeric id; 0 for a deleted account.
        head_repo: `owner/name` of where the branch lives; None when that fork was deleted.
        head_repo_id: its id, or None.
        from_fork: whether the branch lives in another repository.
        body: its description; empty where it was not asked for.
    """

    number: int
    state: Literal["open", "closed"]
    merged: bool
    draft: bool
    locked: bool
    author: str
    author_id: int
    head_ref: str
    head_sha: str
    head_repo: str | None
    head_repo_id: int | None
    base_ref: str
    base_sha: str
    from_fork: bool
    html_url: str
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A repository and one of its threads, or of its branches, at the same moment.

    Attributes:
        default_head: the commit that the default branch stands at; None in an empty repository.
        thread: None when there is no such thread, or a branch was asked for.
        pull: its two ends, when it is a pull request.
        base_head: the commit that the pull request's base branch stands at; None when that branch is gone.
        branch_head: the commit that the branch stands at that was asked for; None when there is none.
    """

    repo: RepoFacts
    default_head: str | None
    thread: ThreadFacts | None = None
    pull: PullFacts | None = None
    base_head: str | None = None
    branch_head: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFile:
    """A file in a folder.

    Attributes:
        sha: its blob's id.
        size: in bytes.
    """

    sha: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """A commit, as far as is needed to know it again.

    Attributes:
        message: the whole of it; GitHub may have trimmed it, or signed it off.
    """

    sha: str
    tree_sha: str
    parents: tuple[str, ...]
    message: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLink:
    """A pull request that was opened or found."""

    number: int
    html_url: str
    draft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BotIdentity:
    """Whom GitHub takes us for; comments by this id are ours.

    Attributes:
        app_id: of the App that we are, whose check runs are ours; None when we act with a plain token.
    """

    id: int
    login: str
    app_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account.

    Attributes:
        kind: `User`, `Bot`, `Organization`, or whatever else GitHub comes to know.
    """

    id: int
    login: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """A check run of ours.

    Attributes:
        annotations: how many it has.
    """

    id: int
    html_url: str
    annotations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RedCheck:
    """A check run or a commit status that went wrong.

    Attributes:
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        summary: what it says about it, Markdown; may be empty.
        annotations: its first words about lines.
        html_url: its page; may be empty.
    """

    name: str
    conclusion: str
    summary: str
    annotations: tuple[Annotation, ...]
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A workflow run.

    Attributes:
        workflow_id: of the workflow that it is a run of.
        path: the workflow's file, without the branch that GitHub may put behind it.
        event: what it ran for, e.g. `push`.
        number: counts the workflow's runs.
        attempt: which attempt of it, from 1.
        conclusion: in GitHub's words; empty while it is under way.
        head_repo_id: the repository that its commit lives in; None when that is gone. A fork may have a branch of the
            same name, so a run is known by this and by `head_sha`, never by `head_branch`.
    """

    id: int
    workflow_id: int
    name: str
    conclusion: str
    head_sha: str
    head_branch: str
    head_repo_id: int | None
    html_url: str
    path: str = ""
    event: str = ""
    number: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """A step of a workflow's job.

    Attributes:
        conclusion: in GitHub's words; empty while it is under way.
        started_at: ISO 8601, UTC, whole seconds; empty for a step that never began.
        completed_at: the same of its end.
    """

    number: int
    name: str
    conclusion: str
    started_at: str
    completed_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job of a workflow run.

    Attributes:
        name: as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        conclusion: in GitHub's words; empty while it is under way.
        labels: of the runner that it asked for.
        check_id: of the check run that shows it, which has its annotations; 0 where GitHub does not say.
        html_url: its page; may be empty.
    """

    id: int
    name: str
    conclusion: str
    steps: tuple[StepFacts, ...]
    labels: tuple[str, ...]
    check_id: int
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFacts:
    """A file that a workflow run has kept.

    Attributes:
        id: GitHub's number of it.
        name: what the run called it; a stranger may have chosen that.
        size: of its zip file, in bytes.
        expired: whether GitHub has removed it.
        run_id: of the run that kept it; 0 where GitHub does not say.
        head_repo_id: the repository that the run's branch is in; of a fork's pull request the fork's. None where
            GitHub does not say.
    """

    id: int
    name: str
    size: int
    expired: bool
    run_id: int
    head_repo_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a comment stands.

    Attributes:
        kind: below an issue or pull request, or in a thread about lines of a pull request.
        number: of the issue or pull request.
        root: for a `review_thread` the id of its first comment, which answers go to; else 0.

    Raises:
        ValueError: a thread about lines without its first comment (a bug of ours).
    """

    kind: Literal["thread", "review_thread"]
    number: int
    root: int = 0

    def __post_init__(self) -> None:
        """A thread about lines is known by its first comment."""
        if (self.kind == "review_thread") != bool(self.root):
            raise ValueError(f"a {self.kind} cannot begin with comment {self.root}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentFacts:
    """A comment on an issue or pull request.

    Attributes:
        author: login; `ghost` for a deleted account.
        author_id: numeric id; 0 for a deleted account.
        created_at: ISO 8601, UTC.
        updated_at: the same as `created_at` when it was never edited.
    """

    id: int
    author: str
    author_id: int
    body: str
    created_at: str
    updated_at: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCommentFacts:
    """A comment on lines of a pull request.

    Attributes:
        comment: what every comment has.
        root: the first comment of its thread; its own id for that one.
        review_id: the review it came with; None for a lone comment.
        path: the file.
        line: the last line, as it stands on `side` now; None when the comment is about the file, or outdated.
        start_line: the first line, or None for one line.
        side: `RIGHT` for the file after the change, `LEFT` for before.
        hunk: the part of the diff that ends there.
        commit_sha: the commit that it was made on.
    """

    comment: CommentFacts
    root: int
    review_id: int | None
    path: str
    line: int | None
    start_line: int | None
    side: Side
    hunk: str
    commit_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFacts:
    """The words above a review's comments.

    Attributes:
        author: login; `ghost` for a deleted account.
        author_id: numeric id; 0 for a deleted account.
        state: in GitHub's words, e.g. `COMMENTED` or `CHANGES_REQUESTED`.
        submitted_at: ISO 8601, UTC; empty for a review that is not submitted. GitHub does not say when its words were
            edited: https://docs.github.com/rest/pulls/reviews#list-reviews-for-a-pull-request
        commit_sha: the head that was looked at.
    """

    id: int
    author: str
    author_id: int
    body: str
    state: str
    submitted_at: str
    commit_sha: str
    html_url: str
