"""One bare mirror per repository id, shared by all jobs: objects are fetched once, under an exclusive lock."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.intake.options import is_safe_branch
from bot.workspace.errors import (
    BranchGoneError,
    CloneError,
    CommitGoneError,
    GitError,
    RepositoryEmptyError,
    WorkspaceError,
)
from bot.workspace.git import Credential, Git
from bot.workspace.locks import locked
from bot.workspace.process import Bounds
from bot.workspace.remote import PAUSES, patiently

_FILES = frozenset({"100644", "100755"})
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PULL = re.compile(r"refs/pull/\d+/head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What to fetch, from where.

    Attributes:
        url: the clone address, from GitHub's API, never from a payload's text.
        token: a token that may read this repository; empty for a path of this machine.
        ref: the full name of a branch (`refs/heads/main`) or a pull request's head (`refs/pull/7/head`).
        sha: the commit wanted.
    """

    url: str
    token: str = field(repr=False)
    ref: str
    sha: str

    def __post_init__(self) -> None:
        if not _SHA.fullmatch(self.sha):
            raise CloneError(f"{self.sha!r} is no commit id.", "Pass the full hexadecimal id.")
        branch = self.ref.removeprefix("refs/heads/")
        if not (is_safe_branch(branch) if branch != self.ref else _PULL.fullmatch(self.ref)):
            raise CloneError(f"{self.ref!r} is no name of a branch or pull request.", "Rename the branch.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A file of a commit.

    Attributes:
        id: git's id of its content.
        content: the same, as it is stored.
    """

    id: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The bare mirror of one repository.

    Attributes:
        path: its git directory.
        lock: the file whose lock guards it.
        environment: see `Git.environment`.
        seconds: how long to wait for the lock, and for a fetch.
        pauses: before the server is asked again; see `patiently`.
    """

    path: Path
    lock: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 600.0
    pauses: tuple[float, ...] = PAUSES

    @property
    def git(self) -> Git:
        """Git on the mirror."""
        return Git(git_dir=self.path, environment=self.environment, bounds=Bounds(seconds=self.seconds))

    async def provide(self, source: Source, *, keep: str | None) -> None:
        """Have `source.sha` in the mirror, held by the keep ref `keep` until `release`; None for a look at once.

        A commit that is here already costs no network at all.

        Raises:
            RepositoryEmptyError: it has no commit.
            BranchGoneError: `source.ref` no longer exists.
            CommitGoneError: the server does not hand out `source.sha` any more.
            CloneError: everything else, with what the server said.
        """
        async with locked(self.lock, seconds=self.seconds):
            await self._ensure()
            if not await self._has(source.sha):
                await self._fetch(source)
            if keep is not None:
                await self.git.run("update-ref", _keep_ref(keep), source.sha)

    async def read(self, sha: str, path: str, *, limit: int) -> Blob | None:
        """A file as a commit has it, which is here already; None when it has none there.

        Args:
            sha: the commit.
            path: from the repository's root; neither wildcards nor pathspec magic mean anything in it.
            limit: bytes that are read; a longer file is not.

        Raises:
            WorkspaceError: what stands there is no file, or too long.
        """
        if "\0" in path:  # no file is called so, and no program can be asked for it
            return None
        listed = await self.git.run("--literal-pathspecs", "ls-tree", "-z", "--long", "--full-tree", sha, "--", path)
        facts, _, name = listed.partition(b"\0")[0].partition(b"\t")
        if name != path.encode():
            return None
        mode, _, blob, size = facts.decode().split()
        if mode not in _FILES:
            kind = "a symbolic link" if mode == "120000" else "no file"
            raise WorkspaceError(f"`{path}` of commit {sha[:10]} is {kind}.", "Commit a file there, or nothing.")
        if int(size) > limit:
            raise WorkspaceError(
                f"`{path}` of commit {sha[:10]} has {int(size):,} bytes, and {limit:,} is the most.", "Make it shorter."
            )
        return Blob(id=blob, content=await self.git.run("cat-file", "blob", blob))

    async def hold(self, sha: str, *, keep: str) -> bool:
        """Have a keep ref hold a commit; False when that is not here, and nothing may be fetched."""
        async with locked(self.lock, seconds=self.seconds):
            if not self.path.exists() or not await self._has(sha):
                return False
            await self.git.run("update-ref", _keep_ref(keep), sha)
            return True

    async def release(self, *keeps: str) -> None:
        """Drop keep refs; no error when they are gone already."""
        async with locked(self.lock, seconds=self.seconds):
            if self.path.exists():
                for keep in keeps:
                    await self.git.run("update-ref", "-d", _keep_ref(keep))

    async def diff(self, base: str, head: str, *, limit: int) -> bytes:
        """The first `limit` bytes of what leads to `head` from where it left `base`; both are here already."""
        found = await self.git.run("merge-base", base, head, expect=(0, 1))
        fork = found.decode().split()[0] if found else base
        command = ("diff-tree", "-r", "--patch", "--no-ext-diff", "--no-textconv", "--no-renames", fork, head)
        return await self.git.first(limit, *command)

    async def tidy(self) -> None:
        """Pack what many fetches have left; what a keep ref or a fetched branch holds stays."""
        async with locked(self.lock, seconds=self.seconds):
            if self.path.exists():
                await self.git.run("-c", "gc.auto=2000", "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet")

    async def _ensure(self) -> None:
        # HEAD is the last thing `init` writes, so a mirror whose making was cut short is made again.
        if not (self.path / "HEAD").exists():
            await self.git.run("init", "--bare", "--quiet", "--template=", self.path)

    async def _has(self, sha: str) -> bool:
        try:
            await self.git.run("cat-file", "-e", f"{sha}^{{commit}}")
        except GitError:
            return False
        return True

    async def _fetch(self, source: Source) -> None:
        credential = Credential(url=source.url, token=source.token)
        # The branch's name is hashed: `a` deleted and `a/b` created meanwhile would collide as refs.
        local = f"refs/mirror/{hashlib.sha256(source.ref.encode()).hexdigest()[:32]}"
        fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        git = self.git
        try:
            await patiently(
                lambda: git.run(*fetch, "--", source.url, f"+{source.ref}:{local}", credential=credential), self.pauses
            )
        except GitError as error:
            raise await self._reason(source, credential, error) from error
        if await self._has(source.sha):
            return
        try:
            await patiently(lambda: git.run(*fetch, "--", source.url, source.sha, credential=credential), self.pauses)
        except GitError as error:
            raise CommitGoneError(
                f"Commit {source.sha[:10]} is no longer on `{_short(source.ref)}`.",
                "It was force-pushed away meanwhile: give the command again.",
            ) from error

    async def _reason(self, source: Source, credential: Credential, error: GitError) -> CloneError:
        if "couldn't find remote ref" not in error.stderr:
            return CloneError(f"The repository could not be fetched: {_last_line(error)}", _remedy(error.stderr))
        git = self.git
        if not (await patiently(lambda: git.run("ls-remote", "--", source.url, credential=credential), self.pauses)):
            return RepositoryEmptyError("The repository is empty.", "Push a first commit, then give the command again.")
        return BranchGoneError(
            f"`{_short(source.ref)}` no longer exists.", "Push the branch again, or give the command elsewhere."
        )


def _keep_ref(keep: str) -> str:
    return f"refs/keep/{keep}"


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/")


def _last_line(error: GitError) -> str:
    lines = [line.strip() for line in error.stderr.splitlines() if line.strip()]
    # What fsck found stands before what git then says about it.
    lines = [line for line in lines if line.startswith("error: object ")] or lines
    return f"{lines[-1].rstrip('.')}." if lines else f"git ended with exit code {error.exit_code}."


def _remedy(stderr: str) -> str:
    text = stderr.lower()
    if "fsck error" in text:
        return "Git's own check takes the repository for malformed or hostile; mend that object first."
    if "authentication failed" in text or "could not read username" in text or "403" in text:
        return "Give the App read access to the repository's contents."
    if "not found" in text or "does not exist" in text or "redirect" in text:
        return "See whether it was deleted, renamed or made private, and whether the App is still installed."
    if "could not resolve" in text or "unable to access" in text or "connection" in text:
        return "See whether the server can be reached from the bot's machine, then give the command again."
    return "Give the command again; if it fails again, show this to the bot's operator."
