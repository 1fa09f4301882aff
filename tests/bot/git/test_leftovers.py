"""What build and test tools leave in a workspace is no part of a change, unless somebody wants it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bot.git import tree as tree_module
from bot.git.leftovers import FILES, FOLDERS, LeftoverRule, find_leftovers
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.origin import Origin


def left(untracked: Sequence[str], tracked: Sequence[str] = ("a.py",)) -> list[str]:
    """Return the paths that count as leftovers."""
    new = {*map(str.encode, untracked)}
    return [item.path.decode() for item in find_leftovers(new, {*map(str.encode, tracked)}, new)]


@pytest.mark.parametrize("rule", FOLDERS, ids=lambda rule: rule.names[0])
def test_each_directory_is_left_out_unless_a_file_below_is_tracked(rule: LeftoverRule) -> None:
    for name in rule.names:
        folder = f"app/{name.replace('*', 'x')}"
        files = [f"{folder}/sub/file.txt", f"{folder}/{rule.marker or 'other'}"]
        tracked = ["a.py", *(f"app/{sibling}" for sibling in rule.siblings[:1])]
        assert left(files, tracked) == [f"{folder}/"]
        assert left(files, [*tracked, f"{folder}/sub/kept.txt"]) == []
        if rule.siblings:
            assert left(files) == []
        if rule.marker:
            assert left(files[:1]) == []


@pytest.mark.parametrize("rule", FILES, ids=lambda rule: rule.names[0])
def test_each_file_is_left_out_unless_the_repository_has_one_of_its_kind(rule: LeftoverRule) -> None:
    for name in rule.names:
        file = name.replace("[0-9]", "1").replace("[co]", "c").replace("[op]", "p").replace("*", "1")
        assert left([f"app/{file}", "app/a.txt"]) == [f"app/{file}"]
        assert left([f"app/{file}"], ["a.py", f"lib/{file}"]) == []


def test_similar_names_are_no_leftovers() -> None:
    names = [
        "core/a.py",
        "src/core.py",
        "core.js",
        ".coveragerc",
        "origin",
        "build/a",
        "dist/a",
        "target/a",
        "bundle/a",
    ]
    assert left([*names, "vendor/a", "env/bin/a", "coverage/a", "a.log", "core.d"]) == []


def test_a_moved_directory_is_no_leftover_unless_it_is_a_cache() -> None:
    tracked = ["old/package.json", "old/build/run.js", "old/node_modules/a.js"]
    assert left([path.replace("old/", "new/") for path in tracked], tracked) == ["new/node_modules/"]


async def test_a_build_beside_a_wanted_file_is_left_out(origin: Origin, tmp_path: Path) -> None:
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.commit({"a.py": "1\n"}))
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / "package.json").write_text("{}")
        (tree.path / "dist").mkdir()
        (tree.path / "dist/app.js").write_text("js\n")
        change = await tree.change(lambda path: path == "package.json")
    assert [file.path for file in change.files] == ["package.json"]


@pytest.mark.parametrize(("content", "count"), [("", 600), ("\n" * 20_000, 3)])
async def test_a_patch_of_leftovers_has_a_limit(origin: Origin, tmp_path: Path, content: str, count: int) -> None:
    sha = origin.commit({"package.json": "{}"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / "dist").mkdir()
        for number in range(count):
            (tree.path / f"dist/{number}.js").write_text(content)
        change = await tree.change()
    assert count / 3 <= change.exclusions.patch.count("diff --git ") < count
    assert len(change.exclusions.patch) <= 64 * 1024


async def test_a_leftover_that_grows_while_it_is_read_is_in_no_patch(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "select_small_files", lambda files, _limit: files)
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.commit({"a.py": "1\n"}))
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / "core").write_text("x" * 70_000)
        assert (await tree.change()).exclusions.patch == ""


async def test_leftovers_are_named_and_small_ones_are_in_a_patch(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({"a.py": "1\n", "package.json": "{}", ".gitignore": "!kept.orig\n!/wanted/\n!wanted/**\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        for name, content in {
            "a.py": "2\n",
            "a.py.orig": "merge\n",
            "kept.orig": "kept\n",
            "core": "x" * 100_000,
            "dist/app.js": "js\n",
            "node_modules/a/index.js": "1",
            "node_modules/b/index.js": "2",
            "sub/__pycache__/a.pyc": "0",
            "sub/Thumbs.db": "0",
            "written~": "by a tool\n",
            "wanted/pyvenv.cfg": "",
        }.items():
            (tree.path / name).parent.mkdir(parents=True, exist_ok=True)
            (tree.path / name).write_text(content)
        change = await tree.change(lambda path: path == "written~")
    assert [file.path for file in change.files] == ["a.py", "kept.orig", "wanted/pyvenv.cfg", "written~"]
    [note] = change.notes
    names = "`a.py.orig`, `core`, `dist/`, `node_modules/` (2 files), `sub/Thumbs.db`, `sub/__pycache__/`"
    assert note == (
        f"Left out, since build and test tools leave such files: {names}. To publish one, name it in `.gitignore` with "
        "`!`, or track a file of this kind."
    )
    assert "+++ b/a.py.orig\n" in change.exclusions.patch
    assert "+++ b/dist/app.js\n" in change.exclusions.patch
    assert change.exclusions.patch.count("+++ b/") == 2
