"""Workflow runs of the Action in this process: the newest event of a kind, a fresh data directory, a scripted model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bot.action.step import work_step
from bot.domain.job import JobState
from bot.events.delivery import IgnoredDelivery
from bot.settings.load import load_action
from bot.settings.models import INPUTS
from localhub import LocalHub, Repo, User
from tests.origin import commit_of
from tests.stage import build

_NUMBERS = itertools.count(41)

ACTION = f"acme/codepilot@{'0' * 40}"
WORKFLOW_FILE = ".github/workflows/codepilot.yml"
_OBEYED = ("prompt", "recipe", "output-schema", "mcp")


def workflow_with_step(variables: Mapping[str, str], in_file: Mapping[str, str]) -> str:
    """Return a workflow file with one step of the action.

    Args:
        variables: the runner's, of which those of obeyed inputs stand in the file.
        in_file: the inputs as the file has them, where that is not what they evaluate to.
    """
    values = {name: variables.get(INPUTS[name.replace("-", "_")].name, "") for name in _OBEYED}
    step = {"uses": ACTION, "with": {name: value for name, value in {**values, **in_file}.items() if value}}
    return yaml.safe_dump({"on": "push", "jobs": {"bot": {"steps": [{"run": "true"}, step]}}})


def variables_of_step(repository: str, sha: str) -> dict[str, str]:
    """Return the runner's variables about the step without an id in a workflow file."""
    return {
        "GITHUB_WORKFLOW_REF": f"{repository}/{WORKFLOW_FILE}@refs/heads/main",
        "GITHUB_WORKFLOW_SHA": sha,
        "GITHUB_JOB": "bot",
        "GITHUB_ACTION": "__acme_codepilot",
        "GITHUB_ACTION_PATH": f"/home/runner/work/_actions/{ACTION.replace('@', '/')}",
        "GITHUB_WORKSPACE": "/home/runner/work/calc/calc",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRun:
    """The end of a run: its outcome, its step's outputs and its summary."""

    ended: JobState | IgnoredDelivery
    outputs: str
    summary: str

    @property
    def values(self) -> dict[str, str]:
        """The outputs by name, read by the runner's rules: `name<<delimiter`, lines, the delimiter alone on a line."""
        found, lines = {}, iter(self.outputs.split("\n"))
        for line in filter(None, lines):
            name, delimiter = line.split("<<")
            found[name] = "\n".join(iter(lines.__next__, delimiter))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflows:
    """A repository whose workflow runs the Action on events."""

    hub: LocalHub
    repo: Repo
    runner: User
    directory: Path
    payloads: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, hub: LocalHub, directory: Path, files: dict[str, str] | None = None) -> Workflows:
        """A fresh repository with the bug, and the account of its workflows."""
        _, repo = build(hub, files)
        runner = hub.add_user("github-actions[bot]", kind="Bot")
        hub.add_collaborator(repo, runner.login, "write")
        made = cls(hub=hub, repo=repo, runner=runner, directory=directory)
        hub.observe(on_delivery=made.payloads.__setitem__)
        return made

    def at_commit(self, workflow: str) -> dict[str, str]:
        """Commit a workflow file on no branch, and return what the runner says of its step without an id."""
        return variables_of_step(self.repo.full_name, commit_of(self.repo.path, WORKFLOW_FILE, workflow))

    async def run(
        self,
        event: str,
        script: Sequence[str | Mapping[str, Any]] = (),
        in_file: Mapping[str, str] | None = None,
        /,
        **variables: str,
    ) -> WorkflowRun:
        """Run the Action on the newest event of this kind, with these replies of its model.

        Args:
            event: the event's name.
            script: the replies.
            in_file: the inputs as the workflow file has them, where that is not what they evaluate to.
            variables: the runner's.
        """
        variables = {**self.at_commit(workflow_with_step(variables, in_file or {})), **variables}
        number = next(_NUMBERS)
        folder = self.directory / f"run-{number}"
        folder.mkdir()
        (folder / "event.json").write_text(json.dumps(self.payloads[event]))
        (folder / "script.yaml").write_text(
            json.dumps([{"reply": reply} if isinstance(reply, str) else reply for reply in script])
        )
        environment = {
            "GITHUB_TOKEN": self.runner.token,
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_EVENT_NAME": event,
            "GITHUB_REPOSITORY": self.repo.full_name,
            "GITHUB_RUN_ID": str(number),
            "GITHUB_API_URL": self.hub.api_url,
            "GITHUB_SERVER_URL": self.hub.url,
            "GITHUB_OUTPUT": str(folder / "outputs"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "CODEPILOT_PROVIDER": "scripted",
            "CODEPILOT_MODEL": str(folder / "script.yaml"),
            "CODEPILOT_DATA_DIR": str(folder / "data"),
            "CODEPILOT_LEVEL": "auto",
        }
        ended = (await work_step(load_action(environment | variables))).ended
        written = [folder / name for name in ("outputs", "summary")]
        outputs, summary = (each.read_text(encoding="utf-8") if each.exists() else "" for each in written)
        return WorkflowRun(ended=ended, outputs=outputs, summary=summary)
