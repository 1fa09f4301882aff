"""What a finished run came to, by rules of the host and not by the model's words. Pure."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What is known of a run that was to change something and ended by itself (`StatusView.state` is `done`).

    Every other end has its state alone: failed, stopped, refused, waiting.
    """

    VERIFIED = "verified"
    """A check ran after the last change, and the last run of every check passed."""
    UNVERIFIED = "unverified"
    """Something changed, and no check passed on it as it is now."""
    RED = "red"
    """The last run of some check failed."""
    UNCHANGED = "unchanged"
    """Nothing changed."""
    SETUP_FAILED = "setup_failed"
    """A `setup` command of the repository failed before the agent started."""
