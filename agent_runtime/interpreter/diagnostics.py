"""The type checker's findings: which ones count, and how the model reads them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_ALWAYS = frozenset(
    {
        "call-non-callable",
        "invalid-await",
        "missing-argument",
        "parameter-already-assigned",
        "too-many-positional-arguments",
        "unknown-argument",
        "unresolved-import",
    }
)
_ABOUT_A_NAME = (
    re.compile(r"Name `(?P<name>\w+)` used when not defined"),
    re.compile(r"attribute `(?P<name>\w+)`", re.IGNORECASE),
    re.compile(r'Unknown key "(?P<name>[^"]*)"'),
)
_ARGUMENT = re.compile(
    r"Argument to function `(?P<function>\w+)` is incorrect: Expected `(?P<wanted>.*)`, found `(?P<given>.*)`"
)
_OVER_A_TOOL = re.compile(r"is not assignable to `def (?P<name>\w+)\(")
_MESSAGE_CHARS = 300
_MOST_TOLD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding of the type checker: where (1-based) and what."""

    line: int
    column: int
    rule: str
    message: str

    def counts(self, *, tools: AbstractSet[str], bound: AbstractSet[str]) -> bool:
        """Whether the code must fail, whatever values it meets; all else is for the run itself to show.

        The checker is stricter than Python: it minds a `None` that cannot come, a list of mixed items, an annotation
        that is only roughly right, a `*args` whose length it does not know. Refusing a program for such a thing
        costs the model a turn for nothing.

        Args:
            tools: the names of the tools.
            bound: names, attributes and keys that control code binds, in this block or an earlier one.
        """
        if self.rule in _ALWAYS:
            return True
        if self.rule in {"unresolved-reference", "unresolved-attribute", "invalid-key"}:
            if "`None`" in self.message or "in union" in self.message:
                return False
            found = next((match for pattern in _ABOUT_A_NAME if (match := pattern.search(self.message))), None)
            return found is not None and found["name"] not in bound
        if self.rule == "invalid-argument-type":
            match = _ARGUMENT.match(self.message)
            if match is None or match["function"] not in tools:
                return False
            # Of a variable's type nothing is certain.
            certain = match["given"].startswith("Literal[") or match["given"] == "None"
            return certain and " | Literal[" not in match["given"]
        taken = _OVER_A_TOOL.search(self.message)
        return self.rule == "invalid-assignment" and taken is not None and taken["name"] in tools

    def told(self, source_line: str) -> str:
        """The finding as the model reads it, with the line it wrote."""
        return f"line {self.line}: {self.message[:_MESSAGE_CHARS]}\n    {source_line.strip()[:200]}"


def parse_findings(report: str) -> list[Diagnostic]:
    """Read the checker's JSON report (an array of objects with `name`, `message` and `location`)."""
    return [
        Diagnostic(
            line=item["location"]["row"],
            column=item["location"]["column"],
            rule=item["name"],
            message=item["message"],
        )
        for item in json.loads(report)
    ]


def render(findings: list[Diagnostic], source: str) -> str:
    """Tell the model: the line it wrote under each finding, at most ten of them."""
    lines = ["", *source.split("\n")]
    told = [finding.told(lines[finding.line] if finding.line < len(lines) else "") for finding in findings[:_MOST_TOLD]]
    if len(findings) > len(told):
        told.append(f"... and {len(findings) - len(told)} more")
    return "\n".join(told)
