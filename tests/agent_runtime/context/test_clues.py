from __future__ import annotations

import time

import pytest

from agent_runtime.context.relevant_code import Mention, clues

GENEROUS = 20.0
"""Seconds; what is bounded takes one, what is not takes minutes."""


def test_lines_of_a_traceback_are_innermost_first_and_bounded() -> None:
    text = 'File "a.py", line 1, in f\nFile "b.py", line 2, in g\n' + " ".join(f"f{n}.py:7" for n in range(100))
    places = clues(text).places
    assert places[:3] == (Mention("b.py", 2), Mention("a.py", 1), Mention("f0.py", 7))
    assert len(places) == 24


@pytest.mark.parametrize(
    "text",
    [
        "see /app/lib/server.js:246:29 for it",
        "    at Server.upgrade (/app/lib/server.js:246:29)",
        "    at async file:///app/lib/server.js:246:29",
        "/app/lib/server.js:246: error",
    ],
)
def test_places_of_other_languages_are_read(text: str) -> None:
    (place,) = clues(text).places
    assert place.path.endswith("/app/lib/server.js")
    assert place.line == 246


def test_files_and_tests_are_told_from_attributes() -> None:
    found = clues("`fields.DateTime` in docs/x.md; tests/test_a.py::TestB::test_c[1] fails, and setup.cfg says it.get")
    assert found.files == ("docs/x.md", "setup.cfg")
    assert found.tests == ("tests/test_a.py::TestB::test_c",)


@pytest.mark.parametrize(
    "text",
    [
        "CI failed on `main`",
        "the branch `fix/parse_date.py:3` is red",
        "on branch feature/parse_date",
        "refs/heads/parse_date",
        "pytest --ignore=tests/test_slow.py --deselect tests/test_a.py::test_b --cov=pkg/mod.py",
    ],
)
def test_branches_and_options_name_nothing(text: str) -> None:
    found = clues(text)
    assert (found.places, found.files, found.tests, found.names) == ((), (), (), ())


def test_names_are_identifiers_in_code_first_those_in_backticks() -> None:
    found = clues("Call parse_date(x) or Client.get_all, not `run it`; `key` and `a.b.run_it()` matter.")
    assert found.names == ("key", "a.b.run_it", "parse_date", "Client.get_all")
    assert found.plain == {"key"}


def test_a_message_is_read_without_what_was_filled_in() -> None:
    found = clues("ValueError: cannot parse 12 of 'x.toml' as a table header\nand \"Invalid Upgrade header\"")
    assert found.messages == ("as a table header", "Invalid Upgrade header")


def test_searches_are_for_everything_for_prose_and_for_the_title() -> None:
    text = "Dates are wrong\n\nThey shift.\n\n    parse(1)\n\n```\nformat(2)\n```\n    at f (a.js:1:2)\n"
    (_, whole), (_, prose), (_, title), (_, goal) = clues("Fix it", [text]).questions
    assert "format" in whole
    assert "a.js" not in whole
    assert prose.split() == ["Dates", "are", "wrong", "They", "shift."]
    assert (title, goal) == ("Dates are wrong", "Fix it")


@pytest.mark.parametrize(
    "piece", ["a/", "a.", "`", "--a", "'", "Error: ", "a_", "branch ", "origin/", "a.b(", "$.", " "]
)
def test_hostile_texts_are_read_in_bounded_time(piece: str) -> None:
    begun = time.monotonic()
    clues(piece * (200_000 // len(piece)))
    assert time.monotonic() - begun < GENEROUS
