from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.terminals.output import Capture, Output, Spool


def test_short_text_is_kept_whole() -> None:
    capture = Capture(5)
    for piece in ("abc", "def", "ghij"):
        capture.add(piece, piece.count("\n"))
    assert capture.render() == "abcdefghij"
    assert not capture.cut


def test_long_text_is_head_count_and_tail() -> None:
    capture = Capture(10)
    for number in range(1, 101):
        capture.add(f"line {number}\n", 1)
    text = capture.render(whole="logs/a.log")
    assert text.startswith("line 1\nlin\n[… ")
    assert text.endswith("…]\n\nline 100\n")
    assert "lines 2-" in text
    assert "logs/a.log" in text


def test_binary_data_is_left_out_and_the_text_around_it_stays() -> None:
    output = Output()
    output.feed(b"$ cat photo.png\n" + random.Random(1).randbytes(10_000) + b"\ndone\n")  # noqa: S311 - noise is enough
    shown = output.whole()
    assert shown.startswith("$ cat photo.png\n")
    assert shown.endswith("done\n")
    assert "characters of binary data]" in shown
    assert shown.count("\ufffd") < 12
    assert len(shown) < 400


@given(st.lists(st.text(max_size=30), max_size=30), st.integers(1, 20))
def test_head_and_tail_are_those_of_the_whole(pieces: list[str], limit: int) -> None:
    capture = Capture(limit)
    for piece in pieces:
        capture.add(piece, piece.count("\n"))
    whole = "".join(pieces)
    assert capture.characters == len(whole)
    assert capture.lines == whole.count("\n")
    if capture.cut:
        assert capture.kept() == whole[:limit] + whole[-limit:]
    else:
        assert capture.kept() == whole


def test_long_output_goes_to_a_log_and_short_output_does_not(tmp_path: Path) -> None:
    short, long = (Output(spool=Spool(tmp_path / "logs"), name=name) for name in ("short", "long"))
    short.feed(b"x" * 9_000)
    for number in range(5_000):
        long.feed(f"{number}\n".encode())
    assert str(tmp_path / "logs" / "long.log") in long.whole()
    short.close()
    long.close()
    assert short.log is None
    assert (tmp_path / "logs" / "long.log").read_text() == "".join(f"{n}\n" for n in range(5_000))


def test_a_log_that_cannot_be_written_is_said_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the directory should be")
    output = Output(spool=Spool(tmp_path / "logs"), name="a")
    output.feed(b"x" * 20_000)
    assert output.log is None
    assert output.log_error
    assert "10,000 characters left out" in output.whole()


def test_what_was_taken_is_not_given_again() -> None:
    output = Output()
    output.feed(b"one\ntw")
    assert output.take() == "one\ntw"
    output.feed(b"o\nthree\n")
    assert output.take() == "o\nthree\n"
    assert output.take() == ""
    assert output.whole() == "one\ntwo\nthree\n"


def test_the_oldest_logs_make_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path, total_bytes=0)
    for name in ("a", "b"):
        _, file = spool.open(name)
        file.write(b"x")
        file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["b.log"]
