from __future__ import annotations

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.values import MAX_SKILLS, Skill, usable_skills

HEAD = "---\nname: a-b\ndescription: |\n  Do\u200b it,\n  so.\nmetadata: {x: [1]}\n---\nFirst,\n---\nthen.\n"


def test_a_skill_has_a_head_and_a_text() -> None:
    skill = Skill.parse("skills/a-b/SKILL.md", HEAD)
    assert (skill.name, skill.description, skill.text) == ("a-b", "Do it, so.", "\nFirst,\n---\nthen.\n")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("Just text.", "must begin with front matter"),
        ("---\nname: [\n---\n", "its front matter is not valid YAML"),
        (f"---\nname: a-b\ndescription: x\nmore: {'[' * 65}{']' * 65}\n---\n", "more than 64 `\\[` and `{`"),
        (f"---\nname: a-b\ndescription: x\nmore: [{'{},' * 64}]\n---\n", "more than 64 `\\[` and `{`"),
        (f"---\nname: a-b\nmore: {'- ' * 1400}x\n---\n", "its front matter is not valid YAML"),
        (
            f"---\nname: a-b\ndescription: x\n{'?' + chr(10)}{'# many keys' * 300}\n---\n",
            "must begin with front matter",
        ),
        ("---\nname: !!python/name:os.system\n---\n", "`name` must be the folder's"),
        # Merge keys unfold: each line of some can be ten times the one before.
        ("---\nother: &o {name: a-b, description: x}\n<<: *o\n---\n", "`name` must be the folder's"),
        ("---\n- name\n---\n", "`name` must be the folder's"),
        ("---\nname: other\ndescription: x\n---\n", "`name` must be the folder's"),
        ("---\nname: a-b\n---\n", "`description` must say"),
    ],
)
def test_what_does_not_fit_is_named(content: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        Skill.parse("skills/a-b/SKILL.md", content)


def test_of_many_files_a_bounded_number_of_those_that_fit_counts() -> None:
    files = {f"s/n{number}/SKILL.md": f"---\nname: n{number}\ndescription: x\n---\n" for number in range(50)}
    assert usable_skills({"s/bad/SKILL.md": "no", **files}).keys() == {f"n{number}" for number in range(MAX_SKILLS)}
