"""Globs of paths. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from agent_runtime.core.errors import SettingsError

_DIRECTORIES = "(?:[^/]*/)*?"
_PART = re.compile(r"\*+|\?|\[(?P<negation>!?)(?P<set>\]?[^\]]*)\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathGlob:
    """Which files a rule is about.

    `*`, `?` and `[…]` stand for characters of one name, `**` for any directories. A glob without a slash is about
    names in any directory; one with a slash about paths from the workspace's root; one that begins with a slash about
    paths of the machine. A slash at the end means all that lies beneath.

    Attributes:
        text: as it was given.
        exact: what it means to the letter.
        loose: the same whatever the case, and with a directory that it names all that lies in it.
    """

    text: str
    exact: re.Pattern[str]
    loose: re.Pattern[str]

    @classmethod
    @cache
    def parse(cls, text: str) -> PathGlob:
        """Read a glob.

        Raises:
            SettingsError: it is empty or leaves the workspace.
        """
        plain = text.removeprefix("./")
        names = plain.removeprefix("/").split("/")
        if not plain.strip("/") or ".." in names or "\0" in plain:
            raise SettingsError(f"path glob {text!r}: must name files, such as 'src/**', '*.py' or '.github/**'")
        if not names[-1]:
            names[-1] = "**"
        root = "/" if plain.startswith("/") else ""
        inside = "" if root or len(names) > 1 else _DIRECTORIES
        body = _joined(names)
        # To warn, a name without a slash counts wherever it lies, and a directory for what it holds.
        loose = f"{root}{'(?:.*/)?' if inside else ''}{body}(?:/.*)?"
        if names[-1] == "**" and len(names) > 1:
            loose = f"(?:{loose}|{root}{_joined(names[:-1])})"
        beneath = root or "(?!/)"
        return cls(
            text=text,
            exact=re.compile(rf"{beneath}{inside}{body}", re.DOTALL),
            loose=re.compile(loose, re.DOTALL | re.IGNORECASE),
        )

    def covers(self, path: str) -> bool:
        """Whether a canonical path is surely meant: what an approval needs."""
        return self.exact.fullmatch(path) is not None

    def touches(self, path: str) -> bool:
        """Whether a canonical path may be meant: what a warning needs."""
        return self.loose.fullmatch(path) is not None


def _joined(names: list[str]) -> str:
    """One expression for a path of names; `**` at the end means at least one name, elsewhere any number.

    Names between two `**` are best taken where they stand first, so nothing of what was taken is ever given back
    (`(?>…)`): the time is linear in the path, whatever the glob.
    """
    runs: list[list[str]] = [[]]  # the names between the `**`
    for name in names:
        if name == "**":
            runs.append([])
        else:
            runs[-1].append(name)
    *outer, last = runs
    ahead = "".join(
        f"(?>{_DIRECTORIES if number else ''}{''.join(f'{_name(each)}/' for each in run)})"
        for number, run in enumerate(outer)
    )
    end = "/".join(map(_name, last)) if last else ".+"
    return f"{ahead}{_DIRECTORIES if outer and last else ''}{end}"


def _name(glob: str) -> str:
    """One name's expression. What stands between two stars is taken where it stands first, too."""
    parts: list[list[str]] = [[]]  # the expressions of single characters between the stars
    for found in _PART.finditer(glob):
        if found[0].startswith("*"):
            parts.append([])
        elif found[0] == "?":
            parts[-1].append("[^/]")
        elif found["set"] is None:
            parts[-1].append(re.escape(found[0]))
        else:
            inside = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", found["set"])
            parts[-1].append(f"(?!/)[{'^' if found['negation'] else ''}{inside}]")
    first, *rest = parts
    if not rest:
        return "".join(first)
    *middle, last = rest
    taken = "".join(f"(?>[^/]*?{''.join(each)})" for each in middle if each)
    end = f"(?=[^/]{{{len(last)}}})[^/]*+(?<={''.join(last)})" if last else "[^/]*+"
    return f"{''.join(first)}{taken}{end}"
