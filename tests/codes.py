"""Compare the code of an error, not its text."""

from __future__ import annotations

from collections.abc import Callable


def coded(*codes: object) -> Callable[[BaseException], bool]:
    """For `check=` of `pytest.raises`: whether an error has one of these codes."""
    return lambda error: getattr(error, "code", None) in codes
