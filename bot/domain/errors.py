"""All errors that the bot raises deliberately; any other exception is a bug.

`ConfigError` is the operator's fault, `DeliveryError` the sender's, `QueueError` and `StorageError` the machine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

Certainty = Literal["passing", "doubtful", "definite"]
"""Whether a later attempt may succeed. Doubtful answers are refusals that GitHub also sends spuriously, for minutes."""
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_DOUBTFUL = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
NO_PERMISSION = "resource not accessible"
_PERMANENT = (
    NO_PERMISSION,
    "write access to repository not granted",
    "archived",
    "locked",
    "suspended",
    "not permitted",
    "protected",
    "rule violations",
    "blocked",
    "over its data quota",
    "lfs is disabled",
    "can not upload",
    "json web token could not be decoded",
)
"""Texts of permanent refusals."""


def certainty_of(status: int, message: str) -> Certainty:
    """Return the certainty of an unsuccessful HTTP answer; `status` is 0 without an answer."""
    # Below 400 no answer came, or an unreadable one: a proxy's page, half an answer.
    if status < HTTPStatus.BAD_REQUEST or status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "passing"
    is_doubtful = status in _DOUBTFUL and not any(words in message.lower() for words in _PERMANENT)
    return "doubtful" if is_doubtful else "definite"


class BotError(Exception):
    """Base class of the bot's errors."""


class ConfigError(BotError):
    """Invalid settings; the text lists all problems."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        count = "one setting is" if len(problems) == 1 else f"{len(problems)} settings are"
        super().__init__("\n".join([f"{count} missing or wrong:", *(f"  - {problem}" for problem in problems)]))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class InputProblem:
    """A problem with an input of the Action.

    Attributes:
        line: YAML to write below `with:`; empty if none helps.
    """

    text: str
    input: str = ""
    line: str = ""
    secret: bool = False


class OutsideActionsError(BotError):
    pass


class WrongInputError(BotError):
    """An input of the Action does not fit the repository."""


class InputsError(ConfigError):
    def __init__(self, input_problems: tuple[InputProblem, ...]) -> None:
        texts = (
            f"{item.text} Write below `with:`: `{item.line}`" if item.line else item.text for item in input_problems
        )
        super().__init__(tuple(texts))
        self.input_problems = input_problems


class DeliveryError(BotError):
    """A delivery was refused; nothing was stored."""


class UnauthenticatedError(DeliveryError):
    pass


class MalformedError(DeliveryError):
    pass


class QueueError(BotError):
    pass


class LeaseLostError(QueueError):
    """Another worker has claimed the job; stop and publish nothing more."""


class OtherVersionError(QueueError):
    """Another version of Codepilot wrote this; leave it unchanged."""


class TransitionError(QueueError):
    """Invalid transition of a job's state: a bug."""


class StorageError(BotError):
    """The blob store failed, perhaps temporarily. The text names its address: it is for the log only."""

    def __init__(self, address: str, reason: str, remedy: str) -> None:
        super().__init__(f"The blob store {address} failed: {reason.strip('. ')}. {remedy}")


class BlobTooLargeError(BotError):
    """A blob exceeds its size limit; nothing of it was kept."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(
            f"The stored blob {name} has more than the {limit:,} bytes that it may have. "
            "Delete it if the bot did not write it."
        )
