"""The agent's change, as the trusted git directory sees it. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SYMLINK = "120000"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One changed file.

    Attributes:
        path: relative to the repository's root, `/` between its parts.
        status: added, modified or deleted; a rename is a deletion and an addition.
        old_mode: git's file mode before, e.g. `100644`; empty when added.
        new_mode: git's file mode after; empty when deleted.
        added: lines added; 0 for a binary file.
        removed: lines removed; 0 for a binary file.
        binary: whether git takes it for binary.
        content: the new bytes; None when deleted.
    """

    path: str
    status: Literal["added", "modified", "deleted"]
    old_mode: str
    new_mode: str
    added: int
    removed: int
    binary: bool
    content: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeFile:
    """A changed file that Git LFS keeps; in the commit stands a pointer to it.

    Attributes:
        path: relative to the repository's root.
        oid: the SHA-256 of its content, in hexadecimal.
        size: of its content, in bytes.
    """

    path: str
    oid: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Everything between the commit that was checked out and the workspace as the agent left it.

    Attributes:
        base_sha: the commit that was checked out.
        tree_sha: the git tree of the result.
        files: changed files, by path; empty when nothing changed.
        patch: the whole difference as `git diff` writes it, with binary parts.
        notes: what a reviewer should know of how it was found, sentences of Markdown.
        large: the files among them that are in the commit as pointers to Git LFS.
        touched: the first and the last time at which one of the files as they are now was written, in seconds since the
            epoch by the machine's clock; None where that is not known. Deletions leave no time.
        links: where each symbolic link of the resulting tree points to, as its text says; empty where no link changed.
        patch_file: the file with it, there until the workspace is closed or changes are asked for once more.
    """

    base_sha: str
    tree_sha: str
    files: tuple[FileChange, ...]
    patch: str
    notes: tuple[str, ...] = ()
    large: tuple[LargeFile, ...] = ()
    touched: tuple[float, float] | None = field(default=None, compare=False)
    links: Mapping[str, str] = field(default_factory=dict, hash=False)
    patch_file: Path | None = None

    @property
    def changed_links(self) -> frozenset[str]:
        """The paths that are symbolic links before or after it, and changed."""
        return frozenset(each.path for each in self.files if SYMLINK in {each.old_mode, each.new_mode})

    @property
    def writes_workflows(self) -> bool:
        """Whether it adds or changes what GitHub takes for a workflow, by the place alone."""
        return any(file.new_mode and file.path.startswith(".github/workflows/") for file in self.files)

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.files)
