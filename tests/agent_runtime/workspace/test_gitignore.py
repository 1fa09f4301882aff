from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from agent_runtime.workspace.listing import IgnoreFile

PIECES = [
    *(
        "a",
        "b",
        "ab",
        "*",
        "**",
        "?",
        "/",
        "-",
        "!",
        " ",
        "\\ ",
        "é",
        "**/",
        "/**",
        "/**/",
        ".",
        "#",
        "\t",
        "\\",
        "\\a",
    ),
    *(
        "\\*",
        "[ab]",
        "[!a]",
        "[a-c]",
        "[^b]",
        "[[:alpha:]]",
        "[]a]",
        "[[:x]",
        "[a",
        "[\\]a]",
        "[[:digit:]b]",
        "[a\\-b]",
    ),
    *("[-a]", "[a-]", "[[:bad:]]", "[[:]", "[]", "[]-a]"),
]
NAMES = [
    *("a", "b", "ab", "aa", "ba", "abc", "c", "*", "-", "!a", "é", "a b", "a ", "1", "[", "]", "b1", "\\", "#a", " "),
    *("é1", "[a", "a\t", "\udcff"),
]


def says(file: IgnoreFile, path: str, *, directory: bool) -> bool:
    """What the directories above say comes first, as in git."""
    parts = path.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return any(file.says(each, directory=True) for each in above) or bool(file.says(path, directory=directory))


def git_says(root: Path, paths: list[str]) -> dict[str, bool]:
    told = subprocess.run(
        ["git", "-C", root, "check-ignore", "--no-index", "-z", "--stdin", "--verbose", "--non-matching"],
        input=b"\0".join(map(os.fsencode, paths)),
        capture_output=True,
        check=False,
    ).stdout.split(b"\0")
    rows = (told[at : at + 4] for at in range(0, len(told) - 3, 4))
    return {os.fsdecode(path): bool(file) and not pattern.startswith(b"!") for file, _, pattern, path in rows}


@pytest.mark.parametrize("seed", range(40))
def test_it_says_what_git_says(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - patterns to test with
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for _ in range(4):
        lines = ["".join(chance.choices(PIECES, k=chance.randint(1, 5))) for _ in range(chance.randint(1, 4))]
        text = "\n".join("!" * (chance.random() < 0.2) + line for line in lines)
        data = text.encode() + chance.choice([b"", b"\n", b"\r\n"])
        (tmp_path / ".gitignore").write_bytes(data)
        paths = sorted({"/".join(chance.choices(NAMES, k=chance.randint(1, 4))) for _ in range(50)})
        for path in chance.sample(paths, 12):
            (tmp_path / path).mkdir(parents=True, exist_ok=True)
        file = IgnoreFile(data)
        mine = {path: says(file, path, directory=(tmp_path / path).is_dir()) for path in paths}
        assert mine == git_says(tmp_path, paths), data
        for made in tmp_path.iterdir():
            if made.is_dir() and made.name != ".git":
                shutil.rmtree(made)


def test_stars_do_not_backtrack() -> None:
    """With a matcher that does, this takes longer than the universe lasts."""
    file = IgnoreFile(b"*a*a*a*a*a*a*a*a*a*a*a*a*a*b\n" + b"*x" * 400 + b"y\n")
    assert not file.says("a" * 250, directory=False)
    assert file.says("a" * 250 + "b", directory=False)
    assert not file.says("/".join(["x" * 250] * 16), directory=False)


def test_many_patterns_without_wildcards_are_looked_up() -> None:
    file = IgnoreFile(b"".join(b"name%d\n/path/%d/\n" % (number, number) for number in range(100_000)))
    assert file.says("a/name77777", directory=False)
    assert file.says("path/77777", directory=True)
    assert file.says("path/77777", directory=False) is None


def test_only_so_many_lines_are_read() -> None:
    assert IgnoreFile(b"a\nb\n", most=1).says("b", directory=False) is None
