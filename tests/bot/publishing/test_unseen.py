from __future__ import annotations

import pytest

from bot.publishing.screening import adds_unseen, is_deceptive, spelled_out


def section(*lines: str, first: int = 3) -> str:
    return "\n".join(["diff --git a/x b/x", "--- a/x", "+++ b/x", f"@@ -{first},3 +{first},4 @@", *lines, ""])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb\u2066", "a[U+202E]b[U+2066]"),
        ("ci\u200b.yml", "ci[U+200B].yml"),
        ("x\x1b[2K\ry", "x[U+001B][2K[U+000D]y"),
        ("\U000e0041\udce9\ufeff", "[U+E0041][0xE9][U+FEFF]"),
        ("caf\u00e9 \u65e5\u672c\ttab\nline", "caf\u00e9 \u65e5\u672c\ttab\nline"),
    ],
)
def test_what_nobody_sees_is_spelled_out(text: str, shown: str) -> None:
    assert spelled_out(text) == shown


@pytest.mark.parametrize(
    "line",
    [
        "if level != 'user\u202e \u2066// admin\u2069 \u2066':",
        "x\u200b = 1",
        "a\u00adb",
        "ﾠ = 1",
        "tag\U000e0041",
        "x\u200d = 1",
        "x\ufe0f = 1",
        "rm -rf /\recho ok",
        "\x1b[8mhidden",
        "x = '\ufeff'",
    ],
)
def test_added_characters_that_deceive_are_found(line: str) -> None:
    assert adds_unseen(section(" before", f"+{line}", " after"))
    assert is_deceptive(line)
    # Taken away, or there before: nobody need be asked.
    assert not adds_unseen(section(f" {line}", f"-{line}", "+x"))
    assert adds_unseen(section(f" {line}", f"-{line}", f"+{line}"))


@pytest.mark.parametrize(
    "line",
    [
        "plain\ttext",
        "windows\r",
        "caf\u00e9 \u65e5\u672c",
        "\u2764\ufe0f 1\ufe0f\u20e3 \U0001f468\u200d\U0001f4bb",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0915\u094d\u200d\u0937",
        "\x0c",
        "latin-1 \udce9",
    ],
)
def test_ordinary_text_is_left_alone(line: str) -> None:
    assert not adds_unseen(section(f"+{line}"))


def test_a_byte_order_mark_may_begin_a_file_and_stand_nowhere_else() -> None:
    assert not adds_unseen(section("+\ufeffx", "+y", first=1))
    assert not adds_unseen(section("-\ufeffold", "+\ufeffnew", first=1))
    assert adds_unseen(section("+x", "+\ufeffy", first=1))
    assert adds_unseen(section("+\ufeffx", first=4))


def test_many_of_them_in_lines_that_stay_count_as_if_one_were_added() -> None:
    assert adds_unseen(section(*[" \u200b"] * 100_001))
