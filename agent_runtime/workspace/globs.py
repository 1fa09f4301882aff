"""The globs that narrow a search. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pathspec import PathSpec

from agent_runtime.errors import ToolError

_MAGIC = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Which files a search is about.

    A glob without a slash is about names in any directory; one with a slash is about paths from the workspace's root.

    Attributes:
        glob: as it was given, a leading `./` or `/` left out.
        spec: the same, compiled.
        directory: the directory that everything it matches lies in, `""` for the root.
    """

    glob: str
    spec: PathSpec[Any] = field(repr=False)
    directory: str

    @classmethod
    def parse(cls, glob: str, *, name: str = "include") -> Include:
        """Check and compile a glob.

        Args:
            glob: as it was given.
            name: the argument that it was given as, for error texts.

        Raises:
            ToolError: it is empty, a negation, or leaves the workspace.
        """
        plain = glob.removeprefix("./").lstrip("/")
        if not plain or plain.startswith(("!", "#")) or ".." in plain.split("/") or "\0" in plain or "\n" in plain:
            raise ToolError(
                f"{name}={glob!r}: must be a glob of files in the workspace, such as '*.py' or 'tests/**'",
                kind="ValueError",
            )
        anywhere = plain.removeprefix("**/")
        plain = plain if "/" in anywhere else anywhere
        anchor = "/" if "/" in plain else ""
        patterns = [anchor + each for each in _alternatives(plain)]
        try:
            spec = PathSpec.from_lines("gitignore", patterns)
        except ValueError as error:
            raise ToolError(f"{name}={glob!r}: {error}", kind="ValueError") from error
        parents = plain.split("/")[:-1]
        fixed = next((i for i, part in enumerate(parents) if _MAGIC.search(part)), len(parents))
        return cls(glob=plain, spec=spec, directory="/".join(parents[:fixed]))

    @property
    def options(self) -> tuple[str, ...]:
        """What tells ripgrep to leave other names alone. Its own `--glob` would search ignored files, too."""
        return () if "/" in self.glob else (f"--type-add=wanted:{self.glob}", "--type=wanted")

    def matches(self, path: str) -> bool:
        """Whether a file, by its path from the root, is meant."""
        return self.spec.match_file(path)


def _alternatives(glob: str) -> Iterator[str]:
    """Expand `{a,b}`, which ripgrep's globs know and git's do not.

    Raises:
        ToolError: there are too many alternatives.
    """
    pending, done = [glob], 0
    while pending:
        current = pending.pop()
        braces = _BRACES.search(current)
        if braces is None:
            yield current
            continue
        done += 1
        if done > _MOST_ALTERNATIVES:
            raise ToolError(f"include={glob!r}: too many alternatives in braces", kind="ValueError")
        before, after = current[: braces.start()], current[braces.end() :]
        pending += [before + each + after for each in braces[1].split(",")]
