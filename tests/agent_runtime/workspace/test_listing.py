from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import IgnoreFile, Include, list_files


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    names = ["old.py", "src/a.py", "src/b.txt", "src/deep/c.py", "docs/d.md", ".hidden", "build/x.py", "src/e.log"]
    for age, name in enumerate([*names, ".git/config"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.utime(path, ns=(10**18 + age * 10**9,) * 2)
    with Workspace(tmp_path) as opened:
        yield opened


def ignore(root: Path, name: str, *lines: str) -> None:
    path = root / name
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, ns=(0, 0))


def names(workspace: Workspace, pattern: str = "**/*", path: str = ".") -> list[str]:
    return list_files(workspace, pattern, path).files


def test_all_files_newest_first_without_git_s_own(workspace: Workspace) -> None:
    assert names(workspace) == [
        "src/e.log", "build/x.py", ".hidden", "docs/d.md", "src/deep/c.py", "src/b.txt", "src/a.py", "old.py",
    ]  # fmt: skip


def test_a_virtual_environment_is_listed_only_by_its_path(workspace: Workspace) -> None:
    environment = workspace.root / "env" / "lib"
    environment.mkdir(parents=True)
    (environment / "site.py").touch()
    (workspace.root / "env" / "pyvenv.cfg").touch()
    assert "env/lib/site.py" not in names(workspace)
    assert names(workspace, path="env/lib") == ["env/lib/site.py"]


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", ".", ["build/x.py", "src/deep/c.py", "src/a.py", "old.py"]),
        ("**/*.py", "src", ["src/deep/c.py", "src/a.py"]),
        ("src/*.py", ".", ["src/a.py"]),
        ("deep/*", "src", ["src/deep/c.py"]),
        ("*.{md,txt}", ".", ["docs/d.md", "src/b.txt"]),
        ("*", "src/deep/", ["src/deep/c.py"]),
        ("nothing*", ".", []),
    ],
)
def test_a_pattern_is_about_names_or_about_paths_from_the_directory(
    workspace: Workspace, pattern: str, path: str, expected: list[str]
) -> None:
    assert names(workspace, pattern, path) == expected


def test_ignored_files_are_skipped_by_nested_rules(workspace: Workspace, tmp_path: Path) -> None:
    ignore(tmp_path, ".gitignore", "build/", "*.log")
    ignore(tmp_path, "src/.gitignore", "!e.log", "/deep/")
    found = names(workspace)
    assert "build/x.py" not in found
    assert "src/deep/c.py" not in found
    assert "src/e.log" in found
    assert names(workspace, path="src") == ["src/e.log", "src/b.txt", "src/a.py", "src/.gitignore"]


def test_links_are_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "file").symlink_to("old.py")
    assert not any(name.startswith(("out", "file")) for name in names(workspace))


@pytest.mark.parametrize(
    ("pattern", "path", "words"),
    [
        ("*", "nowhere", "path='nowhere' does not exist"),
        ("*", "old.py", "path='old.py' is not a directory"),
        ("*", "../", "leads out of the workspace"),
        ("*", ".git", "git directory"),
        ("../*", ".", r"pattern='\.\./\*': must be a glob"),
        ("", ".", "pattern='': must be a glob"),
    ],
)
def test_wrong_arguments_are_reported(workspace: Workspace, pattern: str, path: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        list_files(workspace, pattern, path)


def test_readable_directories_elsewhere_are_listed_by_their_path_in_the_agent_s_eyes(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "kept" / "old").mkdir(parents=True)
    for at, name in enumerate(("main-1.log", "old/main-2.log", "notes.txt")):
        (tmp_path / "kept" / name).write_text("x")
        os.utime(tmp_path / "kept" / name, (at, at))
    with Workspace(tmp_path / "work", readable={"/logs": tmp_path / "kept"}) as workspace:
        assert list_files(workspace, "*", "/logs").files == [
            "/logs/notes.txt",
            "/logs/old/main-2.log",
            "/logs/main-1.log",
        ]
        assert list_files(workspace, "*.log", "/logs/old").files == ["/logs/old/main-2.log"]
        assert list_files(workspace, "**/*", ".").files == []
        assert workspace.list_directory("/logs") == ["main-1.log", "notes.txt", "old/"]
        with pytest.raises(ToolError, match=r"'/logs/notes.txt'") as told:
            list_files(workspace, "*", "/logs/notes.txt")
        assert told.value.kind == "NotADirectoryError"


def test_a_question_mark_matches_one_character_of_any_byte_length() -> None:
    wanted = Include.parse("Stra?e.t?t")
    assert [
        name for name in ("Straße.txt", "Strae.txt", "Stra/e.txt", "Straxe.txt", "Straßße.txt") if wanted.matches(name)
    ] == [
        "Straße.txt",
        "Straxe.txt",
    ]


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


def verdict_of(file: IgnoreFile, path: str, *, directory: bool) -> bool:
    """Rules of parent directories come first, as in git."""
    parts = path.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return any(file.verdict(each, directory=True) for each in above) or bool(file.verdict(path, directory=directory))


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
def test_it_agrees_with_git(tmp_path: Path, seed: int) -> None:
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
        mine = {path: verdict_of(file, path, directory=(tmp_path / path).is_dir()) for path in paths}
        assert mine == git_says(tmp_path, paths), data
        for made in tmp_path.iterdir():
            if made.is_dir() and made.name != ".git":
                shutil.rmtree(made)


def test_stars_do_not_backtrack() -> None:
    """A backtracking matcher would never finish."""
    file = IgnoreFile(b"*a*a*a*a*a*a*a*a*a*a*a*a*a*b\n" + b"*x" * 400 + b"y\n")
    assert not file.verdict("a" * 250, directory=False)
    assert file.verdict("a" * 250 + "b", directory=False)
    assert not file.verdict("/".join(["x" * 250] * 16), directory=False)


def test_many_patterns_without_wildcards_are_looked_up() -> None:
    file = IgnoreFile(b"".join(b"name%d\n/path/%d/\n" % (number, number) for number in range(100_000)))
    assert file.verdict("a/name77777", directory=False)
    assert file.verdict("path/77777", directory=True)
    assert file.verdict("path/77777", directory=False) is None


def test_only_so_many_lines_are_read() -> None:
    assert IgnoreFile(b"a\nb\n", max_lines=1).verdict("b", directory=False) is None
