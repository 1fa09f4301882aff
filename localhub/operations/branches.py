"""References and releases: branches, pushes, and the update of pull requests.

`sync` compares the branches with those last announced, so it also finds pushes by git itself. A release is a tag with a
description; the hub keeps no files of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from localhub.api import rules
from localhub.api.auth import unprocessable
from localhub.api.routing import Call
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.operations import threads, webhooks, workflow_files
from localhub.state.model import Activity, Issue, Pull, Release, Repo, User
from localhub.state.store import Json, Site
from localhub.views import git as git_views

MAX_COMMITS = 20
"""A push payload lists at most so many commits (docs: webhook push; 2048 there)."""


def heads_of(repo: Repo) -> dict[str, str]:
    """Return all branches with their commits."""
    return {ref.name.removeprefix("refs/heads/"): ref.sha for ref in git.refs(repo.path)}


def sync(site: Site, repo: Repo, pusher: User) -> None:
    """Look at the branches and announce whatever changed since the last look.

    The hub calls it after each push and each write of its own; call it too after writing to the bare repository
    directly.
    """
    before = site.store.heads.get(repo.id, {})
    after = heads_of(repo)
    if before == after:
        return
    site.store.heads[repo.id] = after
    site.store.repos.put(replace(repo, pushed_at=site.now()))
    record_activities(site, repo, pusher, before, after)
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, git.NULL_SHA), after.get(name, git.NULL_SHA)
        if old != new:
            webhooks.emit(site, "push", repo, pusher, push_payload(site, repo, pusher, branch=name, old=old, new=new))
    _update_pulls(site, repo, before, after, pusher)


def record_activities(site: Site, repo: Repo, actor: User, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Record the changes of branches that `GET …/activity` lists."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, git.NULL_SHA), after.get(name, git.NULL_SHA)
        if old == new:
            continue
        kind = "push" if git.NULL_SHA in {old, new} or git.is_ancestor(repo.path, old, new) else "force_push"
        kind = {old: "branch_creation", new: "branch_deletion"}.get(git.NULL_SHA, kind)
        is_merge = any(issue.pull is not None and issue.pull.merge_commit_sha == new for issue in site.store.issues)
        site.store.activities.put(
            Activity(
                id=site.store.new_id(),
                repo_id=repo.id,
                ref=f"refs/heads/{name}",
                before=old,
                after=new,
                kind="pr_merge" if is_merge else kind,
                actor_id=actor.id,
                at=site.now(),
            )
        )


def _update_pulls(site: Site, repo: Repo, before: Mapping[str, str], after: Mapping[str, str], pusher: User) -> None:
    for issue in site.store.issues:
        pull = issue.pull
        if pull is None or issue.state != "open":
            continue
        base_repo = site.store.repos[issue.repo_id]
        if pull.head_repo_id == repo.id and before.get(pull.head_ref) != after.get(pull.head_ref):
            _update_head(site, issue, pull, after.get(pull.head_ref), pusher)
        elif base_repo.id == repo.id and pull.base_ref in after and before.get(pull.base_ref) != after[pull.base_ref]:
            _update_base(site, issue, replace(pull, base_sha=after[pull.base_ref]), pusher)


def _update_head(site: Site, issue: Issue, pull: Pull, new: str | None, pusher: User) -> None:
    path = site.store.repos[issue.repo_id].path
    if new is None:
        threads.set_state(site, issue, pusher, "closed")
        return
    moved = replace(issue, pull=replace(pull, head_sha=new), updated_at=site.now())
    update_pull_ref(site, moved)
    site.store.issues.put(moved)
    if git.is_ancestor(path, new, pull.base_sha):
        threads.set_state(site, moved, pusher, "closed")
        return
    threads.announce(site, moved, pusher, "synchronize", {"before": pull.head_sha, "after": new})


def _update_base(site: Site, issue: Issue, pull: Pull, pusher: User) -> None:
    """A base that came to contain the head was merged by hand; GitHub marks the pull request so."""
    if not git.is_ancestor(site.store.repos[issue.repo_id].path, pull.head_sha, pull.base_sha):
        site.store.issues.put(replace(issue, pull=pull))
        return
    merged = replace(pull, merged_at=site.now(), merged_by=pusher.id, merge_commit_sha=pull.base_sha)
    threads.set_state(site, replace(issue, pull=merged), pusher, "closed")


def update_pull_ref(site: Site, issue: Issue) -> None:
    """Hold a pull request's commits in the base repository as `refs/pull/N/head`, fetched from a fork if need be."""
    if issue.pull is None:
        return
    repo = site.store.repos[issue.repo_id]
    source = site.store.repos[issue.pull.head_repo_id]
    name = f"refs/pull/{issue.number}/head"
    if source.id == repo.id:
        git.update_ref(repo.path, name, issue.pull.head_sha)
    else:
        git.run(repo.path, "fetch", "--quiet", str(source.path), f"+{issue.pull.head_sha}:{name}")


def push_payload(site: Site, repo: Repo, pusher: User, *, branch: str, old: str, new: str) -> Json:
    """The payload of a `push` event."""
    created, deleted = old == git.NULL_SHA, new == git.NULL_SHA
    listed = [] if deleted else _new_commits(repo, branch, old, new)
    shown = [_push_commit(site, repo, value) for value in listed]
    head = None if deleted else _push_commit(site, repo, git.commit(repo.path, new))
    return {
        "ref": f"refs/heads/{branch}",
        "before": old,
        "after": new,
        "base_ref": None,
        "created": created,
        "deleted": deleted,
        "forced": not created and not deleted and not git.is_ancestor(repo.path, old, new),
        "compare": f"{site.repo_html(repo, 'compare')}/{old[:12]}...{new[:12]}",
        "commits": shown,
        "head_commit": head,
        "pusher": {"name": pusher.login, "email": pusher.email},
    }


def _new_commits(repo: Repo, branch: str, old: str, new: str) -> list[git.Commit]:
    others = [f"^{ref.name}" for ref in git.refs(repo.path) if ref.name != f"refs/heads/{branch}"]
    known = others if old == git.NULL_SHA else [f"^{old}"]
    return git.commits(repo.path, new, *known, limit=MAX_COMMITS)[::-1]


def _push_commit(site: Site, repo: Repo, value: git.Commit) -> Json:
    changed = git_diff.names(repo.path, git_views.first_parent(value), value.sha)
    return git_views.simple_commit(value) | {
        "distinct": True,
        "url": git_views.commit_page(site, repo, value.sha),
        "added": [path for status, path in changed if status == "added"],
        "removed": [path for status, path in changed if status == "removed"],
        "modified": [path for status, path in changed if status not in {"added", "removed"}],
    }


def create_ref(call: Call, repo: Repo, name: str, sha: str) -> git.Ref:
    """Make a branch or a tag.

    Raises:
        HubError: the name or the object will not do, it is there already, or the viewer may not.
    """
    if not name.startswith(("refs/heads/", "refs/tags/")) or not git.is_ref_name(repo.path, name):
        raise unprocessable(
            "Reference name is not valid"
            if name.startswith("refs/")
            else "Reference must start with 'refs/' and have at least two slashes."
        )
    if git.kind_of(repo.path, sha) not in {"commit", "tag"}:
        raise unprocessable("Object does not exist")
    if git.ref(repo.path, name) is not None:
        raise unprocessable("Reference already exists")
    move_ref(call, repo, name, sha, git.NULL_SHA)
    made = git.ref(repo.path, name)
    assert made is not None  # noqa: S101 - it was just made, under the hub's lock
    return made


def move_ref(call: Call, repo: Repo, name: str, new: str, old: str) -> None:
    """Let a reference that stands at `old` stand at `new`.

    Raises:
        HubError: it does not point there, or the viewer may not.
    """
    workflow_files.demand_for_commit(repo.path, call.viewer, new)
    rules.demand(call.site, repo, name, old, new, login=call.user.login)
    try:
        git.update_ref(repo.path, name, new, old)
    except git.HubGitError as error:  # a push came in between, or the name collides with a folder of names
        raise unprocessable("Reference update failed") from error
    sync(call.site, repo, call.user)


def releases_of(site: Site, repo: Repo, *, drafts: bool) -> list[Release]:
    """A repository's releases, newest first."""
    found = [each for each in site.store.releases if each.repo_id == repo.id and (drafts or not each.draft)]
    return found[::-1]


def latest_release(site: Site, repo: Repo) -> Release | None:
    """The newest release that is neither a draft nor a prerelease."""
    return next((each for each in releases_of(site, repo, drafts=False) if not each.prerelease), None)


def announce_release(site: Site, value: Release, sender: User, *actions: str) -> None:
    """Send `release` events; a draft sends none."""
    repo = site.store.repos[value.repo_id]
    for action in actions if not value.draft else ():
        webhooks.emit(
            site, "release", repo, sender, {"action": action, "release": git_views.release(site, repo, value)}
        )
