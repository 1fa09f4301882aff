from __future__ import annotations

from pathlib import PureWindowsPath

import pytest

from agent_runtime.terminals.windows import DIALECTS, OutputParser, RepaintFilter

ESC, BEL = "\x1b", "\x07"


@pytest.mark.parametrize("name", DIALECTS)
def test_a_command_s_file_begins_with_its_mark_and_is_in_the_shell_s_own_form(name: str) -> None:
    dialect = DIALECTS[name]
    data = dialect.command_file("one\ntwo \u00fc", "abc")
    assert f"{ESC}]7770;abc;begin{BEL}".encode() in data.partition(b"one")[0]
    assert "two \u00fc".encode() in data
    assert (b"\r\n" in data) is (name != "bash")
    assert data.startswith(b"\xef\xbb\xbf") is (name == "powershell")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("powershell", ". 'C:/O''Neil/1.ps1' }"),
        ("cmd", 'call "C:/O\'Neil/1.cmd" & call "C:/O\'Neil/end.cmd" abc\r'),
        ("bash", "PROMPT_COMMAND=\". 'C:/O'\\''Neil/end.sh' abc\"; . 'C:/O'\\''Neil/1.sh'\r"),
    ],
)
def test_the_line_that_is_typed_names_the_files_and_the_nonce_but_is_no_mark(name: str, line: str) -> None:
    dialect = DIALECTS[name]
    place = PureWindowsPath("C:\\O'Neil")
    typed = dialect.input_line(place / f"1{dialect.suffix}", place / f"end{dialect.suffix}", "abc")
    assert line in typed
    assert typed.endswith("\r")
    assert "]7770;" not in typed


_RECORDED = {
    "powershell": (
        f"{ESC}[?9001h{ESC}[?1004h{ESC}[?25l{ESC}[2J{ESC}[m{ESC}[H{ESC}]0;powershell.exe{BEL}{ESC}[?25h"
        f" $__cp_ok = $false; try {{ . 'C:/t/1.ps1' }} finally {{ . 'C:/t/end.ps1' abc }}\r\n"
        f"{ESC}]7770;abc;begin{BEL}one\r\n{ESC}[31mtwo{ESC}[m{ESC}[K\r\n{ESC}]7770;abc;3;4711;C:\\work{BEL} "
    ),
    "cmd": (
        f"{ESC}[?25l{ESC}[2J{ESC}[m{ESC}[HMicrosoft Windows\r\n\nC:\\work>"
        f'call "C:/t/1.cmd" & call "C:/t/end.cmd" abc\r\n'
        f"{ESC}]7770;abc;begin{BEL}one{ESC}[6;1Htwo\r\n{ESC}]7770;abc;3;4711;C:\\work{BEL}\r\nC:\\work>"
    ),
}
"""Modelled on console recordings; not recorded here."""


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", _RECORDED)
def test_output_is_separated_from_echo_and_prompt_in_any_chunks(name: str, size: int) -> None:
    recorded, parted, output = _RECORDED[name], OutputParser("abc"), ""
    pieces = [recorded[start : start + size] for start in range(0, len(recorded), size)]
    while pieces and parted.marker is None:
        output += parted.feed(pieces.pop(0))
    marker = parted.marker
    assert marker is not None
    assert (marker.exit_code, marker.pid, marker.cwd) == (3, 4711, "C:\\work")
    assert output.startswith("one")
    assert output.endswith("\r\n")
    assert "call" not in output
    assert "7770" not in output


@pytest.mark.parametrize(
    ("painted", "lines"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        (f"a{ESC}[2;1Hb", f"a\n{ESC}[1Gb"),
        (f"a\r\n{ESC}[5;3Hb", f"a\n\n\n\n{ESC}[3Gb"),
        (f"{ESC}[Ha", f"{ESC}[1Ga"),
        (f"a\r\nb{ESC}[1;1Hc", f"a\nb{ESC}[1Gc"),
        (f"a{ESC}[7X\r\n", "a\n"),
        ("10%\r20%", "10%\r20%"),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_cursor_positions_become_new_lines(painted: str, lines: str, size: int) -> None:
    unpainted = RepaintFilter(40)
    assert "".join(unpainted.feed(painted[start : start + size]) for start in range(0, len(painted), size)) == lines
