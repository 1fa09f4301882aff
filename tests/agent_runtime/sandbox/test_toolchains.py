"""The toolchains that commands find: which are shown, and which a repository cannot make visible."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_runtime import SandboxError, SandboxSettings, pick_sandbox
from agent_runtime.sandbox.toolchains import find_toolchains, read_toolchains
from agent_runtime.tools.search import SearchTools
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.search import find_ripgrep

_VARIABLES = (
    "CONDA_PREFIX", "GOROOT", "NVM_BIN", "NVM_DIR", "PYENV_ROOT", "PYENV_VERSION", "RUSTUP_HOME", "VIRTUAL_ENV",
)  # fmt: skip


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory outside of /dev, of which a sandbox has its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def workspace(home: Path) -> Path:
    workspace = home / "project"
    workspace.mkdir()
    return workspace


def _file(path: Path, text: str = "", *, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def _python(prefix: Path) -> Path:
    _file(prefix / "bin" / "python3.13", "#!/bin/sh\n", mode=0o755)
    (prefix / "bin" / "python3").symlink_to("python3.13")
    _file(prefix / "lib" / "python3.13" / "os.py")
    _file(prefix / "pip.conf", "[global]\nindex-url = https://user:password@example.com\n")
    return prefix


def _environment(directory: Path, *, home: Path, python: Path | None = None) -> Path:
    _file(directory / "pyvenv.cfg", f"home = {home}\n")
    (directory / "lib" / "python3.13" / "site-packages").mkdir(parents=True)
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin" / "python").symlink_to(python or home / "python3.13")
    return directory


def _real_python() -> Path:
    return Path(sys.base_prefix).resolve()


def _run(command: str, workspace: Path, **settings: object) -> str:
    launch = pick_sandbox("bubblewrap", SandboxSettings(**settings)).launch(  # type: ignore[arg-type]
        ["bash", "-c", f"PATH=$VIRTUAL_ENV/bin:$PATH\n{command}"], workspace=workspace
    )
    done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_environment_of_a_project_works_at_the_paths_that_its_files_contain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(_real_python().parent))
    project = tmp_path / "project"
    venv.create(project / ".venv", with_pip=False)
    site = project / ".venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (site / "editable.pth").write_text(str(project / "src"), encoding="utf-8")
    _file(project / "src" / "greeting.py", "text = 'good morning'")
    script = f"#!{project}/.venv/bin/python\nimport sys, greeting; print(sys.prefix, greeting.text)"
    _file(project / ".venv" / "bin" / "greet", script, mode=0o755)
    assert _run("greet", project) == f"{project}/.venv good morning\n"
    assert _run("python -c 'import sys; print(sys.prefix)'", project) == "/workspace/.venv\n"
    assert "command not found" in _run("greet", project, toolchains="none")


def test_no_command_changes_the_environment(workspace: Path, home: Path) -> None:
    _environment(workspace / ".venv", home=_python(home / "python") / "bin")
    text = _run("touch .venv/file; rm -rf .venv; mv .venv old; ls .venv", workspace)
    assert text.count("Read-only file system") >= 1
    assert "pyvenv.cfg" in text
    assert (workspace / ".venv" / "pyvenv.cfg").exists()


async def test_a_search_works_if_this_package_is_installed_in_the_environment(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ripgrep = find_ripgrep()
    assert ripgrep is not None
    environment = _environment(workspace / ".venv", home=_python(home / "python") / "bin")
    shutil.copy(ripgrep, environment / "bin" / "rg")
    _file(workspace / "shop.py", "def total(): ...\n")
    monkeypatch.setattr(sys, "prefix", str(environment))
    with Workspace(workspace) as files:
        search = SearchTools(files, pick_sandbox("bubblewrap", SandboxSettings()))
        result = await search.find("total")
        search.close()
    assert result.value == [{"file": "shop.py", "line": 1, "text": "def total(): ..."}]


def test_our_own_programs_are_not_those_of_the_workspace(workspace: Path, home: Path) -> None:
    environment = _environment(workspace / ".venv", home=_python(home / "python") / "bin")
    _file(environment / "bin" / "bash", "#!/bin/sh\necho a stranger\n", mode=0o755)
    launch = pick_sandbox("bubblewrap", SandboxSettings()).launch(["bash", "-c", "echo ours"], workspace=workspace)
    done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=False)
    assert done.stdout == "ours\n"


def test_of_an_installation_only_programs_and_libraries_are_shown(workspace: Path, home: Path) -> None:
    python = _python(home / "python")
    (python / "share").symlink_to(home)
    _environment(workspace / ".venv", home=python / "bin")
    toolchains = find_toolchains("auto", workspace)
    assert toolchains.mounts == {str(python / part): python / part for part in ("bin", "lib")}
    assert toolchains.line == f"Toolchains: .venv (Python of {python})"


def test_the_links_of_uv_are_followed(workspace: Path, home: Path) -> None:
    pythons = home / ".local" / "share" / "uv" / "python"
    real = _python(pythons / "cpython-3.13.1-linux")
    (pythons / "cpython-3.13-linux").symlink_to(real.name)
    program = home / ".local" / "bin" / "python3.13"
    program.parent.mkdir()
    program.symlink_to(pythons / "cpython-3.13-linux" / "bin" / "python3.13")
    _environment(workspace / ".venv", home=pythons / "cpython-3.13-linux" / "bin", python=program)
    toolchains = find_toolchains("auto", workspace)
    assert toolchains.environment == ".venv"
    assert toolchains.links[str(program)] == str(program.readlink())
    assert toolchains.mounts[str(pythons / "cpython-3.13-linux" / "lib")] == real / "lib"
    assert toolchains.mounts[str(real / "lib")] == real / "lib"


def _ssh(home: Path) -> Path:
    return _python(home / ".ssh") / "bin"


def _no_installation(home: Path) -> Path:
    return _file(home / "secrets" / "bin" / "python3.13", mode=0o755).parent


def _home_itself(home: Path) -> Path:
    return _python(home) / "bin"


def _foreign_link(home: Path) -> Path:
    _python(home / ".aws" / "python")
    (home / "tools").symlink_to(home / ".aws" / "python")
    return home / "tools" / "bin"


def _outside(home: Path) -> Path:
    return _python(home.parent / "elsewhere") / "bin"


def _escaping(home: Path) -> Path:
    return _python(home / ".ssh") / ".." / ".ssh" / "bin"


def _linked_library(home: Path) -> Path:
    python = _python(home / "python")
    (python / "lib" / "python3.13" / "os.py").unlink()
    (python / "lib" / "python3.13" / "os.py").symlink_to("/etc/passwd")
    return python / "bin"


@pytest.mark.parametrize(
    "target",
    [_ssh, _no_installation, _home_itself, _foreign_link, _outside, _escaping, _linked_library],
    ids=lambda make: make.__name__,
)
def test_a_repository_makes_nothing_else_visible(workspace: Path, home: Path, target: Callable[[Path], Path]) -> None:
    _environment(workspace / ".venv", home=target(home))
    toolchains = find_toolchains("auto", workspace)
    assert toolchains.mounts == {}
    assert toolchains.environment == ""
    assert toolchains.line.startswith("Not shown in the sandbox: .venv ")


def test_a_link_for_an_environment_is_not_followed(workspace: Path, home: Path) -> None:
    other = _environment(home / "other" / ".venv", home=_python(home / "python") / "bin")
    (workspace / ".venv").symlink_to(other)
    toolchains = find_toolchains("auto", workspace)
    assert (toolchains.environment, toolchains.mounts) == ("", {})
    assert toolchains.line == "Not shown in the sandbox: .venv (a link)"


def test_a_link_in_an_environment_shows_no_private_directory(workspace: Path, home: Path) -> None:
    private = _ssh(home) / "python3.13"
    _environment(workspace / ".venv", home=_python(home / "python") / "bin", python=private)
    assert find_toolchains("auto", workspace).environment == ""


def test_a_version_in_a_file_of_the_workspace_is_no_path(workspace: Path, home: Path) -> None:
    _python(home / ".ssh")
    (home / ".pyenv" / "versions").mkdir(parents=True)
    for text in ("../../.ssh", str(home / ".ssh"), "..", "x" * 1000):
        _file(workspace / ".python-version", text)
        assert find_toolchains("auto", workspace).mounts == {}


def test_without_a_sandbox_a_repositorys_programs_do_not_come_first(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _environment(workspace / ".venv", home=_python(home / "python") / "bin")
    assert find_toolchains("auto", workspace, isolated=False).environment == ""
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    assert find_toolchains("auto", workspace, isolated=False).environment == ".venv"
    env = pick_sandbox("local", SandboxSettings()).launch(["true"], workspace=workspace).env
    assert env["VIRTUAL_ENV"] == str(environment)


def test_what_the_user_has_selected_is_found(workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyenv = _python(home / ".pyenv" / "versions" / "3.13.2")
    _python(home / ".pyenv" / "versions" / "3.13.10")
    node = home / ".nvm" / "versions" / "node" / "v20.11.0"
    _file(node / "bin" / "node", mode=0o755)
    _file(node / "lib" / "node_modules" / "npm" / "package.json")
    rust = home / ".rustup" / "toolchains" / "1.80.0-x86_64-unknown-linux-gnu"
    _file(rust / "bin" / "rustc", mode=0o755)
    _file(rust / "lib" / "rustlib" / "components")
    go = home / "sdk" / "go1.23"
    _file(go / "bin" / "go", mode=0o755)
    _file(go / "src" / "runtime" / "proc.go")
    conda = _python(home / "miniconda3")
    monkeypatch.setenv("CONDA_PREFIX", str(conda))
    monkeypatch.setenv("GOROOT", str(go))
    _file(workspace / ".python-version", "3.13.2\n")
    _file(workspace / ".nvmrc", "v20\n")
    _file(workspace / "rust-toolchain.toml", '[toolchain]\nchannel = "1.80.0"\n')
    toolchains = find_toolchains("auto", workspace)
    assert toolchains.path == [directory / "bin" for directory in (conda, pyenv, node, rust, go)]
    assert {str(node / "lib"), str(go / "src")} <= toolchains.mounts.keys()
    _file(workspace / ".python-version", "3.13\n")
    assert home / ".pyenv" / "versions" / "3.13.10" / "bin" in find_toolchains("auto", workspace).path


def test_an_activated_environment_outside_the_workspace_is_found(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _environment(home / "envs" / "one", home=_python(home / "python") / "bin")
    _file(environment / "pip.conf", "password")
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    toolchains = find_toolchains("auto", workspace)
    assert toolchains.path == [environment / "bin"]
    assert str(environment / "pyvenv.cfg") in toolchains.mounts
    assert not any("pip.conf" in place or place == str(environment) for place in toolchains.mounts)


def test_a_directory_that_the_user_names_is_shown_whole(workspace: Path, home: Path) -> None:
    _file(home / "node" / "bin" / "node", mode=0o755)
    toolchains = find_toolchains(read_toolchains("~/node"), workspace)
    assert toolchains.mounts == {str(home / "node"): home / "node"}
    assert toolchains.path == [home / "node" / "bin"]
    assert find_toolchains(read_toolchains("none"), workspace).mounts == {}
    for wrong in ("~", "~/.ssh", "/", "~/missing", "node"):
        with pytest.raises(SandboxError, match="toolchains: "):
            find_toolchains(read_toolchains(wrong), workspace)
