"""Workspaces whose repositories are a `FakeSite`: no git, no process, no network; the agent's files are real.

Generations, kept and lost files are the real `Workspaces`'; what git does is done in memory by `FakeMirror` and
`FakeTree`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from os import fsdecode, fsencode
from pathlib import Path

from typing_extensions import override

from bot.domain.difference import ChangedFile
from bot.git.agent_repository import AgentRepository, Refs
from bot.git.baseline import (
    Baseline,
    Differences,
    IgnoreRules,
    find_differences,
    is_never_wanted,
    save_baseline,
    scan_files,
)
from bot.git.change import SYMLINK, Change, Exclusions, LargeFile
from bot.git.compare import Comparison
from bot.git.diff import select_files
from bot.git.errors import (
    BranchGoneError,
    ChangeError,
    CommitGoneError,
    LinkError,
    RepositoryEmptyError,
    WorkspaceError,
    push_refusal,
)
from bot.git.filesystem import discard, open_root, read_file
from bot.git.merge import Conflict, Merge, Stage
from bot.git.mirror import Blob, Mirror, Source
from bot.git.process import Git
from bot.git.tree import INSEPARABLE, Tree, conflict_error
from bot.git.workspace import IsCurrent, Workspaces, always_current, begin_generation, keep_nothing
from bot.publishing.screening import split_sections
from tests.fakes import trees
from tests.fakes.site import FakeCommit, FakeFile, FakeSite, object_id, tree_id

_FILES = frozenset({"100644", "100755"})
_BOT = "codepilot[bot]"
Files = Mapping[str, FakeFile]


@dataclass(slots=True)
class FakeGit:
    """The site's commits, and the trees and commits that workspaces made of them.

    Attributes:
        calls: names of the operations, oldest first.
    """

    site: FakeSite
    calls: list[str] = field(default_factory=list)
    faults: list[_Fault] = field(default_factory=list)
    trees: dict[str, Files] = field(default_factory=dict)
    commits: dict[str, FakeCommit] = field(default_factory=dict)
    patches: dict[tuple[str, bytes], str] = field(default_factory=dict)

    def begin(self, call: str) -> None:
        """Note an operation; raise its fault, if it has one."""
        self.calls.append(call)
        for fault in self.faults:
            if fault.call == call and fault.times:
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                raise fault.error

    def find(self, sha: str) -> FakeCommit | None:
        commits = (repo.commits[sha] for repo in self.site.repos.values() if sha in repo.commits)
        return self.commits.get(sha) or next(commits, None)

    def commit(self, sha: str) -> FakeCommit:
        commit = self.find(sha)
        assert commit is not None, f"no commit {sha}"
        return commit

    def files(self, sha: str) -> Files:
        """Return the files of a commit."""
        return self.commit(sha).tree

    def make_commit(self, files: Files, parents: tuple[str, ...], message: str) -> str:
        """Make a commit of the bot's, and return its id."""
        lines = [f"tree {tree_id(files)}", *(f"parent {parent}" for parent in parents), f"author {_BOT}", "", message]
        sha = object_id("commit", "\n".join(lines).encode())
        self.commits[sha] = FakeCommit(sha, files, parents, message, _BOT)
        return sha

    def ancestors(self, sha: str) -> Iterator[str]:
        """Yield a commit and its ancestors, nearest first."""
        pending, seen = [sha], set[str]()
        while pending:
            current = pending.pop(0)
            if current not in seen and (commit := self.find(current)) is not None:
                seen.add(current)
                yield current
                pending += commit.parents

    def describe(self, folder: Path, base: str, files: Files) -> Change:
        """Return the change from a commit to these files, and remember its patch."""
        tree = tree_id(files)
        changed, patch = trees.compare(self.files(base), files)
        content = patch.encode("utf-8", "surrogateescape")
        whole = folder / "change.patch"
        whole.write_bytes(content)
        self.trees[tree] = files
        self.patches[base, hashlib.sha256(content).digest()] = tree
        change = Change(base_sha=base, tree_sha=tree, files=changed, patch=patch, patch_file=whole)
        if not change.changed_links:
            return change
        links = {path: fsdecode(entry.content) for path, entry in files.items() if entry.mode == SYMLINK}
        return replace(change, links=links)


@dataclass(slots=True)
class _Fault:
    call: str
    error: Exception
    times: int
    after: int


class FakeWorkspaces(Workspaces):
    """Workspaces of one machine.

    Attributes:
        git: shared by the machines of a test.
    """

    def __init__(self, root: Path, site: FakeSite, *, git: FakeGit | None = None) -> None:
        super().__init__(root)
        self.git = git or FakeGit(site)
        self._fetched: defaultdict[int, set[str]] = defaultdict(set)

    def fail(self, call: str, error: Exception, *, times: int = 1, after: int = 0) -> None:
        """Let an operation fail.

        Args:
            call: `fetch`, `check_out`, `read`, `diff`, `merge`, `change`, `edit`, `restore`, `exclude`, `replay`,
                `revert`, `commit`, `push` or `upload`.
            times: number of failures.
            after: number of operations that succeed before.
        """
        self.git.faults.append(_Fault(call, error, times, after))

    def files_of(self, job_id: str) -> Path:
        """Return the directory of a job's files."""
        return self._folder(job_id) / "files"

    def lose(self, job_id: str) -> None:
        """Remove the kept files of a job, as the loss of a machine does."""
        discard(self._folder(job_id))

    @property
    def kept_jobs(self) -> list[str]:
        """Jobs whose files are on the disk."""
        return sorted(path.name for path in self._jobs.iterdir() if path.is_dir())

    @override
    @asynccontextmanager
    async def open(
        self,
        job_id: str,
        repo_id: int,
        source: Source,
        *,
        refs: Refs | None = None,
        has_files: bool = True,
        keep: Callable[[], bool] = keep_nothing,
        current: IsCurrent = always_current,
    ) -> AsyncIterator[Tree]:
        folder, tree = self._folder(job_id), None
        await self._remove(folder)
        try:
            mirror = await self._provide(folder, repo_id, source)
            commit = await self._init_trusted(folder, mirror, source.sha)
            if has_files:
                self.git.begin("check_out")
                for path, entry in self.git.files(source.sha).items():
                    write_entry(folder / "files" / path, entry)
            baseline = replace(commit, entries=scan_files(folder / "files"))
            save_baseline(folder / "trusted", baseline)
            tree = self._make_tree(folder, mirror, baseline, begin_generation(folder))
            yield tree
        finally:
            await self._close(folder, tree, keep, current)

    @override
    async def _init_trusted(self, folder: Path, mirror: Mirror, sha: str) -> Baseline:
        for directory in (folder / "trusted", folder / "files"):
            directory.mkdir(mode=0o700)
        files = self.git.files(sha)
        blobs = {path: entry.sha for path, entry in files.items()}
        modes = {fsencode(path): entry.mode for path, entry in files.items()}
        return Baseline(base_sha=sha, modes=modes, blobs=blobs, entries={})

    @override
    def _make_tree(
        self,
        folder: Path,
        mirror: Mirror,
        baseline: Baseline,
        generation: str,
        repository: AgentRepository | None = None,
    ) -> Tree:
        return FakeTree(
            site_git=self.git,
            hold=mirror,
            path=folder / "files",
            trusted=folder / "trusted",
            baseline=baseline,
            generation=generation,
        )

    @override
    async def _plan_repository(
        self, folder: Path, mirror: Mirror, source: Source, refs: Refs | None
    ) -> AgentRepository | None:
        return None  # its files are git's

    @override
    async def _close(self, folder: Path, tree: Tree | None, keep: Callable[[], bool], current: IsCurrent) -> None:
        if tree is not None and keep():
            await self._store(folder, tree.baseline, current)
        else:
            await super()._close(folder, tree, keep_nothing, current)

    @override
    def _mirror(self, repo_id: int) -> Mirror:
        return FakeMirror(
            path=self._mirrors / f"{repo_id}.git",
            lock=self._mirrors / f"{repo_id}.lock",
            site_git=self.git,
            fetched=self._fetched[repo_id],
        )

    @override
    async def merge(self, repo_id: int, head: Source, base: Source) -> Merge | None:
        branch = base.ref.removeprefix("refs/heads/")
        await self._fetch(repo_id, head, base)
        self.git.begin("merge")
        if base.sha in self.git.ancestors(head.sha):
            return None
        earlier = set(self.git.ancestors(base.sha))
        fork = self.git.files(next(sha for sha in self.git.ancestors(head.sha) if sha in earlier))
        ours, theirs = self.git.files(head.sha), self.git.files(base.sha)
        merged, paths = trees.merge(fork, theirs, ours)
        conflicts, stages, markers = list[Conflict](), dict[str, dict[int, Stage]](), dict[str, dict[bytes, int]]()
        for path in paths:
            versions = {number: side[path] for number, side in ((1, fork), (2, ours), (3, theirs)) if path in side}
            stages[path] = {number: Stage(mode=file.mode, blob=file.sha) for number, file in versions.items()}
            kind = "content" if len(versions) == 3 else "modify/delete" if 1 in versions else "add/add"
            conflicts.append(Conflict(kind=kind, paths=(path,), message=f"CONFLICT ({kind}): Merge conflict in {path}"))
            if kind == "modify/delete":
                merged[path] = versions[2 if 2 in versions else 3]
                continue
            merged[path], markers[path] = trees.mark_conflict(versions, f"origin/{branch}")
        self.git.trees[tree_id(merged)] = merged
        sha = self.git.make_commit(merged, (head.sha, base.sha), "A step of a merge")
        self._fetched[repo_id].add(sha)
        return Merge(
            head=head.sha,
            base=base.sha,
            branch=branch,
            commit=sha,
            tree=tree_id(merged),
            conflicts=tuple(conflicts),
            stages=stages,
            markers=markers,
            writes_workflows=any(
                path.startswith(".github/workflows/") and file not in {ours.get(path), theirs.get(path)}
                for path, file in merged.items()
            ),
        )


def write_entry(path: Path, entry: FakeFile) -> None:
    """Write a file or link of a commit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.mode == SYMLINK:
        path.symlink_to(fsdecode(entry.content))
    else:
        path.write_bytes(entry.content)
        path.chmod(0o755 if entry.mode == "100755" else 0o644)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMirror(Mirror):
    """The commits of one repository that a machine has fetched."""

    site_git: FakeGit
    fetched: set[str]

    @override
    async def provide(self, source: Source, *, keep: str | None) -> None:
        if source.sha in self.fetched:
            return
        self.site_git.begin("fetch")
        repo = self.site_git.site.repo(source.name)
        branches, branch = repo.branches, source.ref.removeprefix("refs/heads/")
        if not branches:
            raise RepositoryEmptyError("The repository is empty.", "Push a first commit, then give the command again.")
        if not source.is_pull and branch not in branches:
            raise BranchGoneError(
                f"`{branch}` no longer exists.", "Push the branch again, or give the command elsewhere."
            )
        if source.sha not in repo.commits:
            raise CommitGoneError(
                f"Commit {source.sha[:10]} is no longer on `{branch}`.",
                "It was removed by a force-push: give the command again.",
            )
        self.fetched.add(source.sha)

    @override
    async def keep_commit(self, sha: str, *, keep: str) -> bool:
        return sha in self.fetched

    @override
    async def release(self, *keeps: str) -> None: ...

    @override
    async def read(self, sha: str, paths: Collection[str], *, limit: int) -> dict[str, Blob | WorkspaceError | None]:
        self.site_git.begin("read")
        entries = self.site_git.files(sha)
        folders = {path.rpartition("/")[0] for path in entries}
        return {path: self._read(sha, path, entries.get(path), limit, is_folder=path in folders) for path in paths}

    def _read(
        self, sha: str, path: str, entry: FakeFile | None, limit: int, *, is_folder: bool
    ) -> Blob | WorkspaceError | None:
        file, remedy = f"`{path}` of commit {sha[:10]}", "Commit a regular file there, or nothing."
        if entry is None:
            return WorkspaceError(f"{file} is no file.", remedy) if is_folder else None
        if entry.mode == SYMLINK:
            return LinkError(path, f"{file} is a symbolic link.", remedy, entry.content)
        if entry.mode not in _FILES:
            return WorkspaceError(f"{file} is no file.", remedy)
        if (size := len(entry.content)) > limit:
            return WorkspaceError(f"{file} has {size:,} bytes; the limit is {limit:,}.", "Make it shorter.")
        return Blob(id=entry.sha, content=entry.content)

    @override
    async def list_blobs(self, sha: str) -> dict[str, str]:
        self.site_git.begin("read")
        return {path: entry.sha for path, entry in self.site_git.files(sha).items()}

    @override
    async def read_many(self, sha: str, patterns: Sequence[str], *, most: int, limit: int) -> dict[str, Blob]:
        self.site_git.begin("read")
        chosen = {
            path: Blob(id=entry.sha, content=entry.content)
            for path, entry in sorted(self.site_git.files(sha).items())
            if entry.mode in _FILES
            and len(entry.content) <= limit
            and any(path.count("/") == glob.count("/") and fnmatchcase(path, glob) for glob in patterns)
        }
        return dict(list(chosen.items())[:most])

    @override
    async def read_titles(self, sha: str, *, most: int) -> tuple[str, ...]:
        self.site_git.begin("read")
        commits = [self.site_git.commit(each) for each in self.site_git.ancestors(sha)]
        return tuple(commit.message.partition("\n")[0] for commit in commits if len(commit.parents) < 2)[:most]

    @override
    async def compare(self, base: str, head: str) -> Comparison:
        self.site_git.begin("diff")
        ancestors = set(self.site_git.ancestors(base))
        fork = next((sha for sha in self.site_git.ancestors(head) if sha in ancestors), base)
        changes, _ = trees.compare(self.site_git.files(fork), self.site_git.files(head))
        files = (
            ChangedFile(
                path=change.path,
                status=change.status,
                old_mode=change.old_mode,
                new_mode=change.new_mode,
                added=change.added,
                removed=change.removed,
                binary=change.binary,
                size=len(self.site_git.files(head if change.new_mode else fork)[change.path].content),
            )
            for change in changes
        )
        return Comparison(fork=fork, head=head, files=tuple(file.with_mark({}) for file in files))

    @override
    async def read_patch(self, comparison: Comparison, files: Iterable[ChangedFile], *, limit: int) -> bytes:
        paths = {path for file in files for path in file.paths}
        _, patch = trees.compare(self.site_git.files(comparison.fork), self.site_git.files(comparison.head))
        sections = (section for path, section in split_sections(patch) if path in paths)
        return "".join(sections).encode("utf-8", "surrogateescape")[:limit]


class FakeTree(Tree):
    """A checked-out commit whose differences, commits and pushes are made in memory."""

    def __init__(
        self, *, site_git: FakeGit, hold: Mirror, path: Path, trusted: Path, baseline: Baseline, generation: str
    ) -> None:
        async def provide(source: Source) -> None:
            await hold.provide(source, keep=None)

        super().__init__(
            path=path,
            git=Git(git_dir=trusted / "repo.git"),
            trusted=trusted,
            baseline=baseline,
            hold=provide,
            generation=generation,
            code_index=hold.path.with_suffix(".index") / "code.db",
        )
        self._site_git = site_git

    @override
    async def change(self, is_wanted: Callable[[str], bool] = is_never_wanted) -> Change:
        self._site_git.begin("change")
        diff = await self._differences(is_wanted)
        selected = select_files(diff.present, self.baseline.modes.keys(), ())
        present, notes = selected.present, (*diff.notes, *selected.notes)
        exclusions = Exclusions(omitted=tuple(map(fsdecode, selected.omitted)), patch=self._leftovers(diff))
        files, times = dict(self._site_git.files(self.base_sha)), dict[str, float]()
        for path in diff.removed:
            files.pop(fsdecode(path), None)
        with open_root(self.path) as root:
            for path, scanned in present.items():
                content = read_file(root, path, scanned.mode, limit=scanned.stamp[1])
                if content is not None:
                    files[fsdecode(path)] = FakeFile(scanned.mode, content)
                    times[fsdecode(path)] = scanned.stamp[2] / 1e9
        change = self._site_git.describe(self._trusted, self.base_sha, files)
        touched = [times[file.path] for file in change.files if file.path in times]
        span = (min(touched), max(touched)) if touched else None
        return replace(change, notes=notes, exclusions=exclusions, touched=span)

    def _leftovers(self, diff: Differences) -> str:
        """Return a patch of the leftovers that are no caches."""
        names = [*map(fsdecode, diff.leftovers)]
        base = self._site_git.files(self.base_sha)
        files = {name: FakeFile("100644", (self.path / name).read_bytes()) for name in names}
        return trees.compare(base, {**base, **files})[1] if files else ""

    @override
    async def _differences(self, is_wanted: Callable[[str], bool] = is_never_wanted) -> Differences:
        return await find_differences(self.path, self.baseline, FakeIgnoreRules(), is_wanted)

    @override
    async def restore(self, patch: Path, *, expect: str) -> Change:
        self._site_git.begin("restore")
        digest = hashlib.sha256(await asyncio.to_thread(patch.read_bytes)).digest()
        if self._site_git.patches.get((self.base_sha, digest)) != expect:
            raise ChangeError("The stored patch of this job's work is damaged.", "Give the command again.")
        return self._site_git.describe(self._trusted, self.base_sha, self._site_git.trees[expect])

    @override
    async def exclude(self, change: Change, paths: Collection[str]) -> Change:
        self._site_git.begin("exclude")
        files, before = dict(self._site_git.trees[change.tree_sha]), self._site_git.files(change.base_sha)
        for path in paths:
            files.pop(path, None)
            if path in before:
                files[path] = before[path]
        folders = {parent.as_posix() for path in files for parent in Path(path).parents}
        rest = self._site_git.describe(self._trusted, change.base_sha, files)
        expected = {file.path for file in change.files} - set(paths)
        if folders & files.keys() or {file.path for file in rest.files} != expected:
            raise ChangeError(INSEPARABLE, "Apply the patch yourself.")
        return replace(rest, notes=change.notes, exclusions=change.exclusions)

    @override
    async def edit(self, path: str, content: bytes) -> Change:
        self._site_git.begin("edit")
        files = self._site_git.files(self.base_sha)
        mode = files[path].mode if path in files else "100644"
        return self._site_git.describe(self._trusted, self.base_sha, {**files, path: FakeFile(mode, content)})

    @override
    async def replay(self, change: Change, onto: Source) -> Change:
        self._site_git.begin("replay")
        await self._hold(onto)
        base, files = self._site_git.files(change.base_sha), self._site_git.trees[change.tree_sha]
        merged, conflicts = trees.merge(base, files, self._site_git.files(onto.sha))
        if conflicts:
            raise conflict_error(onto.sha, conflicts)
        return self._site_git.describe(self._trusted, onto.sha, merged)

    @override
    async def revert(self, commit_sha: str) -> Change:
        self._site_git.begin("revert")
        if commit_sha not in self._site_git.ancestors(self.base_sha):
            raise ChangeError(
                f"Commit {commit_sha[:10]} is not in the history of {self.base_sha[:10]}.", "Check where it went."
            )
        parents = self._site_git.commit(commit_sha).parents
        if len(parents) != 1:
            raise ChangeError(
                f"Commit {commit_sha[:10]} has {len(parents)} parents instead of one.", "Revert it manually."
            )
        return self._site_git.describe(self._trusted, commit_sha, self._site_git.files(parents[0]))

    @override
    async def commit_title(self, commit_sha: str) -> str:
        return self._site_git.commit(commit_sha).message.partition("\n")[0]

    @override
    async def commit(self, change: Change, *, message: str, parents: Sequence[str] = ()) -> str:
        self._site_git.begin("commit")
        tree = self._site_git.trees[change.tree_sha]
        return self._site_git.make_commit(tree, tuple(parents) or (change.base_sha,), message)

    @override
    async def push(self, sha: str, *, branch: str, expected: str, url: str, token: str) -> None:
        self._site_git.begin("push")
        name = Source(url=url, token=token, ref=f"refs/heads/{branch}", sha=sha).name
        repo = self._site_git.site.repo(name)
        head = repo.branches.get(branch, "")
        if head == sha:  # an earlier push whose answer was lost
            return
        if head != expected or (expected and expected not in self._site_git.ancestors(sha)):
            raise push_refusal(branch, "")
        if refusal := self._site_git.site.refusal_of_push(repo, branch, self._site_git.commit(sha)):
            raise push_refusal(branch, "\n".join(f"remote: {line}" for line in refusal.splitlines()))
        repo.commits[sha] = self._site_git.commit(sha)
        self._site_git.site.move_branch(repo, branch, sha)

    @override
    async def upload(self, files: Sequence[LargeFile], *, branch: str, url: str, token: str) -> None:
        self._site_git.begin("upload")


class FakeIgnoreRules(IgnoreRules):
    """Simple `.gitignore` patterns: names, folders and paths with `*`."""

    def __init__(self) -> None:
        self.timed_out = False
        self._rules: list[tuple[bytes, str]] = []
        self._folders: set[bytes] = set()

    @override
    def add_folder(self, folder: bytes, rules: bytes | None, names: tuple[bytes, ...]) -> None:
        prefix = folder + b"/" if folder else b""
        self._folders.update(prefix + name for name in names)
        lines = (rules or b"").decode("utf-8", "replace").splitlines()
        self._rules += [(prefix, line.strip()) for line in lines if line.strip() and not line.startswith("#")]

    @override
    async def find_ignored(self, paths: list[bytes]) -> set[bytes]:
        return {path for path in paths if any(self._matches(path, prefix, rule) for prefix, rule in self._rules)}

    @override
    async def find_included(self, paths: list[bytes]) -> set[bytes]:
        included = [(prefix, rule[1:]) for prefix, rule in self._rules if rule.startswith("!")]
        return {path for path in paths if any(self._matches(path, prefix, rule) for prefix, rule in included)}

    def _matches(self, path: bytes, prefix: bytes, rule: str) -> bool:
        if not path.startswith(prefix) or (rule.endswith("/") and path not in self._folders):
            return False
        name, pattern = fsdecode(path.removeprefix(prefix)), rule.rstrip("/")
        if "/" not in pattern:
            name = name.rpartition("/")[2]
        return fnmatchcase(name, pattern.removeprefix("/"))
