from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import cast

import pytest

from agent_runtime.core.errors import SandboxError, SettingsError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.sandbox.select import Local, SandboxName, pick_sandbox
from tests.containers import StandIn


def test_auto_is_bubblewrap_where_it_works() -> None:
    assert pick_sandbox("auto", SandboxSettings()).level == "bubblewrap"
    assert pick_sandbox("bubblewrap", SandboxSettings()).level == "bubblewrap"


def test_auto_refuses_rather_than_run_unprotected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match="bubblewrap"):
        pick_sandbox("auto", SandboxSettings())


def test_auto_takes_a_container_where_bubblewrap_does_not_work_and_an_image_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = StandIn.at(tmp_path / "engine")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Bubblewrap, "probe", _refuse)
    assert pick_sandbox("auto", engine.settings).level == "docker"
    with pytest.raises(SandboxError, match="namespaces"):
        pick_sandbox("auto", SandboxSettings())
    with pytest.raises(SandboxError, match="namespaces"):
        pick_sandbox("bubblewrap", engine.settings)


def test_if_no_sandbox_works_both_reasons_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = StandIn.at(tmp_path / "engine")
    engine.says(MemoryLimit=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Bubblewrap, "probe", _refuse)
    with pytest.raises(SandboxError, match=r"(?s)no namespaces.*without a seccomp filter"):
        pick_sandbox("auto", engine.settings)


def _refuse(_: Bubblewrap) -> None:
    raise SandboxError("there are no namespaces")


def test_bubblewrap_is_tried_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pick_sandbox("auto", SandboxSettings())
    monkeypatch.setattr(subprocess, "run", _no_second_try)
    pick_sandbox("auto", SandboxSettings())


def _no_second_try(*words: object, **_: object) -> None:
    raise AssertionError(f"a program was started: {words}")


def test_local_must_be_selected_by_name_and_reports_its_level() -> None:
    assert pick_sandbox("local", SandboxSettings()).level == "none"


def test_an_unknown_name_is_the_callers_mistake() -> None:
    with pytest.raises(SettingsError, match="`auto`"):
        pick_sandbox(cast("SandboxName", "firejail"), SandboxSettings())


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
