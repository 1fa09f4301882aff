"""The tool that reads a skill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent_runtime.core.calls import ToolResult
from agent_runtime.core.errors import ToolError
from agent_runtime.core.skills import Skill


class SkillTools:
    """`read_skill`."""

    value_types: ClassVar[dict[str, str]] = {"read_skill": "str"}
    labels: ClassVar[dict[str, str]] = {"read_skill": "Reading the skill {name}"}
    stub_types: ClassVar[str] = ""

    def __init__(self, skills: Mapping[str, Skill]) -> None:
        """Offer these skills, by name."""
        self._skills = skills

    def read_skill(self, name: str) -> ToolResult:
        """Read a skill that the first message lists, before you do what it is about.

        Raises:
            ToolError: there is no such skill.
        """
        skill = self._skills.get(name)
        if skill is None:
            raise ToolError(
                f"read_skill: there is no skill {name!r}; there are: {', '.join(self._skills)}", kind="ValueError"
            )
        text = skill.text.strip("\r\n")
        folder = skill.path.rpartition("/")[0]
        return ToolResult(value=text, text=f"[skill {name}, whose other files are in {folder}/]\n{text}")
