"""The part of a job's log that its failed steps wrote."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.ci_logs.excerpts import is_signal
from bot.ci_logs.log import failing_lines

LOG = """\
\ufeff2024-01-01T00:00:01.0000000Z ##[group]Run pip install -e .
2024-01-01T00:00:01.1000000Z \x1b[36;1mpip install -e .\x1b[0m
2024-01-01T00:00:01.2000000Z ##[endgroup]
2024-01-01T00:00:02.0000000Z ERROR: usage
2024-01-01T00:00:03.0000000Z ##[group]Run tsc
2024-01-01T00:00:03.0000001Z \x1b[36;1mtsc\x1b[0m
2024-01-01T00:00:03.0000002Z ##[endgroup]
2024-01-01T00:00:03.5000000Z fetching  1%\rfetching 100%\r
2024-01-01T00:00:03.6000000Z ##[error]src/a.ts(1,43): error TS2322: Type 'number' is not 'string'.
2024-01-01T00:00:03.7000000Z a second line
without a time
2024-01-01T00:00:04.0000000Z ##[error]Process completed with exit code 2.
2024-01-01T00:00:05.0000000Z Post job cleanup.
2024-01-01T00:00:05.1000000Z ##[warning]No cache
""".encode()
FAILED = [
    "Run tsc",
    "tsc",
    "fetching 100%",
    "src/a.ts(1,43): error TS2322: Type 'number' is not 'string'.",
    "a second line",
    "without a time",
    "Error: Process completed with exit code 2.",
]


def test_the_failed_step_is_found_by_its_times_or_by_the_runners_marks() -> None:
    assert failing_lines([LOG], [("2024-01-01T00:00:03Z", "2024-01-01T00:00:04Z")]) == FAILED
    assert failing_lines([LOG])[: len(FAILED)] == FAILED
    assert failing_lines([LOG], [("2030-01-01T00:00:03Z", "")]) == []


@given(st.lists(st.integers(0, len(LOG)), max_size=8))
def test_a_log_may_be_cut_anywhere(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(LOG)]
    assert failing_lines(LOG[a:b] for a, b in pairwise(bounds)) == failing_lines([LOG])


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(log: bytes) -> None:
    assert all("\n" not in line for line in failing_lines([log]))


def noise(megabytes: int) -> Iterator[bytes]:
    chunk = b"2024-01-01T00:00:03.0000000Z Downloading https://host/some/file.whl (1.2 MB)\n" * 1_000
    for _ in range(megabytes * 1_000_000 // len(chunk)):
        yield chunk


def test_of_a_huge_log_only_a_few_megabytes_are_kept_and_the_failure_in_its_middle_is_among_them() -> None:
    def chunks() -> Iterator[bytes]:
        yield from noise(5)
        yield b"x" * 10_000_000  # a line without end
        yield b"\n==== FAILURES ====\n____ test_a ____\nE   assert 0\n"
        yield from noise(5)
        yield b"the end\n"

    lines = failing_lines(chunks(), is_signal=is_signal)
    assert "E   assert 0" in lines
    assert lines[-1] == "the end"
    assert max(map(len, lines)) <= 4_000
    assert sum(map(len, lines)) < 3_500_000
    assert sum("lines left out" in line for line in lines) == 2


@pytest.mark.parametrize("mark", ["##[start-action display=x]", "##[debug]x", "##[add-matcher]x"])
def test_what_the_runner_tells_itself_is_left_out(mark: str) -> None:
    assert failing_lines([f"{mark}\nx\n".encode()]) == ["x"]
