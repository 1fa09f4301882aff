"""What a door listens for. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bot.intake.commands import DEFAULT_TRIGGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """What the triggers need to know of the operator's settings and of the bot itself.

    Attributes:
        triggers: the words that start a command, at least one; the first stands for commands that come without one.
        own_ids: numeric user ids of the bot itself.
        own_app_id: numeric id of the App, whose check runs have buttons; None when the bot is no App.
        trusted_bot_ids: numeric user ids of other bots that may command.
        start_label: the label that asks for a fix, in any case, as GitHub compares labels.
    """

    triggers: tuple[str, ...] = (DEFAULT_TRIGGER,)
    own_ids: frozenset[int] = frozenset()
    own_app_id: int | None = None
    trusted_bot_ids: frozenset[int] = frozenset()
    start_label: str = "codepilot"

    def __post_init__(self) -> None:
        """Refuse to listen for nothing."""
        if not all(self.triggers) or not self.triggers:
            raise ValueError("Listening.triggers needs at least one word, and none of them empty")
