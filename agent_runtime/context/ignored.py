"""Apply a workspace's `.gitignore` files while directories are visited, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent_runtime.workspace.gitignore import IgnoreFile

_MOST_FILES = 50
_MOST_LINES = 500
_MOST_SECONDS = 2.0


class IgnoredPaths:
    """Whether git would leave out a path, by the `.gitignore` of the root and of each directory above the path.

    The deepest file that says something about a path decides, as in gitignore(5). A stranger's tree must not cost more
    than a bounded time: of more than 50 such files, or 500 lines in all, the rest is not looked at, and once matching
    has taken two seconds, all other paths count as left out.
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        """Look at nothing yet.

        Args:
            read: gives the text of a file by its path from the root, empty where it cannot be read.
        """
        self._read = read
        self._files: dict[str, tuple[tuple[int, IgnoreFile], ...]] = {}
        self._left_out: dict[str, bool] = {"": False}
        self._files_left = _MOST_FILES
        self._lines_left = _MOST_LINES
        self._seconds_left = _MOST_SECONDS

    def __call__(self, path: str) -> bool:
        """Whether a path from the root is left out; one of a directory ends in a slash."""
        if self._seconds_left <= 0:
            return True
        begun = time.monotonic()
        plain = path.rstrip("/")
        left_out = self._directory(plain) if plain != path else self._says(plain, directory=False)
        self._seconds_left -= time.monotonic() - begun
        return left_out

    def _directory(self, path: str) -> bool:
        if path not in self._left_out:
            self._left_out[path] = self._says(path, directory=True)
        return self._left_out[path]

    def _says(self, path: str, *, directory: bool) -> bool:
        parent = path.rpartition("/")[0]
        if self._directory(parent):
            return True
        said = (file.says(path[start:], directory=directory) for start, file in self._above(parent))
        return next((each for each in said if each is not None), False)

    def _above(self, directory: str) -> tuple[tuple[int, IgnoreFile], ...]:
        """What holds in a directory, deepest first: where the path begins that a file speaks of, and its patterns."""
        if directory not in self._files:
            outer = self._above(directory.rpartition("/")[0]) if directory else ()
            self._files[directory] = outer
            if self._files_left:
                prefix = f"{directory}/" if directory else ""
                data = self._read(f"{prefix}.gitignore").encode("utf-8", "surrogateescape")
                file = IgnoreFile(data, most=self._lines_left)
                if file.patterns:
                    self._files_left -= 1
                    self._lines_left -= len(file.patterns)
                    self._files[directory] = ((len(prefix), file), *outer)
        return self._files[directory]
