"""Runs this checkout's action as a GitHub runner would: under `act`, in host mode, without Docker."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.source_files import ROOT, repository_files

OUTPUTS: tuple[str, ...] = tuple(yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["outputs"])

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
        timeout: seconds until the run is given up.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _keep_tools(directory / "cache")
    project = _copy(directory / "project", inputs, event, repository)
    (directory / "event.json").write_text(json.dumps(payload), encoding="utf-8")
    variables = {"GITHUB_API_URL": api_url, "GITHUB_SERVER_URL": server_url, "GITHUB_RUN_ID": "7"}
    argv = [
        str(Path(sys.executable).parent / "act"),
        event,
        *("-P", "ubuntu-24.04=-self-hosted"),
        *("--eventpath", str(directory / "event.json")),
        *("--secret", f"GITHUB_TOKEN={token}"),
        *("--action-cache-path", str(directory / "cache")),
        *("--workflows", ".github/workflows/under-act.yml"),
        *("--action-offline-mode", "--no-cache-server"),
    ]
    for name, value in variables.items():
        argv += ["--env", f"{name}={value}"]
    done = subprocess.run(
        argv,
        cwd=project,
        env={**os.environ, "PATH": f"{Path(sys.base_prefix, 'bin')}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return ActRun(succeeded=done.returncode == 0, log=done.stdout, outputs=dict(_PRINTED.findall(done.stdout)))


def _keep_tools(cache: Path) -> None:
    """Let all runs share the runner's tool cache, as the jobs of one machine do, over runs of the tests, too."""
    tools = ROOT / ".cache" / "act-tools"
    tools.mkdir(parents=True, exist_ok=True)
    cache.mkdir(exist_ok=True)
    (cache / "tool_cache").symlink_to(tools)


def _copy(project: Path, inputs: Mapping[str, str], event: str, repository: str) -> Path:
    """Every file of this checkout and one workflow, as a repository of its own."""
    for path in repository_files():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, project / path)
    workflow = project / ".github" / "workflows" / "under-act.yml"
    workflow.write_text(yaml.safe_dump(_workflow(inputs, event)), encoding="utf-8")
    git = ("git", "-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main")
    for command in (
        ("init", "--quiet"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=Everything", "--no-gpg-sign"),
        # act takes the repository's name from the remote's address, which must look like GitHub's.
        ("remote", "add", "origin", f"https://github.com/{repository}.git"),
    ):
        subprocess.run([*git, *command], cwd=project, check=True, capture_output=True)
    return project


def _workflow(inputs: Mapping[str, str], event: str) -> dict[str, Any]:
    show = {
        "if": "always()",
        "env": {name.upper().replace("-", "_"): f"${{{{ steps.bot.outputs.{name} }}}}" for name in OUTPUTS},
        "run": "\n".join(f'echo "output {name}=${name.upper().replace("-", "_")}"' for name in OUTPUTS),
    }
    checkout = {"uses": "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd"}
    steps = [checkout, {"id": "bot", "uses": "./", "with": dict(inputs)}, show]
    return {"name": "under act", "on": event, "jobs": {"bot": {"runs-on": "ubuntu-24.04", "steps": steps}}}
