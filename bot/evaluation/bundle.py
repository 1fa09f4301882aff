"""The commits of a suite: a bundle with one commit without parents for each task, and the trees made from it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bot.evaluation.suite import BUNDLE, REFS, SuiteError, Task
from bot.git.diff import make_signature, parse_entries
from bot.git.errors import GitError
from bot.git.process import Git, ProcessBounds
from bot.prompt.sanitize import clean_line

_BOUNDS = ProcessBounds(seconds=300, file_bytes=8 * 1024**3)
_ABSENT = f"0 {'0' * 40}\t"


class PatchError(SuiteError):
    """A patch that does not apply to its task's files."""


async def unpack_bundle(path: Path, folder: Path, *, objects: Sequence[Path] = ()) -> Git:
    """Create a bare repository with the suite's commits, which also reads from `objects`."""
    git = Git(git_dir=folder, bounds=_BOUNDS)
    await git.run("init", "--quiet", "--bare", "--initial-branch=main", folder)
    if objects:
        (folder / "objects/info/alternates").write_text("".join(f"{place}\n" for place in objects))
    bundle = _bundle_of(path)
    if bundle.exists():
        try:
            await git.run("fetch", "--quiet", "--no-tags", bundle, f"+{REFS}*:{REFS}*")
        except GitError as error:
            raise SuiteError(f"{bundle}: cannot be read: {clean_line(error.stderr[-300:], limit=300)}") from error
    return git


async def write_bundle(git: Git, path: Path) -> None:
    bundle = _bundle_of(path)
    partial = bundle.with_suffix(".partial")
    partial.unlink(missing_ok=True)  # git would follow a link
    await git.run("bundle", "create", "--quiet", "--version=2", partial, f"--glob={REFS}*")
    partial.replace(bundle)


async def add_base(git: Git, task: Task, tree: str, *, at: int) -> None:
    """Create the task's commit, without parents, from the tree of a base commit."""
    signature = make_signature("Codepilot", "codepilot@users.noreply.github.com", at=at)
    commit = await git.text("commit-tree", "--no-gpg-sign", "-m", "Base of the task", tree, variables=signature)
    await git.run("update-ref", task.ref, commit)


async def prepare_tree(git: Git, task: Task, folder: Path, *, change: bytes = b"", hidden: bytes = b"") -> None:
    """Check out a task's base into a new repository with a change; the hidden tests replace files of both.

    Raises:
        PatchError: a patch does not apply.
        SuiteError: the bundle does not have the task.
    """
    try:
        base = await git.text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{task.ref}^{{tree}}")
    except GitError as error:
        raise SuiteError(f"{BUNDLE} does not have {task.ref}; mine or import the task again.") from error
    with tempfile.TemporaryDirectory(prefix="codepilot-eval-") as name:
        indexed = replace(git, index=Path(name) / "index")
        tree = await _apply(indexed, base, change, f"{task.id}: the change")
        if hidden:
            tests = await _apply(indexed, base, hidden, f"{task.id}: the patch of the hidden tests")
            raw = await git.run("diff-tree", "-r", "-z", "--raw", "--abbrev=40", "--no-renames", base, tests)
            records = [
                (_ABSENT if entry.status == "D" else f"{entry.new_mode} {entry.blob}\t").encode() + entry.path + b"\0"
                for entry in parse_entries(raw)
            ]
            await indexed.run("read-tree", tree)
            await indexed.run("update-index", "-z", "--replace", "--index-info", stdin=b"".join(records))
            tree = await indexed.text("write-tree")
    variables = make_signature("Codepilot", "codepilot@users.noreply.github.com", at=1_700_000_000)
    commit = await git.text("commit-tree", "--no-gpg-sign", "-m", "Base of the task", tree, variables=variables)
    copy = Git(git_dir=folder / ".git", work_tree=folder, bounds=_BOUNDS)
    await copy.run("init", "--quiet", "--initial-branch=main", folder)
    await copy.run("fetch", "--quiet", "--no-tags", "--update-head-ok", git.git_dir or "", f"{commit}:refs/heads/main")
    await copy.run("reset", "--quiet", "--hard", "refs/heads/main")


def _bundle_of(path: Path) -> Path:
    bundle = path.absolute() / BUNDLE
    if bundle.is_symlink():
        raise SuiteError(f"{bundle}: is a link; replace it by the file.")
    return bundle


async def _apply(git: Git, base: str, patch: bytes, subject: str) -> str:
    await git.run("read-tree", base)
    if patch.strip():
        try:
            await git.run("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        except GitError as error:
            raise PatchError(f"{subject} does not apply: {clean_line(error.stderr[-300:], limit=300)}") from error
    return await git.text("write-tree")
