from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest

from agent_runtime.errors import SandboxError, SettingsError
from agent_runtime.sandbox.local import Local
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.sandbox.select import SandboxName, pick


def test_auto_is_bubblewrap_where_it_works() -> None:
    assert pick("auto", SandboxSettings()).level == "bubblewrap"
    assert pick("bubblewrap", SandboxSettings()).level == "bubblewrap"


def test_auto_refuses_rather_than_run_unprotected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match="bubblewrap"):
        pick("auto", SandboxSettings())


def test_local_must_be_asked_for_by_name_and_says_what_it_is() -> None:
    assert pick("local", SandboxSettings()).level == "none"


def test_an_unknown_name_is_the_callers_mistake() -> None:
    with pytest.raises(SettingsError, match="`auto`"):
        pick(cast("SandboxName", "firejail"), SandboxSettings())


def test_local_runs_in_the_workspace_with_a_cleared_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cr3t")
    launch = Local(SandboxSettings(environment={"A": "b"})).launch(["sh", "-c", "pwd; env"], workspace=tmp_path)
    done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{tmp_path}\n")
    assert "A=b" in done.stdout
    assert "s3cr3t" not in done.stdout


def test_local_refuses_a_missing_workspace(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="not a directory"):
        Local(SandboxSettings()).launch(["true"], workspace=tmp_path / "none")
