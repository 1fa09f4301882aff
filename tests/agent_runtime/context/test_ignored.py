from __future__ import annotations

import time

import pytest

from agent_runtime.context.first_message import IgnoredPaths

GENEROUS = 20.0
"""Seconds; what is bounded takes a few, what is not takes minutes."""


def ignored_by(files: dict[str, str]) -> IgnoredPaths:
    return IgnoredPaths(lambda path: files.get(path, ""))


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("a.log", True),
        ("pkg/a.log", True),
        ("pkg/build/", True),
        ("build/", False),
        ("pkg/keep.log", False),
        ("pkg/sub/keep.log", False),
        ("other/keep.log", True),
        ("pkg/sub/build/", True),
        ("pkg/sub/x.tmp", True),
        ("pkg/x.tmp", False),
        ("pkg/root.txt", True),
        ("pkg/sub/root.txt", False),
        ("README.md", False),
    ],
)
def test_the_deepest_file_that_says_something_decides(path: str, *, left_out: bool) -> None:
    ignored = ignored_by(
        {
            ".gitignore": "*.log\n",
            "pkg/.gitignore": "build/\n!keep.log\n/root.txt\n",
            "pkg/sub/.gitignore": "*.tmp\n",
        }
    )
    assert ignored(path) is left_out


def test_each_file_is_read_once() -> None:
    read: list[str] = []

    def reading(path: str) -> str:
        read.append(path)
        return "*.log\n"

    ignored = IgnoredPaths(reading)
    for name in ("a.py", "pkg/a.py", "pkg/b.log", "pkg/sub/c.py", "pkg/sub/d.py"):
        ignored(name)
    assert read == [".gitignore", "pkg/.gitignore", "pkg/sub/.gitignore"]


def test_a_hostile_tree_costs_a_bounded_time() -> None:
    ignored = ignored_by({".gitignore": "*a*b\n" * 10_000})
    begun = time.monotonic()
    for depth in range(1, 100):
        for number in range(500):
            ignored("d/" * depth + f"{'a' * 200}{number}")
    assert time.monotonic() - begun < GENEROUS


def test_a_deep_tree_of_ignore_files_costs_a_bounded_time() -> None:
    read: list[str] = []

    def reading(path: str) -> str:
        read.append(path)
        return "*.log\n*a*b\n"

    ignored = IgnoredPaths(reading)
    begun = time.monotonic()
    for depth in range(1, 400):
        ignored("d/" * depth + "a.py")
    assert time.monotonic() - begun < GENEROUS
    assert len(read) == 50
