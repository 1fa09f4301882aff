"""The combinations of a job's matrix, the names that GitHub gives its jobs, and expressions filled in. Pure.

https://docs.github.com/actions/how-tos/write-workflows/choose-what-workflows-do/run-job-variations
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice, product

MOST_JOBS = 256
"""https://docs.github.com/actions/reference/limits"""

_EXPRESSION = re.compile(r"\$\{\{([^{}]{0,300})\}\}")
_FIELD = re.compile(r"(matrix|env)(?:\.([A-Za-z_][\w-]{0,99})|\['([^']{1,100})'\])")

Combination = Mapping[str, str]


def combinations(matrix: object) -> list[Combination]:
    """What each job of a matrix has; one without anything where there is none, or an expression makes it."""
    if not isinstance(matrix, Mapping):
        return [{}]
    axes = {
        str(name): [_text(value) for value in values[:MOST_JOBS]]
        for name, values in matrix.items()
        if name not in {"include", "exclude"} and isinstance(values, list)
    }
    excluded = _entries(matrix.get("exclude"))
    found = [dict(zip(axes, values, strict=True)) for values in islice(product(*axes.values()), MOST_JOBS) if axes]
    found = [each for each in found if not any(entry.items() <= each.items() for entry in excluded)]
    # An included entry goes to the combinations whose own values it leaves as they are, else it is one of its own.
    made: list[dict[str, str]] = []
    for entry in _entries(matrix.get("include")):
        own = {name: value for name, value in entry.items() if name in axes}
        fitting = [each for each in found if own.items() <= each.items()]
        for each in fitting:
            each.update(entry)
        if not fitting and len(found) + len(made) < MOST_JOBS:
            made.append(dict(entry))
    return [*found, *made] or [{}]


def name_of(base: str, template: str, combination: Combination) -> str:
    """What GitHub calls a job.

    Args:
        base: its key in the file.
        template: its `name:`; empty for none.
        combination: of its matrix.
    """
    if "${{" in template:
        return filled(template, combination, {})
    return f"{template or base} ({', '.join(combination.values())})" if combination else template or base


def filled(text: str, combination: Combination, environment: Mapping[str, str]) -> str:
    """A text with the values of the matrix and of variables; every other expression stays, e.g. a secret's name."""
    known = {"matrix": combination, "env": environment}

    def value(expression: re.Match[str]) -> str:
        field = _FIELD.fullmatch(expression[1].strip())
        return known[field[1]].get(field[2] or field[3], expression[0]) if field is not None else expression[0]

    return _EXPRESSION.sub(value, text)


def may_be(name: str, template: str) -> bool:
    """Whether a name can come of a text whose expressions nobody knows the values of."""
    if "${{" not in template:
        return name == template
    *pieces, last = _EXPRESSION.sub("\0", template).split("\0")
    if not name.startswith(pieces[0]) or not name.endswith(last):
        return False
    place = len(pieces[0])
    for piece in pieces[1:]:
        place = name.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return place <= len(name) - len(last)


def _entries(value: object) -> list[Mapping[str, str]]:
    listed = value[:MOST_JOBS] if isinstance(value, list) else []
    return [{str(name): _text(each) for name, each in entry.items()} for entry in listed if isinstance(entry, Mapping)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else "Object" if isinstance(value, Mapping) else "Array"
