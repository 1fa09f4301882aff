"""The script that installs the action: what it keeps for the next job, and that nobody can change what it installs.

The action installed here has the real scripts, a package of one line and the few locked packages that build a wheel.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import pytest

from tests.source_files import ROOT

_NEEDED = ("editables", "hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")
_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "codepilot-bot"
version = "0"
[project.scripts]
codepilot = "bot:main"
[tool.hatch.build.targets.wheel]
packages = ["bot"]
"""
pytestmark = pytest.mark.slow
_UNREACHABLE = "http://127.0.0.1:9/simple"
_AS_IT_IS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A runner with a small action and a tool cache of its own."""

    action: Path
    temp: Path
    tools: Path
    programs: Path

    @property
    def kept(self) -> list[Path]:
        """What the tool cache holds, hidden entries too."""
        return sorted((self.tools / "codepilot").iterdir())

    def command(self, variables: Mapping[str, str], *, uv: bool = True) -> tuple[list[str], dict[str, str]]:
        """How the runner starts the script, with or without `uv` among its programs."""
        path = f"{self.programs / 'uv'}:" if uv else ""
        path += f"{self.programs / 'python'}:/usr/sbin:/usr/bin:/sbin:/bin"
        ours = {"PATH": path, "RUNNER_TEMP": str(self.temp), "RUNNER_TOOL_CACHE": str(self.tools)}
        outside = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "HOME", "SSL"))}
        return [str(self.action / "scripts" / "action-install")], {**outside, **ours, **variables}

    def install(self, variables: Mapping[str, str] = _AS_IT_IS, *, uv: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the script to its end."""
        argv, environment = self.command(variables, uv=uv)
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=100, check=False)

    def offline(self, wheels: Path) -> dict[str, str]:
        """No index, and `wheels` in its place where packages are had from one."""
        index = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": _UNREACHABLE, "UV_DEFAULT_INDEX": _UNREACHABLE}
        return {
            **index,
            "PIP_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "PIP_FIND_LINKS": str(wheels),
            "UV_FIND_LINKS": str(wheels),
        }

    def says(self) -> str:
        """What the installed command prints."""
        command = self.temp / "codepilot-venv" / "bin" / "codepilot"
        return subprocess.run([command], capture_output=True, text=True, check=True).stdout.strip()


def _machine(directory: Path) -> Machine:
    action = directory / "action"
    shutil.copytree(ROOT / "scripts", action / "scripts")
    (action / "bot").mkdir()
    (action / "bot" / "__init__.py").write_text("def main():\n    print('it runs')\n", encoding="utf-8")
    (action / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (action / "requirements").mkdir()
    shutil.copy2(ROOT / "requirements" / "installer.lock", action / "requirements")
    entries = re.split(r"\n(?=[a-z])", (ROOT / "requirements" / "action.lock").read_text(encoding="utf-8"))
    few = [entry for entry in entries if entry.split("==")[0] in _NEEDED]
    assert len(few) == len(_NEEDED)
    (action / "requirements" / "action.lock").write_text("\n".join(few) + "\n", encoding="utf-8")
    programs = directory / "programs"
    for name, target in (("python/python3", Path(sys.base_prefix, "bin", "python3")), ("uv/uv", _uv())):
        (programs / name).parent.mkdir(parents=True)
        (programs / name).symlink_to(target)
    machine = Machine(action=action, temp=directory / "temp", tools=directory / "tools", programs=programs)
    machine.temp.mkdir()
    return machine


def _uv() -> Path:
    return Path(sys.executable).parent / "uv"


def _fetched(machine: Machine) -> Path:
    """The wheels of the locks, from the index, kept from one run of the tests to the next."""
    locks = sorted((machine.action / "requirements").iterdir())
    key = hashlib.sha256(b"".join(path.read_bytes() for path in locks) + sys.version.encode()).hexdigest()[:16]
    place = ROOT / ".cache" / f"action-wheels-{key}"
    place.parent.mkdir(exist_ok=True)
    with filelock.FileLock(f"{place}.lock"):
        if not place.exists():
            argv = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--require-hashes"]
            new = machine.temp / "new"
            for lock in locks:
                subprocess.run([*argv, "--dest", new, "--requirement", lock], check=True, capture_output=True)
            shutil.copytree(new, place.with_suffix(".new"), dirs_exist_ok=True)
            place.with_suffix(".new").rename(place)
    return place


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine on which two runners installed the action at once, one of them without `uv`."""
    directory = tmp_path_factory.mktemp("first")
    machine = _machine(directory)
    other = dataclasses.replace(machine, temp=directory / "temp2")
    other.temp.mkdir()
    index = machine.offline(_fetched(machine))
    started = [
        subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for argv, environment in (machine.command(index, uv=False), other.command(index))
    ]
    for process in started:
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 0, output
    assert [machine.says(), other.says()] == ["it runs", "it runs"]
    return machine


@pytest.fixture
def warm(first: Machine, tmp_path: Path) -> Machine:
    """Another machine with a copy of what the first one kept."""
    machine = _machine(tmp_path)
    shutil.copytree(first.tools, machine.tools)
    return machine


def test_two_first_installs_at_once_keep_the_wheels_of_the_locks_and_nothing_else(first: Machine) -> None:
    (wheels,) = first.kept
    assert wheels.name.startswith("wheels-")
    assert {path.name.split("-")[0].replace("_", "-") for path in wheels.iterdir()} == {*_NEEDED, "uv"}


@pytest.mark.parametrize("uv", [True, False], ids=["uv", "no-uv"])
def test_the_next_install_asks_no_index(warm: Machine, *, uv: bool) -> None:
    done = warm.install(warm.offline(warm.temp), uv=uv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"packages kept in {warm.kept[0]}" in done.stdout
    assert warm.says() == "it runs"


@pytest.mark.parametrize(("uv", "wheel"), [(True, "pluggy-*"), (False, "uv-*")])
def test_a_kept_wheel_that_was_changed_is_fetched_again(warm: Machine, first: Machine, wheel: str, *, uv: bool) -> None:
    changed = _change(warm.kept[0], wheel)
    (warm.tools / "codepilot" / ".new-killed").mkdir()
    done = warm.install(warm.offline(first.kept[0]) | {"UV_FIND_LINKS": ""}, uv=uv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(warm.temp.rglob("planted.py"))
    assert warm.says() == "it runs"
    if uv:  # pip takes the good file of two on its own
        assert "are not those of the lock" in done.stdout
        assert changed.read_bytes() == (first.kept[0] / changed.name).read_bytes()


def test_a_changed_wheel_and_no_index_is_an_error(warm: Machine) -> None:
    _change(warm.kept[0], "hatchling-*")
    done = warm.install(warm.offline(warm.temp))
    assert done.returncode == 1
    assert "::error title=Codepilot::The Python packages could not be installed" in done.stdout
    assert not list(warm.temp.rglob("planted.py"))


def _change(wheels: Path, pattern: str) -> Path:
    (wheel,) = wheels.glob(pattern)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("planted.py", "")
    return wheel


def test_a_machine_for_one_job_keeps_nothing_and_uses_nothing_that_was_kept(warm: Machine, first: Machine) -> None:
    (wheels,) = warm.kept
    _change(wheels, "pluggy-*")
    done = warm.install(warm.offline(first.kept[0]) | {"RUNNER_ENVIRONMENT": "github-hosted"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("packages from the index")
    assert list(wheels.glob("pluggy-*"))


def test_the_wheel_is_always_of_the_code_that_is_there(warm: Machine) -> None:
    index = warm.offline(warm.temp)
    assert warm.install(index).returncode == 0
    (warm.action / "bot" / "__init__.py").write_text("def main():\n    print('it changed')\n", encoding="utf-8")
    assert warm.install(index).returncode == 0
    assert warm.says() == "it changed"


def _stub(directory: Path, name: str, lines: Sequence[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    (directory / name).chmod(0o755)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['case "$*" in *version_info*) exit 1;; *-V*) echo Python 3.10.2;; esac'], "Python 3.11 or newer is needed"),
        (['case "$*" in *"-m pip"*) exit 1;; esac'], "Neither uv nor pip is on this runner"),
    ],
)
def test_a_runner_that_cannot_be_used_is_told_what_to_add(warm: Machine, lines: Sequence[str], said: str) -> None:
    (warm.programs / "python" / "python3").unlink()
    _stub(warm.programs / "python", "python3", lines)
    done = warm.install(uv=False)
    assert done.returncode == 1
    assert f"::error title=Codepilot::{said}" in done.stdout
    assert "actions/setup-python" in done.stdout


def test_a_missing_program_is_named_with_the_command_that_installs_it(warm: Machine, tmp_path: Path) -> None:
    # Everything of the system but bubblewrap and what would install it.
    system = tmp_path / "system"
    system.mkdir()
    for directory in (Path("/usr/bin"), Path("/bin")):
        for program in directory.iterdir():
            place = system / program.name
            if program.name not in {"bwrap", "apt-get", "uv"} and not place.is_symlink():
                place.symlink_to(program)
    path = f"{warm.programs / 'uv'}:{warm.programs / 'python'}:{system}"
    done = warm.install({"PATH": path})
    assert done.returncode == 1
    assert "::error title=Codepilot::" in done.stdout
    assert "bubblewrap missing on this machine" in done.stdout
    assert "apt-get install --yes --no-install-recommends bubblewrap" in done.stdout
