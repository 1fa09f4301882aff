"""Find the changes that a person must see before they are published, and those worth a second look. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from agent_runtime import Policy, Rule
from bot.gate.known_files import file_kinds
from bot.publishing.sections import sections
from bot.publishing.text import code
from bot.publishing.unseen import adds_unseen, is_deceptive, spelled_out
from bot.workspace.change import Change, FileChange

MAX_FILES = 100
MAX_LINES = 5_000
MAX_BYTES = 5 * 1024 * 1024
"""A change beyond any of these is opened as a draft."""

GITLINK = "160000"
EXECUTABLE = "100755"

_SHOWN = 10
_MOST_HOPS = 40
_DEEPEST, _MOST_STEPS = 500, 200_000
_TEST = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?)/|(?:^|/)(?:conftest|tests?|test_[^/]*|[^/]*[._-](?:test|spec)s?|[^/]*Tests?)\.\w+$"
)
_SETTINGS = re.compile(
    r"(?:^|/)(?:conftest\.py|(?:GNU)?[Mm]akefile|[Jj]ustfile|package\.json|pyproject\.toml|setup\.cfg|tox\.ini"
    r"|pytest\.ini|noxfile\.py|\.?(?:mypy|ruff|flake8|pylintrc|coveragerc|golangci|clippy|eslint|eslintrc|eslintignore"
    r"|biome|rubocop|phpunit)(?:\.[^/]*)?|(?:jest|vitest|vite|eslint|playwright)\.config\.[^/]+|tsconfig[^/]*\.json)$"
)


Cause = Literal["protected", "submodule", "escapes", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why a change may not be published unless a person approves it.

    Attributes:
        cause: `protected` files, a `submodule`, a symbolic link that `escapes` the repository, or `unseen` characters.
        files: the paths that it is about.
    """

    cause: Cause
    files: tuple[str, ...]

    @property
    def words(self) -> str:
        """A sentence that names the files, as Markdown."""
        return f"{_CAUSES[self.cause]}: {self.names}."

    @property
    def names(self) -> str:
        """The files, as Markdown."""
        return _names(self.files)


_CAUSES = {
    "protected": "It changes files that require a person's approval",
    "submodule": "It changes submodules",
    "escapes": "It adds symbolic links that point outside the repository",
    "unseen": "It adds invisible characters, or characters that change the direction of the text",
}


def objections(change: Change, protected: tuple[str, ...] = ()) -> tuple[Objection, ...]:
    """Why this change may not be published without its own approval; empty when it may.

    Args:
        change: all of it.
        protected: globs of files beside the built-in ones; see `is_protected`.
    """
    binary = {each.path for each in change.files if each.binary}
    unseen = {path for path, section in sections(change.patch) if adds_unseen(section)} - binary
    found: tuple[tuple[Cause, list[str]], ...] = (
        ("protected", [f.path for f in change.files if is_protected(f.path, protected) and not _is_submodule(f)]),
        ("submodule", [f.path for f in change.files if _is_submodule(f)]),
        ("escapes", sorted(_escaping(change))),
        ("unseen", [f.path for f in change.files if f.new_mode and (is_deceptive(f.path) or f.path in unseen)]),
    )
    return tuple(Objection(cause=cause, files=tuple(files)) for cause, files in found if files)


def cautions(change: Change) -> tuple[str, ...]:
    """What a reviewer should look at twice: how the change was found, binary files, new executables, sheer size."""
    binary = [f for f in change.files if f.binary and f.status != "deleted"]
    executable = [f for f in change.files if f.new_mode == EXECUTABLE and f.old_mode != EXECUTABLE]
    notes = [*change.notes]
    if binary:
        notes.append(f"Binary: {_names([f.path for f in binary])}.")
    if executable:
        notes.append(f"Made executable: {_names([f.path for f in executable])}.")
    if is_large(change):
        notes.append("The change is large: review it in parts.")
    return tuple(notes)


def tests_cut(change: Change) -> str:
    """The tests that a change deletes or takes lines out of, as Markdown; empty for none."""
    return _names([f.path for f in change.files if f.removed and _TEST.search(f.path)])


def settings_of_checks(change: Change) -> str:
    """The files in it that say what is checked, and how, as Markdown; empty for none."""
    return _names([f.path for f in change.files if _SETTINGS.search(f.path)])


def is_large(change: Change) -> bool:
    """Whether it is over the limit for a pull request that is ready for review."""
    lines = sum(file.added + file.removed for file in change.files)
    size = sum(len(file.content or b"") for file in change.files)
    return len(change.files) > MAX_FILES or lines > MAX_LINES or size > MAX_BYTES


def _is_submodule(file: FileChange) -> bool:
    return GITLINK in {file.old_mode, file.new_mode} or file.path == ".gitmodules"


def _escaping(change: Change) -> set[str]:
    """The changed links that lead out of the repository, or by which a link that was there leads out of it now.

    Links are followed as a kernel would in the resulting tree: `b/..` is not where it seems to be if `b` is a link. A
    link with more hops than a kernel follows leads nowhere; a tree with too many links to follow is not trusted.
    """
    changed, left, found = change.changed_links, _MOST_STEPS, set[str]()
    for link in change.links if changed else ():
        place, name = link.split("/")[:-1], link.rpartition("/")[2]
        ahead, hops, passed, out = [name], 0, set[str](), False
        while ahead and not out and hops <= _MOST_HOPS:
            left -= 1
            part = ahead.pop()
            out = part.casefold() == ".git" or (part == ".." and not place) or len(place) > _DEEPEST
            if part == "..":
                place = place[:-1]
            elif part not in {"", "."}:
                path = "/".join([*place, part])
                passed |= {path} & changed
                if (target := change.links.get(path)) is None:
                    place = [*place, part]
                else:
                    hops, out = hops + 1, target.startswith("/")
                    ahead += reversed(target.split("/"))
        if left < 0:
            return set(changed)
        if out:
            found |= {link} & changed or passed
    return found


def _names(paths: Sequence[str]) -> str:
    names = ", ".join(code(spelled_out(path)) for path in paths[:_SHOWN])
    return names if len(paths) <= _SHOWN else f"{names} and {len(paths) - _SHOWN} more"


def is_protected(path: str, globs: tuple[str, ...] = ()) -> bool:
    """Whether a file needs an approval of its own.

    Args:
        path: from the repository's root, `/` between the parts.
        globs: what the repository protects beside the built-in list. Nothing can be taken out of that.
    """
    return _rules(globs).withholds(_TOOL, path)


_TOOL = "write_file"


@cache
def _rules(globs: tuple[str, ...]) -> Policy:
    # A rule that asks is read generously: whatever the case, and with all that lies beneath. One that allows is read to
    # the letter.
    built_in = [
        Rule(decision="ask" if kind.approve else "allow", tool=_TOOL, paths=kind.globs)
        for kind in file_kinds()
        if kind.approve or kind.exempt
    ]
    own = [Rule(decision="ask", tool=_TOOL, paths=globs)] if globs else []
    return Policy(rules=(*own, *built_in))
