"""Which changes a person must see before they are published, and which only deserve a second look. Pure."""

from __future__ import annotations

import posixpath
import re

from bot.publishing.text import code
from bot.workspace.change import Change, FileChange

MAX_FILES = 100
MAX_LINES = 5_000
MAX_BYTES = 5 * 1024 * 1024
"""A change beyond any of these is opened as a draft."""

GITLINK = "160000"
SYMLINK = "120000"
EXECUTABLE = "100755"

_LOCK_FILES = (
    r"package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|poetry\.lock|uv\.lock|pdm\.lock"
    r"|Pipfile\.lock|Cargo\.lock|go\.sum|Gemfile\.lock|composer\.lock|mix\.lock|flake\.lock"
)
# What runs with more rights than the change itself, or decides who must approve it. Case-blind: GitHub reads some so.
_PROTECTED = re.compile(
    r"\.github/(?:workflows|actions)/.+"
    r"|(?:.+/)?action\.ya?ml"
    r"|(?:\.github/|docs/|\.gitlab/)?CODEOWNERS"
    r"|\.github/codepilot\.ya?ml"
    rf"|(?:.+/)?(?:{_LOCK_FILES})",
    re.IGNORECASE,
)
_SHOWN = 10


def objections(change: Change) -> tuple[str, ...]:
    """Why this change may not be published without its own approval; empty when it may.

    Each is a sentence that names the files.
    """
    found = (
        ("It changes files that only a person may change", [f for f in change.files if _PROTECTED.fullmatch(f.path)]),
        ("It changes submodules", [f for f in change.files if _is_submodule(f)]),
        ("It adds symbolic links that lead out of the repository", [f for f in change.files if _escapes(f)]),
    )
    return tuple(f"{words}: {_names(files)}." for words, files in found if files)


def cautions(change: Change) -> tuple[str, ...]:
    """What a reviewer should look at twice: binary files, new executables, sheer size."""
    binary = [f for f in change.files if f.binary and f.status != "deleted"]
    executable = [f for f in change.files if f.new_mode == EXECUTABLE and f.old_mode != EXECUTABLE]
    notes = []
    if binary:
        notes.append(f"Binary: {_names(binary)}.")
    if executable:
        notes.append(f"Made executable: {_names(executable)}.")
    if is_large(change):
        notes.append("The change is large: please review it in parts.")
    return tuple(notes)


def is_large(change: Change) -> bool:
    """Whether it is over the limit for a pull request that is ready for review."""
    lines = sum(file.added + file.removed for file in change.files)
    size = sum(len(file.content or b"") for file in change.files)
    return len(change.files) > MAX_FILES or lines > MAX_LINES or size > MAX_BYTES


def _is_submodule(file: FileChange) -> bool:
    return GITLINK in {file.old_mode, file.new_mode} or file.path == ".gitmodules"


def _escapes(file: FileChange) -> bool:
    if file.new_mode != SYMLINK or file.content is None:
        return False
    target = file.content.decode("utf-8", errors="replace")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), target))
    inside_git = ".git" in {part.casefold() for part in place.split("/")}
    return target.startswith("/") or place == ".." or place.startswith("../") or inside_git


def _names(files: list[FileChange]) -> str:
    names = ", ".join(code(file.path) for file in files[:_SHOWN])
    return names if len(files) <= _SHOWN else f"{names} and {len(files) - _SHOWN} more"
