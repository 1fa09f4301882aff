"""Threat 33: in a workflow, the agent's commands know none of the runner's variables and reach none of its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Event, ToolReturned
from bot.action.step import work_step
from bot.domain.job import JobState
from bot.settings.load import load_action
from localhub import LocalHub
from tests.stage import FIX, acting, build

_FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")
_VALUES = (
    "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_RUNTIME_URL",
    "ACTIONS_CACHE_URL",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "ACTIONS_RESULTS_URL",
    "RUNNER_TEMP",
    "CI",
)
_ALLOWED = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "PWD", "OLDPWD", "SHLVL", "_", "NO_COLOR", "PAGER"}
_ALLOWED |= {"GIT_PAGER", "MANPAGER", "GIT_TERMINAL_PROMPT", "PYTHONPYCACHEPREFIX", "CODEPILOT_TERMINAL"}
_ALLOWED |= {"CI", "PY_COLORS", "PIP_PROGRESS_BAR", "npm_config_progress"}  # all of them set by the terminal


async def test_the_agent_sees_no_variable_of_the_runner_and_writes_to_none_of_its_files(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads: dict[str, Mapping[str, Any]] = {}
    _, repo = build(hub)
    runner = hub.add_user("github-actions[bot]", kind="Bot")
    hub.add_collaborator(repo, runner.login, "write")
    hub.observe(on_delivery=payloads.__setitem__)
    issue = hub.open_issue(repo, author="mona", title="Adding is off by one")
    hub.comment(repo, issue.number, author="mona", body="/codepilot fix")
    files = {name: tmp_path / name for name in _FILES}
    for name, path in files.items():
        path.write_text("")
        monkeypatch.setenv(name, str(path))
    for name in _VALUES:
        monkeypatch.setenv(name, f"the runner's {name}")
    (tmp_path / "event.json").write_text(json.dumps(payloads["issue_comment"]))
    append = "; ".join(f"echo EVIL=1 >> ${{{name}:-{path}}}" for name, path in files.items())
    script = [{"reply": acting(f"execute(\"main\", \"env -0 | tr '\\\\0' '\\\\n'; {append}; true\")")}, {"reply": FIX}]
    (tmp_path / "script.yaml").write_text(json.dumps(script))
    settings = load_action(
        {
            "GITHUB_TOKEN": runner.token,
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_EVENT_NAME": "issue_comment",
            "GITHUB_REPOSITORY": repo.full_name,
            "GITHUB_RUN_ID": "41",
            "GITHUB_API_URL": hub.api_url,
            "GITHUB_SERVER_URL": hub.url,
            "CODEPILOT_PROVIDER": "scripted",
            "CODEPILOT_MODEL": str(tmp_path / "script.yaml"),
            "CODEPILOT_DATA_DIR": str(tmp_path / "data"),
            "CODEPILOT_LEVEL": "auto",
        }
    )
    events: list[Event] = []
    assert (await work_step(settings, listeners=[events.append])).ended is JobState.DONE
    shown = next(each.value for each in events if isinstance(each, ToolReturned))
    assert isinstance(shown, dict)
    names = {line.partition("=")[0] for line in str(shown["output"]).splitlines() if "=" in line.split(" ")[0]}
    assert "PATH" in names, shown
    assert names <= _ALLOWED
    assert "the runner's" not in str(shown["output"])
    assert "the runner's" not in str(shown["output"])
    assert {path.read_text() for path in files.values()} == {""}
