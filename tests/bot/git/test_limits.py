"""No limit loses a change: what exceeds it is left out by name, or the change is kept and not published."""

from __future__ import annotations

import os
import random
import re
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from agent_runtime.delegation import copies
from bot.git import baseline, diff, filesystem, lfs, tree
from bot.git.change import Change, FileChange
from bot.git.diff import Attributes
from bot.git.errors import ChangeError
from bot.git.mirror import Source
from bot.git.snapshots import SnapshotLimits
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from bot.github import graphql
from bot.github.types import CHECK_TEXT_LIMIT, CannotExpressError
from bot.jobs import handover, storage
from bot.publishing import markdown, render, screening, status_view
from bot.settings.models import AgentSettings
from tests.origin import Origin
from tests.source_files import ROOT

MIB = 1024 * 1024
STORE = SnapshotLimits()
SETTINGS = {entry.name: entry.default for entry in fields(AgentSettings)}


@asynccontextmanager
async def opened(origin: Origin, tmp_path: Path, files: dict[str, str] | None = None) -> AsyncIterator[Tree]:
    """Yield a workspace of a commit in which `fix.py` was changed since."""
    sha = origin.commit({"fix.py": "old\n", **(files or {})})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as opened_tree:
        (opened_tree.path / "fix.py").write_text("new\n")
        yield opened_tree


def make(workspace: Tree, name: str, size: int) -> None:
    """Make a file of some size, of which nothing is on the disk."""
    path = workspace.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def paths(change: Change) -> list[str]:
    return [file.path for file in change.files]


async def test_a_new_file_that_github_refuses_is_left_out_unread(origin: Origin, tmp_path: Path) -> None:
    async with opened(origin, tmp_path) as workspace:
        make(workspace, "big.bin", 110 * MIB)
        change = await workspace.change()
    assert paths(change) == ["fix.py"]
    assert change.notes == ("1 new file was left out, because a file may have 100 MiB at most: `big.bin` (110 MiB).",)
    assert change.exclusions.omitted == ()


async def test_a_tracked_file_that_github_refuses_stays_as_it_was(origin: Origin, tmp_path: Path) -> None:
    async with opened(origin, tmp_path, {"data.bin": "x"}) as workspace:
        make(workspace, "data.bin", 110 * MIB)
        change = await workspace.change()
        rest = await workspace.exclude(change, ())
    assert paths(change) == ["fix.py"]
    assert "1 changed file was left out" in change.notes[0]
    assert change.exclusions.omitted == rest.exclusions.omitted == ("data.bin",)


async def test_the_directory_with_the_most_new_files_is_left_out_if_there_are_too_many(
    origin: Origin, tmp_path: Path
) -> None:
    async with opened(origin, tmp_path, {"src/a.py": "a"}) as workspace:
        for name in (*(f"out/{n % 10}/{n}.txt" for n in range(10_050)), "src/new/b.py", "top.txt"):
            make(workspace, name, 1)
        change = await workspace.change()
    assert paths(change) == ["fix.py", "src/new/b.py", "top.txt"]
    assert change.notes == (
        "New files were left out, because a change may have 10,000 files at most: 10,050 in `out/`.",
    )


async def test_more_tracked_files_than_the_limit_are_kept_and_not_published(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (diff, tree):
        monkeypatch.setattr(module, "MAX_CHANGED_FILES", 3)
    names = [f"f{n}.txt" for n in range(4)]
    async with opened(origin, tmp_path, dict.fromkeys(names, "old\n")) as workspace:
        for name in (*names, "new.txt"):
            (workspace.path / name).write_text("new\n")
        change = await workspace.change()
        restored = await workspace.restore(change.patch_file or Path(), expect=change.tree_sha)
    assert paths(change) == ["f0.txt", "f1.txt", "f2.txt", "f3.txt", "fix.py"]
    assert change.exclusions.withheld == "The change has 5 files; a commit may have 3 at most."
    assert restored.exclusions.withheld == change.exclusions.withheld


@pytest.mark.parametrize(
    ("files", "reasons"),
    [
        ({f"{n}.bin": 10 * MIB for n in range(4)}, ["a commit may have 36 MiB"]),
        ({f"{n}.bin": 90 * MIB for n in range(6)}, ["a change may have 512 MiB", "a commit may have 36 MiB"]),
    ],
)
async def test_the_largest_new_files_are_left_out_unread_until_the_rest_fits(
    origin: Origin, tmp_path: Path, files: dict[str, int], reasons: list[str]
) -> None:
    async with opened(origin, tmp_path) as workspace:
        for name, size in files.items():
            make(workspace, name, size)
        tracemalloc.start()
        change = await workspace.change()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert "fix.py" in paths(change)
    assert sum(len(file.content or b"") for file in change.files) <= 36 * MIB
    assert [reason in note for reason, note in zip(reasons, change.notes, strict=True)] == [True] * len(reasons)
    assert peak < 3.5 * 36 * MIB


async def test_files_of_git_lfs_count_only_for_the_limit_of_a_change(origin: Origin, tmp_path: Path) -> None:
    async with opened(origin, tmp_path, {".gitattributes": "*.psd filter=lfs\n"}) as workspace:
        make(workspace, "art.psd", 40 * MIB)
        change = await workspace.change()
    assert paths(change) == ["art.psd", "fix.py"]
    assert [file.size for file in change.large] == [40 * MIB]
    assert change.notes == ()


@pytest.mark.parametrize("shape", ["new", "replaced", "deleted"])
async def test_what_makes_the_diff_too_large_is_left_out(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.setattr(diff, "MAX_DIFF_BYTES", MIB)
    noise = random.Random(1)  # noqa: S311 - incompressible, and no secret
    old, new = (noise.randbytes(900_000).hex() for _ in range(2))
    async with opened(origin, tmp_path, {} if shape == "new" else {"data.txt": old}) as workspace:
        if shape == "deleted":
            (workspace.path / "data.txt").unlink()
        else:
            (workspace.path / "data.txt").write_text(new)
        change = await workspace.change()
    assert paths(change) == ["fix.py"]
    assert "left out, because a diff may have 1 MiB at most: `data.txt`" in change.notes[0]
    assert change.exclusions.omitted == (() if shape == "new" else ("data.txt",))


async def test_many_removed_files_and_a_submodule_may_make_the_diff_too_large(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "MAX_DIFF_BYTES", 20_000)
    names = [f"vendor/{n}.txt" for n in range(60)]
    origin.commit({"fix.py": "old\n", ".gitmodules": '[submodule "m"]\n\tpath = m\n\turl = https://example.com/m\n'})
    origin.commit(dict.fromkeys(names, "old\n" * 100))
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},m")
    origin.git("commit", "--quiet", "--message", "Add a submodule")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as workspace:
        for name in (".gitmodules", *names):
            (workspace.path / name).unlink()
        (workspace.path / "fix.py").write_text("new\n")
        change = await workspace.change()
    assert {".gitmodules", "fix.py", "m"} < {*paths(change)}
    assert {*paths(change), *change.exclusions.omitted} == {".gitmodules", "fix.py", "m", *names}
    assert "left out, because a diff may have" in change.notes[0]


@pytest.mark.parametrize("pointer", [False, True], ids=["files", "a pointer"])
async def test_a_change_whose_attributes_are_unknown_is_kept_and_not_published(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pointer: bool
) -> None:
    async def time_out(*_: object) -> None:
        raise ChangeError("Git takes more than 20 s for the patterns in `.gitattributes`.", "Simplify them.")

    monkeypatch.setattr(Attributes, "query", time_out)
    async with opened(origin, tmp_path, {} if pointer else {".gitattributes": "*.x filter=lfs\n"}) as workspace:
        if pointer:
            text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n"
            (workspace.path / "fix.py").write_text(text)
        change = await workspace.change()
    assert paths(change) == ["fix.py"]
    assert change.exclusions.withheld.startswith("Git takes more than 20 s")
    assert change.patch


LIMITS = {
    "size of a file": f"{diff.MAX_FILE_BYTES // MIB} MiB",
    "files of a change": f"{diff.MAX_CHANGED_FILES:,}",
    "content of a change, with files in Git LFS": f"{diff.MAX_CHANGE_BYTES // MIB} MiB",
    "content of a commit, without files in Git LFS": f"{diff.MAX_COMMIT_BYTES // MIB} MiB",
    "diff of a change": f"{diff.MAX_DIFF_BYTES // MIB} MiB",
    "patterns in `.gitattributes`": f"{diff._BOUNDS.cpu_seconds} s of processor time",
    "patterns in `.gitignore`": f"{baseline._IGNORE_SECONDS} s of processor time",
    "size of a `.gitignore`": f"{baseline._MAX_RULES_BYTES // MIB} MiB",
    "nested directories": f"{filesystem.MAX_DEPTH}",
    "length of a path": f"{filesystem.MAX_PATH_BYTES:,} bytes",
    "upload to Git LFS": f"{lfs.MAX_BYTES // MIB} MiB and {lfs.SECONDS:.0f} s",
    "content for GitHub's commit API": f"{graphql.MAX_BYTES // MIB} MiB",
    "change of a run that waits in a workflow": f"{tree._MAX_FILES:,} files and {tree.MAX_CARRIED_BYTES // MIB} MiB",
    "conversation of a run that waits in a workflow": f"{handover._MAX_SESSION_BYTES // MIB} MiB",
    "artifact of a run that waits in a workflow": f"{storage.MAX_SEALED_BYTES // MIB} MiB",
    "files of a waiting job in the store": (
        f"{STORE.content // 1024**3} GiB, {STORE.entries:,} files and {STORE.seconds:.0f} s"
    ),
    "diff of protected files to approve": f"{screening.MAX_PARTS * screening.PART_LIMIT:,} characters",
    "change that is ready for review": (
        f"{screening.MAX_FILES} files, {screening.MAX_LINES:,} lines and {screening.MAX_BYTES // MIB} MiB"
    ),
    "changed file of a candidate": (
        f"{copies._MAX_FILE_BYTES // 10**6} MB, and {copies._MAX_MERGE_BYTES // 10**6} MB together"
    ),
    "patch of small leftovers": f"{tree._LEFTOVER_BYTES // 1024} KiB",
    "status comment": f"{markdown.COMMENT_LIMIT:,} characters",
    "completion in a comment": f"{render.COMPLETION_LIMIT:,} characters",
    "patch in a check run": f"{CHECK_TEXT_LIMIT:,} characters",
    "log of a run in the dashboard": (
        f"{status_view._MAX_ENTRIES:,} entries and {status_view._MAX_CHARACTERS:,} characters"
    ),
    "age of a stored patch": f"{SETTINGS['keep_days']} days",
    "all stored patches": f"{SETTINGS['patches_gb']} GB",
}
"""Each limit in docs/limits.md, with its value in the code."""


async def test_only_the_beginning_of_a_long_gitignore_is_read(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "_MAX_RULES_BYTES", 6)
    async with opened(origin, tmp_path, {".gitignore": "a.log\nb.log\n"}) as workspace:
        for name in ("a.log", "b.log"):
            make(workspace, name, 1)
        assert paths(await workspace.change()) == ["b.log", "fix.py"]


async def test_a_path_that_is_too_long_is_left_out_with_a_note(origin: Origin, tmp_path: Path) -> None:
    async with opened(origin, tmp_path) as workspace:
        folder = os.open(workspace.path, os.O_RDONLY)
        for _ in range(13):  # in steps: the whole path is longer than the system takes
            os.mkdir("d" * 250, dir_fd=folder)
            below = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        os.close(folder)
        change = await workspace.change()
    assert paths(change) == ["fix.py"]
    assert "or with paths of more than 3,000 bytes, are not part of this change" in change.notes[0]


def test_what_the_commit_api_does_not_take_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphql, "MAX_BYTES", 10)
    file = FileChange(
        path="a", status="added", old_mode="", new_mode="100644", added=1, removed=0, binary=False, content=b"x" * 11
    )
    with pytest.raises(CannotExpressError, match="exceed"):
        graphql.check_expressible(Change(base_sha="", tree_sha="", files=(file,), patch=""))


_LIMIT = re.compile(r"^((?:_?[A-Z][A-Z0-9_]*(?:, )?)+)(?:: [^=\n]+)? = ", re.MULTILINE)
_IS_LIMIT = re.compile(r"MAX|LIMIT$|LONGEST|_BYTES$|_CHARS$|_ENTRIES$")
OTHER_LIMITS = {
    "bot.git.baseline": "_MAX_PATH_CHARS _MAX_TICK_SECONDS",
    "bot.git.lfs": "_LONGEST_POINTER _LONGEST_ANSWER _LONGEST_REFUSAL",  # of a server's answers
    "bot.git.snapshots": "PACK_BYTES _HEAD_BYTES _MANIFEST_BYTES _MAX_WASTE _BATCH_BYTES _MAX_TRACKED",  # of its format
    "bot.publishing.checks": "_MAX_COMPARED _COMMAND_CHARS _MAX_NAME_CHARS _MAX_NAMES _MAX_CHARS",  # of one command
    "bot.publishing.markdown": "_LONGEST_FENCE DEFAULT_LIMIT",
    "bot.publishing.plan": "TITLE_LIMIT _SENTENCE_LIMIT _MAX_DEVIATIONS",
    "bot.publishing.redact": "_MIN_RANDOM_CHARS",
    "bot.publishing.render": (  # of parts of the comment
        "_REASON_LIMIT _NOTE_LIMIT _MAX_NOTES _MAX_RUNNING_ACTIVITIES _MAX_ACTIVITIES _MAX_OPEN_FILES _MAX_FILES "
        "_NAME_LIMIT _MAX_DENIED_CALLS _MAX_UNAPPROVABLE_CHARS _MAX_REQUEST_CHARS _MAX_SUMMARY_CHARS "
        "_MAX_WITHHELD_CHARS _MAX_COMMAND_CHARS _MAX_ROWS _MAX_PATCH_READ _ID_LIMIT _MAX_TESTS"
    ),
    "bot.publishing.screening": "PREVIEW_LIMIT _MAX_NAMES _MAX_HOPS _MAX_DEPTH _MAX_STEPS _MAX_OLD_LINES",  # of a check
    "bot.publishing.status_view": (
        "_MAX_DENIED_CALLS _MAX_PROGRAMS _MAX_INSTRUCTIONS _PROGRAM_CHARS _MAX_TEXT _MAX_TITLE _MAX_EARLIER_ENTRIES "
        "_MAX_BYTES"
    ),
}
"""Limits of texts and of checks, which leave nothing of a change out."""
LISTED = {
    "bot.git.baseline": "_MAX_RULES_BYTES",
    "bot.git.diff": "MAX_FILE_BYTES MAX_CHANGE_BYTES MAX_COMMIT_BYTES MAX_CHANGED_FILES MAX_DIFF_BYTES",
    "bot.git.filesystem": "MAX_DEPTH MAX_PATH_BYTES",
    "bot.git.lfs": "MAX_BYTES",
    "bot.git.tree": "MAX_CARRIED_BYTES _LEFTOVER_BYTES _MAX_FILES",
    "bot.publishing.markdown": "COMMENT_LIMIT",
    "bot.publishing.render": "COMPLETION_LIMIT",
    "bot.publishing.screening": "MAX_FILES MAX_LINES MAX_BYTES PART_LIMIT MAX_PARTS",
    "bot.publishing.status_view": "_MAX_ENTRIES _MAX_CHARACTERS",
}
"""Limits whose outcome is on the page, by module."""


@pytest.mark.parametrize("module", sorted({*OTHER_LIMITS, *LISTED}))
def test_each_limit_is_on_the_page_or_leaves_nothing_out(module: str) -> None:
    lines = _LIMIT.findall(Path(ROOT, f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    names = {name for line in lines for name in line.split(", ") if _IS_LIMIT.search(name)}
    known = f"{OTHER_LIMITS.get(module, '')} {LISTED.get(module, '')}"
    assert names <= {*known.split()}, "give the new limit an outcome in docs/limits.md"


def test_the_page_on_limits_has_the_values_of_the_code() -> None:
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").partition("## Leftovers")[0]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert {row[0]: row[1] for row in rows} == LIMITS
    assert all(row[2] for row in rows)
