"""The globs that narrow a search. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.gitignore import Pattern, options

_MAGIC = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ONE_BYTE = re.compile(rb"\[\^/\](?!\*)")
_ONE_CHARACTER = rb"(?:[^/\x80-\xff]|[\xc0-\xff][\x80-\xbf]{0,3})"
"""What `?` is in a search; to git, whose patterns match bytes, it is one byte."""
HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of characters. (Those between stand for bytes in names that are no UTF-8.)"""
_MOST_ALTERNATIVES = 64
_MOST_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Which files a search is about.

    A glob without a slash is about names in any directory; one with a slash is about paths from the workspace's root.

    Attributes:
        glob: as it was given, a leading `./` or `/` left out.
        regex: the same for RE2, which does not backtrack; it matches bytes.
        directory: the directory that everything it matches lies in, `""` for the root.
    """

    glob: str
    regex: Any = field(repr=False)
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
        import re2  # noqa: PLC0415 - only a search needs it

        plain = glob.removeprefix("./").lstrip("/")
        if len(glob) > _MOST_CHARS:
            raise ToolError(f"{name} has more than {_MOST_CHARS:,} characters; use a shorter glob", kind="ValueError")
        odd = "\0" in plain or "\n" in plain or HALVES.search(plain)
        if not plain or plain.startswith(("!", "#")) or ".." in plain.split("/") or odd:
            raise ToolError(
                f"{name}={glob!r}: must be a glob of files in the workspace, such as '*.py' or 'tests/**'",
                kind="ValueError",
            )
        anywhere = plain.removeprefix("**/")
        plain = plain if "/" in anywhere else anywhere
        anchor = "/" if "/" in plain else ""
        globs = [f"{anchor}{each}".encode("utf-8", "surrogateescape") for each in _alternatives(plain)]
        parsed = [pattern for each in globs if (pattern := Pattern.parse(each))]
        bodies = [(body, pattern.directory) for pattern in parsed if (body := pattern.regex()) is not None]
        bodies = [(_ONE_BYTE.sub(lambda _: _ONE_CHARACTER, body), directory) for body, directory in bodies]
        # What the glob matches, and what lies in a directory that it matches.
        choices = [b"%b/.*" % body if directory else b"%b(?:/.*)?" % body for body, directory in bodies]
        try:
            regex = re2.compile(b"|".join(choices), options()) if choices else None
        except re2.error:
            regex = None
        if regex is None:
            raise ToolError(f"{name}={glob!r}: matches nothing, or is too large", kind="ValueError")
        parents = plain.split("/")[:-1]
        fixed = next((i for i, part in enumerate(parents) if _MAGIC.search(part)), len(parents))
        return cls(glob=plain, regex=regex, directory="/".join(parents[:fixed]))

    @property
    def options(self) -> tuple[str, ...]:
        """What tells ripgrep to leave other names alone. Its own `--glob` would search ignored files, too."""
        return () if "/" in self.glob else (f"--type-add=wanted:{self.glob}", "--type=wanted")

    def matches(self, path: str) -> bool:
        """Whether a file, by its path from the root, is meant."""
        return self.regex.fullmatch(path.encode("utf-8", "surrogateescape")) is not None


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
