"""Defences against each threat, listed in `defences.toml`."""

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
"""Numbers of the threats, by part of their list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defence:
    """A defence against a threat.

    Attributes:
        what: short description.
        name: qualified name of the definition; empty for a piece of text.
        how: method of removal, a key of `CHANGES`, or "text".
        part: of the definition, or the text.
        by: the replacement.
        tests: at least one must fail without the defence, by an assertion.
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
        """Return the file without the defence.

        Raises:
            LookupError: the definition, part or text is missing.
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
    """Return the parts in which every threat needs a defence."""
    return tuple(tomllib.loads(LIST.read_text())["covered"])


def defences() -> list[Defence]:
    """Return all defences, by threat.

    Raises:
        TypeError: an entry has a missing or unknown key.
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
