"""All errors that the bot raises deliberately; any other exception is a bug.

`ConfigError` is the operator's fault, `DeliveryError` the sender's, `QueueError` and `StorageError` the machine's.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    """The blob store failed, perhaps temporarily."""

    def __init__(self, address: str, reason: str, remedy: str) -> None:
        super().__init__(f"The blob store {address} failed: {reason.strip('. ')}. {remedy}")


class BlobTooLargeError(BotError):
    """A blob exceeds its size limit; nothing of it was kept."""

    def __init__(self, name: str, address: str, limit: int) -> None:
        super().__init__(
            f"The blob {name} in {address} has more than the {limit:,} bytes that it may have. "
            "Delete it if the bot did not write it."
        )
