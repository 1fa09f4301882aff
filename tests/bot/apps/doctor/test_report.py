from __future__ import annotations

import io
import json

from rich.console import Console

from bot.apps.doctor import findings, report

FIX = f"Make room.\n\nsudo rm --recursive /var/cache/{'a-long-name' * 8}"
FOUND = [
    findings.good("git", "2.39.5"),
    findings.warning("disk", "3.0 GiB free", FIX),
    findings.skipped("clock", "GitHub was not asked"),
]


def _shown(found: list[findings.Finding]) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    report.show(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_warning_keeps_nobody_from_working_and_a_failure_does() -> None:
    assert report.could_work(FOUND)
    assert "would work here: 1 of 3 checks passed, 1 with a warning." in report.as_lines(FOUND)
    failed = [*FOUND, findings.bad("user", "root", "Use another.")]
    assert not report.could_work(failed)
    assert "would not work here: 1 of 4 checks failed, 1 with a warning." in report.as_lines(failed)


def test_lines_are_aligned_and_end_with_what_fixes_it() -> None:
    lines = report.as_lines(FOUND).splitlines()
    assert lines[:3] == [
        "ok       git    2.39.5",
        "warning  disk   3.0 GiB free",
        "skipped  clock  GitHub was not asked",
    ]
    assert lines[4:6] == ["disk: 3.0 GiB free", "  Make room."]


def test_the_table_keeps_commands_whole() -> None:
    shown = _shown(FOUND)
    assert FIX.splitlines()[-1] in shown
    assert "\x1b[32mok" in shown


def test_what_a_finding_says_is_no_markup() -> None:
    assert "[red]x[/red]" in _shown([findings.bad("git", "[red]x[/red]", "[bold]y")])


def test_json_has_everything() -> None:
    told = json.loads(report.as_json(FOUND))
    assert told["could_work"] is True
    assert told["findings"][1] == {"name": "disk", "verdict": "warning", "found": "3.0 GiB free", "fix": FIX}
