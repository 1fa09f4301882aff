"""Walking a directory that somebody else writes to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.git.filesystem import is_git_name, read_file, read_folder, walk


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep/secret").write_text("TOP SECRET")
    (outside / "secret").write_text("TOP SECRET")
    inside = tmp_path / "inside"
    (inside / "real").mkdir(parents=True)
    (inside / "real/file").write_text("ours")
    (inside / "folder").symlink_to(outside)
    (inside / "link").symlink_to(outside / "secret")
    (inside / "real/up").symlink_to("../..")
    os.mkfifo(inside / "pipe")
    descriptor = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_files_and_links_are_listed_and_nothing_else(root: int) -> None:
    assert {path: entry.mode for path, entry in walk(root)} == {
        b"folder": "120000",
        b"link": "120000",
        b"real/file": "100644",
        b"real/up": "120000",
    }


@pytest.mark.parametrize("path", [b"folder", b"folder/deep", b"real/up/outside", b"real/file", b"missing"])
def test_a_directory_that_became_a_link_is_not_entered(path: bytes, root: int) -> None:
    assert read_folder(root, path) is None


@pytest.mark.parametrize("path", [b"link", b"folder/secret", b"real/up/outside/secret", b"pipe", b"real", b"missing"])
def test_a_file_that_became_something_else_is_not_read(path: bytes, root: int) -> None:
    assert read_file(root, path, "100644", limit=100) is None


def test_a_link_that_became_a_file_is_not_read_as_a_link(root: int) -> None:
    assert read_file(root, b"real/file", "120000", limit=100) is None
    assert read_file(root, b"link", "120000", limit=100) is not None


def test_no_more_is_read_than_the_limit_and_one(root: int) -> None:
    assert read_file(root, b"real/file", "100644", limit=2) == b"our"


@pytest.mark.parametrize("name", [".git", ".GIT", ".git.", ".git ", "git~1", "GIT~1", ".g\u200cit", "\ufeff.git"])
def test_every_spelling_of_git_is_known(name: str) -> None:
    assert is_git_name(name.encode())


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", "a.git", ".gitmodules"])
def test_names_that_only_begin_like_it_are_names(name: str) -> None:
    assert not is_git_name(name.encode())
