"""What a setup leaves in a workspace is no part of the agent's change, and the base branch's file is read from git."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.git.errors import WorkspaceError
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.origin import Origin

REPO = 4711
FILES = {"a.py": "x = 1\n", "lock": "1\n", "old.txt": "old\n", "src/b.py": "y = 1\n"}


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "origin")


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "state")


def source(origin: Origin, sha: str) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)


async def test_what_was_given_is_no_change_until_it_is_changed(origin: Origin, workspaces: Workspaces) -> None:
    async with workspaces.open("job-1", REPO, source(origin, origin.commit(FILES))) as tree:
        (tree.path / "lock").write_text("2\n")
        (tree.path / "old.txt").unlink()
        (tree.path / "made.txt").write_text("made\n")
        (tree.path / "src/gen").mkdir()
        (tree.path / "src/gen/c.py").write_text("z = 1\n")
        await tree.take_as_given([])
        assert not await tree.change()
        (tree.path / "a.py").write_text("x = 2\n")
        (tree.path / "src/gen/c.py").write_text("z = 2\n")
        (tree.path / "old.txt").write_text("new\n")
        change = await tree.change()
    assert [(file.path, file.status) for file in change.files] == [
        ("a.py", "modified"),
        ("old.txt", "modified"),
        ("src/gen/c.py", "added"),
    ]


async def test_a_file_that_the_agent_deletes_after_setup_is_a_deletion(origin: Origin, workspaces: Workspaces) -> None:
    async with workspaces.open("job-1", REPO, source(origin, origin.commit(FILES))) as tree:
        (tree.path / "lock").write_text("2\n")
        await tree.take_as_given([])
        (tree.path / "lock").unlink()
        (tree.path / "src/b.py").unlink()
        change = await tree.change()
    assert [(file.path, file.status) for file in change.files] == [("lock", "deleted"), ("src/b.py", "deleted")]


async def test_nothing_of_what_is_left_out_is_ever_a_change(origin: Origin, workspaces: Workspaces) -> None:
    async with workspaces.open("job-1", REPO, source(origin, origin.commit(FILES))) as tree:
        (tree.path / ".venv/bin").mkdir(parents=True)
        await tree.take_as_given([".venv", "src/kept", "one.txt"])
        (tree.path / ".venv/bin/evil").write_text("evil\n")
        (tree.path / "src/kept").mkdir()
        (tree.path / "src/kept/x").write_text("x\n")
        (tree.path / "one.txt").write_text("1\n")
        (tree.path / ".venvs").mkdir()
        (tree.path / ".venvs/y").write_text("y\n")
        change = await tree.change()
    assert [file.path for file in change.files] == [".venvs/y"]


async def test_a_file_is_read_as_the_commit_has_it_without_a_checkout(origin: Origin, workspaces: Workspaces) -> None:
    before = origin.commit({".github/codepilot.yml": "setup: [make]\n"})
    after = origin.commit({".github/codepilot.yml": "setup: [evil]\n"})
    for sha, text in ((before, b"setup: [make]\n"), (after, b"setup: [evil]\n")):
        file = await workspaces.read(REPO, source(origin, sha), ".github/codepilot.yml", limit=100)
        assert file is not None
        assert file.content == text
    assert await workspaces.read(REPO, source(origin, after), ".github/other.yml", limit=100) is None


async def test_no_attribute_or_filter_of_the_repository_touches_what_is_read(
    origin: Origin, workspaces: Workspaces
) -> None:
    sha = origin.commit({".gitattributes": "* text eol=lf ident\n", "f.yml": "a: $Id$\r\n"})
    file = await workspaces.read(REPO, source(origin, sha), "f.yml", limit=100)
    assert file is not None
    assert file.content.startswith(b"a: $Id$")


async def test_what_is_no_file_or_too_long_is_refused_by_name(origin: Origin, workspaces: Workspaces) -> None:
    (origin.path / "link.yml").symlink_to("/etc/passwd")
    sha = origin.commit({"folder/x": "1\n", "long.yml": "x" * 101})
    for path, told in (("link.yml", "a symbolic link"), ("folder", "no file"), ("long.yml", "the limit is 100")):
        with pytest.raises(WorkspaceError, match=told) as caught:
            await workspaces.read(REPO, source(origin, sha), path, limit=100)
        assert f"`{path}`" in caught.value.reason


async def test_a_path_is_no_pattern(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a.yml": "1\n"})
    for path in ("*.yml", ":(glob)**", "."):
        assert await workspaces.read(REPO, source(origin, sha), path, limit=100) is None


@pytest.mark.parametrize("path", ["a\0b", "\ud83d", "\U0001f600" * 60_000, "x/" * 5_000])
async def test_a_path_that_no_program_can_be_asked_for_names_no_file(
    origin: Origin, workspaces: Workspaces, path: str
) -> None:
    sha = origin.commit({"a.yml": "1\n"})
    assert await workspaces.read(REPO, source(origin, sha), path, limit=100) is None


async def test_a_name_that_is_no_unicode_is_read(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"caf\udce9.yml": "1\n"})
    file = await workspaces.read(REPO, source(origin, sha), "caf\udce9.yml", limit=100)
    assert file is not None
    assert file.content == b"1\n"
