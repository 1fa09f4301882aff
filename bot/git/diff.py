"""A workspace's changed files as git would store them, and a tree's difference from a commit as a `Change`.

Changed files are copied out of the workspace, so that git sees copies only, and become blobs: with pointers for Git LFS
and line endings as the commit's `.gitattributes` ask. No more is held in memory than is shown and sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from bot.git.baseline import GITLINK, MOST_NAMED, Baseline, shown
from bot.git.change import SYMLINK, Change, FileChange
from bot.git.errors import ChangeError, GitError
from bot.git.filesystem import (
    ScannedFile,
    copy_file,
    opened_root,
    remove_tree,
)
from bot.git.process import Git, ProcessBounds

MAX_FILE_BYTES = 100 * 1024 * 1024
"""GitHub refuses larger files: https://docs.github.com/repositories/working-with-files/managing-large-files"""
MAX_CHANGE_BYTES = 512 * 1024 * 1024
MAX_COMMIT_BYTES = 36 * 1024 * 1024
"""Of what is in the commit itself, and is looked through for secrets in memory."""
MAX_CHANGED_FILES = 10_000
MAX_DIFF_BYTES = 48 * 1024 * 1024
"""Of a change as a patch, which people are to read and the bot holds in memory."""
NO_BLOB = "0" * 40
ASKED = ("text", "crlf", "eol", "working-tree-encoding")
"""The attributes that decide."""

# Git's patterns can take time without end; a process can be ended.
_BOUNDS = ProcessBounds(seconds=60.0, cpu_seconds=20)
_IGNORE_IT = "Add build results and downloads to `.gitignore`."
_CHUNK = 1024 * 1024
_ENDING = b"\r\n"
Kind = Literal["added", "modified", "deleted"]
_KINDS: dict[bytes, Kind] = {b"A": "added", b"M": "modified", b"T": "modified", b"D": "deleted"}
_ABSENT = "000000"


def fresh(folder: Path) -> None:
    """Have an empty private directory there."""
    remove_tree(folder)
    folder.mkdir(mode=0o700)


def check_sizes(present: dict[bytes, ScannedFile]) -> None:
    """See whether files are as few and as small as can be published.

    Raises:
        ChangeError: they are not.
    """
    if len(present) > MAX_CHANGED_FILES:
        raise ChangeError(f"The agent left {len(present)} changed files; the limit is {MAX_CHANGED_FILES}.", _IGNORE_IT)
    sizes = {path: entry.stamp[1] for path, entry in present.items()}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    if largest is not None and sizes[largest] > MAX_FILE_BYTES:
        raise _too_large(largest)
    if sum(sizes.values()) > MAX_CHANGE_BYTES:
        raise _too_much(MAX_CHANGE_BYTES)


def without_large(
    present: Mapping[bytes, ScannedFile], known: Container[bytes]
) -> tuple[dict[bytes, ScannedFile], tuple[str, ...]]:
    """A change without its largest new files, as many as are too much for a commit; and a note that names them.

    Args:
        present: the changed files.
        known: paths that the commit has; these are never left out.
    """
    kept = dict(present)
    total = sum(entry.stamp[1] for entry in kept.values())
    new = sorted((path for path in kept if path not in known), key=lambda path: kept[path].stamp[1])
    left_out: list[str] = []
    while total > MAX_COMMIT_BYTES and new:
        path = new.pop()
        size = kept.pop(path).stamp[1]
        total -= size
        left_out.append(f"{shown(path)} ({size / 1024**2:,.0f} MiB)")
    if not left_out:
        return kept, ()
    names, most = ", ".join(left_out[:MOST_NAMED]), MAX_COMMIT_BYTES // 1024**2
    return kept, (f"{len(left_out)} new files were left out, because a commit may have {most} MiB at most: {names}.",)


def _too_much(limit: int) -> ChangeError:
    return ChangeError(f"The changed files are larger than {limit // 1024**2} MiB together.", _IGNORE_IT)


def _too_large(path: bytes) -> ChangeError:
    return ChangeError(f"`{os.fsdecode(path)}` is larger than {MAX_FILE_BYTES // 1024**2} MiB.", _IGNORE_IT)


def stage(
    root: Path, present: dict[bytes, ScannedFile], staging: Path
) -> tuple[list[tuple[bytes, str]], tuple[bytes, ...]]:
    """Copy each file to a numbered one; give back path and mode in that order, and the paths that vanished.

    Raises:
        ChangeError: a file, or all of them, became too large meanwhile.
    """
    staged: list[tuple[bytes, str]] = []
    vanished: list[bytes] = []
    left = MAX_CHANGE_BYTES
    with opened_root(root) as descriptor:
        for path, entry in sorted(present.items()):
            with (staging / str(len(staged))).open("wb") as copy:
                size = copy_file(descriptor, path, entry.mode, copy, limit=MAX_FILE_BYTES)
            if size is None:
                vanished.append(path)
                continue
            if size > MAX_FILE_BYTES:
                raise _too_large(path)
            left -= size
            if left < 0:
                raise _too_much(MAX_CHANGE_BYTES)
            staged.append((path, entry.mode))
    return staged, tuple(vanished)


async def store(git: Git, staging: Path, staged: list[tuple[bytes, str]]) -> list[tuple[bytes, str, str]]:
    """Write the copies as blobs; give back path, mode and blob id.

    Raises:
        ChangeError: they are more than the bot commits.
    """
    if not staged:
        return []
    names = [f"{staging}/{number}" for number in range(len(staged))]
    # Each may wait for the disk.
    if await asyncio.to_thread(lambda: sum(map(os.path.getsize, names))) > MAX_COMMIT_BYTES:
        raise _too_much(MAX_COMMIT_BYTES)
    paths = "".join(f"{name}\n" for name in names)
    answer = await git.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=paths.encode())
    return [(path, mode, blob) for (path, mode), blob in zip(staged, answer.decode().split(), strict=True)]


def index_records(blobs: Iterable[tuple[bytes, str, str]], gone: Iterable[bytes], baseline: Baseline) -> bytes:
    """The lines for `git update-index --index-info`."""
    # Removals first: a file may stand where a directory stood, and the other way round.
    removed = [b"0 " + NO_BLOB.encode() + b"\t" + path for path in gone if path in baseline.modes]
    added = [f"{mode} {blob}\t".encode() + path for path, mode, blob in blobs]
    return b"".join(record + b"\0" for record in [*removed, *added])


async def described(git: Git, folder: Path, base: str, tree: str) -> Change:
    """The change that makes `tree` of the commit `base`.

    Args:
        git: git on a directory that has both.
        folder: where files may be put; the one with the patch stays.
        base: the commit.
        tree: the tree.

    Raises:
        ChangeError: it is more than can be shown.
    """
    command = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")
    raw = await asyncio.to_thread(parse_raw, await git.run(*command, "-z", "--raw", "--abbrev=40", base, tree))
    counts = await asyncio.to_thread(parse_numstat, await git.run(*command, "-z", "--numstat", base, tree))
    whole = folder / "change.patch"
    bounded = replace(git, bounds=replace(git.bounds, file_bytes=MAX_DIFF_BYTES))
    try:
        await bounded.run(*command, "--patch", "--binary", "--full-index", base, tree, stdout=whole)
    except GitError as error:
        if error.exit_code not in {None, -signal.SIGXFSZ}:
            raise
        raise ChangeError(
            f"The diff is larger than {MAX_DIFF_BYTES // 1024**2} MiB, or takes too long to compute.",
            "Split the task; add build results and downloads to `.gitignore`.",
        ) from error
    patch = await asyncio.to_thread(lambda: whole.read_bytes().decode("utf-8", errors="surrogateescape"))
    wanted = [each.blob for each in raw if each.blob != NO_BLOB and each.new_mode != GITLINK]
    contents = await _contents(git, folder / "contents", wanted)
    files = await asyncio.to_thread(_file_changes, raw, counts, contents)
    change = Change(base_sha=base, tree_sha=tree, files=files, patch=patch, patch_file=whole)
    if not change.changed_links:
        return change
    # Where the symbolic links of the tree point to.
    listed = (await git.run("ls-tree", "-r", "-z", "--full-tree", tree)).split(b"\0")
    found = [each.partition(b"\t") for each in listed if each.startswith(SYMLINK.encode())]
    blobs = {path: entry.split(b" ")[2].decode() for entry, _, path in found}
    targets = await _contents(git, folder / "links", sorted(set(blobs.values())))
    return replace(change, links={os.fsdecode(path): os.fsdecode(targets[blob]) for path, blob in blobs.items()})


def _file_changes(
    raw: Iterable[RawChange], counts: Mapping[bytes, tuple[int, int] | None], contents: Mapping[str, bytes]
) -> tuple[FileChange, ...]:
    files = []
    for each in raw:
        lines = counts.get(each.path, (0, 0))
        added, removed = lines or (0, 0)
        files.append(
            FileChange(
                path=os.fsdecode(each.path),
                status=each.status,
                old_mode=each.old_mode,
                new_mode=each.new_mode,
                added=added,
                removed=removed,
                binary=lines is None,
                content=contents.get(each.blob),
            )
        )
    return tuple(files)


async def _contents(git: Git, answer: Path, blobs: list[str]) -> dict[str, bytes]:
    """What is in some blobs: at most as much as `store` lets pass, and in memory once."""
    if not blobs:
        return {}
    asked = "\n".join(blobs).encode() + b"\n"
    bounds = replace(git.bounds, file_bytes=MAX_COMMIT_BYTES + 4 * len(asked))
    await replace(git, bounds=bounds).run("cat-file", "--batch", stdin=asked, stdout=answer)
    return await asyncio.to_thread(_read, answer, blobs)


def _read(answer: Path, blobs: Iterable[str]) -> dict[str, bytes]:
    """Read what `git cat-file --batch` has written, and remove it."""
    contents: dict[str, bytes] = {}
    with answer.open("rb") as file:
        for blob in blobs:
            contents[blob] = file.read(int(file.readline().split(b" ")[2]))
            file.read(1)
    answer.unlink()
    return contents


class RawChange(NamedTuple):
    """One record of `--raw`.

    Attributes:
        path: as git stores it.
        status: what happened; a change of type (file to link) is a modification.
        old_mode: empty when added.
        new_mode: empty when deleted.
        blob: the new content's id, zeros when deleted.
    """

    path: bytes
    status: Kind
    old_mode: str
    new_mode: str
    blob: str


def parse_raw(output: bytes) -> list[RawChange]:
    """Parse `git diff-tree -r -z --raw` between two trees, in git's order.

    The format is in git-diff-tree(1), "Raw output format": `:mode mode id id status NUL path NUL`.
    """
    fields = output.split(b"\0")[:-1]
    changes: list[RawChange] = []
    for meta, path in zip(fields[::2], fields[1::2], strict=True):
        old, new, _, blob, status = meta.removeprefix(b":").split(b" ")
        changes.append(RawChange(path, _KINDS[status[:1]], _mode(old), _mode(new), blob.decode()))
    return changes


def parse_numstat(output: bytes) -> dict[bytes, tuple[int, int] | None]:
    """Parse `git diff-tree -r -z --numstat`: lines added and removed by path, None for a binary file."""
    counts: dict[bytes, tuple[int, int] | None] = {}
    for record in output.split(b"\0")[:-1]:
        added, removed, path = record.split(b"\t", 2)
        counts[path] = None if added == b"-" else (int(added), int(removed))
    return counts


def _mode(field: bytes) -> str:
    mode = field.decode()
    return "" if mode == _ABSENT else mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The attributes of one commit.

    The files are read from git's index, never from the workspace. The job's own git directory cannot be asked: it says
    of every path that nothing is to be converted.

    Attributes:
        git: git on a directory that has the commit.
        folder: private; made when it is needed.
        bounds: what git may take for one question.
    """

    git: Git
    folder: Path
    bounds: ProcessBounds = _BOUNDS

    async def of(self, commit: str, paths: Sequence[bytes], *names: str) -> dict[bytes, dict[str, str]]:
        """The values of attributes by name, for each path; `unspecified`, `set` and `unset` are git's own words.

        Raises:
            ChangeError: git takes too long over the patterns.
        """
        if not paths:
            return {}
        await asyncio.to_thread(make_repository, self.folder, self.git)
        git = replace(self.git, git_dir=self.folder, work_tree=None, index=self.folder / "index", bounds=self.bounds)
        await git.run("read-tree", commit)
        try:
            said = await git.run("check-attr", "--cached", "-z", "--stdin", *names, stdin=b"\0".join((*paths, b"")))
        except GitError as error:
            if error.exit_code is not None:
                raise
            raise ChangeError(
                f"Git takes more than {self.bounds.cpu_seconds} s for the patterns in `.gitattributes`.",
                "Simplify them.",
            ) from error
        return await asyncio.to_thread(_parse_attributes, said)


def _parse_attributes(output: bytes) -> dict[bytes, dict[str, str]]:
    fields = output.split(b"\0")
    found: dict[bytes, dict[str, str]] = {}
    for i in range(0, len(fields) - 2, 3):
        found.setdefault(fields[i], {})[fields[i + 1].decode()] = fields[i + 2].decode(errors="replace")
    return found


def rule(attributes: Mapping[str, str]) -> str:
    """What git is to be told about a file with these attributes; empty where it converts nothing.

    https://git-scm.com/docs/gitattributes#_end_of_line_conversion
    """
    if attributes.get("working-tree-encoding", "unspecified") not in {"unspecified", "unset"}:
        return ""
    # `crlf` is what `text` was called once. Git ignores values that it does not know.
    said = (attributes.get(name, "unspecified") for name in ("text", "crlf"))
    text = next((each for each in said if each in {"set", "unset", "auto", "input"}), "")
    if text == "auto":
        return "text=auto"
    return "text" if text in {"set", "input"} or (not text and attributes.get("eol") in {"lf", "crlf"}) else ""


async def converted(
    git: Git, folder: Path, staging: Path, rules: Mapping[int, str], before: Mapping[int, str]
) -> dict[int, str]:
    """The blobs of those copies whose line endings git converts, or may convert.

    Git works on numbered copies, with attributes and an index of their own: no name, attribute or filter of the
    repository takes part.

    Args:
        git: git on the directory that gets the blobs.
        folder: private; made when it is needed.
        staging: holds the numbered copies.
        rules: of copies by number, from `rule`.
        before: the blobs that stood in their places; git leaves CR LF alone where it stood before `text=auto` did.
    """
    asked = await asyncio.to_thread(lambda: [number for number in rules if _has_ending(staging / str(number))])
    if not asked:
        return {}
    await asyncio.to_thread(_prepare, git, folder, [f"/{number} {rules[number]}" for number in asked])
    place = replace(git, git_dir=folder, work_tree=staging, index=folder / "index")
    objects = {"GIT_OBJECT_DIRECTORY": f"{git.git_dir}/objects"}
    records = "".join(f"100644 {before[number]}\t{number}\0" for number in asked if number in before)
    await place.run("update-index", "-z", "--index-info", stdin=records.encode(), variables=objects)
    names = "".join(f"{number}\0" for number in asked).encode()
    await place.run("update-index", "-z", "--add", "--stdin", stdin=names, variables=objects)
    listing = (await place.run("ls-files", "-z", "--stage", variables=objects)).decode()
    entries = (record.partition("\t") for record in listing.split("\0")[:-1])
    return {int(number): facts.split(" ")[1] for facts, _, number in entries}


def _prepare(git: Git, folder: Path, attributes: Sequence[str]) -> None:
    make_repository(folder, git)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "attributes").write_text("\n".join([*attributes, ""]))
    (folder / "index").unlink(missing_ok=True)


def make_repository(folder: Path, other: Git) -> None:
    """A repository is these few things, and the objects of the other one."""
    if other.git_dir is None:
        raise ValueError("attributes need a git directory")
    for part in ("objects/info", "refs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    (folder / "objects" / "info" / "alternates").write_text(f"{other.git_dir}/objects\n")


def _has_ending(copy: Path) -> bool:
    before = b""
    with copy.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if _ENDING in before + chunk:
                return True
            before = chunk[-1:]
    return False
