from __future__ import annotations

import io
import json

from rich.console import Console

from bot.cli import doctor

FIX = f"Make room.\n\nsudo rm --recursive /var/cache/{'a-long-name' * 8}"
FOUND = [
    doctor.good("git", "2.39.5"),
    doctor.warning("disk", "3.0 GiB free", FIX),
    doctor.skipped("clock", "GitHub was not asked"),
]


def _shown(found: list[doctor.Finding]) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    doctor.show(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_warning_keeps_nobody_from_working_and_a_failure_does() -> None:
    assert doctor.could_work(FOUND)
    assert "would work here: 1 of 3 checks passed, 1 with a warning." in doctor.as_lines(FOUND)
    failed = [*FOUND, doctor.bad("user", "root", "Use another.")]
    assert not doctor.could_work(failed)
    assert "would not work here: 1 of 4 checks failed, 1 with a warning." in doctor.as_lines(failed)


def test_lines_are_aligned_and_end_with_what_fixes_it() -> None:
    lines = doctor.as_lines(FOUND).splitlines()
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
    assert "[red]x[/red]" in _shown([doctor.bad("git", "[red]x[/red]", "[bold]y")])


def test_json_has_everything() -> None:
    told = json.loads(doctor.as_json(FOUND))
    assert told["could_work"] is True
    assert told["findings"][1] == {"name": "disk", "verdict": "warning", "found": "3.0 GiB free", "fix": FIX}
