"""The choice of tests of `make quick`: what changed, and which tests are nearest to it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import grimp
import pytest

from tests.script_files import load_script

_FILES = {"bot/permissions/levels.py": "LEVELS = 1\n", "bot/page.md.j2": "a page\n", "README.md": "read me\n"}
_IMPORTS = {
    "bot.pipeline.worker": ["bot.permissions.levels"],
    "bot.permissions": ["bot.permissions.caps"],
    "bot.jobs.admission": ["bot.permissions.caps"],
    "tests.bot.jobs.test_admission": ["bot.jobs.admission"],
    "tests.bot.permissions.test_levels": ["bot.permissions.levels"],
    "tests.bot.permissions.test_package": ["bot.permissions"],
    "tests.acceptance.test_commands": ["bot.permissions.levels", "bot.pipeline.worker"],
    "tests.builders": ["bot.domain.job"],
    "tests.bot.test_jobs": ["tests.builders"],
}


@pytest.fixture(scope="module")
def quick() -> ModuleType:
    return load_script("quick")


@pytest.fixture
def repository(tmp_path: Path, quick: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose branch `work` begins at `main`, for which the script is."""
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (
        "init --quiet --initial-branch=main",
        "add --all",
        "commit --quiet -m start",
        "switch --quiet -c work",
    ):
        _git(tmp_path, *words.split())
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    return tmp_path


def _git(repository: Path, *words: str) -> None:
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.com"]
    subprocess.run(["git", *identity, *words], cwd=repository, check=True, capture_output=True)


def _graph(further: Iterable[str] = ()) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    for importer, imported in [(each, one) for each, ones in _IMPORTS.items() for one in ones]:
        graph.add_import(importer=importer, imported=imported)
    for importer in further:
        graph.add_import(importer=importer, imported="bot.permissions.levels")
    return graph


def _nearest(quick: ModuleType, *changed: str, further: Iterable[str] = ()) -> list[str]:
    return [str(path) for path in quick.nearest_tests(map(Path, changed), _graph(further))]


def test_where_nothing_changed_no_test_is_chosen(repository: Path, quick: ModuleType) -> None:
    assert quick.changed_files() == []
    assert _nearest(quick) == []


def test_a_change_counts_whether_it_is_committed_staged_or_new(repository: Path, quick: ModuleType) -> None:
    (repository / "bot/permissions/levels.py").write_text("LEVELS = 2\n")
    _git(repository, "commit", "--quiet", "--all", "-m", "change")
    (repository / "staged.py").touch()
    _git(repository, "add", "staged.py")
    (repository / "new.py").touch()
    assert quick.changed_files() == [Path("bot/permissions/levels.py"), Path("new.py"), Path("staged.py")]


def test_what_main_got_meanwhile_is_no_change(repository: Path, quick: ModuleType) -> None:
    _git(repository, "switch", "--quiet", "main")
    (repository / "bot/permissions/levels.py").write_text("LEVELS = 3\n")
    _git(repository, "commit", "--quiet", "--all", "-m", "meanwhile")
    _git(repository, "switch", "--quiet", "work")
    assert quick.changed_files() == []


def test_files_that_are_not_python_or_were_deleted_choose_no_test(repository: Path, quick: ModuleType) -> None:
    (repository / "README.md").write_text("read this\n")
    (repository / "bot/page.md.j2").write_text("another page\n")
    (repository / "bot/permissions/levels.py").unlink()
    assert quick.changed_files() == []


def test_origin_is_compared_with_rather_than_a_main_of_our_own(repository: Path, quick: ModuleType) -> None:
    (repository / "here.py").touch()
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "-m", "here")
    _git(repository, "branch", "--force", "main", "work")
    assert quick.changed_files() == []
    _git(repository, "update-ref", "refs/remotes/origin/main", "work~1")
    assert quick.changed_files() == [Path("here.py")]


def test_without_main_it_ends_and_says_what_is_missing(repository: Path, quick: ModuleType) -> None:
    _git(repository, "branch", "--delete", "--force", "main")
    with pytest.raises(SystemExit, match="neither origin/main nor main"):
        quick.changed_files()


def test_a_module_chooses_the_tests_that_import_it(quick: ModuleType) -> None:
    chosen = _nearest(quick, "bot/permissions/levels.py")
    assert chosen == ["tests/acceptance/test_commands.py", "tests/bot/permissions/test_levels.py"]


def test_a_module_that_no_test_imports_chooses_those_of_its_importers(quick: ModuleType) -> None:
    assert _nearest(quick, "bot/domain/job.py") == ["tests/bot/test_jobs.py"]


def test_who_imports_a_package_imports_what_it_is_made_of(quick: ModuleType) -> None:
    assert _nearest(quick, "bot/permissions/caps.py") == _nearest(quick, "bot/permissions/__init__.py")
    assert _nearest(quick, "bot/permissions/caps.py") == ["tests/bot/permissions/test_package.py"]


def test_a_test_chooses_itself_and_a_file_outside_the_packages_nothing(quick: ModuleType) -> None:
    assert _nearest(quick, "tests/bot/test_jobs.py") == ["tests/bot/test_jobs.py"]
    assert _nearest(quick, "bench/soak.py") == []


def test_of_many_tests_those_of_the_same_folder_are_chosen(quick: ModuleType) -> None:
    near = [f"tests.bot.permissions.test_{number}" for number in range(quick.MOST - 1)]
    far = [f"tests.bot.server.test_{number}" for number in range(quick.MOST)]
    chosen = _nearest(quick, "bot/permissions/levels.py", further=[*far, *near])
    assert len(chosen) == quick.MOST
    assert {str(Path(each).parent) for each in chosen} == {"tests/bot/permissions"}
