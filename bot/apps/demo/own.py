"""A repository of the user's own, copied into a bare one with one branch, which the hub can serve. It is only read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bot.domain.errors import BotError
from bot.workspace.errors import GitError
from bot.workspace.git import Git

_INITIAL_BRANCH = "main"
_HEADS = "refs/heads/"
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")
_AUTHOR = b"Mona <mona@users.noreply.github.com> now"


class DemoError(BotError):
    """The demo cannot be set up; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy of a repository.

    Attributes:
        path: where it is; bare.
        name: what it may be called on GitHub.
        note: what of the original is not in it, as a sentence; empty when nothing is missing.
    """

    path: Path
    name: str
    note: str = ""


async def copied(repository: Path, target: Path) -> Copied:
    """Copy the branch that is checked out, or the commit, with its history if it is available.

    Args:
        repository: a directory in it.
        target: where the copy is made.

    Raises:
        DemoError: there is no usable commit; the text says why.
    """
    try:
        is_bare = (await Git().run("-C", repository, "rev-parse", "--is-bare-repository")).strip() == b"true"
        what = "--absolute-git-dir" if is_bare else "--show-toplevel"
        found = await Git().run("-C", repository, "rev-parse", what)
    except GitError as error:
        if "dubious ownership" in error.stderr:
            raise DemoError(
                f"{repository} belongs to another user, and git refuses to read it. Run the demo as that user, or on "
                f"your own copy: cp -r {repository} COPY"
            ) from error
        raise DemoError(f"{repository} is not a git repository; try: git init && git commit") from error
    top = Path(found.decode("utf-8", "surrogateescape").removesuffix("\n"))
    if not await _says(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        raise DemoError(f"{repository} has no commit yet; create one first: git commit")
    head = await _says(top, "symbolic-ref", "--quiet", "HEAD")  # nothing where HEAD is detached
    branch = head.removeprefix(_HEADS) or _INITIAL_BRANCH
    copy = Git(git_dir=target)
    await copy.run("init", "--quiet", "--bare", f"--initial-branch={branch}", target)
    name = _FORBIDDEN.sub("-", top.name.removesuffix(".git")).strip("-.") or "project"
    why = "the clone is shallow" if await _says(top, "rev-parse", "--is-shallow-repository") == "true" else ""
    if not why:
        try:
            await copy.run("fetch", "--quiet", "--no-tags", top, f"+HEAD:{_HEADS}{branch}")
        except GitError as error:  # e.g. of another object format, or without some old files
            why = _last_line(error.stderr)
    if why:
        await _import_last_commit(top, copy, branch)
    return Copied(path=target, name=name, note=f"Only the last commit is used, without history: {why}." if why else "")


async def _says(top: Path, *args: str) -> str:
    """What git answers about the repository; nothing when it has no answer."""
    return (await Git().run("-C", top, *args, expect=(0, 1, 128))).decode("utf-8", "surrogateescape").strip()


async def _import_last_commit(top: Path, copy: Git, branch: str) -> None:
    """Make a commit of the files of the last one, byte for byte, whatever the object format and the history."""
    listed = (await Git().run("-C", top, "ls-tree", "-r", "-z", "HEAD")).split(b"\0")
    entries = [(meta.split(), path) for meta, _, path in (line.partition(b"\t") for line in listed if line)]
    files = [(mode, sha, path) for (mode, kind, sha), path in entries if kind == b"blob"]
    wanted = b"".join(sha + b"\n" for sha in dict.fromkeys(sha for _, sha, _ in files))
    if copy.git_dir is None:
        raise TypeError("the copy has a git directory")  # a bug of ours
    contents, stream = copy.git_dir / "demo.contents", copy.git_dir / "demo.import"
    try:
        await Git().run("-C", top, "cat-file", "--batch", stdin=wanted, stdout=contents)
        marks: dict[bytes, int] = {}
        with contents.open("rb") as read, stream.open("wb") as write:
            for sha, data in _blobs(read):
                marks[sha] = len(marks) + 1
                write.write(b"blob\nmark :%d\ndata %d\n%b\n" % (marks[sha], len(data), data))
            message = b"The last commit of a repository without its history"
            write.write(b"commit %b\ncommitter %b\n" % (f"{_HEADS}{branch}".encode(), _AUTHOR))
            write.write(b"data %d\n%b\n" % (len(message), message))
            for mode, sha, path in files:
                quoted = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
                write.write(b'M %b :%d "%b"\n' % (mode, marks[sha], quoted))
        await copy.run("fast-import", "--quiet", "--date-format=now", stdin=stream)
    except (GitError, KeyError) as error:
        why = _last_line(error.stderr) if isinstance(error, GitError) else "some are missing"
        raise DemoError(
            f"The files of the last commit of {top} cannot be read: {why}. If it is a partial clone, fetch them "
            f"first: git -C {top} checkout HEAD -- ."
        ) from error
    finally:
        contents.unlink(missing_ok=True)
        stream.unlink(missing_ok=True)


def _blobs(batch: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The files that `git cat-file --batch` wrote; those that are missing are left out."""
    for line in batch:
        sha, _, rest = line.strip().partition(b" ")
        kind, _, size = rest.partition(b" ")
        if kind != b"blob":
            continue
        data = batch.read(int(size))
        batch.read(1)
        yield sha, data


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("fatal: ").rstrip(".") if lines else "it does not say why"
