"""The second door when GitHub is silent for a while: nobody comes after the process, so it has to try again itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.config import load_action
from bot.jobs.job import JobState
from bot.localhub import LocalHub
from bot.wiring import act
from tests.stage import FIX, build


@pytest.mark.slow
@pytest.mark.parametrize(("times", "ends"), [(4, JobState.DONE), (99, JobState.FAILED)])
async def test_an_outage_is_waited_out_and_a_run_never_ends_in_between(
    hub: LocalHub, tmp_path: Path, times: int, ends: JobState
) -> None:
    payloads: dict[str, Mapping[str, Any]] = {}
    _, repo = build(hub)
    runner = hub.add_user("github-actions[bot]", kind="Bot")
    hub.add_collaborator(repo, runner.login, "write")
    hub.observe(sent=payloads.__setitem__)
    issue = hub.open_issue(repo, author="mona", title="Adding is off by one")
    hub.comment(repo, issue.number, author="mona", body="/codepilot fix")
    (tmp_path / "event.json").write_text(json.dumps(payloads["issue_comment"]))
    (tmp_path / "script.yaml").write_text(json.dumps([{"reply": FIX}]))
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
        }
    )
    hub.faults.add("GET", f"*/repos/{repo.full_name}", "503", times=times)
    assert await act(settings, lease_seconds=0.5) is ends
    assert len(hub.comments(repo, issue.number)) == (2 if ends is JobState.DONE else 1)
