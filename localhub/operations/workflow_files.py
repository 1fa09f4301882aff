"""GitHub's rule for workflow files: without the permission `workflows`, an App's token adds or changes none.

A `pre-receive` hook in each bare repository looks at the commits of a push, and at its rules (`rules.py`); writes
through the API run the same hook (`demand_for_commit`) or compare a path (`demand_for_path`). A file that is on another
branch with the same content may be pushed, see the scope `workflow`:
https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/scopes-for-oauth-apps#available-scopes
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from localhub.api import rules
from localhub.api.auth import HubError, Viewer, not_accessible
from localhub.git import plumbing as git

FOLDER = ".github/workflows"
_SWITCH = "HUB_KEEPS_WORKFLOWS"
_HOOK = rf"""#!/bin/sh
updates=$(cat)
if [ "${rules.RULES}" ]; then
    printf '%s\n' "$updates" | {rules.COMMAND} || exit 1
fi
[ "${_SWITCH}" ] || exit 0
printf '%s\n' "$updates" | while read -r _ new _; do
    [ "$new" = {git.NULL_SHA} ] || git rev-list "$new" --not --branches
done |
git diff-tree --stdin --root -m -r --no-commit-id --no-renames --diff-filter=AMT -- {FOLDER} |
while read -r _ _ _ blob _ path; do
    git for-each-ref --format='%(refname)' refs/heads | while read -r branch; do
        git rev-parse --quiet --verify "$branch:$path"
    done | grep --quiet "$blob" && continue
    echo "refusing to allow a GitHub App to create or update workflow \`$path\` without \`workflows\` permission" >&2
    exit 1
done
"""


def install_hook(repository: Path) -> None:
    """Install the hook in a bare repository.

    GitHub refuses a push with the reason beside the branch; a hook can only print it before.
    """
    hook = repository / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK, encoding="utf-8")
    hook.chmod(0o755)


def may_write(viewer: Viewer) -> bool:
    """Whether the viewer may add or change workflow files."""
    return viewer.installation is None or viewer.permissions.get("workflows") == "write"


def hook_environment(viewer: Viewer) -> dict[str, str]:
    """The environment variables that switch the hook on for a push of the viewer."""
    return {} if may_write(viewer) else {_SWITCH: "yes"}


def demand_for_commit(repository: Path, viewer: Viewer, sha: str) -> None:
    """Refuse to point a branch at a commit that brings workflow files which the viewer may not write.

    Raises:
        HubError: 403.
    """
    if may_write(viewer):
        return
    argv = [str(repository / "hooks" / "pre-receive")]
    env = git.environment({_SWITCH: "yes", "GIT_DIR": "."})
    line = f"{git.NULL_SHA} {sha} refs/heads/any\n".encode()
    done = subprocess.run(argv, cwd=repository, env=env, input=line, capture_output=True, check=False)
    if done.returncode != 0:
        raise _refusal()


def demand_for_path(viewer: Viewer, path: str) -> None:
    """Refuse a tree with a workflow file that the viewer may not write.

    Raises:
        HubError: 403.
    """
    if path.startswith(f"{FOLDER}/") and not may_write(viewer):
        raise _refusal()


def read_dispatch(text: str) -> tuple[str, dict[str, bool] | None]:
    """The name of a workflow, and whether each input of its `workflow_dispatch` is required; None without the event."""
    try:
        workflow = yaml.safe_load(text)
    except yaml.YAMLError:
        return "", None
    if not isinstance(workflow, dict):
        return "", None
    events = workflow.get("on", workflow.get(True))  # in YAML 1.1 `on` is a truth value
    if not isinstance(events, dict):
        events = dict.fromkeys([events] if isinstance(events, str) else events or ())
    if "workflow_dispatch" not in events:
        return str(workflow.get("name", "")), None
    inputs = (events["workflow_dispatch"] or {}).get("inputs") or {}
    required = {str(key): bool((value or {}).get("required")) for key, value in inputs.items()}
    return str(workflow.get("name", "")), required


def _refusal() -> HubError:
    error = not_accessible()
    error.headers["X-Accepted-GitHub-Permissions"] = "contents=write,workflows=write"
    return error
