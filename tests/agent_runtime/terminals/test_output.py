from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.terminals.output import Capture, Output, Screen, Spool


def screen_text(*pieces: bytes) -> str:
    screen = Screen()
    return "".join(screen.feed(piece) for piece in pieces) + screen.flush()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\ttext  \n\n", "plain\ttext  \n\n"),
        (b"dos\r\nlines\r\n", "dos\nlines\n"),
        (b"10%\r55%\r100%\n", "100%\n"),
        (b"long line\rshort\n", "shortline\n"),
        (b"long line\r\x1b[Kshort\n", "short\n"),
        (b"abc\b\bX\n", "aXc\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07after\n", "red after\n"),
        (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n", "link\n"),
        (b"\x1b(B\x1b=ok\x1b>\n", "ok\n"),
        (b"\x07bell\x00nul\xff\n", "bell\N{REPLACEMENT CHARACTER}nul\N{REPLACEMENT CHARACTER}\n"),
        ("gr\u00fc\u00df\n".encode(), "gr\u00fc\u00df\n"),
        (b"ab\x1b[5Gcd\x1b[2Dx\n", "ab  xd\n"),
        (b"\x1b[H\x1b[2Jcleared\n", "cleared\n"),
        (b"x" * 100_000 + b"\n", "x" * 100_000 + "\n"),
        (b"x\x1b[31m" + b"y" * 100_000 + b"\n", "x" + "y" * 100_000 + "\n"),
        (b"\x1b[?25l\x1b[?2004hprompt> ", "prompt> "),
    ],
)
def test_the_text_matches_the_visible_terminal(data: bytes, text: str) -> None:
    assert screen_text(data) == text


def test_an_unfinished_line_is_available_before_its_end() -> None:
    screen = Screen()
    assert screen.feed(b"one\nPassword: ") == "one\n"
    assert screen.line == "Password: "
    assert screen.flush() == "Password: "
    assert screen.feed(b"x\n") == "x\n"


def test_a_full_screen_program_is_followed_by_an_emulator() -> None:
    screen = Screen()
    assert screen.feed(b"before\n\x1b[?1049h\x1b[2J\x1b[3;5Hhello\x1b[1;1Htop") == "before\n"
    assert screen.full_screen == "top\n\n    hello"
    assert screen.feed(b"\x1b[?1049") == ""
    assert screen.feed(b"lafter\n") == "after\n"
    assert screen.full_screen is None


_PIECE = st.sampled_from(
    [
        *(
            b"text",
            b"\n",
            b"\r",
            b"\b",
            b"\t",
            b"\x07",
            b"\xc3\xa9",
            b"\xff",
            b"\x1b",
            b"\x1b[",
            b"\x1b[31m",
            b"\x1b[K",
        ),
        *(b"\x1b[2G", b"\x1b[P", b"\x1b]0;t\x07", b"\x1b]0;t\x1b\\", b"\x1b[?1049h", b"\x1b[?1049l"),
    ]
)


@given(pieces=st.lists(_PIECE, max_size=12), data=st.data())
def test_the_text_does_not_depend_on_how_the_bytes_arrive(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cut = data.draw(st.integers(0, len(whole)))
    again = data.draw(st.integers(cut, len(whole)))
    assert screen_text(whole[:cut], whole[cut:again], whole[again:]) == screen_text(whole)
    assert screen_text(*(whole[i : i + 1] for i in range(len(whole)))) == screen_text(whole)


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "?", ">", "="]), st.lists(st.integers(0, 20_000)), st.characters(codec="ascii"))
    )
)
def test_no_sequence_breaks_the_emulator(sequences: list[tuple[str, list[int], str]]) -> None:
    screen = Screen()
    screen.feed(b"\x1b[?1049h")
    for prefix, numbers, final in sequences:
        screen.feed(f"\x1b[{prefix}{';'.join(map(str, numbers))}{final}x".encode())
    assert screen.full_screen is None or isinstance(screen.full_screen, str)


def test_a_sequence_that_only_new_terminals_know_is_passed_over_on_a_full_screen() -> None:
    screen = Screen()
    screen.feed(b"\x1b[?1049h\x1b[>4;2m\x1b[?4m\x1b[1;2;3H\x1b(0\x1b[38;5mhello\x1b]2;title\x07")
    assert screen.full_screen == " hello"


@pytest.mark.parametrize(
    ("written", "screen_text"),
    [
        ("\u4e00\rX", "X"),
        ("\u4e00\u4e8c\r\x1b[P", "\u4e8c"),
        ("ab\x1b[1;2H\x1b[5Pc", "ac"),
        ("abcdef\x1b[1;2H\x1b[2P", "adef"),
        ("\u26a0\ufe0f warning", "\u26a0 warning"),
        ("e\u0301te\u0301", "\u00e9t\u00e9"),
        ("\u05e9\u05b8\u05c1 x", "\u05e9\u05b8\u05c1 x"),
        ("e\u0301\x1b[1;1H\u0301", "\u00e9"),
    ],
)
def test_partial_wide_characters_and_combining_marks_render_on_a_full_screen(written: str, screen_text: str) -> None:
    screen = Screen()
    screen.feed(b"\x1b[?1049h" + written.encode())
    assert screen.full_screen == screen_text


@given(
    st.lists(st.one_of(st.text(max_size=9), st.sampled_from(["\u4e00", "\r", "\b", "\x1b[P", "\x1b[@", "\x1b[1;7H"])))
)
def test_no_text_breaks_the_emulator(pieces: list[str]) -> None:
    screen = Screen()
    for piece in ["\x1b[?1049h", *pieces]:
        screen.feed(piece.encode(errors="replace"))
    assert screen.full_screen is None or isinstance(screen.full_screen, str)


@given(st.binary(max_size=200))
def test_any_bytes_become_text_without_control_characters(data: bytes) -> None:
    assert not set(screen_text(data)) & {chr(code) for code in [*range(9), *range(14, 32), 127]}


def test_short_text_is_not_truncated() -> None:
    capture = Capture(5)
    for piece in ("abc", "def", "ghij"):
        capture.add(piece, piece.count("\n"))
    assert capture.render() == "abcdefghij"
    assert not capture.is_truncated


def test_long_text_is_head_count_and_tail() -> None:
    capture = Capture(10)
    for number in range(1, 101):
        capture.add(f"line {number}\n", 1)
    text = capture.render(log="logs/a.log")
    assert text.startswith("line 1\nlin\n[… ")
    assert text.endswith("…]\n\nline 100\n")
    assert "lines 2-" in text
    assert "logs/a.log" in text


def test_binary_data_is_removed_from_text() -> None:
    output = Output()
    output.feed(b"$ cat photo.png\n" + random.Random(1).randbytes(10_000) + b"\ndone\n")  # noqa: S311 - noise is enough
    screen_text = output.render_all()
    assert screen_text.startswith("$ cat photo.png\n")
    assert screen_text.endswith("done\n")
    assert "characters of binary data]" in screen_text
    assert screen_text.count("\ufffd") < 12
    assert len(screen_text) < 400


@given(st.lists(st.text(max_size=30), max_size=30), st.integers(1, 20))
def test_head_and_tail_are_those_of_the_whole(pieces: list[str], limit: int) -> None:
    capture = Capture(limit)
    for piece in pieces:
        capture.add(piece, piece.count("\n"))
    whole = "".join(pieces)
    assert capture.characters == len(whole)
    assert capture.lines == whole.count("\n")
    if capture.is_truncated:
        assert capture.head_and_tail() == whole[:limit] + whole[-limit:]
    else:
        assert capture.head_and_tail() == whole


def test_long_output_goes_to_a_log_and_short_output_does_not(tmp_path: Path) -> None:
    short, long = (Output(spool=Spool(tmp_path / "logs"), name=name) for name in ("short", "long"))
    short.feed(b"x" * 9_000)
    for number in range(5_000):
        long.feed(f"{number}\n".encode())
    assert str(tmp_path / "logs" / "long.log") in long.render_all()
    short.close()
    long.close()
    assert short.log is None
    assert (tmp_path / "logs" / "long.log").read_text() == "".join(f"{n}\n" for n in range(5_000))


def test_a_log_error_is_reported_and_does_not_stop_the_command(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the directory should be")
    output = Output(spool=Spool(tmp_path / "logs"), name="a")
    output.feed(b"x" * 20_000)
    assert output.log is None
    assert output.log_error
    assert "10,000 characters left out" in output.render_all()


def test_output_is_returned_only_once() -> None:
    output = Output()
    output.feed(b"one\ntw")
    assert output.take_new() == "one\ntw"
    output.feed(b"o\nthree\n")
    assert output.take_new() == "o\nthree\n"
    assert output.take_new() == ""
    assert output.render_all() == "one\ntwo\nthree\n"


def test_the_oldest_logs_make_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path, total_bytes=0)
    for name in ("a", "b"):
        _, file = spool.open(name)
        file.write(b"x")
        file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["b.log"]
