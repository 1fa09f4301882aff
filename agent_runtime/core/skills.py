"""Skills: instructions for one kind of work, which an agent reads when it needs them (https://agentskills.io). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from agent_runtime.core.errors import SettingsError

MAX_SKILLS = 30
MAX_BYTES = 64_000
_HEAD = re.compile(r"\A\ufeff?---[ \t]*\r?\n(?P<head>.{0,3000}?)^---[ \t]*$(?P<text>.*)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_MOST_BRACKETS = 64
"""They take several times as long as any other text, and heads are read where everything else waits."""
_DESCRIPTION_CHARS = 300
"""The format allows 1,024; all descriptions together stand in the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill.

    Attributes:
        name: of its folder, too.
        description: what it is for, and when: one line, cut.
        path: of its `SKILL.md`.
        text: what stands below the head of that file.
    """

    name: str
    description: str
    path: str
    text: str

    @classmethod
    def parse(cls, path: str, content: str) -> Self:
        """Read a `SKILL.md`.

        Args:
            path: of the file, with the folder that it is in.
            content: the file's.

        Raises:
            SettingsError: it has no head with a name and a description, or another name than its folder.
        """
        import yaml  # noqa: PLC0415 - few agents have skills

        found = _HEAD.match(content)
        if found is None:
            raise SettingsError(f"{path}:1: must begin with front matter: `---`, `name:`, `description:`, `---`.")
        if found["head"].count("[") + found["head"].count("{") > _MOST_BRACKETS:
            raise SettingsError(f"{path}: its front matter has more than {_MOST_BRACKETS} `[` and `{{`; use fewer.")
        # That in C takes a tenth of the time; not every build of PyYAML has it.
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            # Texts, lists and mappings, and nothing else. No merge keys: a few lines of them unfold into gigabytes.
            head = yaml.load(found["head"], Loader=loader)  # noqa: S506 - see above
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SettingsError(f"{path}: its front matter is not valid YAML: {type(error).__name__}.") from error
        name, description = (head.get(key) if isinstance(head, dict) else None for key in ("name", "description"))
        folder = path.split("/")[-2] if "/" in path else ""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name != folder:
            raise SettingsError(f"{path}: `name` must be the folder's: lower-case letters, digits and single hyphens.")
        if not isinstance(description, str) or not description.strip():
            raise SettingsError(f"{path}: `description` must say what the skill is for.")
        line = "".join(char if char.isprintable() else " " for char in description[: 4 * _DESCRIPTION_CHARS])
        return cls(name=name, description=" ".join(line.split())[:_DESCRIPTION_CHARS], path=path, text=found["text"])


def usable_skills(files: Mapping[str, str]) -> dict[str, Skill]:
    """The skills among files, by name: of those that fit, the first of each name, and a bounded number.

    Args:
        files: contents by path.
    """
    found: dict[str, Skill] = {}
    for path, content in files.items():
        try:
            skill = Skill.parse(path, content)
        except SettingsError:  # a file for another agent's dialect of the format
            continue
        if len(found) < MAX_SKILLS:
            found.setdefault(skill.name, skill)
    return found
