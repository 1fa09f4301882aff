"""The table of differences from the three systems, `differences.toml`, and its form on the pages `docs/from-*.md`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TABLE = Path(__file__).parent / "differences.toml"
NAMES = {"codepilot": "0.9.1", "llm-coding-agent": "llm-coding-agent", "pygent": "Pygent"}
"""The systems, and how their pages name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference that stays.

    Attributes:
        subject: the name of the function, key or situation.
        document: where the system's document has it; empty where that is silent.
        original: what the system does.
        now: what this package does.
        reason: of the difference.
        tests: the tests that show `now`, below `tests/agent_runtime`.
        programs: programs of the document that have another effect.
        fails: tests of the system's own suite that fail.
    """

    subject: str
    document: str = ""
    original: str
    now: str
    reason: str
    tests: Sequence[str]
    programs: Sequence[str] = ()
    fails: Sequence[str] = ()


def read_differences(system: str) -> list[Difference]:
    """Return the rows of a system in the order of the table."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))[system]
    return [Difference(**row) for row in rows]


def render_differences(system: str) -> str:
    """Return the table for the system's page."""
    lines = [f"| | {NAMES[system]} | now | reason |", "|---|---|---|---|"]
    for row in read_differences(system):
        subject = f"{row.subject} ({row.document})" if row.document else row.subject
        lines.append(f"| {subject} | {row.original} | {row.now} | {row.reason} |")
    return "\n".join(lines)


def render_suite(system: str) -> str:
    """Return the table of the tests of the system's suite that fail."""
    lines = ["| test | row |", "|---|---|"]
    lines += [f"| `{test}` | {row.subject} |" for row in read_differences(system) for test in row.fails]
    return "\n".join(lines)
