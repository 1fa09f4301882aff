"""Failures on demand: the next requests to a path fail in a chosen way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

Trouble = Literal[
    "401",
    "403",
    "404",
    "502",
    "503",
    "rate_limited",
    "secondary_rate_limited",
    "graphql_rate_limited",
    "graphql_trouble",
    "drop",
    "drop_answer",
]
"""The `graphql_` ones come with status 200, as GitHub sends them. `drop` closes the connection before anything is done,
`drop_answer` does it and closes without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The next `times` requests with this method (`*` for any) to a path that matches meet `trouble`."""

    method: str
    pattern: str
    trouble: Trouble
    times: int
    retry_after: int


class Faults:
    """What is to go wrong, in the order in which it was asked for."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, method: str, pattern: str, trouble: Trouble, *, times: int = 1, retry_after: int = 1) -> None:
        """Let the next `times` requests fail.

        Args:
            method: an HTTP method, or `*`.
            pattern: a shell pattern for the path from the server's root, e.g. `*/issues/*/comments`.
            trouble: how.
            times: how often.
            retry_after: seconds in the `Retry-After` header of the rate limits.
        """
        fault = Fault(method=method.upper(), pattern=pattern, trouble=trouble, times=times, retry_after=retry_after)
        self._waiting.append(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, used up by one."""
        for at, fault in enumerate(self._waiting):
            if fault.method in {"*", method} and fnmatchcase(path, fault.pattern):
                left = replace(fault, times=fault.times - 1)
                self._waiting[at : at + 1] = [left] if left.times else []
                return fault
        return None

    def clear(self) -> None:
        """Let everything work again."""
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)
