"""Write the files of a snapshot into an empty directory that no program runs in yet."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bot.workspace.capturing import Entry, blob_id, found_in
from bot.workspace.errors import WorkspaceGoneError
from bot.workspace.scan import Stamp, opened, opened_root
from bot.workspace.vault import Vault

_READERS = 3
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 64 * 1024
_ZEROS = bytes(_BLOCK)


class _Writer:
    """Writes below one directory; the directory that was written to last stays open."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._path = ""
        self._folder = os.dup(root)

    def close(self) -> None:
        os.close(self._folder)

    def at(self, path: str) -> tuple[int, str]:
        """The directory that a path is in, and its name there."""
        above, _, name = path.rpartition("/")
        if name in {"", ".", ".."}:
            raise WorkspaceGoneError("A stored file has no name.", "Give the command again.")
        if above != self._path:
            with opened(self._root, os.fsencode(above)) as folder:
                os.close(self._folder)
                self._folder, self._path = os.dup(folder), above
        return self._folder, name

    def write(self, entry: Entry, start: int, content: memoryview) -> None:
        """Write a piece of a file; blocks of zeros are not written."""
        folder, name = self.at(entry.path)
        descriptor = os.open(name, _WRITE, 0o600, dir_fd=folder)
        try:
            os.ftruncate(descriptor, entry.size)
            if len(content) < _BLOCK:
                os.pwrite(descriptor, content, start)
                return
            for offset in range(0, len(content), _BLOCK):
                block = content[offset : offset + _BLOCK]
                if block != _ZEROS[: len(block)]:
                    os.pwrite(descriptor, block, start + offset)
        finally:
            os.close(descriptor)


def restore(root: Path, entries: Sequence[Entry], packs: Mapping[int, str], vault: Vault) -> None:
    """Write all but the files that are in the commit, and the links between files.

    Raises:
        WorkspaceGoneError: something that was stored is missing or was changed.
        StorageError: the store failed.
    """
    with opened_root(root) as top:
        writer = _Writer(top)
        try:
            pieces: defaultdict[int, list[tuple[Entry, int, int, int]]] = defaultdict(list)
            for entry in entries:
                if entry.kind == "folder":
                    folder, name = writer.at(entry.path)
                    os.mkdir(name, 0o700, dir_fd=folder)
                elif entry.kind == "link":
                    folder, name = writer.at(entry.path)
                    os.symlink(entry.target, name, dir_fd=folder)
                elif entry.kind == "file" and not entry.size:
                    writer.write(entry, 0, memoryview(b""))
                start = 0
                for number, offset, length in entry.pieces:
                    pieces[number].append((entry, start, offset, length))
                    start += length
            for number, content in _contents(vault, packs, sorted(pieces)):
                view = memoryview(content)
                for entry, start, offset, length in pieces.pop(number):
                    writer.write(entry, start, view[offset : offset + length])
        finally:
            writer.close()


def restore_tracked(root: Path, entries: Iterable[Entry], contents: bytes) -> None:
    """Write files that are as in the commit, from what `git cat-file --batch` says of them in the same order.

    Raises:
        WorkspaceGoneError: git has something else.
    """
    with opened_root(root) as top:
        writer, position = _Writer(top), 0
        try:
            for entry in entries:
                head = contents.index(b"\n", position) + 1
                content = contents[head : head + entry.size]
                position = head + entry.size + 1
                if blob_id(content, entry.blob) != entry.blob:
                    raise WorkspaceGoneError(f"`{entry.path}` is not as it was committed.", "Give the command again.")
                writer.write(entry, 0, memoryview(content))
        finally:
            writer.close()


def finish(root: Path, entries: Sequence[Entry]) -> dict[str, Stamp]:
    """Link files that have two names, and set modes and times; give back the stamps of all but directories.

    Raises:
        WorkspaceGoneError: something is missing.
    """
    with opened_root(root) as top:
        writer = _Writer(top)
        try:
            for entry in entries:
                if entry.kind == "again":
                    folder, name = writer.at(entry.path)
                    above, _, other = entry.target.rpartition("/")
                    with opened(top, os.fsencode(above)) as source:
                        os.link(other, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
                if entry.kind != "folder":
                    _set(writer, entry)
            # Before directories get their modes: some may not be read then.
            stamps = {found.path: found.stamp for found in found_in(top) if not stat.S_ISDIR(found.status.st_mode)}
            for entry in reversed(entries):  # inner ones before outer ones
                if entry.kind == "folder":
                    _set(writer, entry)
        except FileNotFoundError as error:
            raise WorkspaceGoneError(
                "The stored files of the job are incomplete.", "Give the command again."
            ) from error
        finally:
            writer.close()
        return stamps


def _set(writer: _Writer, entry: Entry) -> None:
    """Set the mode and the time of what is there."""
    folder, name = writer.at(entry.path)
    if entry.kind != "link":
        os.chmod(name, entry.mode, dir_fd=folder)
    os.utime(name, ns=(entry.modified, entry.modified), dir_fd=folder, follow_symlinks=False)


def _contents(vault: Vault, packs: Mapping[int, str], numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The packs of some numbers, a few of which are fetched ahead."""
    with ThreadPoolExecutor(max_workers=_READERS, thread_name_prefix="packs") as pool:
        waiting = [pool.submit(vault.get, packs[number]) for number in numbers[:_READERS]]
        for index, number in enumerate(numbers):
            content = waiting.pop(0).result()
            if index + _READERS < len(numbers):
                waiting.append(pool.submit(vault.get, packs[numbers[index + _READERS]]))
            yield number, content
