"""The defences between each threat and its harm, as `defences.toml` lists them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.security.changed_definition import CHANGES, changed
from tests.source_files import ROOT

LIST = Path(__file__).with_name("defences.toml")
PARTS = {
    "A": range(1, 17),
    "B": range(17, 24),
    "C": range(24, 31),
    "D": range(31, 37),
    "E": range(37, 46),
    "F": range(46, 55),
    "G": range(55, 64),
    "H": range(64, 70),
}
"""The numbers of the threats, by the parts of their list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defence:
    """One thing that keeps a threat from its harm.

    Attributes:
        threat: its number.
        what: the defence, in a few words.
        file: where it is.
        name: of the definition that is the defence, qualified; empty where a piece of text is.
        how: it is taken out, a key of `CHANGES`, or "text".
        part: of the definition, or the text.
        by: what stands there when it is taken out, if anything.
        tests: of these one must fail then, by a check of its own.
    """

    threat: int
    what: str
    file: str
    name: str
    how: str
    part: str
    by: str
    tests: tuple[str, ...]

    def taken_out_of(self, source: str) -> str:
        """The file without the defence.

        Raises:
            LookupError: there is no such definition, part or text.
        """
        place = f"{LIST.name}: {self.what!r} of threat {self.threat}: {self.file} {self.name}".rstrip()
        if self.how == "text":
            if (found := source.count(self.part)) != 1:
                raise LookupError(f"{place}: the text is there {found} times, not once")
            return source.replace(self.part, self.by)
        try:
            return changed(source, self.name, self.how, self.part, self.by)
        except LookupError as error:
            raise LookupError(f"{place}: {error}") from error


def covered() -> tuple[str, ...]:
    """The parts in which every threat must have a defence."""
    return tuple(tomllib.loads(LIST.read_text())["covered"])


def defences() -> list[Defence]:
    """All of them, in the order of their threats.

    Raises:
        TypeError: an entry lacks a key, or has one too many.
    """
    return sorted(map(_defence, tomllib.loads(LIST.read_text())["defence"]), key=lambda each: each.threat)


def _defence(entry: dict[str, Any]) -> Defence:
    module, _, name = entry.pop("definition", ":").partition(":")
    how = next((key for key in entry if key in {*CHANGES, "text"}), "")
    path = Path(*module.split("."))
    package = path / "__init__.py"
    file = str(package if (ROOT / package).exists() else path.with_suffix(".py")) if module else entry.pop("file")
    given = {"file": file, "name": name, "how": how, "part": entry.pop(how, None), "by": entry.pop("by", "")}
    return Defence(**given | entry | {"tests": tuple(entry["tests"])})
