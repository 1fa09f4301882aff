"""The one table of files that the bot knows by name, from `known_files.toml`. Pure."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """Files that matter for one reason.

    Attributes:
        name: what they are.
        why: why they matter.
        globs: which files they are, as the library's rules take them.
        approve: whether a change to them is published only when a person approved that very change.
        install: whether they say what a repository's setup installs.
        exempt: whether they need no approval, although a later kind covers them.
    """

    name: str
    why: str
    globs: tuple[str, ...]
    approve: bool
    install: bool
    exempt: bool


@cache
def file_kinds() -> tuple[FileKind, ...]:
    """The whole table, in its order."""
    table = tomllib.loads((files("bot.gate") / "known_files.toml").read_text("utf-8"))
    return tuple(
        FileKind(
            name=name,
            why=kind["why"],
            globs=tuple(kind["files"]),
            approve=kind.get("approve", False),
            install=kind.get("install", False),
            exempt=kind.get("exempt", False),
        )
        for name, kind in table.items()
    )
