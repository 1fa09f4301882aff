from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.terminals import command
from agent_runtime.terminals.command import Marker


@pytest.mark.parametrize(
    ("exit_code", "pipe", "ok"),
    [
        (0, (0,), True),
        (1, (1,), False),
        (0, (1, 0), False),
        (0, (141, 0), True),
        (141, (141, 0), True),
        (141, (141,), False),
        (0, (0, 141), True),
        (1, (141, 1), False),
        (130, (), False),
    ],
)
def test_all_pipeline_stages_count_except_a_broken_pipe(exit_code: int, pipe: tuple[int, ...], *, ok: bool) -> None:
    assert Marker(exit_code=exit_code, pipe=pipe, pid=4, cwd="/").ok is ok


def test_a_marker_is_read_back() -> None:
    assert command.parse_marker(b"1 0 1;4;/a;b") == Marker(exit_code=1, pipe=(0, 1), pid=4, cwd="/a;b")
    assert command.parse_marker(b"130;4;/") == Marker(exit_code=130, pipe=(), pid=4, cwd="/")


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4_000))
def test_bash_reads_a_quoted_command_back_to_the_byte(text: str) -> None:
    pieces = command.quote_pieces(text)
    assert all(len(piece.encode()) < 4_000 for piece in pieces)
    assert all("\n" not in piece for piece in pieces)
    assert all(len(command.check_line("0" * 32, piece=piece, first=False)) < 4_096 for piece in pieces)
    script = "printf %s " + "".join(pieces)
    done = subprocess.run(["bash", "-c", script], env={"LANG": "C.UTF-8"}, capture_output=True, check=True)
    assert done.stdout == text.encode()


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("bash: unexpected EOF while looking for matching `''\n", "unexpected EOF while looking for matching `''"),
        ("DBG\nother: syntax error: unexpected end of file\n", "syntax error: unexpected end of file"),
        ("bash: eval: line 3: syntax error: unexpected end of file\n", "syntax error: unexpected end of file"),
        ("bash: syntax error near unexpected token `}'\nbash: `}'\n", ""),
        ("bash: syntax error near unexpected token `)'\n", None),
        ("gzip: stdin: unexpected end of file\n", None),
        ("bash: build.sh: line 3: syntax error: unexpected end of file\n", None),
        ("bash: debug trap: line 19: unexpected EOF while looking for matching `''\n", None),
        ("+ eval 'echo x: syntax error: unexpected end of file'\n", None),
        ("", None),
    ],
)
def test_only_parser_errors_mark_a_command_as_incomplete(said: str, missing: str | None) -> None:
    told = command.incomplete_reason(said)
    assert (told is None) == (missing is None)
    assert told is None or told.endswith(f" ({missing})" if missing else "is not closed")
