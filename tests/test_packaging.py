"""The wheel: what it holds, and that it runs on its own."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.script_files import load_script
from tests.source_files import PACKAGES, ROOT, modules, repository_files, tree_of


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release, built and checked by the script that the release workflow runs."""
    out = tmp_path_factory.mktemp("release")
    environment = {**os.environ, "PY": sys.executable}
    argv = [str(ROOT / "scripts" / "build-release"), str(out)]
    done = subprocess.run(argv, cwd=out, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the release does not build:\n{done.stdout}{done.stderr}"
    return out


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    (built,) = (release / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def contents(wheel: Path) -> frozenset[str]:
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel in it.

    The packages that the wheel depends on are those of the environment that runs the tests, seen through a `.pth` file;
    its link to this checkout is not followed from there, because `.pth` files are not read at second hand.
    """
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, with_pip=False)
    python = str(place / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True, capture_output=True)
    (packages,) = place.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return place


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(contents: frozenset[str]) -> None:
    ours = {str(path) for path in repository_files() if path.parts[0] in PACKAGES}
    packed = {name for name in contents if ".dist-info/" not in name}
    assert packed == ours, f"missing: {sorted(ours - packed)}; too much: {sorted(packed - ours)}"


def test_the_bill_of_materials_names_every_locked_package_with_its_hashes(release: Path) -> None:
    (path,) = release.glob("*.cdx.json")
    bill = json.loads(path.read_text(encoding="utf-8"))
    locked = (ROOT / "requirements" / "run.lock").read_text(encoding="utf-8")
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"] == PROJECT["version"]
    assert {(each["name"], each["version"]) for each in bill["components"]} == set(_LOCKED.findall(locked))
    for each in bill["components"]:
        assert each["externalReferences"][0]["hashes"], f"{each['name']} has no hash"


def test_the_checksums_are_those_of_the_files_that_are_released(release: Path) -> None:
    released = [*(release / "dist").iterdir(), *release.glob("*.cdx.json")]
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in released}
    lines = (release / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert len(sums) == 3
    assert {name: value for value, name in (line.split() for line in lines)} == sums


def test_a_release_has_the_tag_of_its_version_and_dated_changes() -> None:
    section = load_script("release-notes").section
    changes = "# Changes\n\n## 1.2.0, 2027-01-31\n\n### Commands\n\n- One.\n\n## 1.1.0, not released\n\n- Two.\n"
    assert section(changes, "v1.2.0", "1.2.0") == "### Commands\n\n- One."
    for tag, version, remedy in (
        ("v1.3.0", "1.2.0", "tag v1.2.0"),
        ("v1.1.0", "1.1.0", "write the date"),
        ("v1.0.0", "1.0.0", "no heading: ## 1.0.0"),
        ("v1x2.0", "1x2.0", "no heading"),
    ):
        with pytest.raises(ValueError, match=re.escape(remedy)):
            section(changes, tag, version)


def test_no_text_sends_a_user_to_an_index_before_the_first_release() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if re.search(r"^## \S+, \d{4}-", changes, re.MULTILINE):
        pytest.skip("there is a release: correct docs/install.md, and remove this test")
    texts = [ROOT / path for path in repository_files() if path.suffix in {".md", ".py"} and path.parts[0] != "tests"]
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts
        for line in path.read_text(encoding="utf-8").partition("\n## Once a version is released")[0].splitlines()
        if re.search(r"pip install\b.*codepilot-bot(?!\[\w+\] @ git)", line)
    ]
    assert not wrong, "\n  ".join(["it is not on PyPI; see docs/install.md:", *wrong])


def test_the_changes_begin_with_the_version_of_the_project() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+),", changes, re.MULTILINE)[1] == PROJECT["version"]  # type: ignore[index]


def test_the_wheel_says_that_it_is_typed_and_under_which_licence(contents: frozenset[str]) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= contents
    assert [name for name in contents if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_metadata_names_the_command_and_the_python(wheel: Path, contents: frozenset[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in contents if ".dist-info/" in name}
        metadata = HeaderParser().parsestr(archive.read(f"{info}/METADATA").decode())
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert metadata["Name"] == "codepilot-bot"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert "codepilot = bot.__main__:main" in entry_points


_LOCKED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECLARED: dict[str, list[str]] = {"core": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
NOT_IMPORTED = {
    "codepilot-bot": "an extra of this package",
    "pydantic-monty": "has no module itself; its dependencies provide `pydantic_monty`",
    "pytest": "a program that the demo runs; in the extra `hub` a plugin loads it",
    "pywinpty": "imported on Windows, and not installed anywhere else",
    "ripgrep": "a program",
}


@pytest.mark.parametrize("group", DECLARED)
def test_each_declared_package_is_imported(group: str) -> None:
    importers = ("localhub",) if group == "hub" else ("agent_runtime", "bot")
    imported = {name.replace("_", "-") for package in importers for name in _distributions(package)}
    declared = {_name(each) for each in DECLARED[group]}
    unused = declared - imported - _grammars() - set(NOT_IMPORTED)
    assert not unused, f"no module imports {sorted(unused)}, declared in pyproject.toml ({group}): remove them"


def test_the_bot_does_not_install_what_only_the_hub_imports() -> None:
    base = {_name(each) for each in PROJECT["dependencies"]}
    hub_only = _distributions("localhub") - _distributions("bot") - _distributions("agent_runtime")
    assert "graphql-core" in hub_only
    assert not hub_only & base


def test_the_packages_are_imported_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    code = "import agent_runtime, bot; print(agent_runtime.__file__); print(bot.__file__)"
    shown = _run([str(environment / "bin" / "python"), "-c", code], tmp_path)
    for line in shown.splitlines():
        assert Path(line).is_relative_to(environment), f"{line} is not the wheel's"


def test_the_command_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    shown = _run([str(environment / "bin" / "codepilot"), "--help"], tmp_path)
    for command in ("serve", "act", "demo"):
        assert command in shown


@pytest.mark.parametrize("missing", ["dbos", "prometheus_client", "opentelemetry.sdk"])
def test_a_service_without_its_packages_names_the_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from bot.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "serve"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "codepilot-bot[service]" in done.stderr
    assert "Traceback" not in done.stderr


def _run(argv: list[str], cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}:\n{done.stdout}{done.stderr}"
    return done.stdout


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_-]", requirement, maxsplit=1)[0].lower()


@functools.cache
def _grammars() -> frozenset[str]:
    """The distributions that are imported by their name in a table."""
    return frozenset(
        node.value.replace("_", "-")
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tree_sitter_")
    )


_providers = functools.cache(importlib.metadata.packages_distributions)


@functools.cache
def _distributions(package: str) -> frozenset[str]:
    """The distributions that provide what a package of ours imports."""
    imported = {
        name.partition(".")[0]
        for path in modules()
        if path.parts[0] == package
        for node in ast.walk(tree_of(path))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    return frozenset(each.lower() for name in imported for each in _providers().get(name, [])) - {"codepilot-bot"}
