"""Pull requests: open, retarget and merge them; review them and comment on lines of their difference.

GitHub makes a review around every comment on a line, also around a single one, and sends an event for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from localhub.api import rules
from localhub.api.auth import HubError, invalid, or_404
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.operations import branches, threads, webhooks
from localhub.state.model import Issue, Pull, PullRequestReview, Repo, ReviewComment, ReviewState, Side, User
from localhub.state.store import Json, Site
from localhub.views import accounts as account_views
from localhub.views import merge_state
from localhub.views import threads as threads_views


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPull:
    """A pull request to open. `head` is a branch, or `owner:branch` for a fork's."""

    head: str
    base: str
    title: str
    body: str | None
    draft: bool = False
    maintainer_can_modify: bool = False


def open_pull(site: Site, repo: Repo, author: User, draft: NewPull, *, app_id: int | None = None) -> Issue:
    """Open a pull request.

    Raises:
        HubError: 422: a branch is missing, there is nothing between them, or they already have one.
    """
    head_repo, head_ref = _head_of(site, repo, draft.head)
    head = git.ref(head_repo.path, f"refs/heads/{head_ref}")
    base = git.ref(repo.path, f"refs/heads/{draft.base}")
    if head is None:
        raise invalid("PullRequest", "head", "invalid")
    if base is None:
        raise invalid("PullRequest", "base", "invalid")
    label = f"{head_repo.owner}:{head_ref}"
    if any(_is_open_pull(issue, head_repo, head_ref, draft.base) for issue in site.store.issues_of(repo)):
        raise _refusal(f"A pull request already exists for {label}.")
    pull = Pull(
        id=site.store.new_id(),
        head_repo_id=head_repo.id,
        head_ref=head_ref,
        head_sha=head.sha,
        base_ref=draft.base,
        base_sha=base.sha,
        draft=draft.draft,
        maintainer_can_modify=draft.maintainer_can_modify and head_repo.id != repo.id,
    )
    now = site.now()
    issue = Issue(
        id=site.store.new_id(),
        repo_id=repo.id,
        number=threads.next_number(site, repo),
        author_id=author.id,
        title=draft.title,
        body=draft.body,
        created_at=now,
        updated_at=now,
        app_id=app_id,
        pull=pull,
    )
    branches.update_pull_ref(site, issue)
    if git.is_ancestor(repo.path, head.sha, base.sha):
        git.delete_ref(repo.path, f"refs/pull/{issue.number}/head")
        raise _refusal(f"No commits between {draft.base} and {head_ref}")
    site.store.issues.put(issue)
    threads.announce(site, issue, author, "opened")
    return issue


def _refusal(message: str) -> HubError:
    error = {"resource": "PullRequest", "code": "custom", "message": message}
    return HubError(422, "Validation Failed", errors=(error,))


def _head_of(site: Site, repo: Repo, head: str) -> tuple[Repo, str]:
    owner, separator, branch = head.rpartition(":")
    if not separator or owner.lower() == repo.owner.lower():
        return repo, branch
    root = repo.fork_of or repo.id
    for other in site.store.repos:
        if other.owner.lower() == owner.lower() and root in {other.id, other.fork_of}:
            return other, branch
    raise invalid("PullRequest", "head", "invalid")


def _is_open_pull(issue: Issue, head_repo: Repo, head_ref: str, base: str) -> bool:
    pull = issue.pull
    if pull is None or issue.state != "open":
        return False
    return (pull.head_repo_id, pull.head_ref, pull.base_ref) == (head_repo.id, head_ref, base)


def set_draft(site: Site, issue: Issue, user: User, *, draft: bool) -> Issue:
    """Make a pull request a draft or ready for review; nothing happens when it already is.

    Raises:
        HubError: 422, it is closed or no pull request.
    """
    if issue.pull is None or issue.state != "open":
        raise HubError(422, f"#{issue.number} is not an open pull request.")
    if issue.pull.draft == draft:
        return issue
    action = "converted_to_draft" if draft else "ready_for_review"
    changed = replace(issue, pull=replace(issue.pull, draft=draft), updated_at=site.now())
    threads.record_event(site, site.store.issues.put(changed), user, action)
    threads.announce(site, changed, user, action)
    return changed


def retarget(site: Site, issue: Issue, user: User, base: str) -> Issue:
    """Point a pull request at another base branch; nothing happens when it is the same.

    Raises:
        HubError: 422, there is no such branch.
    """
    pull = issue.pull
    if pull is None or base == pull.base_ref:
        return issue
    ref = git.ref(site.store.repos[issue.repo_id].path, f"refs/heads/{base}")
    if ref is None:
        raise invalid("PullRequest", "base", "invalid")
    moved = replace(issue, pull=replace(pull, base_ref=base, base_sha=ref.sha), updated_at=site.now())
    changes = {"base": {"ref": {"from": pull.base_ref}, "sha": {"from": pull.base_sha}}}
    threads.announce(site, site.store.issues.put(moved), user, "edited", {"changes": changes})
    return moved


def set_reviewers(site: Site, issue: Issue, sender: User, users: Iterable[User]) -> Issue:
    """Have exactly these people asked for a review; one event for each that came or went.

    Raises:
        HubError: 422, one of them wrote the pull request, or is no collaborator.
    """
    pull, owner = or_404(issue.pull), site.store.repos[issue.repo_id].owner
    people = {user.id: user for user in users}
    wanted = tuple(people)
    if issue.author_id in wanted:
        raise HubError(422, "Review cannot be requested from pull request author.")
    if any(user.login != owner and (issue.repo_id, number) not in site.store.roles for number, user in people.items()):
        raise HubError(
            422,
            "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not "
            "a collaborator of the repository.",
        )
    came = [number for number in wanted if number not in pull.reviewers]
    went = [number for number in pull.reviewers if number not in wanted]
    issue = site.store.issues.put(replace(issue, pull=replace(pull, reviewers=wanted), updated_at=site.now()))
    for action, changed in (("review_request_removed", went), ("review_requested", came)):
        for number in changed:
            more = {"requested_reviewer": account_views.user_by_id(site, number)}
            threads.announce(site, issue, sender, action, more)
    return issue


def merge(site: Site, issue: Issue, user: User, *, method: str = "merge", message: str = "") -> str:
    """Merge a pull request and return the new commit's SHA; `method` is `merge` or `squash`.

    Raises:
        HubError: 405, it cannot be merged.
    """
    repo, pull = site.store.repos[issue.repo_id], issue.pull
    if pull is None or issue.state != "open" or pull.draft or method not in {"merge", "squash"}:
        raise HubError(405, "Pull Request is not mergeable")
    base = git.ref(repo.path, f"refs/heads/{pull.base_ref}")
    tree = None if base is None else git_diff.merge_tree(repo.path, base.sha, pull.head_sha)
    if base is None or tree is None:
        raise HubError(405, "Pull Request is not mergeable")
    bypasses = [user.login in each.bypass for each in rules.rulesets_of(site, repo, pull.base_ref)]
    if not (bypasses and all(bypasses)):
        demands = merge_state.blocking_rules(site, repo, issue, pull)
        if merge_state.is_behind(site, repo, pull):
            demands.append("This branch must not be out of date before merging.")
        if demands:
            raise HubError(405, "\n\n".join(["Repository rule violations found", *demands]))
    head_repo = site.store.repos[pull.head_repo_id]
    title = f"Merge pull request #{issue.number} from {head_repo.owner}/{pull.head_ref}\n\n{issue.title}"
    if method == "squash":
        title = f"{issue.title} (#{issue.number})"
    parents = [base.sha] if method == "squash" else [base.sha, pull.head_sha]
    sha = threads.write_commit(site, repo, tree=tree, parents=parents, message=message or title, author=user)
    merged = replace(pull, base_sha=base.sha, merged_at=site.now(), merged_by=user.id, merge_commit_sha=sha)
    closed = replace(issue, pull=merged)
    git.update_ref(repo.path, f"refs/heads/{pull.base_ref}", sha, base.sha)
    threads.set_state(site, closed, user, "closed")
    branches.sync(site, repo, user)
    return sha


def update_branch(site: Site, issue: Issue, user: User, *, expected: str | None = None) -> None:
    """Merge the base branch into a pull request's head; nothing happens when it is up to date.

    Raises:
        HubError: 422, the head is another commit, or there are conflicts.
    """
    repo, pull = site.store.repos[issue.repo_id], or_404(issue.pull)
    head_repo = site.store.repos[pull.head_repo_id]
    if expected not in {None, pull.head_sha}:
        raise HubError(422, "expected head sha didn't match current head ref.")
    if git.is_ancestor(repo.path, pull.base_sha, pull.head_sha):
        raise HubError(422, "There are no new commits on the base branch.")
    tree = git_diff.merge_tree(repo.path, pull.head_sha, pull.base_sha)
    if tree is None:
        raise HubError(422, "merge conflict between base and head")
    message = f"Merge branch '{pull.base_ref}' into {pull.head_ref}"
    parents = [pull.head_sha, pull.base_sha]
    sha = threads.write_commit(site, repo, tree=tree, parents=parents, message=message, author=user)
    if head_repo.id != repo.id:
        git.run(head_repo.path, "fetch", "--quiet", str(repo.path), sha)
    git.update_ref(head_repo.path, f"refs/heads/{pull.head_ref}", sha, pull.head_sha)
    branches.sync(site, head_repo, user)


class UnplacedError(Exception):
    """The difference lacks the place of a comment; `field` is `path`, `line` or `start_line`."""

    def __init__(self, field: Literal["path", "line", "start_line"]) -> None:
        super().__init__(f"{field} could not be resolved")
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class NewComment:
    """A comment to make on a line, or on the lines from `start_line` to `line`.

    Attributes:
        line: None for a comment on the whole file.
        position: of the line in the difference, the older way to name it.
    """

    path: str
    body: str
    line: int | None = None
    side: Side = "RIGHT"
    start_line: int | None = None
    start_side: Side | None = None
    position: int | None = None


def submit_review(
    site: Site, issue: Issue, author: User, *, state: ReviewState, body: str, comments: Sequence[NewComment] = ()
) -> tuple[PullRequestReview, list[ReviewComment]]:
    """Review a pull request at its present head; nothing is kept when one of the comments has no place.

    A `PENDING` review is kept and told to nobody, until `publish_review` submits it.

    Raises:
        HubError: 422, the author reviews work of their own in another way than by commenting, or has begun a review.
        UnplacedError: a comment is about a line that the difference does not show.
    """
    _demand_other_author(issue, author, state)
    if site.store.pending_review_of(issue, author) is not None:
        told = "User can only have one pending review per pull request"
        raise HubError(422, "Unprocessable Entity", errors=(told,))
    review = _new_review(site, issue, author, state=state, body=body)
    made = [_place_comment(site, issue, review, wanted) for wanted in comments]
    if state != "PENDING":
        _save_review(site, issue, author, review, made)
        return review, made
    site.store.reviews.put(review)
    for comment in made:
        site.store.review_comments.put(comment)
    return review, made


def publish_review(
    site: Site, issue: Issue, old: PullRequestReview, author: User, *, state: ReviewState, body: str
) -> PullRequestReview:
    """Submit a pending review with its comments.

    Raises:
        HubError: 422, the author reviews work of their own in another way than by commenting.
    """
    _demand_other_author(issue, author, state)
    review = replace(old, state=state, body=body, submitted_at=site.now())
    _save_review(site, issue, author, review, [c for c in site.store.review_comments if c.review_id == old.id])
    return review


def discard_review(site: Site, old: PullRequestReview) -> None:
    """Remove a pending review with its comments."""
    for comment in [c for c in site.store.review_comments if c.review_id == old.id]:
        site.store.review_comments.remove(comment.id)
    site.store.reviews.remove(old.id)


def dismiss_review(site: Site, old: PullRequestReview, sender: User) -> PullRequestReview:
    """Dismiss a review and report it."""
    repo = site.store.repos[old.repo_id]
    new = site.store.reviews.put(replace(old, state="DISMISSED"))
    issue = site.store.thread_of(old)
    payload: Json = {"action": "dismissed", "review": threads_views.review_payload(site, repo, new)}
    pull = {"pull_request": threads_views.pull_simple(site, repo, issue)}
    webhooks.emit(site, "pull_request_review", repo, sender, payload | pull)
    return new


def reply(site: Site, issue: Issue, author: User, to: ReviewComment, body: str) -> ReviewComment:
    """Answer in the conversation that a comment belongs to."""
    review = _new_review(site, issue, author, state="COMMENTED", body="")
    made = replace(
        to,
        id=site.store.new_id(),
        review_id=review.id,
        author_id=author.id,
        body=body,
        in_reply_to=to.in_reply_to or to.id,
        created_at=site.now(),
        updated_at=site.now(),
    )
    _save_review(site, issue, author, review, [made])
    return made


def edit_review_comment(site: Site, old: ReviewComment, editor: User, body: str) -> ReviewComment:
    """Change a comment's text."""
    new = site.store.review_comments.put(replace(old, body=body, updated_at=site.now()))
    _announce_review_comment(site, new, editor, "edited", {"changes": {"body": {"from": old.body}}})
    return new


def delete_review_comment(site: Site, old: ReviewComment, sender: User) -> None:
    """Remove a comment."""
    site.store.review_comments.remove(old.id)
    _announce_review_comment(site, old, sender, "deleted")


def _demand_other_author(issue: Issue, author: User, state: ReviewState) -> None:
    if state in {"APPROVED", "CHANGES_REQUESTED"} and author.id == issue.author_id:
        verb = "approve" if state == "APPROVED" else "request changes on"
        raise HubError(422, "Unprocessable Entity", errors=(f"Can not {verb} your own pull request",))


def _new_review(site: Site, issue: Issue, author: User, *, state: ReviewState, body: str) -> PullRequestReview:
    if issue.pull is None:
        raise HubError(404, "Not Found")
    return PullRequestReview(
        id=site.store.new_id(),
        repo_id=issue.repo_id,
        number=issue.number,
        author_id=author.id,
        state=state,
        body=body,
        commit_sha=issue.pull.head_sha,
        submitted_at=site.now(),
    )


def _save_review(
    site: Site, issue: Issue, author: User, review: PullRequestReview, comments: list[ReviewComment]
) -> None:
    repo = site.store.repos[issue.repo_id]
    site.store.reviews.put(review)
    for comment in comments:
        site.store.review_comments.put(comment)
    payload: Json = {"action": "submitted", "review": threads_views.review_payload(site, repo, review)}
    pull = {"pull_request": threads_views.pull_simple(site, repo, issue)}
    webhooks.emit(site, "pull_request_review", repo, author, payload | pull)
    for comment in comments:
        _announce_review_comment(site, comment, author, "created")


def _place_comment(site: Site, issue: Issue, review: PullRequestReview, draft: NewComment) -> ReviewComment:
    patch = _patch_of(site.store.repos[issue.repo_id], issue, draft.path)
    found = git_diff.rows(patch)
    if draft.position is not None:
        draft = _placed_by_position(draft, found)
    at = 1 if draft.line is None else git_diff.position(found, draft.line, draft.side)
    if at is None:
        raise UnplacedError("line")
    start_side = None if draft.start_line is None else draft.start_side or draft.side
    if draft.start_line is not None and start_side is not None:
        start = git_diff.position(found, draft.start_line, start_side)
        if start is None or start >= at or git_diff.hunk_start(found, start) != git_diff.hunk_start(found, at):
            raise UnplacedError("start_line")
    return ReviewComment(
        id=site.store.new_id(),
        review_id=review.id,
        repo_id=issue.repo_id,
        number=issue.number,
        author_id=review.author_id,
        body=draft.body,
        path=draft.path,
        commit_sha=review.commit_sha,
        line=draft.line,
        side=draft.side,
        start_line=draft.start_line,
        start_side=start_side,
        position=at,
        diff_hunk="" if draft.line is None else git_diff.excerpt(patch, at),
        in_reply_to=None,
        created_at=review.submitted_at,
        updated_at=review.submitted_at,
    )


def _placed_by_position(draft: NewComment, rows: list[git_diff.Row]) -> NewComment:
    row = rows[draft.position] if draft.position is not None and 0 < draft.position < len(rows) else None
    line = None if row is None else row.old if row.new is None else row.new
    if row is None or line is None:
        raise UnplacedError("line")
    return replace(draft, line=line, side="LEFT" if row.new is None else "RIGHT")


def _patch_of(repo: Repo, issue: Issue, path: str) -> str:
    changed = {} if issue.pull is None else {file.path: file for file in git_diff.pull_files(repo.path, issue.pull)}
    if path not in changed:
        raise UnplacedError("path")
    return changed[path].patch or ""


def _announce_review_comment(
    site: Site, comment: ReviewComment, sender: User, action: str, more: Json | None = None
) -> None:
    repo = site.store.repos[comment.repo_id]
    issue = site.store.thread_of(comment)
    payload: Json = {
        "action": action,
        "comment": {"line": None, "original_line": None} | threads_views.review_comment(site, repo, comment),
        "pull_request": threads_views.pull_simple(site, repo, issue),
    }
    webhooks.emit(site, "pull_request_review_comment", repo, sender, payload | (more or {}))
