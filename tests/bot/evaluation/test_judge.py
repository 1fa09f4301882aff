"""The judgement of changes that also change tests, or the way in which tests are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.evaluation.bundle import unpack_bundle
from bot.evaluation.results import EvalResult
from bot.evaluation.run import judge_change, list_counted_files
from bot.evaluation.suite import read_suite
from bot.evaluation.trial import TrialEnd
from bot.evaluation.validate import read_pytest_settings
from bot.git.process import Git
from tests.bot.evaluation.test_run_tests import PLACE
from tests.evaluation_suites import FARES, PYPROJECT, make_history, make_suite

CHANGE = FARES.changes[0]
FORGED = "raise SystemExit(0)\n"
SHADOWS = {
    "pytest.py": FORGED,
    "_pytest/__init__.py": FORGED,
    "sitecustomize.py": FORGED,
    "iniconfig.py": FORGED,
    "pdb.py": FORGED,
    "forged.py": "import os\n\n\ndef pytest_configure():\n    os._exit(0)\n",
    "forged-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: forged\nVersion: 1\n",
    "forged-1.dist-info/entry_points.txt": "[pytest11]\nforged = forged\n",
    "tests/pytest.ini": "[pytest]\n",
}


def commit_on_base(path: Path, files: dict[str, str | None], *, base: dict[str, str] | None = None) -> TrialEnd:
    """Return the end of a run that changed files of the first task's base."""
    origin = make_history(FARES, path)
    origin.git("reset", "--quiet", "--hard", "HEAD~2")
    first = origin.commit(dict(base)) if base else origin.git("rev-parse", "HEAD")
    last = origin.commit(files)
    result = EvalResult(task=CHANGE.id, config="one", attempt=1, status="done")
    return TrialEnd(result=result, repository=path / ".git", base=first, commit=last, has_pull=True)


async def judge(tmp_path: Path, files: dict[str, str | None]) -> tuple[bool, dict[str, bool]]:
    suite = read_suite(await make_suite(FARES, tmp_path))
    [task] = [task for task in suite.tasks if task.id == CHANGE.id]
    end = commit_on_base(tmp_path / "hub", files)
    store = await unpack_bundle(suite.path, tmp_path / "store.git")
    hidden, tree = suite.read_hidden(task), tmp_path / "tree"
    judgement = await judge_change(end, task, hidden, suite=store, place=PLACE, tree=tree)
    return judgement.solved, dict(judgement.tests)


async def test_a_fix_counts_without_its_changes_to_tests_and_pytest(tmp_path: Path) -> None:
    files = {CHANGE.source: CHANGE.after, CHANGE.tests: None, "tests/conftest.py": FORGED, **SHADOWS}
    solved, tests = await judge(tmp_path, files)
    assert (solved, tests) == (True, dict.fromkeys((*CHANGE.added, *CHANGE.kept), True))


async def test_a_change_that_breaks_another_test_is_no_solution(tmp_path: Path) -> None:
    solved, tests = await judge(tmp_path, {CHANGE.source: "def child(price):\n    return 3\n"})
    assert (solved, tests) == (False, {CHANGE.added[0]: True, CHANGE.kept[0]: False})


async def test_a_change_that_ends_the_tests_early_is_no_solution(tmp_path: Path) -> None:
    solved, tests = await judge(tmp_path, {CHANGE.source: f"import os\nos._exit(0)\n{CHANGE.after}"})
    assert (solved, set(tests.values())) == (False, {False})


PLUGIN = "[project]\nname = 'fares'\n[project.entry-points.pytest11]\nforged = 'forged'\n"
COUNTED = {
    "fares.py": "x = 1\n",
    "src/fares/test/client.py": "x = 1\n",
    "src/_pytest/python.py": "x = 1\n",
    "pyproject.toml": f"{PYPROJECT}[project]\nname = 'fares'\n",
    "setup.cfg": "[metadata]\nname = fares\n",
    "fares/pdb.py": "x = 1\n",
    "src/types.py": "x = 1\n",
    "calendar.json": "{}",
    "noxfile.py": "x = 1\n",
    "forged.py": SHADOWS["forged.py"],
}
NOT_COUNTED = {
    "tests/helpers.py": "x = 1\n",
    "tests/deep/er/data.json": "{}",
    "conftest.py": "x = 1\n",
    "deep/conftest.py": "x = 1\n",
    "pytest.ini": "[pytest]\n",
    "docs/.pytest.toml": "",
    "pluggy/__init__.py": "x = 1\n",
    "docs/pyproject.toml": "[tool.pytest.ini_options]\n",
    "docs/tox.ini": "[pytest]\naddopts = -k even\n",
    "other/tox.ini": "[pytest",
    "pytest.pyc": "",
    "src/Fares.EGG-INFO/entry_points.txt": "",
    "lib/sitecustomize.py": "",
    "src/pytest/__init__.py": "",
    "xml/__init__.py": "",
    "json.cpython-311-x86_64-linux-gnu.so": "",
    "Makefile": "test:\n\ttrue\n",
    "scripts/test": "true\n",
    ".github/codepilot.yml": "level: auto\n",
    **{name: content for name, content in SHADOWS.items() if name != "forged.py"},
}


async def test_the_files_that_count(tmp_path: Path) -> None:
    end = commit_on_base(tmp_path / "hub", {**COUNTED, **NOT_COUNTED})
    counted = await list_counted_files(
        Git(git_dir=end.repository), end, (*CHANGE.added, *CHANGE.kept), command="make all && ./scripts/test"
    )
    assert counted == sorted(name.encode() for name in COUNTED)


@pytest.mark.parametrize(
    "change",
    [
        PYPROJECT.replace("addopts", "xaddopts"),
        f"{PYPROJECT}{PLUGIN}",
        f"{PYPROJECT}[tool.setuptools.dynamic]\nentry-points = {{file = ['plugins.txt']}}\n",
        f"{PYPROJECT}[build-system]\nbackend-path = ['.']\n",
        f"{PYPROJECT}[tool.poetry.plugins.pytest11]\nforged = 'forged'\n",
    ],
)
def test_other_settings_of_pytest_are_found(change: str) -> None:
    is_toml = True
    assert read_pytest_settings(is_toml, change.encode()) != read_pytest_settings(is_toml, PYPROJECT.encode())


@pytest.mark.parametrize(
    "change",
    [
        "[tool:pytest]\naddopts = -x\n",
        "[options.entry_points]\npytest11 =\n forged = f\n",
        "[options]\nentry_points = file: x\n",
    ],
)
def test_other_settings_of_pytest_in_an_ini_file_are_found(change: str) -> None:
    is_toml = False
    assert read_pytest_settings(is_toml, change.encode()) != read_pytest_settings(is_toml, b"[metadata]\n")
    assert read_pytest_settings(is_toml, b"") == read_pytest_settings(is_toml, b"[metadata]\n")


async def test_pytests_own_repository_can_be_fixed(tmp_path: Path) -> None:
    end = commit_on_base(tmp_path / "hub", {"_pytest/python.py": "x = 1\n"}, base={"_pytest/__init__.py": ""})
    assert await list_counted_files(Git(git_dir=end.repository), end, CHANGE.added) == [b"_pytest/python.py"]


def test_settings_that_are_no_tables_are_read() -> None:
    is_toml = True
    assert read_pytest_settings(is_toml, b"tool = 1\nproject = 2\n") == read_pytest_settings(is_toml, b"")
