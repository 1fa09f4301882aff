"""What the `.gitignore` files of a workspace leave out, looked at as directories are visited, in bounded time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # takes a while to import, and only a run needs it
    from pathspec import GitIgnoreSpec

_MOST_FILES = 50
_MOST_PATTERNS = 500
_MOST_STARS = 2
_MOST_SECONDS = 2.0


class Ignored:
    """Whether git would leave out a path, by the `.gitignore` of the root and of each directory above the path.

    The deepest file that says something about a path decides, as in gitignore(5). A stranger's tree must not cost more
    than a bounded time: of more than 50 such files, or 500 patterns in all, the rest is not looked at, and once
    matching has taken two seconds, all other paths count as left out.
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        """Look at nothing yet.

        Args:
            read: gives the text of a file by its path from the root, empty where it cannot be read.
        """
        self._read = read
        self._specs: dict[str, tuple[tuple[int, GitIgnoreSpec], ...]] = {}
        self._files = _MOST_FILES
        self._patterns = _MOST_PATTERNS
        self._seconds = _MOST_SECONDS

    def __call__(self, path: str) -> bool:
        """Whether a path from the root is left out; one of a directory ends in a slash."""
        if self._seconds <= 0:
            return True
        specs = self._above(path.rstrip("/").rpartition("/")[0])
        begun = time.monotonic()
        said = (spec.check_file(path[start:]).include for start, spec in specs)
        included = next((each for each in said if each is not None), False)
        self._seconds -= time.monotonic() - begun
        return included

    def _above(self, directory: str) -> tuple[tuple[int, GitIgnoreSpec], ...]:
        """What holds in a directory, deepest first: where the path begins that a file speaks of, and its patterns."""
        if directory not in self._specs:
            outer = self._above(directory.rpartition("/")[0]) if directory else ()
            prefix = f"{directory}/" if directory else ""
            spec = self._compiled(f"{prefix}.gitignore") if self._files else None
            self._specs[directory] = outer if spec is None else ((len(prefix), spec), *outer)
        return self._specs[directory]

    def _compiled(self, path: str) -> GitIgnoreSpec | None:
        lines = [line for line in self._read(path).splitlines()[: self._patterns] if _is_harmless(line)]
        if not lines:
            return None
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 - see TYPE_CHECKING above

        self._files -= 1
        self._patterns -= len(lines)
        return GitIgnoreSpec.from_lines(lines)


def _is_harmless(pattern: str) -> bool:
    """Patterns become regular expressions that backtrack over every star; a stranger's may have a dozen.

    A harmless one that is dropped shows a few files too many, no more.
    """
    return len(re.findall(r"\*+", pattern)) <= _MOST_STARS
