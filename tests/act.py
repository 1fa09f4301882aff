"""Runs this checkout's action as a GitHub runner would: under `act`, in host mode, without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.origin import commit_of
from tests.source_files import ROOT, repository_files

OUTPUTS: tuple[str, ...] = tuple(yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["outputs"])

PLACEHOLDER = "OWNER/codepilot"
"""What a workflow to copy has in its line `uses:`. GitHub refuses a workflow with it, because it has no `@`."""

_COPIED = f"acme/codepilot@{'0' * 40}"
_PINNED_SETUP = "actions/setup-python@a309ff8b426b58ec0e2a45f0f869d46889d02405"
# What the real one does that the workflows rely on; it is not a composite action, and comes from GitHub.
_SETUP_PYTHON = """\
name: setup-python
description: Names the Python that is there.
inputs: {python-version: {description: Ignored., required: true}}
runs:
  using: composite
  steps:
    - shell: bash
      run: echo "pythonLocation=$(python3 -c 'import sys; print(sys.base_prefix)')" >> "$GITHUB_ENV"
"""

PINNED_UPLOAD = "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f"
_UPLOAD_ARTIFACT = """\
name: upload-artifact
description: Copies a file to a directory with the artifact's name.
inputs:
  name: {description: Of the artifact., required: true}
  path: {description: Of the file., required: true}
  retention-days: {description: Kept with it., required: true}
  compression-level: {description: Ignored., required: true}
  if-no-files-found: {description: Ignored., required: true}
runs:
  using: composite
  steps:
    - shell: bash
      env:
        NAME: ${{ inputs.name }}
        FILE: ${{ inputs.path }}
        DAYS: ${{ inputs.retention-days }}
      run: mkdir -p "PLACE/$NAME" && cp "$FILE" "PLACE/$NAME/" && echo "$DAYS" > "PLACE/$NAME.days"
"""

_PRINTED = re.compile(r"\| output ([a-z-]+)=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRun:
    """One workflow run.

    Attributes:
        succeeded: whether every step but those allowed to fail did.
        log: everything that was printed.
        outputs: the action's outputs by name, as the step after it saw them; empty when it did not come to that.
    """

    succeeded: bool
    log: str
    outputs: Mapping[str, str]


def run_action(
    directory: Path,
    *,
    event: str,
    payload: Mapping[str, Any],
    inputs: Mapping[str, str],
    token: str,
    repository: str,
    api_url: str = "http://127.0.0.1:9/api/v3",
    server_url: str = "http://127.0.0.1:9",
    installs: bool = True,
    run_id: int = 7,
    origin: Path | None = None,
    timeout: float = 240,
) -> ActRun:
    """Run a workflow of one job, a checkout and the action, in a fresh copy of this checkout.

    Args:
        directory: an empty or missing directory for the copy, the runner's workspace and its caches.
        event: the event's name.
        payload: the event's payload.
        inputs: what the workflow gives the action.
        token: the workflow's token.
        repository: `owner/name` of the repository the workflow runs in.
        api_url: GitHub's REST address.
        server_url: GitHub's address for people and git.
        installs: whether the action installs its packages; else it has those of the tests.
        run_id: the workflow run's, unique in the repository.
        origin: the repository on the hub, for a run that reads its workflow's file there.
        timeout: seconds until the run is given up.
    """
    project = directory / "project"
    if installs:
        copy_of_this(project)
    else:
        with_packages_of_tests(project)
    workflow = project / ".github" / "workflows" / "under-act.yml"
    text = yaml.safe_dump(_workflow(inputs, event))
    workflow.write_text(text, encoding="utf-8")
    variables = {"GITHUB_RUN_ID": str(run_id)}
    if origin is not None:
        file = f".github/workflows/{workflow.name}"
        variables["GITHUB_WORKFLOW_REF"] = f"{repository}/{file}@refs/heads/main"
        variables["GITHUB_WORKFLOW_SHA"] = commit_of(origin, file, text)
    return _run(
        directory,
        project,
        workflow,
        event=event,
        payload=payload,
        secrets={"GITHUB_TOKEN": token},
        repository=repository,
        api_url=api_url,
        server_url=server_url,
        timeout=timeout,
        variables=variables,
    )


def run_workflow(
    directory: Path,
    workflow: Path,
    *,
    action: Path,
    event: str,
    payload: Mapping[str, Any],
    inputs: Mapping[str, str],
    token: str,
    repository: str,
    api_url: str,
    server_url: str,
    variables: Mapping[str, str],
    timeout: float = 240,
) -> ActRun:
    """Run one of the workflows to copy, as it stands but for its line `uses:` and what a test has to add.

    Args:
        directory: an empty or missing directory for the runner's workspace and its caches.
        workflow: the file.
        action: a copy of this checkout.
        event: the event's name.
        payload: the event's payload.
        inputs: added to what the workflow gives the action.
        token: the workflow's token.
        repository: `owner/name` of the repository the workflow runs in.
        api_url: GitHub's REST address.
        server_url: GitHub's address for people and git.
        variables: what a runner says of the run, and `act` does not.
        timeout: seconds until the run is given up.
    """
    copy = directory / "project" / ".github" / "workflows" / workflow.name
    copy.parent.mkdir(parents=True)
    text = filled_in(workflow.read_text(encoding="utf-8"), inputs)
    copy.write_text(text, encoding="utf-8")
    step = re.search(r"^ +id: (\w+)$", text, re.MULTILINE)
    at_step = {
        "RUNNER_ACTION": step[1] if step else "__acme_codepilot",
        "RUNNER_ACTION_PATH": f"/runner/_actions/{_COPIED.replace('@', '/')}",
        "GITHUB_WORKFLOW_REF": f"{repository}/.github/workflows/{workflow.name}@refs/heads/main",
    }
    python = directory / "setup-python"
    python.mkdir()
    (python / "action.yml").write_text(_SETUP_PYTHON, encoding="utf-8")
    return _run(
        directory,
        directory / "project",
        copy,
        event=event,
        payload=payload,
        secrets={"GITHUB_TOKEN": token, "ANTHROPIC_API_KEY": "not-asked"},
        repository=repository,
        api_url=api_url,
        server_url=server_url,
        timeout=timeout,
        actions={_COPIED: action, _PINNED_SETUP: python},
        variables={**at_step, **variables},
    )


def filled_in(text: str, inputs: Mapping[str, str]) -> str:
    """A workflow to copy, with its line `uses:` filled in and further inputs for the action."""
    before, mark, after = text.partition(f"uses: {PLACEHOLDER}")
    assert mark, "the workflow has no line to fill in"
    ours = "        with:\n"
    given = "".join(f"          {name}: {json.dumps(value)}\n" for name, value in inputs.items())
    return f"{before}uses: {_COPIED} # v0.1.0{after[after.index(chr(10)) :].replace(ours, ours + given, 1)}"


def _run(
    directory: Path,
    project: Path,
    workflow: Path,
    *,
    event: str,
    payload: Mapping[str, Any],
    secrets: Mapping[str, str],
    repository: str,
    api_url: str,
    server_url: str,
    timeout: float,
    actions: Mapping[str, Path] | None = None,
    variables: Mapping[str, str] | None = None,
) -> ActRun:
    _keep_tools(directory / "cache")
    _commit(project, repository)
    programs = directory / "programs"
    programs.mkdir()
    (programs / "uv").symlink_to(Path(sys.executable).parent / "uv")
    (directory / "event.json").write_text(json.dumps(payload), encoding="utf-8")
    github = {"GITHUB_API_URL": api_url, "GITHUB_SERVER_URL": server_url, "GITHUB_RUN_ID": "7"}
    argv = [
        str(Path(sys.executable).parent / "act"),
        event,
        *("-P", "ubuntu-24.04=-self-hosted"),
        *("--eventpath", str(directory / "event.json")),
        *("--action-cache-path", str(directory / "cache")),
        *("--workflows", str(workflow.relative_to(project))),
        *("--action-offline-mode", "--no-cache-server"),
    ]
    for name, value in secrets.items():
        argv += ["--secret", f"{name}={value}"]
    for name, value in {**github, **(variables or {})}.items():
        argv += ["--env", f"{name}={value}"]
    for name, place in {**_kept_by(directory), **(actions or {})}.items():
        argv += ["--local-repository", f"{name}={place}"]
    done = subprocess.run(
        argv,
        cwd=project,
        env={**os.environ, "PATH": f"{programs}:{Path(sys.base_prefix, 'bin')}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return ActRun(succeeded=done.returncode == 0, log=done.stdout, outputs=dict(_PRINTED.findall(done.stdout)))


def _kept_by(directory: Path) -> dict[str, Path]:
    """What stands for the action that uploads artifacts, which comes from GitHub: files land in `artifacts`."""
    place = directory / "upload-artifact"
    place.mkdir()
    (place / "action.yml").write_text(_UPLOAD_ARTIFACT.replace("PLACE", str(directory / "artifacts")), encoding="utf-8")
    return {PINNED_UPLOAD: place}


def _keep_tools(cache: Path) -> None:
    """Let all runs share the runner's tool cache, as the jobs of one machine do, over runs of the tests, too."""
    tools = ROOT / ".cache" / "act-tools"
    tools.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "tool_cache").symlink_to(tools)


def copy_of_this(directory: Path, *folders: str) -> None:
    """Copy every file of this checkout, as GitHub's runner does with an action from another repository.

    Args:
        directory: where to.
        folders: those that alone are copied, with what stands beside them.
    """
    for path in repository_files():
        if not folders or len(path.parts) == 1 or path.parts[0] in folders:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, directory / path)


def with_packages_of_tests(action: Path) -> None:
    """Make a copy of the action that uses this very environment, for installing takes most of a short run's time."""
    copy_of_this(action, ".github", "scripts")
    environment = f'ln -s {shlex.quote(sys.prefix)} "$RUNNER_TEMP/codepilot-venv"'
    # act gives the steps of a composite action the name of the inner step, and its directory another layout.
    definition = (action / "action.yml").read_text(encoding="utf-8")
    runs = 'exec "$RUNNER_TEMP/codepilot-venv/bin/codepilot" act'
    assert runs in definition
    runner = 'GITHUB_ACTION="${RUNNER_ACTION:-bot}" GITHUB_ACTION_PATH="${RUNNER_ACTION_PATH:-$GITHUB_WORKSPACE}"'
    (action / "action.yml").write_text(definition.replace(runs, f"{runner} {runs}"), encoding="utf-8")
    (action / "scripts" / "action-install").write_text(f"#!/bin/sh\n{environment}\n", encoding="utf-8")


def _commit(project: Path, repository: str) -> None:
    """Make a directory a repository of its own."""
    git = ("git", "-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main")
    for command in (
        ("init", "--quiet"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=Everything", "--no-gpg-sign"),
        # act takes the repository's name from the remote's address, which must look like GitHub's.
        ("remote", "add", "origin", f"https://github.com/{repository}.git"),
    ):
        subprocess.run([*git, *command], cwd=project, check=True, capture_output=True)


def _workflow(inputs: Mapping[str, str], event: str) -> dict[str, Any]:
    show = {
        "if": "always()",
        "env": {name.upper().replace("-", "_"): f"${{{{ steps.bot.outputs.{name} }}}}" for name in OUTPUTS},
        "run": "\n".join(f'echo "output {name}=${name.upper().replace("-", "_")}"' for name in OUTPUTS),
    }
    checkout = {"uses": "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd"}
    steps = [checkout, {"id": "bot", "uses": "./", "with": dict(inputs)}, show]
    return {"name": "under act", "on": event, "jobs": {"bot": {"runs-on": "ubuntu-24.04", "steps": steps}}}
