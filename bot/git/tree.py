"""One job's files and its trusted git directory: the change that the agent made, its commit and its push.

The directory that the agent works in has nothing of git. `Tree.change` copies what differs into the trusted git
directory, which no sandbox may reach. `Carried` takes the changed files as bytes to a machine that has none of them but
fetches the same commit.
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

from bot.git.baseline import GITLINK, Baseline, Differences, Ignores, differences, entries_of, save
from bot.git.change import SYMLINK, Change, LargeFile
from bot.git.diff import (
    ASKED,
    NO_BLOB,
    Attributes,
    check_sizes,
    converted,
    described,
    fresh,
    index_records,
    rule,
    stage,
    store,
    without_large,
)
from bot.git.errors import ChangeError, ConflictError, GitError, PushRejectedError, WorkflowsForbiddenError
from bot.git.filesystem import ScannedFile, Stamp, in_thread, is_git_name, opened, opened_root, read_file, stamp_of
from bot.git.lfs import any_chunk, pointers, put_aside, upload
from bot.git.mirror import Source
from bot.git.process import (
    FOREIGN_CERTIFICATE,
    GIT_CA_FILE,
    PAUSES,
    Credential,
    Git,
    is_about_certificates,
    may_pass,
    patiently,
)

MAX_CARRIED_BYTES = 20 * 1024 * 1024
INSEPARABLE = "The rest of the change does not work without the withheld files."
_MAX_FILES = 2_000
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILES = frozenset({"100644", "100755"})
_GITMODULES = ".gitmodules"

# Of an App it asks for the permission `workflows`, of a person's token for the scope `workflow`.
_WORKFLOWS_REFUSED = re.compile(r"refusing to allow .* to create or update workflow")
Hold = Callable[[Source], Awaitable[None]]
"""Fetches a commit where it is missing, and has it stay for as long as the workspace does."""
_Told = Mapping[bytes, Mapping[str, str]]


class Tree:
    """A checked-out commit. Made by `Workspaces.open`.

    Attributes:
        path: the directory the agent works in; it holds the files and nothing of git.
        base_sha: the commit they were taken from.
        git_dir: the trusted git directory, which no sandbox may reach.
        blobs: path to blob id of every file in the commit.
        generation: names the state of the files that begins here; recorded before anything writes to them, it tells
            these files from older ones of the job on other machines.
        baseline: the files as they were given to the agent.
        kept_index: a file beside the mirror, for the code index that the jobs of a repository share.
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
        kept_index: Path | None = None,
    ) -> None:
        if git.git_dir is None:
            raise ValueError("a tree needs a git directory")
        self.path = path
        self.git_dir = git.git_dir
        self.base_sha = baseline.base_sha
        self.blobs: Mapping[str, str] = baseline.blobs
        self.generation = generation
        self.kept_index = kept_index
        self._git = git
        self._trusted = trusted
        self.baseline = baseline
        self._hold = hold
        self._pauses = pauses
        self._one_at_a_time = asyncio.Lock()

    async def take_as_given(self, left_out: Iterable[str]) -> None:
        """Have changes counted from the files as they are now, which nothing may write to meanwhile.

        Args:
            left_out: paths of which nothing is ever part of a change; nothing of the commit may be in them.
        """
        async with self._one_at_a_time:
            self.baseline = await asyncio.to_thread(self.baseline.reset, self.path, left_out)
            await asyncio.to_thread(save, self._trusted, self.baseline)

    async def change(self, *, unfinished: bool = False) -> Change:
        """What was changed in the files of `base_sha`. Safe while hostile programs still write: git sees copies only.

        Args:
            unfinished: whether to leave out large new files, with a note, rather than to refuse all of a change that is
                too large: what a run did that was cut short is better kept in part than lost.

        Raises:
            ChangeError: the workspace is gone, or holds more than can be published.
        """
        async with self._one_at_a_time:
            git, staging = self._index_git, self._trusted / "staging"
            await asyncio.to_thread(fresh, staging)
            found = await self._differences()
            present, notes = found.present, found.notes
            if unfinished:
                present, left_out = without_large(present, self.baseline.modes)
                notes = (*notes, *left_out)
            check_sizes(present)
            staged, vanished = await in_thread(stage, self.path, present, staging)
            # What the base commit's `.gitattributes` say of what changed; nothing where it has none.
            told = (
                {}
                if not any(path.rpartition(b"/")[2] == b".gitattributes" for path in self.baseline.modes)
                else await self._asker.of(self.base_sha, [path for path, _ in staged], "filter", *ASKED)
            )
            # Put pointers in the place of what belongs in Git LFS.
            await asyncio.to_thread(fresh, self._objects)
            large = _in_lfs(told)
            await asyncio.to_thread(put_aside, staging, staged, large, self._objects)
            blobs = await store(git, staging, staged)
            # Convert line endings where git would do that.
            rules, before = await in_thread(self._ending_rules, blobs, told, large)
            endings = await converted(self._git, self._trusted / "endings.git", staging, rules, before)
            blobs = [(path, mode, endings.get(n, blob)) for n, (path, mode, blob) in enumerate(blobs)]
            await git.run("read-tree", self.base_sha)
            gone = {*found.gone, *vanished}
            gone |= await self._submodules_taken_out({path: blob for path, _, blob in blobs}, gone)
            records = await in_thread(index_records, blobs, gone, self.baseline)
            await git.run("update-index", "-z", "--index-info", stdin=records)
            tree = await git.text("write-tree")
            change = await self._describe(self.base_sha, tree)
            return replace(change, notes=notes, touched=await in_thread(self._touched, change, present))

    def _ending_rules(
        self, blobs: Iterable[tuple[bytes, str, str]], told: _Told, large: Collection[bytes]
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Return the rules for line endings of copies, by number, and the blobs that stood in the places of copies."""
        texts = [
            (n, path)
            for n, (path, mode, blob) in enumerate(blobs)
            # A file that was only touched is no change, whatever git would make of it.
            if mode != SYMLINK and path not in large and blob != self.blobs.get(os.fsdecode(path))
        ]
        rules = {n: how for n, path in texts if (how := rule(told.get(path, {})))}
        known = self.baseline.modes
        return rules, {n: self.blobs[os.fsdecode(path)] for n, path in texts if known.get(path) in _FILES}

    def _touched(self, change: Change, present: Mapping[bytes, ScannedFile]) -> tuple[float, float] | None:
        """Return when the files of a change were written first and last, of which no program can set the time."""
        paths = [os.fsencode(each.path) for each in change.files]
        changed = self.baseline.changed_ns
        times = [changed(path, present[path].stamp) / 1e9 for path in paths if path in present]
        return (min(times), max(times)) if times else None

    async def carried(self) -> Carried:
        """What changed in the files, in which no program may run, to be put back in another workspace of the commit.

        Raises:
            ChangeError: it is more than can be carried.
        """
        async with self._one_at_a_time:
            found = await self._differences()
            return await asyncio.to_thread(take, self.path, found.present, found.gone, self.baseline)

    async def put_back(self, carried: Carried) -> None:
        """Have the files be as they were when `carried` was taken; no program may run in them.

        Raises:
            ChangeError: something stands in the way.
        """
        async with self._one_at_a_time:
            restored = await asyncio.to_thread(put, self.path, carried)
            self.baseline = replace(self.baseline, restored=restored)
            await asyncio.to_thread(save, self._trusted, self.baseline)

    async def unpublished(self, change: Change) -> tuple[str, ...]:
        """What lies in the files now, was not given and is no part of a change: names at the top, such as `build/`."""
        now = await asyncio.to_thread(entries_of, self.path, self.baseline.left_out)
        known = self.baseline.modes.keys() | {os.fsencode(file.path) for file in change.files}
        other = {path for path, entry in now.items() if path not in known and self.baseline.entries.get(path) != entry}
        parts = (os.fsdecode(path).partition("/") for path in other)
        return tuple(sorted({f"{name}{slash}" for name, slash, _ in parts}))

    async def restore(self, patch: Path, *, expect: str) -> Change:
        """The change that a patch of `change` describes, made again without touching the files.

        Args:
            patch: the file with the patch, against `base_sha`.
            expect: the tree that must come of it.

        Raises:
            ChangeError: something else came of it.
        """
        async with self._one_at_a_time:
            git = self._index_git
            await git.run("read-tree", self.base_sha)
            await git.run("apply", "--allow-empty", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
            tree = await git.text("write-tree")
            if tree != expect:
                raise ChangeError("The stored patch of this job's work is damaged.", "Give the command again.")
            return await self._describe(self.base_sha, tree)

    async def without(self, change: Change, paths: Collection[str]) -> Change:
        """The part of a change that leaves some files as they were in its base; no file is touched.

        Raises:
            ChangeError: the rest cannot stand without them, e.g. as a file is now where one of them had its directory.
        """
        taken = {os.fsencode(path) for path in paths}
        async with self._one_at_a_time:
            git = self._index_git
            listed = await git.run("ls-tree", "-r", "-z", "--full-tree", change.base_sha)
            before = [each for each in listed.split(b"\0") if each and each.partition(b"\t")[2] in taken]
            await git.run("read-tree", change.tree_sha)
            removed = [b"0 " + NO_BLOB.encode() + b"\t" + path for path in sorted(taken)]
            records = b"".join(each + b"\0" for each in [*removed, *before])
            try:
                await git.run("update-index", "-z", "--index-info", stdin=records)
                tree = await git.text("write-tree")
            except GitError as error:
                raise ChangeError(INSEPARABLE, "Apply the patch yourself.") from error
            rest = await self._describe(change.base_sha, tree)
        if {file.path for file in rest.files} != {file.path for file in change.files} - set(paths):
            raise ChangeError(INSEPARABLE, "Apply the patch yourself.")
        return replace(rest, notes=change.notes)

    async def replay(self, change: Change, onto: Source) -> Change:
        """The same change made on another commit, which is fetched when it is not here; no file is touched.

        Raises:
            ConflictError: it does not fit there.
            CloneError: the commit could not be fetched.
        """
        await self._hold(onto)
        tree = await merged(self._git, base=change.base_sha, tree=change.tree_sha, onto=onto.sha)
        again = await self._describe(onto.sha, tree)
        # Git follows renames by how much files look alike; a change must not move to a file that nobody named.
        moved = {file.path for file in again.files} - {file.path for file in change.files}
        if moved:
            raise conflict(onto.sha, sorted(moved))
        return again

    async def reversal(self, commit_sha: str) -> Change:
        """The change that takes one commit back, on that commit; `replay` makes it on a later one.

        Args:
            commit_sha: the full id of a commit in the history of `base_sha`.

        Raises:
            ChangeError: it is not in that history, or has no one commit before it.
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

    async def title(self, commit_sha: str) -> str:
        """The first line of a commit's message."""
        return await self._git.text("show", "--no-patch", "--format=%s", "--end-of-options", commit_sha)

    async def commit(self, change: Change, *, message: str) -> str:
        """Make the commit of a change, a second after its base, and give back its id: the same on every machine.

        Args:
            change: what `change` gave.
            message: the whole commit message.
        """
        base_time = await self._git.text("show", "--no-patch", "--format=%ct", change.base_sha)
        at = int(base_time or 0) + 1  # a commit of an odd history may have no date
        variables = _signature("codepilot[bot]", "codepilot[bot]@users.noreply.github.com", at=at)
        arguments = ("commit-tree", "--no-gpg-sign", "-p", change.base_sha, "-F", "-", change.tree_sha)
        return await self._git.text(*arguments, stdin=message.encode(), variables=variables)

    async def push(self, sha: str, *, branch: str, expected: str, url: str, token: str) -> None:
        """Send a commit to a branch that stands where it is expected; nothing is ever overwritten.

        Args:
            sha: the commit, which comes after `expected`.
            branch: its short name.
            expected: the commit that the branch must stand at on the server; empty when there must be no such branch.
            url: the clone address.
            token: may write to it.

        Raises:
            PushRejectedError: the branch stands elsewhere, `sha` does not come after it, or the server said no.
            WorkflowsForbiddenError: it said no because of a workflow file.
            GitError: it did not answer, or may do it the next time.
        """
        credential = Credential(url=url, token=token)
        target = f"refs/heads/{branch}"
        # The lease makes the server compare the old commit as it writes. It would also let a branch be wound back, so
        # that is ruled out here.
        lease = f"--force-with-lease={target}:{expected}"
        try:
            if expected:
                await self._git.run("merge-base", "--is-ancestor", expected, sha)
            # Where the answer to a push was lost, the branch stands at `sha` the next time, which is no error.
            push = ("push", "--quiet", "--no-verify", lease, "--", url, f"{sha}:{target}")
            await patiently(lambda: self._git.run(*push, credential=credential), self._pauses)
        except GitError as error:
            if _WORKFLOWS_REFUSED.search(error.stderr):
                raise WorkflowsForbiddenError from error
            if may_pass(error) or error.exit_code is None:  # what took too long may yet be done
                raise
            remedy = "Check whether someone pushed to it in the meantime, and whether the App may write contents."
            raise PushRejectedError(
                f"The push to `{branch}` was refused: {error.stderr.strip() or 'it is not a fast-forward'}",
                FOREIGN_CERTIFICATE if is_about_certificates(error.stderr) else remedy,
            ) from error

    async def upload(self, files: Sequence[LargeFile], *, branch: str, url: str, token: str) -> None:
        """Have Git LFS keep the objects of a change, before its pointers are sent.

        Args:
            files: `Change.large`.
            branch: the short name of where the commit will go.
            url: the clone address.
            token: may write to it.

        Raises:
            LargeFileError: one of them is not there.
        """
        ca_file = Path(trusted) if (trusted := self._git.environment.get(GIT_CA_FILE)) else None
        await upload(
            files, objects=self._objects, branch=branch, url=url, token=token, pauses=self._pauses, ca_file=ca_file
        )

    async def find_large_files(self, files: Sequence[LargeFile], holds: Callable[[str], bool]) -> list[str]:
        """The paths of those whose content has a part of which `holds` is true, read as Latin-1."""
        return await asyncio.to_thread(
            lambda: [each.path for each in files if any_chunk(self._objects / each.oid, holds)]
        )

    @property
    def _index_git(self) -> Git:
        return Git(git_dir=self.git_dir, index=self._trusted / "change.index", environment=self._git.environment)

    async def _differences(self) -> Differences:
        shadow = self._trusted / "shadow"
        await asyncio.to_thread(fresh, shadow)
        return await differences(self.path, self.baseline, Ignores(self._index_git, shadow))

    @property
    def _objects(self) -> Path:
        return self._trusted / "lfs"

    async def _submodules_taken_out(self, blobs: Mapping[bytes, str], gone: Collection[bytes]) -> set[bytes]:
        """The submodules that the changed `.gitmodules` names no more."""
        if _GITMODULES.encode() not in {*blobs, *gone}:
            return set()
        paths = await taken_out(self._git, self.blobs.get(_GITMODULES), blobs.get(_GITMODULES.encode()))
        return {path for path in paths if self.baseline.modes.get(path) == GITLINK}

    @property
    def _asker(self) -> Attributes:
        return Attributes(git=self._git, folder=self._trusted / "attributes.git")

    async def _describe(self, base: str, tree: str) -> Change:
        change = await described(self._git, self._trusted, base, tree)
        found = await in_thread(pointers, change.files)
        in_lfs = _in_lfs(await self._asker.of(base, [os.fsencode(each.path) for each in found], "filter"))
        return replace(change, large=tuple(each for each in found if os.fsencode(each.path) in in_lfs))


def _in_lfs(told: _Told) -> set[bytes]:
    return {path for path, attributes in told.items() if attributes["filter"] == "lfs"}


def _signature(name: str, email: str, *, at: int) -> dict[str, str]:
    """The environment in which git names an author and committer, and a time in seconds since the epoch."""
    parts = {"NAME": name, "EMAIL": email, "DATE": f"@{at} +0000"}
    return {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in parts.items()}


async def merged(git: Git, *, base: str, tree: str, onto: str) -> str:
    """The tree that `onto` becomes by what leads from `base` to `tree`.

    `git merge-tree --write-tree` (2.38 and newer) finds the base of a merge in history, which a force-push may have
    taken away; so it is shown three commits of our own that have the right one.

    Raises:
        ConflictError: both changed the same lines, or the same file in ways that exclude each other.
    """
    root = await _commit(git, f"{base}^{{tree}}")
    mine = await _commit(git, tree, "-p", root)
    theirs = await _commit(git, f"{onto}^{{tree}}", "-p", root)
    answer = await git.run(
        "merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", theirs, mine, expect=(0, 1)
    )
    result, *conflicts = answer.split(b"\0")[:-1]
    if conflicts:
        raise conflict(onto, map(os.fsdecode, conflicts))
    return result.decode()


def conflict(onto: str, paths: Iterable[str]) -> ConflictError:
    """The error for a change that does not fit on the commit `onto`."""
    remedy = f"Review commit {onto[:10]}, and give the command again."
    return ConflictError(tuple(dict.fromkeys(paths)), remedy)


async def _commit(git: Git, tree: str, *parents: str) -> str:
    message = ("-m", "A step of a merge")
    return await git.text(
        "commit-tree", "--no-gpg-sign", *parents, *message, tree, variables=_signature("x", "x", at=0)
    )


async def taken_out(git: Git, before: str | None, after: str | None) -> set[bytes]:
    """The paths that one version of `.gitmodules` names and the next does not; none where it cannot be read.

    The commit that is in the place of such a submodule goes with the entry.

    Args:
        git: git on a directory that has both.
        before: the blob of the base commit; None when there is none.
        after: the blob as it is to be committed; None when it is removed.
    """
    try:
        return await _named(git, before) - await _named(git, after)
    except GitError:  # not even git can say what a broken list names, so nothing follows from it
        return set()


async def _named(git: Git, blob: str | None) -> set[bytes]:
    if blob is None:
        return set()
    # Asked for some keys, git gives the same exit code for a broken file as for none of them.
    said = await git.run("config", "--no-includes", f"--blob={blob}", "--null", "--list")
    entries = (record.partition(b"\n") for record in said.split(b"\0"))
    return {path.rstrip(b"/") for key, _, path in entries if key.startswith(b"submodule.") and key.endswith(b".path")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a workspace holds beyond its commit and what set-up makes; files that git ignores are no part of it.

    Attributes:
        files: what was changed or is new.
        gone: what is in the commit and was removed.
    """

    files: tuple[CarriedFile, ...] = ()
    gone: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedFile:
    """A file or link that differs from the commit.

    Attributes:
        path: relative to the repository's root.
        mode: git's mode, `100644`, `100755` or `120000`.
        content: its bytes; of a link, its target.
        changed: see `Baseline.changed_ns`.
    """

    path: bytes
    mode: str
    content: bytes
    changed: int


def take(root: Path, present: Mapping[bytes, ScannedFile], gone: tuple[bytes, ...], baseline: Baseline) -> Carried:
    """Read what changed; nothing outside of `root` is read, whatever programs do there meanwhile.

    Raises:
        ChangeError: it is more than can be carried.
    """
    files, left = [], MAX_CARRIED_BYTES
    if len(present) > _MAX_FILES or sum(entry.stamp[1] for entry in present.values()) > left:
        raise _too_much()
    with opened_root(root) as place:
        for path, entry in sorted(present.items()):
            content = read_file(place, path, entry.mode, limit=left)
            if content is None:  # it went, or became something else, in this moment
                continue
            left -= len(content)
            if left < 0:
                raise _too_much()
            changed = baseline.changed_ns(path, entry.stamp)
            files.append(CarriedFile(path=path, mode=entry.mode, content=content, changed=changed))
    return Carried(files=tuple(files), gone=gone)


def put(root: Path, carried: Carried) -> dict[bytes, tuple[Stamp, int]]:
    """Make the same changes in a checkout that no program runs in; what set-up left there leads nowhere else.

    Returns:
        The files that were written, as in `Baseline.restored`.

    Raises:
        ChangeError: something stands in the way.
    """
    restored = dict[bytes, tuple[Stamp, int]]()
    with opened_root(root) as place:
        for path in carried.gone:
            _remove(place, path)
        for file in carried.files:
            try:
                restored[file.path] = _write(place, file), file.changed
            except OSError as error:
                raise ChangeError(
                    f"`{os.fsdecode(file.path)}` cannot be restored: {error.strerror}.", "Give the command again."
                ) from error
    return restored


def _write(root: int, file: CarriedFile) -> Stamp:
    folder, _, name = file.path.rpartition(b"/")
    with _below(root, folder, make=True) as place:
        _clear(place, name)
        if file.mode == SYMLINK:
            os.symlink(file.content, name, dir_fd=place)
        else:
            rights = 0o755 if file.mode == "100755" else 0o644
            with os.fdopen(os.open(name, _NEW_FILE, rights, dir_fd=place), "wb") as target:
                target.write(file.content)
        return stamp_of(os.stat(name, dir_fd=place, follow_symlinks=False))


def _clear(folder: int, name: bytes) -> None:
    """Take away what has the name: a file, a link, or a directory with nothing in it."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _remove(root: int, path: bytes) -> None:
    """Remove a file, and the directories that are empty then."""
    while path:
        folder, _, name = path.rpartition(b"/")
        try:
            with _below(root, folder) as place:
                _clear(place, name)
        except OSError:  # it is not there any more, or not all that was in the directory is gone
            return
        path = folder


@contextmanager
def _below(root: int, path: bytes, *, make: bool = False) -> Iterator[int]:
    """Open a directory of the workspace that is not git's.

    Raises:
        PermissionError: the path leads elsewhere.
    """
    if any(part in {b".", b".."} or is_git_name(part) for part in path.split(b"/")):
        raise PermissionError(None, "its path leads outside the workspace")
    with opened(root, path, make=make) as folder:
        yield folder


def _too_much() -> ChangeError:
    return ChangeError(
        f"The change has more than {_MAX_FILES:,} files or {MAX_CARRIED_BYTES // 1024**2} MiB, which is too large "
        "for a waiting workflow run.",
        "Split the task.",
    )
