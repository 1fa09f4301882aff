"""A job's files and its trusted git directory: read the change, commit it, push it.

No sandbox reaches the trusted git directory, and nothing here reads the agent's own repository in the files.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bot.git.agent_repository import AgentRepository
from bot.git.baseline import (
    GITLINK,
    Baseline,
    Differences,
    IgnoreRules,
    find_differences,
    is_never_wanted,
    save_baseline,
    scan_files,
)
from bot.git.change import REGULAR_MODES, SYMLINK, Change, Exclusions, LargeFile
from bot.git.diff import (
    DIFF_OPTIONS,
    EOL_ATTRIBUTES,
    MAX_CHANGED_FILES,
    NO_BLOB,
    Attributes,
    DiffTooLargeError,
    commit_step,
    convert_line_endings,
    describe_change,
    index_records,
    limit_diff,
    line_ending_rule,
    make_signature,
    read_sizes,
    recreate_folder,
    select_files,
    select_small_files,
    stage_files,
    store_blobs,
)
from bot.git.errors import (
    ChangeError,
    ConflictError,
    GitError,
    PushFailedError,
    WorkflowsForbiddenError,
    push_refusal,
)
from bot.git.filesystem import ScannedFile, Stamp, is_git_name, make_stamp, open_below, open_root, read_file, run_thread
from bot.git.lfs import any_chunk_matches, find_pointers, put_pointers, upload_objects
from bot.git.mirror import Source
from bot.git.process import (
    GIT_CA_FILE,
    PAUSES,
    UNKNOWN_AUTHORITY,
    Credential,
    Git,
    retry,
)

MAX_CARRIED_BYTES = 20 * 1024 * 1024
INSEPARABLE = "The rest of the change does not work without the withheld files."
_UNKNOWN_ATTRIBUTES = "So it is not known which files belong in Git LFS, and nothing was published."
_LEFTOVER_BYTES = 64 * 1024
"""Limit of a patch of leftovers."""
_MAX_FILES = 2_000
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UPLOAD_PATIENCE = 14
"""Repetitions of the longest pause."""
_GITMODULES = ".gitmodules"

# Of an App it asks for the permission `workflows`, of a person's token for the scope `workflow`.
_WORKFLOWS_REFUSED = re.compile(r"refusing to allow .* to create or update workflow")
Hold = Callable[[Source], Awaitable[None]]
"""Fetch a commit if missing, and protect it while the workspace exists."""
_Attributes = Mapping[bytes, Mapping[str, str]]


class Tree:
    """A checked-out commit, created by `Workspaces.open`.

    Attributes:
        generation: identifies this state of the files among those on other machines; recorded before the first write.
        repository: the agent's; None without one.
        readable: host directories that its sandboxes show, by their paths there.
    """

    def __init__(
        self,
        *,
        path: Path,
        git: Git,
        trusted: Path,
        baseline: Baseline,
        hold: Hold,
        pauses: Sequence[float] = PAUSES,
        generation: str = "",
        code_index: Path | None = None,
        repository: AgentRepository | None = None,
        readable: Mapping[str, Path] | None = None,
    ) -> None:
        if git.git_dir is None:
            raise ValueError("a tree needs a git directory")
        self.path = path
        self.git_dir = git.git_dir
        self.base_sha = baseline.base_sha
        self.blobs: Mapping[str, str] = baseline.blobs
        self.generation = generation
        self.code_index = code_index
        self.repository = repository
        self.readable = dict(readable or {})
        self._git = git
        self._trusted = trusted
        self.baseline = baseline
        self._hold = hold
        self._pauses = tuple(pauses)
        self._lock = asyncio.Lock()

    async def reset_baseline(self, excluded: Iterable[str]) -> None:
        """Make the present files the baseline; nothing may write to them meanwhile."""
        async with self._lock:
            self.baseline = await asyncio.to_thread(self.baseline.reset, self.path, excluded)
            await asyncio.to_thread(save_baseline, self._trusted, self.baseline)

    async def commit_in_repository(self, change: Change) -> None:
        """Write the agent's repository anew, with a commit of the change at HEAD; no program may run in the workspace.

        A check that compares files with HEAD then sees them as they will be published.
        """
        if self.repository is None:
            return
        sha = await self.commit(change, message="The change of this job\n")
        revisions = f"{sha}\n^{change.base_sha}\n".encode()
        pack = await self._git.run("pack-objects", "--revs", "--stdout", "-q", stdin=revisions)
        await self.repository.write(self._git, sha, objects=pack)

    async def change(self, is_wanted: Callable[[str], bool] = is_never_wanted) -> Change:
        """Read the change relative to `base_sha`. Safe while hostile programs write: git sees copies only.

        Files beyond a limit, and leftovers of tools, are left out with a note.

        Args:
            is_wanted: whether a path is part of the change although its name is one of a leftover.

        Raises:
            ChangeError: the workspace is gone.
        """
        async with self._lock:
            git, staging = self._index_git, self._trusted / "staging"
            await asyncio.to_thread(recreate_folder, staging)
            diff = await self._differences(is_wanted)
            attributes, withheld = await self._query_attributes(sorted(diff.present))
            large = _in_lfs(attributes)
            selected = await asyncio.to_thread(select_files, diff.present, self.baseline.modes.keys(), large)
            staged, vanished = await run_thread(stage_files, self.path, selected.present, staging)
            # Replace Git LFS files by pointers.
            await asyncio.to_thread(recreate_folder, self._objects)
            await asyncio.to_thread(put_pointers, staging, staged, large, self._objects)
            blobs = await store_blobs(git, staging, staged)
            # Convert line endings as git would.
            rules, before = await run_thread(self._ending_rules, blobs, attributes, large)
            endings = await convert_line_endings(self._git, self._trusted / "endings.git", staging, rules, before)
            blobs = [(path, mode, endings.get(n, blob)) for n, (path, mode, blob) in enumerate(blobs)]
            removed = {*diff.removed, *vanished}
            removed |= await self._removed_submodules({path: blob for path, _, blob in blobs}, removed)
            change = await self._describe_most(blobs, removed)
            omitted = {*map(os.fsdecode, selected.omitted), *change.exclusions.omitted}
            exclusions = Exclusions(
                omitted=tuple(sorted(omitted)),
                patch=await self._leftover_patch(diff.leftovers),
                withheld=withheld or change.exclusions.withheld,
            )
            return replace(
                change,
                notes=(*diff.notes, *selected.notes, *change.notes),
                exclusions=exclusions,
                touched=await run_thread(self._modified_span, change, selected.present),
            )

    async def _query_attributes(self, paths: Sequence[bytes]) -> tuple[_Attributes, str]:
        """Return attributes in the base commit, and why they are unknown."""
        if not any(path.rpartition(b"/")[2] == b".gitattributes" for path in self.baseline.modes):
            return {}, ""
        try:
            return await self._attributes.query(self.base_sha, paths, "filter", *EOL_ATTRIBUTES), ""
        except ChangeError as error:
            return {}, f"{error} {_UNKNOWN_ATTRIBUTES}"

    async def _write_tree(self, blobs: Iterable[tuple[bytes, str, str]], removed: Collection[bytes]) -> str:
        git = self._index_git
        await git.run("read-tree", self.base_sha)
        records = await run_thread(index_records, blobs, removed, self.baseline)
        await git.run("update-index", "-z", "--index-info", stdin=records)
        return await git.text("write-tree")

    async def _describe_most(self, blobs: Sequence[tuple[bytes, str, str]], removed: Collection[bytes]) -> Change:
        """Describe the change, or else one whose diff is within its limit."""
        try:
            return await self._describe(self.base_sha, await self._write_tree(blobs, removed))
        except DiffTooLargeError:
            new = {path: blob for path, _, blob in blobs}
            tracked = self.baseline.modes.keys() & {*removed, *new}
            old = {path: self.blobs[os.fsdecode(path)] for path in tracked}
            sizes = await read_sizes(self._git, {*old.values(), *new.values()})
        excess, notes = await run_thread(limit_diff, old, new, sizes)
        rest = [record for record in blobs if record[0] not in excess]
        change = await self._describe(self.base_sha, await self._write_tree(rest, {*removed} - excess))
        omitted = tuple(os.fsdecode(path) for path in excess & tracked)
        return replace(change, notes=tuple(notes), exclusions=replace(change.exclusions, omitted=omitted))

    async def _leftover_patch(self, leftovers: Mapping[bytes, ScannedFile]) -> str:
        staging = self._trusted / "leftovers"
        await asyncio.to_thread(recreate_folder, staging)
        small = await run_thread(select_small_files, leftovers, _LEFTOVER_BYTES)
        if not small:
            return ""
        staged, _ = await run_thread(stage_files, self.path, small, staging)
        tree = await self._write_tree(await store_blobs(self._index_git, staging, staged), ())
        patch = await self._git.run(
            "diff-tree", "-r", *DIFF_OPTIONS, "--patch", "--binary", "--full-index", self.base_sha, tree
        )
        # A file may have grown meanwhile. The patch is stored as JSON.
        return patch.decode(errors="replace") if len(patch) <= _LEFTOVER_BYTES else ""

    def _ending_rules(
        self, blobs: Iterable[tuple[bytes, str, str]], attributes: _Attributes, large: Collection[bytes]
    ) -> tuple[dict[int, str], dict[int, str]]:
        texts = [
            (n, path)
            for n, (path, mode, blob) in enumerate(blobs)
            # A file with unchanged content is no change, even if git would convert it.
            if mode != SYMLINK and path not in large and blob != self.blobs.get(os.fsdecode(path))
        ]
        rules = {n: how for n, path in texts if (how := line_ending_rule(attributes.get(path, {})))}
        modes = self.baseline.modes
        return rules, {n: self.blobs[os.fsdecode(path)] for n, path in texts if modes.get(path) in REGULAR_MODES}

    def _modified_span(self, change: Change, present: Mapping[bytes, ScannedFile]) -> tuple[float, float] | None:
        paths = [os.fsencode(file.path) for file in change.files]
        changed = self.baseline.changed_ns
        times = [changed(path, present[path].stamp) / 1e9 for path in paths if path in present]
        return (min(times), max(times)) if times else None

    async def read_carried(self) -> CarriedChanges:
        """Read the changed files for another workspace of the commit; no program may run in them.

        Raises:
            ChangeError: they exceed the limits.
        """
        async with self._lock:
            diff = await self._differences()
            # The agent may have written one, or name it in its completion.
            small = await run_thread(select_small_files, diff.leftovers, _LEFTOVER_BYTES)
            present = {**small, **diff.present}
            return await asyncio.to_thread(read_changes, self.path, present, diff.removed, self.baseline)

    async def restore_carried(self, carried: CarriedChanges) -> None:
        """Restore files read by `read_carried`; no program may run in them.

        Raises:
            ChangeError: a path is blocked.
        """
        async with self._lock:
            restored = await asyncio.to_thread(write_changes, self.path, carried)
            self.baseline = replace(self.baseline, restored=restored)
            await asyncio.to_thread(save_baseline, self._trusted, self.baseline)

    async def list_unpublished(self, change: Change) -> tuple[str, ...]:
        """Return new top-level names that are neither in the baseline nor in the change, such as `build/`."""
        present = await asyncio.to_thread(scan_files, self.path, self.baseline.excluded)
        known = self.baseline.modes.keys() | {os.fsencode(file.path) for file in change.files}
        unknown = {
            path for path, entry in present.items() if path not in known and self.baseline.entries.get(path) != entry
        }
        parts = (os.fsdecode(path).partition("/") for path in unknown)
        return tuple(sorted({f"{name}{slash}" for name, slash, _ in parts}))

    async def restore(self, patch: Path, *, expect: str) -> Change:
        """Recreate a change from its patch against `base_sha`, without touching the files.

        Raises:
            ChangeError: the resulting tree differs from `expect`.
        """
        async with self._lock:
            git = self._index_git
            await git.run("read-tree", self.base_sha)
            await git.run("apply", "--allow-empty", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
            tree = await git.text("write-tree")
            if tree != expect:
                raise ChangeError("The stored patch of this job's work is damaged.", "Give the command again.")
            return await self._describe(self.base_sha, tree)

    async def exclude(self, change: Change, paths: Collection[str]) -> Change:
        """Return the change without some files; the workspace is not touched.

        Raises:
            ChangeError: the rest cannot exist without them, e.g. a file replaces their directory.
        """
        excluded = {os.fsencode(path) for path in paths}
        async with self._lock:
            git = self._index_git
            listed = await git.run("ls-tree", "-r", "-z", "--full-tree", change.base_sha)
            before = [record for record in listed.split(b"\0") if record and record.partition(b"\t")[2] in excluded]
            await git.run("read-tree", change.tree_sha)
            removed = [b"0 " + NO_BLOB.encode() + b"\t" + path for path in sorted(excluded)]
            records = b"".join(record + b"\0" for record in [*removed, *before])
            try:
                await git.run("update-index", "-z", "--index-info", stdin=records)
                tree = await git.text("write-tree")
            except GitError as error:
                raise ChangeError(INSEPARABLE, "Apply the patch yourself.") from error
            rest = await self._describe(change.base_sha, tree)
        if {file.path for file in rest.files} != {file.path for file in change.files} - set(paths):
            raise ChangeError(INSEPARABLE, "Apply the patch yourself.")
        return replace(rest, notes=change.notes, exclusions=change.exclusions)

    async def edit(self, path: str, content: bytes) -> Change:
        """Return the change that gives one file this content; the workspace is not touched."""
        async with self._lock:
            name = os.fsencode(path)
            blob = await self._git.text("hash-object", "-w", "--stdin", stdin=content)
            tree = await self._write_tree([(name, self.baseline.modes.get(name, "100644"), blob)], ())
            return await self._describe(self.base_sha, tree)

    async def replay(self, change: Change, onto: Source) -> Change:
        """Apply the change to another commit, fetched if missing; the workspace is not touched.

        Raises:
            ConflictError: it does not apply.
            CloneError: the commit could not be fetched.
        """
        await self._hold(onto)
        tree = await merge_trees(self._git, base=change.base_sha, tree=change.tree_sha, onto=onto.sha)
        replayed = await self._describe(onto.sha, tree)
        # Git detects renames by similarity; the change must not move to another file.
        unexpected = {file.path for file in replayed.files} - {file.path for file in change.files}
        if unexpected:
            raise conflict_error(onto.sha, sorted(unexpected))
        return replayed

    async def revert(self, commit_sha: str) -> Change:
        """Return the change that reverts a commit in the history of `base_sha`; `replay` applies it to a later one.

        Raises:
            ChangeError: the commit is not in that history, or has not exactly one parent.
        """
        try:
            await self._git.run("merge-base", "--is-ancestor", "--end-of-options", commit_sha, self.base_sha)
        except GitError as error:
            raise ChangeError(
                f"Commit {commit_sha[:10]} is not in the history of {self.base_sha[:10]}.", "Check where it went."
            ) from error
        parents = (await self._git.text("show", "--no-patch", "--format=%P", commit_sha)).split()
        if len(parents) != 1:
            raise ChangeError(
                f"Commit {commit_sha[:10]} has {len(parents)} parents instead of one.", "Revert it manually."
            )
        tree = await self._git.text("rev-parse", f"{parents[0]}^{{tree}}")
        return await self._describe(commit_sha, tree)

    async def commit_title(self, commit_sha: str) -> str:
        return await self._git.text("show", "--no-patch", "--format=%s", "--end-of-options", commit_sha)

    async def commit(self, change: Change, *, message: str, parents: Sequence[str] = ()) -> str:
        """Create the commit and return its id; deterministic, dated one second after its parents.

        Without `parents`, its only parent is the commit of the files.
        """
        parents = parents or (change.base_sha,)
        times = await self._git.text("show", "--no-patch", "--format=%ct", *parents)
        at = max(map(int, times.split()), default=0) + 1  # a commit of an odd history may have no date
        variables = make_signature("codepilot[bot]", "codepilot[bot]@users.noreply.github.com", at=at)
        options = [option for parent in parents for option in ("-p", parent)]
        arguments = ("commit-tree", "--no-gpg-sign", *options, "-F", "-", change.tree_sha)
        return await self._git.text(*arguments, stdin=message.encode(), variables=variables)

    async def push(self, sha: str, *, branch: str, expected: str, url: str, token: str) -> None:
        """Push a descendant of `expected` to a branch without overwriting; `expected` is empty for a new branch.

        Raises:
            PushRejectedError: the branch moved, or the server refused.
            WorkflowsForbiddenError: the token may not write workflow files.
            PushFailedError: the server did not take it, perhaps for now; a push that timed out may still succeed.
        """
        credential = Credential(url=url, token=token)
        target = f"refs/heads/{branch}"
        # The lease makes the server compare the old commit atomically. It would also allow a rewind, which is ruled out
        # here.
        lease = f"--force-with-lease={target}:{expected}"
        try:
            if expected:
                await self._git.run("merge-base", "--is-ancestor", expected, sha)
            # If the response was lost, the retry finds the branch at `sha`, which is no error.
            push = ("push", "--quiet", "--no-verify", lease, "--", url, f"{sha}:{target}")
            await retry(lambda: self._git.run(*push, credential=credential), self._pauses)
        except GitError as error:
            if _WORKFLOWS_REFUSED.search(error.stderr):
                raise WorkflowsForbiddenError from error
            if error.errno:
                raise
            if error.certainty != "definite":
                advice = "Check whether the App may write the repository's contents, then give the command again."
                advice = advice if error.certainty == "doubtful" else "Give the command again later."
                raise PushFailedError(
                    f"The push to `{branch}` failed: {error.symptom}.",
                    UNKNOWN_AUTHORITY if "certificate" in error.symptom else advice,
                ) from error
            raise push_refusal(branch, error.stderr) from error

    async def upload(self, files: Sequence[LargeFile], *, branch: str, url: str, token: str) -> None:
        ca_file = Path(path) if (path := self._git.environment.get(GIT_CA_FILE)) else None
        # For ten minutes, since the objects exist only in the workspace.
        pauses = (*self._pauses, *(self._pauses[-1:] * _UPLOAD_PATIENCE))
        await upload_objects(
            files, objects=self._objects, branch=branch, url=url, token=token, pauses=pauses, ca_file=ca_file
        )

    async def find_large_files(self, files: Sequence[LargeFile], holds: Callable[[str], bool]) -> list[str]:
        return await asyncio.to_thread(
            lambda: [file.path for file in files if any_chunk_matches(self._objects / file.oid, holds)]
        )

    @property
    def _index_git(self) -> Git:
        return Git(git_dir=self.git_dir, index=self._trusted / "change.index", environment=self._git.environment)

    async def _differences(self, is_wanted: Callable[[str], bool] = is_never_wanted) -> Differences:
        shadow = self._trusted / "shadow"
        await asyncio.to_thread(recreate_folder, shadow)
        return await find_differences(self.path, self.baseline, IgnoreRules(self._index_git, shadow), is_wanted)

    @property
    def _objects(self) -> Path:
        return self._trusted / "lfs"

    async def _removed_submodules(self, blobs: Mapping[bytes, str], removed: Collection[bytes]) -> set[bytes]:
        if _GITMODULES.encode() not in {*blobs, *removed}:
            return set()
        paths = await removed_submodules(self._git, self.blobs.get(_GITMODULES), blobs.get(_GITMODULES.encode()))
        return {path for path in paths if self.baseline.modes.get(path) == GITLINK}

    @property
    def _attributes(self) -> Attributes:
        return Attributes(git=self._git, folder=self._trusted / "attributes.git")

    async def _describe(self, base: str, tree: str) -> Change:
        change = await describe_change(self._git, self._trusted, base, tree)
        large = await run_thread(find_pointers, change.files)
        withheld = ""
        if len(change.files) > MAX_CHANGED_FILES:
            withheld = f"The change has {len(change.files):,} files; a commit may have {MAX_CHANGED_FILES:,} at most."
        try:
            in_lfs = _in_lfs(await self._attributes.query(base, [os.fsencode(file.path) for file in large], "filter"))
        except ChangeError as error:
            in_lfs, withheld = set(), f"{error} {_UNKNOWN_ATTRIBUTES}"
        large = [file for file in large if os.fsencode(file.path) in in_lfs]
        return replace(change, large=tuple(large), exclusions=Exclusions(withheld=withheld))


def _in_lfs(values: _Attributes) -> set[bytes]:
    return {path for path, attributes in values.items() if attributes["filter"] == "lfs"}


async def merge_trees(git: Git, *, base: str, tree: str, onto: str) -> str:
    """Merge the difference from `base` to `tree` into `onto`, and return the tree.

    `git merge-tree --write-tree` needs the merge base in history, which a force-push may have removed; so it gets
    three synthetic commits.

    Raises:
        ConflictError: both sides changed the same lines, or one file incompatibly.
    """
    root = await commit_step(git, f"{base}^{{tree}}")
    mine = await commit_step(git, tree, "-p", root)
    theirs = await commit_step(git, f"{onto}^{{tree}}", "-p", root)
    answer = await git.run(
        "merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", theirs, mine, expect=(0, 1)
    )
    result, *conflicts = answer.split(b"\0")[:-1]
    if conflicts:
        raise conflict_error(onto, map(os.fsdecode, conflicts))
    return result.decode()


def conflict_error(onto: str, paths: Iterable[str]) -> ConflictError:
    remedy = f"Review commit {onto[:10]}, and give the command again."
    return ConflictError(tuple(dict.fromkeys(paths)), remedy)


async def removed_submodules(git: Git, before: str | None, after: str | None) -> set[bytes]:
    """Return the paths that one version of `.gitmodules` names and the next does not; none if unreadable."""
    try:
        return await _submodule_paths(git, before) - await _submodule_paths(git, after)
    except GitError:  # a malformed file names nothing
        return set()


async def _submodule_paths(git: Git, blob: str | None) -> set[bytes]:
    if blob is None:
        return set()
    # With a pattern of keys, git's exit code is the same for a malformed file as for no match.
    config = await git.run("config", "--no-includes", f"--blob={blob}", "--null", "--list")
    entries = (record.partition(b"\n") for record in config.split(b"\0"))
    return {path.rstrip(b"/") for key, _, path in entries if key.startswith(b"submodule.") and key.endswith(b".path")}


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedChanges:
    files: tuple[CarriedFile, ...] = ()
    removed: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedFile:
    path: bytes
    mode: str
    content: bytes
    changed: int


def read_changes(
    root: Path, present: Mapping[bytes, ScannedFile], removed: tuple[bytes, ...], baseline: Baseline
) -> CarriedChanges:
    """Read the changed files; never reads outside `root`, even while hostile programs write.

    Raises:
        ChangeError: they exceed the limits.
    """
    files, bytes_left = [], MAX_CARRIED_BYTES
    if len(present) > _MAX_FILES or sum(entry.stamp[1] for entry in present.values()) > bytes_left:
        raise _too_large()
    with open_root(root) as folder:
        for path, entry in sorted(present.items()):
            content = read_file(folder, path, entry.mode, limit=bytes_left)
            if content is None:  # it has just been removed or replaced
                continue
            bytes_left -= len(content)
            if bytes_left < 0:
                raise _too_large()
            changed = baseline.changed_ns(path, entry.stamp)
            files.append(CarriedFile(path=path, mode=entry.mode, content=content, changed=changed))
    return CarriedChanges(files=tuple(files), removed=removed)


def write_changes(root: Path, carried: CarriedChanges) -> dict[bytes, tuple[Stamp, int]]:
    """Write the changed files into a checkout without running programs; links that set-up left are not followed.

    Raises:
        ChangeError: a path is blocked.
    """
    restored = dict[bytes, tuple[Stamp, int]]()
    with open_root(root) as folder:
        for path in carried.removed:
            _remove(folder, path)
        for file in carried.files:
            try:
                restored[file.path] = _write(folder, file), file.changed
            except OSError as error:
                raise ChangeError(
                    f"`{os.fsdecode(file.path)}` cannot be restored: {error.strerror}.", "Give the command again."
                ) from error
    return restored


def _write(root: int, file: CarriedFile) -> Stamp:
    folder, _, name = file.path.rpartition(b"/")
    with _open_folder(root, folder, make=True) as descriptor:
        _remove_entry(descriptor, name)
        if file.mode == SYMLINK:
            os.symlink(file.content, name, dir_fd=descriptor)
        else:
            rights = 0o755 if file.mode == "100755" else 0o644
            with os.fdopen(os.open(name, _NEW_FILE, rights, dir_fd=descriptor), "wb") as target:
                target.write(file.content)
        return make_stamp(os.stat(name, dir_fd=descriptor, follow_symlinks=False))


def _remove_entry(folder: int, name: bytes) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _remove(root: int, path: bytes) -> None:
    while path:
        folder, _, name = path.rpartition(b"/")
        try:
            with _open_folder(root, folder) as descriptor:
                _remove_entry(descriptor, name)
        except OSError:  # already removed, or the directory is not empty
            return
        path = folder


@contextmanager
def _open_folder(root: int, path: bytes, *, make: bool = False) -> Iterator[int]:
    if any(part in {b".", b".."} or is_git_name(part) for part in path.split(b"/")):
        raise PermissionError(None, "its path leads outside the workspace")
    with open_below(root, path, make=make) as folder:
        yield folder


def _too_large() -> ChangeError:
    return ChangeError(
        f"The change has more than {_MAX_FILES:,} files or {MAX_CARRIED_BYTES // 1024**2} MiB, which is too large "
        "for a waiting workflow run.",
        "Split the task.",
    )
