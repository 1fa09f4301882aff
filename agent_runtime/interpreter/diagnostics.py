"""The type checker's findings: which ones count, and how the model reads them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_UNDEFINED = re.compile(r"Name `(?P<name>\w+)` used when not defined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the type checker: where (1-based) and what."""

    line: int
    column: int
    rule: str
    message: str

    def is_about(self, names: AbstractSet[str]) -> bool:
        """Whether it only says that one of `names` is not defined."""
        match = _UNDEFINED.search(self.message)
        return self.rule == "unresolved-reference" and match is not None and match["name"] in names


def parse_findings(report: str) -> list[Finding]:
    """Read the checker's JSON report (an array of objects with `name`, `message` and `location`)."""
    return [
        Finding(
            line=item["location"]["row"],
            column=item["location"]["column"],
            rule=item["name"],
            message=item["message"],
        )
        for item in json.loads(report)
    ]


def render(findings: list[Finding], source: str) -> str:
    """Tell the model: the line it wrote under each finding, at most ten of them."""
    lines = source.split("\n")
    told = []
    for finding in findings[:10]:
        text = lines[finding.line - 1].strip() if 0 < finding.line <= len(lines) else ""
        told.append(f"line {finding.line}: {finding.message}\n    {text[:200]}")
    if len(findings) > len(told):
        told.append(f"... and {len(findings) - len(told)} more")
    return "\n".join(told)
