"""What stands between each threat and its harm, as `defences.toml` lists it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("defences.toml")
PARTS = {
    "A": range(1, 17),
    "B": range(17, 24),
    "C": range(24, 31),
    "D": range(31, 37),
    "E": range(37, 46),
    "F": range(46, 55),
    "G": range(55, 64),
}
"""The numbers of the threats, by the parts of their list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defence:
    """One thing that keeps a threat from its harm.

    Attributes:
        threat: its number.
        what: the defence, in a few words.
        file: where it stands.
        text: it, as it stands there once.
        without: what stands there when it is taken out.
        tests: of these one must fail then, by a check of its own.
    """

    threat: int
    what: str
    file: str
    text: str
    without: str
    tests: tuple[str, ...]

    def taken_out_of(self, source: str) -> str:
        """The file without the defence.

        Raises:
            ValueError: it does not stand there exactly once.
        """
        if (found := source.count(self.text)) != 1:
            raise ValueError(
                f"{LIST.name}: threat {self.threat}, {self.what!r}: its text stands {found} times in {self.file}, not "
                "once. Bring the list in line with the file."
            )
        return source.replace(self.text, self.without)


def covered() -> tuple[str, ...]:
    """The parts in which every threat must have a defence."""
    return tuple(tomllib.loads(LIST.read_text())["covered"])


def defences() -> list[Defence]:
    """All of them, in the order of their threats.

    Raises:
        TypeError: a line of the list lacks a key, or has one too many.
    """
    lines = tomllib.loads(LIST.read_text())["defence"]
    found = [Defence(**line | {"tests": tuple(line["tests"])}) for line in lines]
    return sorted(found, key=lambda each: each.threat)
