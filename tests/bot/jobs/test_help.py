"""What is said to a slip, and to who asks for help."""

from __future__ import annotations

from bot.domain.commands import Help, Malformed, Unknown
from bot.domain.grammar import VERBS
from bot.jobs.steering import answer_to


def test_a_slip_is_answered_on_one_line_with_what_to_write() -> None:
    said = answer_to(Unknown(word="fxi", nearest="fix"), trigger="@bot")
    assert said == "There is no command `fxi`. Did you mean `@bot fix`? `@bot help` lists all commands."
    assert answer_to(Unknown(word="dance", nearest=None), trigger="@bot").startswith(
        "There is no command `dance`. `@bot"
    )


def test_a_wrong_option_is_answered_with_what_is_wrong() -> None:
    said = answer_to(Malformed(reason="`--cost` needs an amount."), trigger="@bot")
    assert said == "`--cost` needs an amount. `@bot help` lists all commands."


def test_help_lists_every_command() -> None:
    said = answer_to(Help(), trigger="@bot")
    assert all(f"`@bot {verb.name}" in said for verb in VERBS)
