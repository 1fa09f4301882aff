"""Store a workspace's changed files as git blobs, and describe a tree's difference from a commit as a `Change`.

Git sees copies of the changed files only. Git LFS pointers and line endings follow the commit's `.gitattributes`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from bot.domain.difference import list_names
from bot.git.baseline import GITLINK, Baseline, format_path
from bot.git.change import SYMLINK, Change, FileChange
from bot.git.errors import ChangeError, GitError
from bot.git.filesystem import (
    ScannedFile,
    copy_file,
    open_root,
    parent_folders,
    remove_tree,
)
from bot.git.process import Git, ProcessBounds

MAX_FILE_BYTES = 100 * 1024 * 1024
"""GitHub refuses larger files: https://docs.github.com/repositories/working-with-files/managing-large-files"""
MAX_CHANGE_BYTES = 512 * 1024 * 1024
MAX_COMMIT_BYTES = 36 * 1024 * 1024
"""Size of the commit's own content, which is searched for secrets in memory."""
MAX_CHANGED_FILES = 10_000
MAX_DIFF_BYTES = 48 * 1024 * 1024
"""Size of the patch, which is held in memory."""
NO_BLOB = "0" * 40
DIFF_OPTIONS = ("--no-renames", "--no-ext-diff", "--no-textconv")
EOL_ATTRIBUTES = ("text", "crlf", "eol", "working-tree-encoding")
"""Attributes that decide about line endings."""

# Git's patterns can take unlimited time, but a process can be killed.
_BOUNDS = ProcessBounds(seconds=60.0, cpu_seconds=20)
_IGNORE_IT = "Add build results and downloads to `.gitignore`."
_CHUNK = 1024 * 1024
_SECTION_HEAD = 200
"""Bytes of a file's section in a patch, without its content and four times its path."""
_CRLF = b"\r\n"
Kind = Literal["added", "modified", "deleted"]
KINDS: dict[str, Kind] = {"A": "added", "M": "modified", "T": "modified", "D": "deleted"}
"""Letters of git; a change of type is a modification."""
_ABSENT = "000000"


def recreate_folder(folder: Path) -> None:
    remove_tree(folder)
    folder.mkdir(mode=0o700)


class Selection(NamedTuple):
    """Files within all limits, and notes about the others; `omitted` ones are tracked."""

    present: dict[bytes, ScannedFile]
    notes: tuple[str, ...]
    omitted: tuple[bytes, ...]


def select_files(
    present: Mapping[bytes, ScannedFile], tracked: Collection[bytes], in_lfs: Collection[bytes]
) -> Selection:
    """Leave out what exceeds a limit: new files before tracked ones, the largest first."""
    sizes = {path: entry.stamp[1] for path, entry in present.items()}
    too_large = [path for path, size in sizes.items() if size > MAX_FILE_BYTES]
    notes = leave_out(sizes, too_large, tracked, "file", MAX_FILE_BYTES)
    notes += leave_out_folders(sizes, tracked)
    notes += leave_out(sizes, find_excess(sizes, MAX_CHANGE_BYTES, tracked), tracked, "change", MAX_CHANGE_BYTES)
    of_commit = {path: size for path, size in sizes.items() if path not in in_lfs}
    notes += leave_out(sizes, find_excess(of_commit, MAX_COMMIT_BYTES, tracked), tracked, "commit", MAX_COMMIT_BYTES)
    omitted = tuple(sorted(path for path in present if path in tracked and path not in sizes))
    return Selection({path: present[path] for path in sizes}, tuple(notes), omitted)


def find_excess(sizes: Mapping[bytes, int], limit: int, tracked: Collection[bytes]) -> list[bytes]:
    """Return the paths to leave out until the sizes of the others are within a limit together."""
    total, excess = sum(sizes.values()), list[bytes]()
    order = sorted(sizes, key=lambda path: (path in tracked, -sizes[path], path))
    while total > limit:
        excess.append(order[len(excess)])
        total -= sizes[excess[-1]]
    return excess


def leave_out(
    sizes: dict[bytes, int], paths: Sequence[bytes], tracked: Collection[bytes], whole: str, limit: int
) -> list[str]:
    """Remove paths from `sizes`, and return notes about them; the limit is that of a `whole`."""
    new, changed = list[str](), list[str]()
    for path in paths:
        (changed if path in tracked else new).append(f"{format_path(path)} ({sizes.pop(path) / 1024**2:,.0f} MiB)")
    notes = []
    for names, kind in ((new, "new"), (changed, "changed")):
        files = f"1 {kind} file was" if len(names) == 1 else f"{len(names):,} {kind} files were"
        if names:
            reason = f"because a {whole} may have {_mib(limit)} at most"
            notes.append(f"{files} left out, {reason}: {list_names(names)}.")
    return notes


def leave_out_folders(sizes: dict[bytes, int], tracked: Collection[bytes]) -> list[str]:
    """Leave out whole directories of new files, those with the most files first, if there are too many files."""
    tracked_folders = parent_folders(tracked) if len(sizes) > MAX_CHANGED_FILES else set[bytes]()
    groups: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for path in sizes if len(sizes) > MAX_CHANGED_FILES else ():
        if path not in tracked:
            # The outermost directory without tracked files, or else the directory of the path.
            end = path.find(b"/")
            while end != -1 and path[:end] in tracked_folders:
                end = path.find(b"/", end + 1)
            groups[path[:end] if end != -1 else path.rpartition(b"/")[0]].append(path)
    names: list[str] = []
    for folder, paths in sorted(groups.items(), key=lambda group: -len(group[1])):
        if len(sizes) <= MAX_CHANGED_FILES:
            break
        names.append(f"{len(paths):,} in {format_path(folder + b'/') if folder else 'the root'}")
        for path in paths:
            del sizes[path]
    if not names:
        return []
    reason = f"because a change may have {MAX_CHANGED_FILES:,} files at most"
    return [f"New files were left out, {reason}: {list_names(names)}."]


def _mib(count: int) -> str:
    return f"{count // 1024**2} MiB"


def _total_too_large(limit: int) -> ChangeError:
    return ChangeError(f"The changed files are larger than {_mib(limit)} together.", _IGNORE_IT)


def limit_diff(
    old: Mapping[bytes, str], new: Mapping[bytes, str], sizes: Mapping[str, int]
) -> tuple[frozenset[bytes], list[str]]:
    """Return the paths to leave out of a diff, by the blobs before and after it, and notes about them."""
    costs = {path: sum(sizes[blobs[path]] for blobs in (old, new) if path in blobs) for path in {**old, **new}}
    excess = find_excess({path: _section_length(path, cost) for path, cost in costs.items()}, MAX_DIFF_BYTES, old)
    return frozenset(excess), leave_out(costs, excess, old, "diff", MAX_DIFF_BYTES)


def select_small_files(files: Mapping[bytes, ScannedFile], limit: int) -> dict[bytes, ScannedFile]:
    """Return files whose patch has `limit` bytes at most, the smallest first; symbolic links are none."""
    lengths = {path: _section_length(path, entry.stamp[1]) for path, entry in files.items() if entry.mode != SYMLINK}
    excess = find_excess(lengths, limit, ())
    return {path: files[path] for path in lengths.keys() - {*excess}}


def _section_length(path: bytes, size: int) -> int:
    return _SECTION_HEAD + 4 * len(path) + 2 * size  # a line may be empty


async def read_sizes(git: Git, blobs: Collection[str]) -> dict[str, int]:
    """Return the sizes of blobs; 0 for a submodule's commit, which is elsewhere."""
    stdin = "".join(f"{blob}\n" for blob in blobs).encode()
    answer = await git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=stdin)
    lines = await asyncio.to_thread(lambda: [line.split() for line in answer.decode().splitlines()])
    return {blob: 0 if size == "missing" else int(size) for blob, size in lines}


def stage_files(
    root: Path, present: dict[bytes, ScannedFile], staging: Path
) -> tuple[list[tuple[bytes, str]], tuple[bytes, ...]]:
    staged: list[tuple[bytes, str]] = []
    vanished: list[bytes] = []
    bytes_left = MAX_CHANGE_BYTES
    with open_root(root) as descriptor:
        for path, entry in sorted(present.items()):
            with (staging / str(len(staged))).open("wb") as copy:
                size = copy_file(descriptor, path, entry.mode, copy, limit=MAX_FILE_BYTES)
            if size is None:
                vanished.append(path)
                continue
            if size > MAX_FILE_BYTES:
                name = os.fsdecode(path)
                raise ChangeError(f"`{name}` is larger than {_mib(MAX_FILE_BYTES)}.", _IGNORE_IT)
            bytes_left -= size
            if bytes_left < 0:
                raise _total_too_large(MAX_CHANGE_BYTES)
            staged.append((path, entry.mode))
    return staged, tuple(vanished)


async def store_blobs(git: Git, staging: Path, staged: list[tuple[bytes, str]]) -> list[tuple[bytes, str, str]]:
    if not staged:
        return []
    names = [f"{staging}/{number}" for number in range(len(staged))]
    # Each may wait for the disk.
    if await asyncio.to_thread(lambda: sum(map(os.path.getsize, names))) > MAX_COMMIT_BYTES:
        raise _total_too_large(MAX_COMMIT_BYTES)
    paths = "".join(f"{name}\n" for name in names)
    answer = await git.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=paths.encode())
    return [(path, mode, blob) for (path, mode), blob in zip(staged, answer.decode().split(), strict=True)]


def index_records(blobs: Iterable[tuple[bytes, str, str]], removed_paths: Iterable[bytes], baseline: Baseline) -> bytes:
    # Removals first: a file may stand where a directory stood, and the other way round.
    removed = [b"0 " + NO_BLOB.encode() + b"\t" + path for path in removed_paths if path in baseline.modes]
    added = [f"{mode} {blob}\t".encode() + path for path, mode, blob in blobs]
    return b"".join(record + b"\0" for record in [*removed, *added])


class DiffTooLargeError(ChangeError):
    pass


async def describe_change(git: Git, folder: Path, base: str, tree: str) -> Change:
    """Describe the change from the commit `base` to `tree`.

    Raises:
        DiffTooLargeError: the patch is too large, or takes too long.
    """
    command = ("diff-tree", "-r", *DIFF_OPTIONS)
    listing = await git.run(*command, "-z", "--raw", "--numstat", "--abbrev=40", base, tree)
    entries = await asyncio.to_thread(parse_entries, listing)
    whole = folder / "change.patch"
    bounded = replace(git, bounds=replace(git.bounds, file_bytes=MAX_DIFF_BYTES))
    try:
        await bounded.run(*command, "--patch", "--binary", "--full-index", base, tree, stdout=whole)
    except GitError as error:
        if error.exit_code not in {None, -signal.SIGXFSZ}:
            raise
        raise DiffTooLargeError(
            f"The diff is larger than {_mib(MAX_DIFF_BYTES)}, or takes too long to compute.",
            "Split the task; add build results and downloads to `.gitignore`.",
        ) from error
    patch = await asyncio.to_thread(lambda: whole.read_bytes().decode("utf-8", errors="surrogateescape"))
    blob_ids = [entry.blob for entry in entries if entry.blob != NO_BLOB and entry.new_mode != GITLINK]
    contents = await read_blobs(git, folder / "contents", blob_ids)

    def list_files() -> tuple[FileChange, ...]:
        return tuple(
            FileChange(
                path=os.fsdecode(entry.path),
                status=KINDS[entry.status],
                old_mode=entry.old_mode,
                new_mode=entry.new_mode,
                added=entry.added,
                removed=entry.removed,
                binary=entry.binary,
                content=contents.get(entry.blob),
            )
            for entry in entries
        )

    files = await asyncio.to_thread(list_files)
    change = Change(base_sha=base, tree_sha=tree, files=files, patch=patch, patch_file=whole)
    if not change.changed_links:
        return change
    # Targets of all symbolic links.
    listed = (await git.run("ls-tree", "-r", "-z", "--full-tree", tree)).split(b"\0")
    links = [entry.partition(b"\t") for entry in listed if entry.startswith(SYMLINK.encode())]
    blobs = {path: entry.split(b" ")[2].decode() for entry, _, path in links}
    targets = await read_blobs(git, folder / "links", sorted(set(blobs.values())))
    return replace(change, links={os.fsdecode(path): os.fsdecode(targets[blob]) for path, blob in blobs.items()})


async def read_blobs(git: Git, answer: Path, blobs: list[str]) -> dict[str, bytes]:
    if not blobs:
        return {}
    stdin = "\n".join(blobs).encode() + b"\n"
    bounds = replace(git.bounds, file_bytes=MAX_COMMIT_BYTES + 4 * len(stdin))
    await replace(git, bounds=bounds).run("cat-file", "--batch", stdin=stdin, stdout=answer)
    return await asyncio.to_thread(_read_batch, answer, blobs)


def _read_batch(answer: Path, blobs: Iterable[str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    with answer.open("rb") as file:
        for blob in blobs:
            contents[blob] = file.read(int(file.readline().split(b" ")[2]))
            file.read(1)
    answer.unlink()
    return contents


class DiffEntry(NamedTuple):
    """A changed path; `previous` is another path only for a rename, and the blob of a deletion is zeros."""

    path: bytes
    previous: bytes
    status: str
    old_mode: str
    new_mode: str
    old_blob: str
    blob: str
    added: int = 0
    removed: int = 0
    binary: bool = False


def parse_entries(output: bytes) -> list[DiffEntry]:
    """Parse `git diff-tree -r -z --raw --abbrev=40`, also with `--numstat`.

    The formats are in git-diff-tree(1), "Raw output format" and "Other diff formats".
    """
    entries: dict[bytes, DiffEntry] = {}
    fields = iter(output.split(b"\0")[:-1])
    for field in fields:
        if field.startswith(b":"):
            old, new, old_blob, blob, status = field[1:].decode().split(" ")
            previous = next(fields)
            path = next(fields) if status[0] == "R" else previous
            old, new = ("" if mode == _ABSENT else mode for mode in (old, new))
            entries[path] = DiffEntry(path, previous, status[0], old, new, old_blob, blob)
            continue
        added, removed, path = field.split(b"\t", 2)
        if not path:
            _, path = next(fields), next(fields)
        is_binary = added == b"-"
        lines = (0, 0) if is_binary else (int(added), int(removed))
        entries[path] = entries[path]._replace(added=lines[0], removed=lines[1], binary=is_binary)
    return list(entries.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """Git attributes of one commit, read from an index instead of the workspace.

    The job's own git directory overrides all of them.
    """

    git: Git
    folder: Path
    bounds: ProcessBounds = _BOUNDS

    async def query(self, commit: str, paths: Sequence[bytes], *names: str) -> dict[bytes, dict[str, str]]:
        """Return the named attributes of each path; `unspecified`, `set` and `unset` are git's own values.

        Raises:
            ChangeError: matching the patterns takes too long.
        """
        if not paths:
            return {}
        await asyncio.to_thread(make_repository, self.folder, self.git)
        git = replace(self.git, git_dir=self.folder, work_tree=None, index=self.folder / "index", bounds=self.bounds)
        await git.run("read-tree", commit)
        try:
            output = await git.run("check-attr", "--cached", "-z", "--stdin", *names, stdin=b"\0".join((*paths, b"")))
        except GitError as error:
            if error.exit_code is not None:
                raise
            raise ChangeError(
                f"Git takes more than {self.bounds.cpu_seconds} s for the patterns in `.gitattributes`.",
                "Simplify them.",
            ) from error
        return await asyncio.to_thread(_parse_attributes, output)


def _parse_attributes(output: bytes) -> dict[bytes, dict[str, str]]:
    fields = output.split(b"\0")
    values: dict[bytes, dict[str, str]] = {}
    for i in range(0, len(fields) - 2, 3):
        values.setdefault(fields[i], {})[fields[i + 1].decode()] = fields[i + 2].decode(errors="replace")
    return values


def line_ending_rule(attributes: Mapping[str, str]) -> str:
    """Return the attribute line for line ending conversion; empty for none.

    https://git-scm.com/docs/gitattributes#_end_of_line_conversion
    """
    if attributes.get("working-tree-encoding", "unspecified") not in {"unspecified", "unset"}:
        return ""
    # `crlf` is the old name of `text`. Git ignores unknown values.
    values = (attributes.get(name, "unspecified") for name in ("text", "crlf"))
    text = next((value for value in values if value in {"set", "unset", "auto", "input"}), "")
    if text == "auto":
        return "text=auto"
    return "text" if text in {"set", "input"} or (not text and attributes.get("eol") in {"lf", "crlf"}) else ""


async def convert_line_endings(
    git: Git, folder: Path, staging: Path, rules: Mapping[int, str], before: Mapping[int, str]
) -> dict[int, str]:
    """Return the blobs of numbered copies whose line endings git converts.

    No name, attribute or filter of the repository takes part. `before` are the blobs that the copies replace: with
    `text=auto`, git keeps CR LF where these have it.
    """
    numbers = await asyncio.to_thread(lambda: [number for number in rules if _has_crlf(staging / str(number))])
    if not numbers:
        return {}
    await asyncio.to_thread(_prepare, git, folder, [f"/{number} {rules[number]}" for number in numbers])
    worker = replace(git, git_dir=folder, work_tree=staging, index=folder / "index")
    objects = {"GIT_OBJECT_DIRECTORY": f"{git.git_dir}/objects"}
    records = "".join(f"100644 {before[number]}\t{number}\0" for number in numbers if number in before)
    await worker.run("update-index", "-z", "--index-info", stdin=records.encode(), variables=objects)
    names = "".join(f"{number}\0" for number in numbers).encode()
    await worker.run("update-index", "-z", "--add", "--stdin", stdin=names, variables=objects)
    listing = (await worker.run("ls-files", "-z", "--stage", variables=objects)).decode()
    entries = (record.partition("\t") for record in listing.split("\0")[:-1])
    return {int(number): facts.split(" ")[1] for facts, _, number in entries}


def _prepare(git: Git, folder: Path, attributes: Sequence[str]) -> None:
    make_repository(folder, git)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "attributes").write_text("\n".join([*attributes, ""]))
    (folder / "index").unlink(missing_ok=True)


def make_repository(folder: Path, source: Git) -> None:
    if source.git_dir is None:
        raise ValueError("attributes need a git directory")
    for part in ("objects/info", "refs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    (folder / "objects" / "info" / "alternates").write_text(f"{source.git_dir}/objects\n")


def _has_crlf(copy: Path) -> bool:
    before = b""
    with copy.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if _CRLF in before + chunk:
                return True
            before = chunk[-1:]
    return False


async def commit_step(git: Git, tree: str, *parents: str) -> str:
    """Create an unpublished commit, which depends on its tree and parents alone."""
    message = ("-m", "A step of a merge")
    return await git.text(
        "commit-tree", "--no-gpg-sign", *parents, *message, tree, variables=make_signature("x", "x", at=0)
    )


def make_signature(name: str, email: str, *, at: int) -> dict[str, str]:
    parts = {"NAME": name, "EMAIL": email, "DATE": f"@{at} +0000"}
    return {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in parts.items()}
