"""The files of the commit that was last checked out of a repository, kept so that jobs copy instead of unpacking.

Unpacking a commit costs the decompression of every file in it, copying it only the bytes. No sandbox ever sees these
files; from one commit to the next only what differs between them is written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from bot.workspace.copying import cp
from bot.workspace.errors import WorkspaceError
from bot.workspace.git import Git
from bot.workspace.locks import in_thread, locked
from bot.workspace.removal import remove_tree

_MAX_NAMES = 5_000
"""More would not fit on a command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pristine:
    """One repository's files.

    Attributes:
        folder: holds the files, git's index of them, and a note of the commit that they are.
        lock: the file whose lock guards them.
        seconds: how long to wait for the lock.
    """

    folder: Path
    lock: Path
    seconds: float

    async def copy(self, git: Git, sha: str, target: Path) -> None:
        """Put the files of a commit into an empty directory.

        Args:
            git: a git directory that has the commit; its attributes decide how files are written.
            sha: the commit.
            target: an existing, empty directory.

        Raises:
            WorkspaceError: git or the copying failed, for lack of disk space for example.
        """
        async with locked(self.lock, seconds=self.seconds):
            files, note = self.folder / "files", self.folder / "commit"
            # New after each start of the machine: a power cut may take files that were not synced, and leave the note.
            boot = _read(Path("/proc/sys/kernel/random/boot_id")).strip()
            noted = await asyncio.to_thread(_read, note)
            if noted != f"{sha} {boot}":
                if not noted.endswith(f" {boot}"):
                    await in_thread(_start_anew, self.folder)
                # Write what differs between the noted commit and `sha`; there is no note while the files are neither.
                note.unlink(missing_ok=True)
                writer = Git(
                    git_dir=git.git_dir,
                    work_tree=files,
                    index=self.folder / "index",
                    environment=git.environment,
                    bounds=git.bounds,
                )
                await writer.run("read-tree", "--reset", "-u", sha)
                note.write_text(f"{sha} {boot}")
            # With `cp`, which knows how to have the file system share the bytes, twice at once.
            source, target, names = await asyncio.to_thread(_first_fork, files, target)
            halves = [half for half in (names[::2], names[1::2]) if half]
            if len(names) > _MAX_NAMES:
                halves = [["."]]
            results = await asyncio.gather(*(cp(source, target, half) for half in halves))
            if said := next(filter(None, results), ""):
                raise WorkspaceError(f"The files could not be copied: {said}", "Check whether the disk is full.")


def _read(note: Path) -> str:
    return note.read_text() if note.exists() else ""


def _start_anew(folder: Path) -> None:
    remove_tree(folder)
    (folder / "files").mkdir(mode=0o700, parents=True)


def _first_fork(source: Path, target: Path) -> tuple[Path, Path, list[str]]:
    """The first level below `source` with more than one name on it; what leads there is made in `target`."""
    names = _names(source)
    while len(names) == 1 and (source / names[0]).is_dir() and not (source / names[0]).is_symlink():
        source, target = source / names[0], target / names[0]
        target.mkdir()
        names = _names(source)
    return source, target, names


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
