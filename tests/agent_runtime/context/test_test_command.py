"""How a project's tests are run is found out by trying, in the sandbox, and told in words of our own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.context.test_command import Trial, TrialResult, find_test_files, make_trial, read_trial
from agent_runtime.tools.shell import ShellTools
from agent_runtime.workspace.files import Workspace

_SECONDS = 60.0
_PYTHON = Path(sys.prefix)
_TRIED = Trial(script="", command="python -m pytest -q")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs that stand before the sandbox's own."""
    (tmp_path / "programs").mkdir()
    return tmp_path / "programs"


def _program(directory: Path, name: str, line: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{line}\n")
    (directory / name).chmod(0o755)


async def _tried(root: Path, *read_only: Path) -> tuple[TrialResult, ShellTools]:
    path = tuple(each / "bin" if (each / "bin").is_dir() else each for each in read_only)
    sandbox = pick_sandbox("auto", SandboxSettings(read_only=(*read_only, Path(sys.base_prefix)), path=path))
    with Workspace(root) as workspace:
        attempt = make_trial(workspace, "", lambda _command: True)
    assert attempt is not None
    shell = ShellTools(sandbox, root)
    return read_trial(attempt, await shell.run_trial(attempt.script, _SECONDS)), shell


async def test_a_package_below_src_is_found_by_its_tests_and_by_later_terminals(tmp_path: Path) -> None:
    root = tmp_path / "work"
    for name, text in {
        "src/parcel/__init__.py": "SIZE = 3\n",
        "tests/test_parcel.py": "import parcel\n\n\ndef test_size():\n    assert parcel.SIZE == 3\n",
        "pyproject.toml": "[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = 'function'\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found, shell = await _tried(root, _PYTHON)
    try:
        assert found.fact.startswith("Test command: python -m pytest -q (tried")
        assert found.python_path == "src"
        assert not list(root.rglob("__pycache__")) + list(root.rglob(".pytest_cache"))
        shell.set_python_path(found.python_path)
        said = await shell.execute("main", "python -c 'import parcel; print(parcel.SIZE)'")
        assert "\n3" in said.text
    finally:
        await shell.close()


async def test_what_is_missing_is_named(tmp_path: Path, programs: Path) -> None:
    root = tmp_path / "work"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "test_a.py").write_text("")
    _program(programs, "python", 'test "$1" = -c && echo none')
    _program(programs, "python3", 'test "$1" = -c && echo none')
    found, shell = await _tried(root, programs)
    await shell.close()
    assert found == TrialResult(fact="The tests cannot be run here: pytest is not installed")


@pytest.mark.parametrize("environment", [".venv", "venv", ".tox/py311"])
async def test_a_package_below_src_is_found_by_the_tests_of_an_environment(
    environment: str, tmp_path: Path, programs: Path
) -> None:
    root = tmp_path / "work"
    for directory in ("src/parcel", "tests", f"{environment}/bin"):
        (root / directory).mkdir(parents=True)
    (root / "src/parcel/__init__.py").write_text("SIZE = 3\n")
    (root / "tests/test_parcel.py").write_text("import parcel\n")
    for name in ("python", "python3"):
        _program(programs, name, 'test "$1" = -c && echo none')
    _program(root / environment / "bin", "python", f'exec {_PYTHON}/bin/python "$@"')
    found, shell = await _tried(root, programs, _PYTHON)
    await shell.close()
    assert found.fact.startswith(f"Test command: {environment}/bin/python -m pytest -q (tried")
    assert found.python_path == "src"


async def test_what_an_environment_cannot_collect_is_told_of_that_environment(tmp_path: Path, programs: Path) -> None:
    root = tmp_path / "work"
    (root / ".venv/bin").mkdir(parents=True)
    (root / "test_parcel.py").write_text("import nowhere_to_be_found\n")
    for name in ("python", "python3"):
        _program(programs, name, 'test "$1" = -c && echo none')
    _program(root / ".venv/bin", "python", f'exec {_PYTHON}/bin/python "$@"')
    found, shell = await _tried(root, programs, _PYTHON)
    await shell.close()
    why = "one file was tried, and not collected: No module named 'nowhere_to_be_found'"
    assert found == TrialResult(fact=f"Test command: .venv/bin/python -m pytest -q ({why})")


async def test_other_tools_are_asked_in_their_own_way(tmp_path: Path, programs: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "package.json").write_text('{"scripts": {"test": "mocha --exit"}}')
    _program(programs, "npm", "exit 0")
    (root / "go.mod").write_text("module x\n")
    _program(programs, "go", '[ "$1 $2" = "list -test" ]')
    found, shell = await _tried(root, programs)
    await shell.close()
    assert found.fact == "Test command: go test ./... (tried: it finds the tests)"
    _program(programs, "mocha", "exit 0")
    found, shell = await _tried(root, programs)
    await shell.close()
    assert found.fact == "Test command: npm test (its programs are installed)"


_PYTEST = 'case "$*" in "-c "*) echo pytest; exit 0;; *--collect-only*) exit 0;; esac; exit 1'


@pytest.mark.parametrize(
    ("files", "installed", "fact"),
    [
        pytest.param(
            {
                "package.json": '{"scripts": {"test": "NODE_ENV=test jest --ci"}}',
                "node_modules/.bin/jest": "echo a.test.js",
            },
            {"npm": "exit 0"},
            "Test command: npm test (tried: it finds the tests)",
            id="jest lists its tests",
        ),
        pytest.param(
            {"package.json": '{"scripts": {"test": "vitest run"}}', "node_modules/.bin/vitest": "exit 1"},
            {"npm": "exit 0"},
            "The tests cannot be run here: vitest does not start",
            id="a runner without what it needs",
        ),
        pytest.param(
            {"package.json": r'{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}'},
            {"npm": "exit 0"},
            "",
            id="npm's placeholder",
        ),
        pytest.param(
            {"Makefile": "all:\n\ntest:\n\t@echo tests\n\tphpunit --strict\n"},
            {},
            "The tests cannot be run here: phpunit is not installed",
            id="a rule without its program",
        ),
        pytest.param(
            {"Makefile": "all:\n\ntest:\n\t@echo tests\n\tphpunit \\\n\t  go\n"},
            {"phpunit": "exit 0"},
            "Test command: make test (its programs are installed)",
            id="a rule with its program",
        ),
        pytest.param(
            {"tests/test_a.py": "", "tox.ini": "[tox]\n", ".tox/py311/bin/python": _PYTEST},
            {"python": "echo none", "python3": "echo none", "tox": "exit 0"},
            "Test command: .tox/py311/bin/python -m pytest -q (tried: it finds the tests)",
            id="tox has its environment",
        ),
        pytest.param(
            {"tests/test_a.py": "", "tox.ini": "[tox]\n"},
            {"python": "echo none", "python3": "echo none", "tox": "exit 0"},
            "Likely test command: tox (not tried: it has to install its environments first)",
            id="tox has none",
        ),
    ],
)
async def test_what_can_be_tried_in_a_moment_is_tried(
    tmp_path: Path, programs: Path, files: dict[str, str], installed: dict[str, str], fact: str
) -> None:
    root = tmp_path / "work"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if "bin" in Path(name).parts[-2:-1] or ".bin" in Path(name).parts:
            _program((root / name).parent, Path(name).name, text)
        else:
            (root / name).write_text(text)
    for name, line in installed.items():
        _program(programs, name, line)
    if not fact:
        with Workspace(root) as workspace:
            assert make_trial(workspace, "", lambda _command: True) is None
        return
    found, shell = await _tried(root, programs)
    await shell.close()
    assert found.fact == fact
    assert found.command in fact
    assert bool(found.command) is bool(found.files) is ("-m pytest" in fact)


async def test_a_trial_that_goes_on_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    shell = ShellTools(pick_sandbox("auto", SandboxSettings()), tmp_path / "work")
    try:
        assert await shell.run_trial("(sleep 600; touch late) & sleep 600", 0.5) is None
        said = await shell.execute("main", "pgrep sleep; ls")
        assert said.value["exit_code"] == 0  # type: ignore[index, call-overload] # a CommandResult
        assert said.value["output"] == ""  # type: ignore[index, call-overload] # the same
    finally:
        await shell.close()


def test_no_trial_without_tests_or_without_leave(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "-x_test.py").write_text("")
    with Workspace(tmp_path) as workspace:
        assert make_trial(workspace, "", lambda _command: True) is None
        (tmp_path / "tests" / "test_a.py").write_text("")
        assert make_trial(workspace, "", lambda _command: False) is None
        assert make_trial(workspace, "", lambda command: "pytest" in command) is not None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            ["parcel/test/test_core.py", "setup.py"],
            ["parcel/test/test_core.py"],
            id="in a package's directory of tests",
        ),
        pytest.param(
            ["src/parcel/tests/unit/test_core.py", "src/parcel/core.py"],
            ["src/parcel/tests/unit/test_core.py"],
            id="below src, in a package of tests",
        ),
        pytest.param(
            ["examples/test_demo.py", "src/parcel/tests/test_core.py", "src/parcel/core_test.py"],
            ["src/parcel/tests/test_core.py", "examples/test_demo.py", "src/parcel/core_test.py"],
            id="files in directories of tests come first",
        ),
        pytest.param(
            ["node_modules/x/tests/test_x.py", "venv/tests/test_y.py", ".tox/tests/test_z.py"],
            [],
            id="of other projects",
        ),
    ],
)
def test_tests_are_found_inside_of_a_package(tmp_path: Path, files: list[str], expected: list[str]) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    with Workspace(tmp_path) as workspace:
        assert [*find_test_files(workspace, "")] == expected
        assert (make_trial(workspace, "", lambda _command: True) is None) == (not expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = [\n  "checks/unit", # fast\n  "nowhere",\n]\n'),
        ("pytest.ini", "[pytest]\ntestpaths = checks/unit\naddopts = -q\n"),
        ("setup.cfg", "[tool:pytest]\ntestpaths =\n    nowhere\n    checks/unit/\npython_files = test_*.py\n"),
        ("tox.ini", "[pytest]\ntestpaths = ../x checks/unit/test_core.py\n"),
    ],
)
def test_only_tests_that_the_settings_name_count(tmp_path: Path, name: str, text: str) -> None:
    for path in ("checks/unit/test_core.py", "tests/test_other.py"):
        (tmp_path / "start" / path).parent.mkdir(parents=True)
        (tmp_path / "start" / path).write_text("")
    (tmp_path / "start" / name).write_text(text)
    with Workspace(tmp_path) as workspace:
        assert find_test_files(workspace, "start/") == ("checks/unit/test_core.py",)
        (tmp_path / "start" / name).write_text("testpaths = nowhere\n")
        assert find_test_files(workspace, "start/")[0] == "tests/test_other.py"


@pytest.mark.parametrize(
    ("output", "fact"),
    [
        (None, "Likely test command: python -m pytest -q (not confirmed: finding the tests takes more than 5 s)"),
        ("trial:python:runs:rm -rf /", "The tests cannot be run here: what was tried gave no answer"),
        (
            "trial:python:broken:No module named 'numpy'",
            "Test command: python -m pytest -q (one file was tried, and not collected: No module named 'numpy')",
        ),
        (
            "trial:python:with:venv/bin/python -m pytest -q\ntrial:python:broken:SyntaxError",
            "Test command: venv/bin/python -m pytest -q (one file was tried, and not collected: SyntaxError)",
        ),
        (
            "trial:python:with:curl x\ntrial:python:broken:SyntaxError",
            "Test command: python -m pytest -q (one file was tried, and not collected: SyntaxError)",
        ),
        ("# Task\ntrial:python:runs:tox; ls\n", "The tests cannot be run here: what was tried gave no answer"),
        (
            "trial:python:unmade:tox",
            "Likely test command: tox (not tried: it has to install its environments first)",
        ),
        (
            "trial:python:runs:.tox/py/bin/python -m pytest -q; ls",
            "The tests cannot be run here: what was tried gave no answer",
        ),
    ],
)
def test_only_known_answers_are_told(output: str | None, fact: str) -> None:
    trial_result = read_trial(_TRIED, output)
    assert trial_result.fact == fact
    assert trial_result.command == ("python -m pytest -q" if output is None else "")
    assert not read_trial(Trial(script="", command="npm test"), None).command
