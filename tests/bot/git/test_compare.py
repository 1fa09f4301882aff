"""The changed files of a pull request and their patch, from real git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.domain.difference import ChangedFile
from bot.git import compare as compare_module
from bot.git import workspace as workspace_module
from bot.git.compare import Comparison
from bot.git.errors import CloneError
from bot.git.mirror import Source
from bot.git.process import ProcessBounds
from bot.git.workspace import Workspaces
from tests.differences import show_difference
from tests.origin import Origin

TEXT = "".join(f"line {number}\n" for number in range(1, 41))
# Git's patterns take exponential time.
SLOW_PATTERN = f"{'*a' * 60}b"


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit({"a.txt": "1\n", "b.txt": "b\n", "old.py": TEXT, "gone.py": "x\ny\n"})
    origin.git("checkout", "--quiet", "-b", "topic")
    return origin


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "state")


def sources(origin: Origin) -> tuple[Source, Source]:
    base, head = (
        Source(url=origin.url, token="", ref=f"refs/heads/{branch}", sha=origin.head(branch))
        for branch in ("main", "topic")
    )
    return base, head


async def compare(workspaces: Workspaces, origin: Origin) -> Comparison:
    return await workspaces.compare(1, *sources(origin))


async def facts(workspaces: Workspaces, origin: Origin) -> dict[str, str]:
    return {file.path: file.facts for file in (await compare(workspaces, origin)).files}


async def test_it_has_changes_of_the_branch_and_not_of_the_base(workspaces: Workspaces, origin: Origin) -> None:
    origin.commit({"a.txt": "2\n"})
    origin.git("checkout", "--quiet", "main")
    origin.commit({"b.txt": "changed on main\n"})
    assert await facts(workspaces, origin) == {"a.txt": "+1 -1"}
    assert "-1\n+2" in await show_difference(workspaces, *sources(origin))


async def test_every_kind_of_change_is_named_with_its_size(workspaces: Workspaces, origin: Origin) -> None:
    (origin.path / "old.py").rename(origin.path / "new.py")
    (origin.path / "gone.py").unlink()
    (origin.path / "b.txt").chmod(0o755)
    (origin.path / "link").symlink_to("b.txt")
    origin.commit({"new.py": TEXT.replace("line 5\n", "line five\n"), "data.bin": b"\0\1\2", "a.txt": "1\n2\n"})
    assert await facts(workspaces, origin) == {
        "a.txt": "+1",
        "b.txt": "mode 100644 to 100755",
        "data.bin": "new, binary, 3 bytes",
        "gone.py": "deleted, -2",
        "link": "symbolic link, new, +1",
        "new.py": "renamed from old.py, +1 -1",
    }


async def test_the_patch_of_a_renamed_file_has_only_its_changes(workspaces: Workspaces, origin: Origin) -> None:
    (origin.path / "old.py").rename(origin.path / "new.py")
    origin.commit({"new.py": TEXT.replace("line 5\n", "line five\n")})
    comparison = await compare(workspaces, origin)
    [section] = await workspaces.read_sections(1, comparison, comparison.files)
    assert (section.path, section.previous) == ("new.py", "old.py")
    [hunk] = section.hunks
    assert [line[:3] for line in hunk.numbered if line[0] != " "] == [("-", 5, 5), ("+", 6, 5)]


async def test_attributes_of_the_base_and_not_of_the_head_mark_files(workspaces: Workspaces, origin: Origin) -> None:
    origin.git("checkout", "--quiet", "main")
    origin.commit({".gitattributes": "gen.py linguist-generated\nlib/** linguist-vendored=true\nraw.txt -diff\n"})
    origin.git("checkout", "--quiet", "topic")
    origin.git("rebase", "--quiet", "main")
    names = ("gen.py", "lib/x.py", "raw.txt", "evil.py", "package-lock.json")
    origin.commit(dict.fromkeys(names, "x\n") | {".gitattributes": "evil.py linguist-generated\n"})
    marks = {file.path: file.mark for file in (await compare(workspaces, origin)).files}
    assert marks == {
        ".gitattributes": "",
        "gen.py": "generated",
        "lib/x.py": "vendored",
        "raw.txt": "generated",
        "evil.py": "",
        "package-lock.json": "lock file",
    }


@pytest.mark.parametrize(
    ("path", "attributes", "mark"),
    [
        ("a/yarn.lock", {}, "lock file"),
        ("a/yarn.lock", {"linguist-generated": "false"}, ""),
        ("vendor/x.go", {"linguist-vendored": "unset"}, ""),
        ("vendor/x.go", {}, "vendored"),
        ("x_pb2.py", {}, "generated"),
        ("x.js", {"linguist-generated": "true"}, "generated"),
        ("dist/x.min.js", {}, "minified"),
        ("src/admin.js", {}, ""),
        ("src/unlock.py", {}, ""),
    ],
)
def test_names_mark_files_unless_attributes_say_otherwise(path: str, attributes: dict[str, str], mark: str) -> None:
    assert ChangedFile(path=path, status="modified").with_mark(attributes).mark == mark


def test_a_new_file_of_one_long_line_is_minified() -> None:
    file = ChangedFile(path="a.js", status="added", added=1, size=9_000)
    assert file.with_mark({}).mark == "minified"


async def test_hostile_attributes_take_bounded_time_and_mark_nothing(
    workspaces: Workspaces, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_module, "_ATTRIBUTE_BOUNDS", ProcessBounds(seconds=20.0, cpu_seconds=1))
    origin.git("checkout", "--quiet", "main")
    origin.commit({".gitattributes": f"{SLOW_PATTERN} linguist-generated\n"})
    origin.git("checkout", "--quiet", "topic")
    origin.git("rebase", "--quiet", "main")
    origin.commit({"a" * 200: "x\n", "yarn.lock": "x\n"})
    assert await facts(workspaces, origin) == {"a" * 200: "new, +1", "yarn.lock": "lock file, new, +1"}


async def test_renames_that_take_too_long_are_deletions_and_additions(
    workspaces: Workspaces, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    (origin.path / "old.py").rename(origin.path / "new.py")
    origin.commit({"new.py": TEXT.replace("line 5\n", "line five\n")})
    monkeypatch.setattr(compare_module, "_BOUNDS", ProcessBounds(output_bytes=10))
    comparison = await compare(workspaces, origin)
    monkeypatch.undo()
    assert {file.path: file.facts for file in comparison.files} == {"new.py": "new, +40", "old.py": "deleted, -40"}
    sections = await workspaces.read_sections(1, comparison, comparison.files)
    assert [section.path for section in sections] == ["new.py", "old.py"]


HOSTILE_NAMES = ('q"uote\\.py', "line\nfeed.py", "*[a].py", "`code` <b>.py", "\u202eevil.py", os.fsdecode(b"\xff.py"))


async def test_hostile_names_are_read_as_they_are(workspaces: Workspaces, origin: Origin) -> None:
    deep = "/".join(["d" * 99] * 30)
    paths = {*HOSTILE_NAMES, f"{deep}/x.py"}
    origin.commit(dict.fromkeys(paths, "x\n"))
    comparison = await compare(workspaces, origin)
    sections = await workspaces.read_sections(1, comparison, comparison.files)
    assert {file.path for file in comparison.files} == {section.path for section in sections} == paths


async def test_a_huge_file_does_not_hide_those_that_follow(
    workspaces: Workspaces, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.commit({"a.txt": TEXT * 50, "z.py": "x = 1\n"})
    monkeypatch.setattr(workspace_module, "_PATCH_BYTES", 2_000)
    monkeypatch.setattr(workspace_module, "_FILE_PATCH_BYTES", 1_000)
    comparison = await compare(workspaces, origin)
    sections = {section.path: section for section in await workspaces.read_sections(1, comparison, comparison.files)}
    assert sections["z.py"].hunks[0].lines == ("+x = 1",)
    assert 0 < len(sections["a.txt"].hunks[0].lines) < 2_000


async def test_a_file_that_becomes_a_link_has_both_sides(workspaces: Workspaces, origin: Origin) -> None:
    (origin.path / "b.txt").unlink()
    (origin.path / "b.txt").symlink_to("a.txt")
    origin.commit()
    comparison = await compare(workspaces, origin)
    [section] = await workspaces.read_sections(1, comparison, comparison.files)
    assert [hunk.lines[0] for hunk in section.hunks] == ["-b", "+a.txt"]
    assert [file.facts for file in comparison.files] == ["symbolic link, mode 100644 to 120000, +1 -1"]


async def test_branches_without_a_common_commit_differ_completely(workspaces: Workspaces, origin: Origin) -> None:
    origin.git("checkout", "--quiet", "--orphan", "other")
    origin.git("branch", "-D", "topic")
    origin.git("checkout", "--quiet", "-b", "topic")
    origin.commit({"a.txt": "alone\n"})
    assert "-1\n+alone" in await show_difference(workspaces, *sources(origin))


async def test_no_change_is_no_difference(workspaces: Workspaces, origin: Origin) -> None:
    assert await show_difference(workspaces, *sources(origin)) == ""


async def test_a_failed_fetch_of_a_branch_is_reported(workspaces: Workspaces, origin: Origin) -> None:
    here = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    gone = Source(url=origin.url, token="", ref="refs/heads/gone", sha="1" * 40)
    with pytest.raises(CloneError, match="gone"):
        await workspaces.compare(1, here, gone)


async def test_too_many_files_for_renames_have_none_in_a_part_of_the_patch(
    workspaces: Workspaces, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_module, "_RENAMES", ("--find-renames=50%", "-l1"))
    other = TEXT.replace("line", "other")
    origin.commit({"other.py": other, "third.py": TEXT.upper()})
    origin.git("checkout", "--quiet", "-B", "main")
    origin.git("checkout", "--quiet", "topic")
    for name in ("old", "other", "third"):
        (origin.path / f"{name}.py").unlink()
    origin.commit(
        {"a1.py": TEXT.replace("line 5\n", "x\n"), "b1.py": other.replace(" 5\n", "x\n"), "c1.py": TEXT.upper() + "x\n"}
    )
    comparison = await workspaces.compare(1, *sources(origin))
    files = [file for file in comparison.files if file.path in {"a1.py", "old.py"}]
    assert [file.previous for file in files] == ["", ""]
    sections = await workspaces.read_sections(1, comparison, files)
    assert {section.path: section.previous for section in sections} == {"a1.py": "", "old.py": "old.py"}
