"""Map a sequence that grows, so that late steps of a long run cost no more than early ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Growing(Generic[A, B]):
    """Gives what a function makes of each item. An item that is the same object as the last time is not asked again."""

    def __init__(self, function: Callable[[A], B]) -> None:
        """Map with `function`."""
        self._function = function
        self._known: list[tuple[A, B]] = []

    def __call__(self, items: Sequence[A]) -> list[B]:
        """What the function makes of each item."""
        known = self._known
        same = next((at for at, (old, new) in enumerate(zip(known, items, strict=False)) if old[0] is not new), None)
        del known[min(len(items), len(known)) if same is None else same :]
        known += [(item, self._function(item)) for item in items[len(known) :]]
        return [made for _, made in known]
