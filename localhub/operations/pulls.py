"""Opening and merging pull requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from localhub.api.errors import HubError, invalid, not_found
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.operations import branches, threads
from localhub.state.model import Issue, Pull, Repo, User
from localhub.state.site import Site
from localhub.views import accounts as account_views


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPull:
    """What somebody wants to open. `head` is a branch, or `owner:branch` for a fork's."""

    head: str
    base: str
    title: str
    body: str | None
    draft: bool = False
    maintainer_can_modify: bool = False


def open_pull(site: Site, repo: Repo, author: User, wanted: NewPull, *, app_id: int | None = None) -> Issue:
    """Open a pull request.

    Raises:
        HubError: 422: a branch is missing, there is nothing between them, or they already have one.
    """
    head_repo, head_ref = _head_of(site, repo, wanted.head)
    head = git.ref(head_repo.path, f"refs/heads/{head_ref}")
    base = git.ref(repo.path, f"refs/heads/{wanted.base}")
    if head is None:
        raise invalid("PullRequest", "head", "invalid")
    if base is None:
        raise invalid("PullRequest", "base", "invalid")
    label = f"{head_repo.owner}:{head_ref}"
    if any(_same(issue, head_repo, head_ref, wanted.base) for issue in site.store.issues_of(repo)):
        raise _custom(f"A pull request already exists for {label}.")
    pull = Pull(
        id=site.store.new_id(),
        head_repo_id=head_repo.id,
        head_ref=head_ref,
        head_sha=head.sha,
        base_ref=wanted.base,
        base_sha=base.sha,
        draft=wanted.draft,
        maintainer_can_modify=wanted.maintainer_can_modify and head_repo.id != repo.id,
    )
    issue = replace(_fresh(site, repo, author, wanted), app_id=app_id, pull=pull)
    branches.keep(site, issue)
    if git.is_ancestor(repo.path, head.sha, base.sha):
        git.delete_ref(repo.path, f"refs/pull/{issue.number}/head")
        raise _custom(f"No commits between {wanted.base} and {head_ref}")
    site.store.issues.put(issue)
    threads.announce(site, issue, author, "opened")
    return issue


def set_reviewers(site: Site, issue: Issue, sender: User, users: Iterable[User]) -> Issue:
    """Have exactly these people asked for a review; one event for each that came or went.

    Raises:
        HubError: 422, one of them wrote the pull request.
    """
    pull = pull_in(issue)
    wanted = tuple(dict.fromkeys(user.id for user in users))
    if issue.author_id in wanted:
        raise HubError(422, "Review cannot be requested from pull request author.")
    came = [number for number in wanted if number not in pull.reviewers]
    went = [number for number in pull.reviewers if number not in wanted]
    issue = site.store.issues.put(replace(issue, pull=replace(pull, reviewers=wanted), updated_at=site.now()))
    for action, changed in (("review_request_removed", went), ("review_requested", came)):
        for number in changed:
            more = {"requested_reviewer": account_views.user_by_id(site, number)}
            threads.announce(site, issue, sender, action, more)
    return issue


def pull_in(issue: Issue) -> Pull:
    """What makes a thread a pull request.

    Raises:
        HubError: 404, it is an issue.
    """
    if issue.pull is None:
        raise not_found()
    return issue.pull


def _fresh(site: Site, repo: Repo, author: User, wanted: NewPull) -> Issue:
    now = site.now()
    return Issue(
        id=site.store.new_id(),
        repo_id=repo.id,
        number=threads.next_number(site, repo),
        author_id=author.id,
        title=wanted.title,
        body=wanted.body,
        created_at=now,
        updated_at=now,
    )


def _custom(message: str) -> HubError:
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


def _same(issue: Issue, head_repo: Repo, head_ref: str, base: str) -> bool:
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
    threads.note(site, site.store.issues.put(changed), user, action)
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
