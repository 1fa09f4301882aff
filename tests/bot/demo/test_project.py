"""Repositories of all sorts, as people have them, brought to the demo's hub."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.demo.project import DemoError, copy_repository
from localhub import LocalHub
from tests.origin import Origin, git

FILES = {"calc.py": "def add(a, b):\n    return a + b + 1\n", 'docs/with "quotes" and ä.md': "# Docs\n"}


def plain(folder: Path) -> Path:
    origin = Origin(folder / "calc")
    origin.commit({"calc.py": "old\n"})
    origin.commit(FILES)
    return origin.path


def shallow(folder: Path) -> Path:
    git(folder, "clone", "--quiet", "--depth=1", f"file://{plain(folder)}", "shallow")
    return folder / "shallow"


def tagged_like_the_branch(folder: Path) -> Path:
    git(plain(folder), "tag", "main", "HEAD~1")
    return folder / "calc"


def detached(folder: Path) -> Path:
    git(plain(folder), "checkout", "--quiet", "--detach")
    return folder / "calc"


def oddly_named(folder: Path) -> Path:
    return plain(folder).rename(folder / "mein Rechner für später")


def below(folder: Path) -> Path:
    return plain(folder) / "docs"


def a_work_tree(folder: Path) -> Path:
    git(plain(folder), "worktree", "add", "--quiet", "-b", "topic", str(folder / "beside"))
    return folder / "beside"


def bare(folder: Path) -> Path:
    git(folder, "clone", "--quiet", "--bare", str(plain(folder)), "calc.git")
    return folder / "calc.git"


def partial(folder: Path) -> Path:
    git(plain(folder), "config", "uploadpack.allowFilter", "true")
    git(folder, "clone", "--quiet", "--filter=blob:none", f"file://{folder / 'calc'}", "partial")
    (folder / "calc").rename(folder / "gone")  # nobody is there to fetch the rest from
    return folder / "partial"


def of_another_format(folder: Path) -> Path:
    (folder / "new").mkdir()
    git(folder / "new", "init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    for name, content in FILES.items():
        (folder / "new" / name).parent.mkdir(exist_ok=True)
        (folder / "new" / name).write_text(content)
    git(folder / "new", "add", ".")
    git(folder / "new", "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet", "-m", "First")
    return folder / "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A repository, and what is to come of it."""

    make: Callable[[Path], Path]
    name: str = "calc"
    branch: str = "main"
    commits: int = 2


@pytest.mark.parametrize(
    "case",
    [
        Case(make=plain),
        Case(make=shallow, name="shallow", commits=1),
        Case(make=tagged_like_the_branch),
        Case(make=detached),
        Case(make=oddly_named, name="mein-Rechner-f-r-sp-ter"),
        Case(make=below),
        Case(make=a_work_tree, name="beside", branch="topic"),
        Case(make=bare),
        Case(make=partial, name="partial", commits=1),
        Case(make=of_another_format, name="new", commits=1),
    ],
    ids=lambda case: case.make.__name__,
)
async def test_a_repository_of_any_sort_is_brought_to_the_hub(hub: LocalHub, tmp_path: Path, case: Case) -> None:
    copy = await copy_repository(case.make(tmp_path), tmp_path / "own.git")
    hub.add_user("mona")
    repo = hub.add_repo(f"mona/{copy.name}", owner="mona", source=copy.path)
    assert (repo.name, repo.default_branch, set(hub.branches(repo))) == (case.name, case.branch, {case.branch})
    for path, content in FILES.items():
        assert git(repo.path, "show", f"{case.branch}:{path}") == content.strip()
    assert git(repo.path, "rev-list", "--count", case.branch) == str(case.commits)
    assert bool(copy.note) is (case.commits == 1)
    assert "\n" not in copy.note


def test_the_hub_takes_a_branch_for_itself_where_a_tag_is_called_the_same(hub: LocalHub, tmp_path: Path) -> None:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", source=tagged_like_the_branch(tmp_path))
    assert repo.default_branch == "main"


def empty(folder: Path) -> Path:
    git(folder, "init", "--quiet", "calc")
    return folder / "calc"


def no_repository(folder: Path) -> Path:
    return folder


def somebody_elses(folder: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    for path in [plain(folder), *(folder / "calc").rglob("*")]:
        os.chown(path, 12345, 12345)
    return folder / "calc"


def without_its_files(folder: Path) -> Path:
    git(plain(folder), "config", "uploadpack.allowFilter", "true")
    git(folder, "clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{folder / 'calc'}", "partial")
    (folder / "calc").rename(folder / "gone")
    return folder / "partial"


@pytest.mark.parametrize(
    ("make", "why", "remedy"),
    [
        (empty, "has no commit yet", "git commit"),
        (no_repository, "is not a git repository", "git init"),
        (somebody_elses, "belongs to another user", "cp -r"),
        (without_its_files, "files of the last commit", "checkout HEAD"),
    ],
)
async def test_one_that_cannot_be_is_said_why(
    tmp_path: Path, make: Callable[[Path], Path], why: str, remedy: str
) -> None:
    with pytest.raises(DemoError, match=why) as caught:
        await copy_repository(make(tmp_path), tmp_path / "own.git")
    assert remedy in str(caught.value)
    assert "operator" not in str(caught.value)
