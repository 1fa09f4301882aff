"""A change of which some files need an approval that nobody can give: those are left out, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bot.publishing.screening import Objection
from bot.publishing.sections import sections
from bot.publishing.showing import show_files
from bot.workspace import ChangeError, Tree
from bot.workspace.change import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialChange:
    """What is left out of a change.

    Attributes:
        rest: the change without it; None where that is nothing, or cannot stand alone.
        diff: what is left out, for people; empty where it cannot be shown.
        patch: the same for `git apply`.
    """

    rest: Change | None
    diff: str
    patch: str


async def left_out(
    tree: Tree, change: Change, blocked: tuple[Objection, ...], redacted: Callable[[str], str]
) -> PartialChange:
    """Take files out of a change.

    Args:
        tree: the workspace.
        change: all of it.
        blocked: what a person would have to approve.
        redacted: what becomes of a text on its way out.
    """
    paths = {path for each in blocked for path in each.files}
    shown = await asyncio.to_thread(show_files, change, sorted(paths), redacted)
    try:
        rest = await tree.without(change, paths)
    except ChangeError:
        return PartialChange(rest=None, diff=shown.diff, patch=change.patch)
    patch = "".join([section for path, section in sections(change.patch) if path in paths])
    return PartialChange(rest=rest or None, diff=shown.diff, patch=patch)
