"""One measured figure, and how a list of them is printed."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure.

    Attributes:
        label: the name of the measurement.
        value: the measured value.
        unit: its unit.
        bound: the value that it must stay under; None where there is only something to compare with.
        note: the figure of what a user would pick instead, in words.
    """

    label: str
    value: float
    unit: str
    bound: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether it stays under its bound."""
        return self.bound is None or self.value < self.bound


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = ["| what | measured | must stay under | beside it |", "| --- | ---: | ---: | --- |"]
    for figure in figures:
        bound = "" if figure.bound is None else f"{figure.bound:g} {figure.unit}"
        mark = "" if figure.holds else " **(too slow)**"
        lines.append(f"| {figure.label} | {figure.value:.4g} {figure.unit}{mark} | {bound} | {figure.note} |")
    return "\n".join(lines)


def installed() -> dict[str, str]:
    """The environment of a process whose bytecode is kept, as pip leaves that of installed packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def percentile(values: list[float], share: float) -> float:
    """The value that `share` (0 to 1) of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
