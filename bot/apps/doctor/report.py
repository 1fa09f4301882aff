"""The findings as a person or a program reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.apps.doctor.findings import Finding, Verdict

_SIGNS: dict[Verdict, tuple[str, str]] = {
    "good": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "bad": ("failed", "bold red"),
    "skipped": ("skipped", "dim"),
}


def could_work(findings: Sequence[Finding]) -> bool:
    """Whether nothing keeps the bot from working."""
    return all(finding.verdict != "bad" for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """One object: whether the bot could work, and every finding."""
    return json.dumps({"could_work": could_work(findings), "findings": [asdict(each) for each in findings]}, indent=2)


def as_lines(findings: Sequence[Finding]) -> str:
    """For pipes and logs: a line a finding, then how to fix what failed."""
    width = max((len(each.name) for each in findings), default=0)
    lines = [f"{_SIGNS[each.verdict][0]:<8} {each.name:<{width}}  {_one_line(each.found)}" for each in findings]
    for each in findings:
        if each.fix:
            lines += ["", _heading(each), *(f"  {line}".rstrip() for line in each.fix.splitlines())]
    return "\n".join([*lines, "", _summary(findings)])


def show(findings: Sequence[Finding], console: Console) -> None:
    """For people at a terminal: a table, then how to fix what failed."""
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="dim")
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for each in findings:
        sign, style = _SIGNS[each.verdict]
        dim = "dim" if each.verdict == "skipped" else ""
        table.add_row(Text(each.name, style=dim), Text(sign, style=style), Text(_one_line(each.found), style=dim))
    console.print(table)
    for each in findings:
        if each.fix:
            console.print()
            console.print(Text(_heading(each), style=_SIGNS[each.verdict][1]))
            # Commands must be whole when they are copied.
            console.print(Text(each.fix), soft_wrap=True)
    console.print()
    console.print(Text(_summary(findings), style="green" if could_work(findings) else "bold red"))


def _heading(finding: Finding) -> str:
    return f"{finding.name}: {_one_line(finding.found)}"


def _summary(findings: Sequence[Finding]) -> str:
    counts = {verdict: sum(each.verdict == verdict for each in findings) for verdict in _SIGNS}
    warnings = f", {counts['warning']} with a warning" if counts["warning"] else ""
    if counts["bad"]:
        return f"The bot would not work here: {counts['bad']} of {len(findings)} checks failed{warnings}."
    return f"The bot would work here: {counts['good']} of {len(findings)} checks passed{warnings}."


def _one_line(text: str) -> str:
    return " ".join(text.split())
