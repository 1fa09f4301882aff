"""Triggers and accounts that an entry point listens to. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.domain.commands import DEFAULT_TRIGGER


def is_app(login: str) -> bool:
    """Whether an account is an App's: GitHub gives these names, and takes square brackets from nobody else."""
    return login.endswith("[bot]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedBots:
    """The bots that the operator lets command.

    Attributes:
        ids: numeric user ids.
        logins: names of Apps' accounts, in lower case, each ending in `[bot]`.
    """

    ids: frozenset[int] = frozenset()
    logins: frozenset[str] = frozenset()

    def hold(self, account: int, login: str) -> bool:
        """Whether an account is one of them."""
        return account in self.ids or (is_app(login) and login.casefold() in self.logins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """What the triggers need to know of the operator's settings and of the bot itself.

    Attributes:
        triggers: the words that start a command, at least one; the first stands for commands that come without one.
        own_ids: numeric user ids of the bot itself.
        own_login: the name of its App's account, where the id is not known; empty where it is.
        own_app_id: numeric id of the App, whose check runs have buttons; None when the bot is no App.
        trusted_bots: other bots that may command.
        start_label: the label that asks for a fix, in any case, as GitHub compares labels.
    """

    triggers: tuple[str, ...] = (DEFAULT_TRIGGER,)
    own_ids: frozenset[int] = frozenset()
    own_login: str = ""
    own_app_id: int | None = None
    trusted_bots: TrustedBots = field(default_factory=TrustedBots)
    start_label: str = "codepilot"

    def __post_init__(self) -> None:
        """Refuse to listen for nothing."""
        if not all(self.triggers) or not self.triggers:
            raise ValueError("Listening.triggers needs at least one word, and none of them empty")

    def is_own(self, account: int, login: str) -> bool:
        """Whether an account is the bot's own."""
        return account in self.own_ids or (is_app(login) and login.casefold() == self.own_login)
