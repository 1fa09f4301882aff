"""Every error the bot raises on purpose, sorted by whose fault it was.

`ConfigError` is the operator's, `DeliveryError` the sender's, `QueueError` and `StorageError` the machine's. Anything
else that escapes is a bug of ours. An error's text names the thing, the place and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass


class BotError(Exception):
    """Base of all errors the bot raises on purpose."""


class ConfigError(BotError):
    """The operator's settings cannot work; the text names every wrong one at once.

    Attributes:
        problems: one sentence a setting, each with what to write instead.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        count = "one setting is" if len(problems) == 1 else f"{len(problems)} settings are"
        super().__init__("\n".join([f"{count} missing or wrong:", *(f"  - {problem}" for problem in problems)]))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class InputProblem:
    """What is wrong with one input of the Action.

    Attributes:
        text: a sentence or two that name the input.
        input: its name, e.g. `max-steps`; empty for what is no input.
        line: what to write below `with:`, as YAML; empty where nothing there helps.
        secret: whether the input is a secret, and empty.
    """

    text: str
    input: str = ""
    line: str = ""
    secret: bool = False


class OutsideActionsError(BotError):
    """What only a step of a workflow can do was started somewhere else."""


class WrongInputError(BotError):
    """An input of the Action does not fit the repository; the text names it and what to do."""


class InputsError(ConfigError):
    """The inputs of the Action cannot work; the text names every wrong one at once.

    Attributes:
        wrong: one for each.
    """

    def __init__(self, wrong: tuple[InputProblem, ...]) -> None:
        super().__init__(
            tuple(f"{each.text} Write below `with:`: `{each.line}`" if each.line else each.text for each in wrong)
        )
        self.wrong = wrong


class DeliveryError(BotError):
    """A delivery was refused; nothing was stored."""


class UnauthenticatedError(DeliveryError):
    """The delivery does not prove that it comes from GitHub; its body was not parsed."""


class MalformedError(DeliveryError):
    """The delivery is genuine, but not one that GitHub would send."""


class QueueError(BotError):
    """The queue could not store or read a job."""


class LeaseLostError(QueueError):
    """Another worker has taken the job over; this one must stop and publish nothing more."""


class OtherVersionError(QueueError):
    """Another version of Codepilot wrote this; it is left as it is, for processes of that version."""


class TransitionError(QueueError):
    """A job was to go from one state to another that may not follow it: a bug of ours."""


class StorageError(BotError):
    """The blob store cannot be reached, or refuses; it may work again later.

    Args:
        address: of the store, without credentials.
        reason: what happened.
        remedy: what the operator can do about it.
    """

    def __init__(self, address: str, reason: str, remedy: str) -> None:
        super().__init__(f"The blob store {address} failed: {reason.strip('. ')}. {remedy}")


class BlobTooLargeError(BotError):
    """A blob is larger than what it can be; nothing of it was kept."""

    def __init__(self, name: str, address: str, limit: int) -> None:
        super().__init__(
            f"The blob {name} in {address} has more than the {limit:,} bytes that it may have. "
            "Delete it if the bot did not write it."
        )
