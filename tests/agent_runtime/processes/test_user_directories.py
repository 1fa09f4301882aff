from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_runtime import SandboxError, SandboxSettings, SettingsError
from agent_runtime.processes.spawn import home_dir
from agent_runtime.sandbox.select import Local


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without `HOME` and without an entry in `/etc/passwd`."""

    def missing() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", missing)


def test_a_home_directory_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert home_dir("Nothing can be kept") == tmp_path


@pytest.mark.usefixtures("homeless")
def test_a_missing_home_is_reported_with_a_remedy() -> None:
    with pytest.raises(SettingsError, match=r"^Nothing can be kept: this user has no home directory\. Set HOME\.$"):
        home_dir("Nothing can be kept")
    with pytest.raises(SettingsError, match=r"Set HOME, or pass `place`\.$"):
        home_dir("Nothing can be kept", remedy="pass `place`")


@pytest.mark.skipif(sys.platform == "win32", reason="there no home directory is asked for")
@pytest.mark.usefixtures("homeless")
def test_without_one_a_program_is_not_started_and_it_is_the_machine_s_fault(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="Programs cannot be started: this user has no home directory"):
        Local(SandboxSettings()).launch(["true"], workspace=tmp_path)
