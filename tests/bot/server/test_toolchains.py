"""Toolchains in the sandbox: a virtual environment brings the Python that it was made from, and nothing private."""

from __future__ import annotations

import pwd
import subprocess
import sys
import venv
from os import geteuid
from pathlib import Path

import pytest

from agent_runtime import SandboxSettings, pick_sandbox
from bot.domain.errors import ConfigError
from bot.server import build
from bot.server.build import directories_to_show


def _environment(directory: Path, *, home: Path, python: Path) -> Path:
    (directory / "bin").mkdir(parents=True)
    (directory / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.13.0\n", encoding="utf-8")
    (directory / "bin" / "python3").symlink_to(python)
    (directory / "bin" / "python").symlink_to("python3")
    return directory


def _python(prefix: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / "python3.13").mkdir(parents=True)
    (prefix / "lib" / "python3.13" / "os.py").touch()
    (prefix / "bin" / "python3.13").touch()
    return prefix


def test_the_python_of_a_virtual_environment_runs_in_the_sandbox(tmp_path: Path) -> None:
    environment, workspace = tmp_path / "venv", tmp_path / "workspace"
    venv.create(environment, with_pip=False)
    workspace.mkdir()
    settings = SandboxSettings(read_only=directories_to_show([environment]), path=(environment / "bin",))
    launch = pick_sandbox("auto", settings).launch(
        ["python", "-c", "import sys; print(sys.prefix)"], workspace=workspace
    )
    done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(environment), done.stderr


def test_the_whole_of_the_python_is_shown_before_the_environment(tmp_path: Path) -> None:
    python = _python(tmp_path / "python")
    environment = _environment(tmp_path / "venv", home=python / "bin", python=python / "bin" / "python3.13")
    assert directories_to_show([environment]) == (python, environment)


def test_every_directory_on_the_way_to_the_python_is_shown(tmp_path: Path) -> None:
    python = _python(tmp_path / "versions" / "3.13.0")
    (tmp_path / "versions" / "3.13").symlink_to("3.13.0")
    programs = tmp_path / "local" / "bin"
    programs.mkdir(parents=True)
    (programs / "python3.13").symlink_to(tmp_path / "versions" / "3.13" / "bin" / "python3.13")
    environment = _environment(tmp_path / "venv", home=programs, python=programs / "python3.13")
    # Of the directory around the link, nothing but the programs beside it.
    assert directories_to_show([environment]) == (programs, python.parent / "3.13", environment)


def test_what_is_shown_anyway_is_not_named_again(tmp_path: Path) -> None:
    system = _environment(tmp_path / "venv", home=Path("/usr/bin"), python=Path("/usr/bin/python3"))
    python = _python(tmp_path / "python")
    inside = _environment(python / "venvs" / "one", home=python / "bin", python=python / "bin" / "python3.13")
    assert directories_to_show([system]) == (system,)
    assert directories_to_show([python, inside]) == (python,)


def test_a_directory_that_is_no_environment_is_shown_alone(tmp_path: Path) -> None:
    assert directories_to_show([tmp_path]) == (tmp_path,)


def test_an_environment_whose_python_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone" / "bin"
    environment = _environment(tmp_path / "venv", home=gone, python=gone / "python3.13")
    with pytest.raises(ConfigError) as refused:
        directories_to_show([environment])
    (problem,) = refused.value.problems
    assert problem.startswith(f"CODEPILOT_TOOLCHAINS: {environment} ")
    assert f" {gone}, " in problem


@pytest.mark.parametrize("private", ["home", "data"])
def test_no_environment_makes_a_private_directory_visible(tmp_path: Path, private: str) -> None:
    own = Path(pwd.getpwuid(geteuid()).pw_dir) if private == "home" else tmp_path / "around" / "data"
    (tmp_path / "around").mkdir()
    around = own if private == "home" else tmp_path / "around"
    environment = _environment(tmp_path / "venv", home=around, python=Path(sys.executable))
    with pytest.raises(ConfigError, match="also contains"):
        directories_to_show([environment], private=[tmp_path / "around" / "data"])


def test_a_user_that_a_container_does_not_know_has_no_home_to_keep_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "geteuid", lambda: 1_000_700_000)  # as OpenShift gives them
    assert directories_to_show([tmp_path]) == (tmp_path,)
