"""Making a reference, for REST and GraphQL alike."""

from __future__ import annotations

from localhub.api.errors import unprocessable
from localhub.api.routing import Call
from localhub.git import plumbing as git
from localhub.operations import branches, workflow_guard
from localhub.state.model import Repo


def create(call: Call, repo: Repo, name: str, sha: str) -> git.Ref:
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
    move(call, repo, name, sha, git.NULL_SHA)
    made = git.ref(repo.path, name)
    assert made is not None  # noqa: S101 - it was just made, under the hub's lock
    return made


def move(call: Call, repo: Repo, name: str, new: str, old: str) -> None:
    """Let a reference that stands at `old` stand at `new`.

    Raises:
        HubError: it does not point there, or the viewer may not.
    """
    workflow_guard.demand_for_commit(repo.path, call.viewer, new)
    try:
        git.update_ref(repo.path, name, new, old)
    except git.HubGitError as error:  # a push came in between, or the name collides with a folder of names
        raise unprocessable("Reference update failed") from error
    branches.sync(call.site, repo, call.user)
