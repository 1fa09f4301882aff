from __future__ import annotations

from typing import get_args

from bot.domain.commands import OPTIONS, Help, StartRecipe, Steering, Undo, Work
from bot.domain.grammar import VERBS, help_text


def test_the_help_names_every_verb_with_the_trigger_and_every_option_once() -> None:
    lines = help_text(trigger="@bot").splitlines()
    for verb in VERBS:
        usage = f"@bot {verb.name} {verb.arguments}".strip()
        assert lines.count(f"- `{usage}`: {verb.meaning}") == 1
    for name, option in OPTIONS.items():
        assert len([line for line in lines if line.startswith(f"- `--{name}") and option.meaning in line]) == 1
    assert "/codepilot" not in "".join(lines)


def test_whatever_people_may_ask_for_has_a_verb() -> None:
    kinds = {*get_args(Work), *get_args(Steering), Undo, StartRecipe, Help}
    assert {verb.name for verb in VERBS} == {kind.__dataclass_fields__["verb"].default for kind in kinds}
