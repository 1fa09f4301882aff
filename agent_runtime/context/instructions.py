"""Reads what a repository's maintainers ask of agents that work in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_runtime.core.errors import ToolError
from agent_runtime.core.skills import MAX_SKILLS
from agent_runtime.workspace.files import Workspace

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Where repositories tell agents how to work in them."""

SKILL_FOLDERS = (".claude/skills", ".github/skills", ".codepilot/skills")
"""Where repositories keep skills, each in a folder of its own."""

_MOST_BYTES = 64_000


def read_instructions(root: Path, names: Sequence[str] = INSTRUCTION_FILES) -> dict[str, str]:
    """The instruction files of a directory whose maintainers are trusted; never call it for anybody else's files.

    A link is followed as long as it stays below `root`.

    Args:
        root: the repository.
        names: paths to look for, relative to `root`.

    Returns:
        Texts by name, in the order of `names`; without those that are missing, empty, or no readable file. Of a very
        long one only the beginning; `briefing.opening` cuts all of them to size.
    """
    found: dict[str, str] = {}
    with Workspace(root) as files:
        for name in names:
            try:
                text = files.read_bytes(name, _MOST_BYTES).decode("utf-8", errors="replace").strip()
            except ToolError:  # missing, a directory, outside, not permitted: there is no such file for us
                continue
            if text:
                found[name] = text
    return found


def read_skills(root: Path, folders: Sequence[str] = SKILL_FOLDERS) -> dict[str, str]:
    """The `SKILL.md` files of a directory whose maintainers are trusted; never call it for anybody else's files.

    Args:
        root: the repository.
        folders: where folders of skills are, relative to `root`.

    Returns:
        Texts by path, of at most 30 skills a folder.
    """
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = sorted(each.name for each in (root / folder).iterdir())[:MAX_SKILLS]
        except OSError:  # there is no such folder
            continue
        found |= read_instructions(root, [f"{folder}/{name}/SKILL.md" for name in names])
    return found
