"""Answers to commands that need no agent and concern no job. Pure."""

from __future__ import annotations

from typing import assert_never

from bot.domain.commands import Help, Malformed, Talk, Unknown
from bot.domain.verbs import help_text
from bot.publishing.text import code


def answer_to(command: Talk, *, trigger: str, recipes: str = "") -> str:
    """What the bot says to what needs no agent and concerns no job.

    Args:
        command: what was said.
        trigger: the word that it began with.
        recipes: what the help says of the repository's recipes.
    """
    more = f"{code(f'{trigger} help')} lists all commands."
    match command:
        case Unknown(word=word, nearest=nearest):
            hint = f" Did you mean {code(f'{trigger} {nearest}')}?" if nearest else ""
            return f"There is no command {code(word)}.{hint} {more}"
        case Malformed(reason=reason):
            return f"{reason} {more}"
        case Help():
            return "\n\n".join(filter(None, (help_text(trigger=trigger), recipes)))
        case other:
            assert_never(other)
