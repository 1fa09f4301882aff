"""GitHub's rule for workflow files: without a permission of its own, an App's token adds or changes none.

One that stands on another branch already, with the same content, may be pushed:
https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/scopes-for-oauth-apps#available-scopes (`workflow`)
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from localhub.api.auth import Viewer
from localhub.api.errors import HubError, not_accessible
from localhub.git import plumbing as git

FOLDER = ".github/workflows"
_HEEDED = "HUB_KEEPS_WORKFLOWS"
_HOOK = rf"""#!/bin/sh
[ "${_HEEDED}" ] || exit 0
while read -r _ new _; do
    [ "$new" = {git.NULL_SHA} ] || git rev-list "$new" --not --branches
done |
git diff-tree --stdin --root -r --no-commit-id --no-renames --diff-filter=AMT -- {FOLDER} |
while read -r _ _ _ blob _ path; do
    git for-each-ref --format='%(refname)' refs/heads | while read -r branch; do
        git rev-parse --quiet --verify "$branch:$path"
    done | grep --quiet "$blob" && continue
    echo "refusing to allow a GitHub App to create or update workflow \`$path\` without \`workflows\` permission" >&2
    exit 1
done
"""


def install(repository: Path) -> None:
    """Have every push to a bare repository looked at; GitHub says why beside the branch, a hook can only before."""
    hook = repository / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK, encoding="utf-8")
    hook.chmod(0o755)


def may_write(viewer: Viewer) -> bool:
    """Whether the rule lets the viewer write workflow files."""
    return viewer.installation is None or viewer.permissions.get("workflows") == "write"


def heed(viewer: Viewer) -> dict[str, str]:
    """The variables of a push by the viewer, for the hook."""
    return {} if may_write(viewer) else {_HEEDED: "yes"}


def demand_for_commit(repository: Path, viewer: Viewer, sha: str) -> None:
    """Say no where a branch that came to stand at a commit would bring workflow files that the viewer may not write.

    Raises:
        HubError: 403.
    """
    if may_write(viewer):
        return
    argv = [str(repository / "hooks" / "pre-receive")]
    env = git.environment({_HEEDED: "yes", "GIT_DIR": "."})
    line = f"{git.NULL_SHA} {sha} refs/heads/any\n".encode()
    done = subprocess.run(argv, cwd=repository, env=env, input=line, capture_output=True, check=False)
    if done.returncode != 0:
        raise _refusal()


def demand_for_path(viewer: Viewer, path: str) -> None:
    """Say no to a tree with a workflow file that the viewer may not write.

    Raises:
        HubError: 403.
    """
    if path.startswith(f"{FOLDER}/") and not may_write(viewer):
        raise _refusal()


def _refusal() -> HubError:
    error = not_accessible()
    error.headers["X-Accepted-GitHub-Permissions"] = "contents=write,workflows=write"
    return error
