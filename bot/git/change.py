"""The agent's change, as read by the trusted git directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SYMLINK = "120000"
REGULAR_MODES = frozenset({"100644", "100755"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A changed file; a rename is a deletion and an addition. `content` is None when deleted."""

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
    """A changed file in Git LFS, with the SHA-256 and size of its content; the commit has a pointer."""

    path: str
    oid: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """Parts of the agent's work that are not in a change.

    Attributes:
        omitted: tracked files that exceed a limit; the checks ran with them changed.
        patch: of small files that build and test tools left.
        withheld: why the whole change must not be published; empty if it may.
    """

    omitted: tuple[str, ...] = ()
    patch: str = ""
    withheld: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Difference between the checked-out commit and the workspace.

    Attributes:
        touched: span of modification times in seconds since the epoch.
        links: targets of all symbolic links in the resulting tree; empty if no link changed.
        patch_file: valid until the workspace is closed or the next `Tree.change`.
    """

    base_sha: str
    tree_sha: str
    files: tuple[FileChange, ...]
    patch: str
    notes: tuple[str, ...] = ()
    exclusions: Exclusions = field(default_factory=Exclusions)
    large: tuple[LargeFile, ...] = ()
    touched: tuple[float, float] | None = field(default=None, compare=False)
    links: Mapping[str, str] = field(default_factory=dict, hash=False)
    patch_file: Path | None = None

    @property
    def changed_links(self) -> frozenset[str]:
        return frozenset(file.path for file in self.files if SYMLINK in {file.old_mode, file.new_mode})

    @property
    def writes_workflows(self) -> bool:
        return any(file.new_mode and file.path.startswith(".github/workflows/") for file in self.files)

    def __bool__(self) -> bool:
        return bool(self.files)
