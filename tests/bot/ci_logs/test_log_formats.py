"""Excerpts of logs: failed steps, first failures, zip files.

The samples are real output, except that those of go, gradle, clang, Surefire and javac follow the documentation.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.ci_logs.log_formats import FORMATS, digest, digest_of_zip, excerpt, failing_lines, is_signal

SAMPLES = Path(__file__).with_name("samples")
LIMIT = 6_000


def lines_of(name: str) -> list[str]:
    return failing_lines([(SAMPLES / f"{name}.txt").read_bytes()])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "pytest",
            ["E       assert 3 == (1 + 1)\n", "tests/test_calc.py:9: AssertionError", "no database", "2 failed, 1"],
        ),
        ("pytest_short", ["tests/test_calc.py:9: in test_add", "E   RuntimeError: no database", "2 failed, 1 passed"]),
        ("pytest_import", ["E   ModuleNotFoundError: No module named 'nothing_of_this_name'", "test_import.py:1"]),
        ("unittest", ['test_unit.py", line 6, in test_one', "AssertionError: 3 != 2", "FAILED (failures=2, errors=1)"]),
        ("jest", ["FAIL p/jest.test.cjs", "Expected: 3\n    Received: 4", "jest.test.cjs:3:64", "2 failed, 1 passed"]),
        (
            "vitest",
            ["expected 4 to be 3", "v.spec.js:4:40", "Cannot find module './nothing.js'", "2 failed | 1 passed"],
        ),
        ("go_test", ["calc_test.go:9: Add(1, 1) = 3", "calc_test.go:15", "expected: 2", "FAIL\texample.com/calc\t"]),
        ("go_test_verbose", ["calc_test.go:9: Add(1, 1) = 3", "calc_test.go:14 +0x16", "--- FAIL: TestNil"]),
        ("go_build", ["./calc.go:7:9: undefined: y", "./calc.go:11:2", "[build failed]"]),
        ("cargo_test", ["src/lib.rs:10:46", "left: 3\n right: 2", "failures:\n    tests::adds"]),
        (
            "cargo_build",
            ["error[E0308]: mismatched types\n  --> src/lib.rs:12:24", "error[E0425]", "could not compile"],
        ),
        ("maven", ["expected:<2> but was:<3>", "CalcTest.java:5", "CalcTest.boom:5 IllegalState no", "surefire"]),
        ("maven_compile", ["Calc.java:[3,16] cannot find symbol\n  symbol:   variable y", "Compilation failure"]),
        ("maven_plugin", ["Failed to execute goal", "Unknown host repo.maven.apache.org"]),
        ("gradle", ["CalcTest > adds() FAILED\n    org.open", "CalcTest.java:14", "Execution failed for task ':test'"]),
        ("gradle_compile", ["Calc.java:3: error: cannot find", "variable y", "Half.kt:2:12", "task ':compileJava'"]),
        ("tsc", ["p/bad.ts(1,43): error TS2322", "p/bad.ts(2,19): error TS2552"]),
        ("tsc_pretty", ["p/bad.ts:1:43 - error TS2322", "~~~~~~", "p/bad.ts:2:19", "Found 2 errors"]),
        ("eslint", ["lint.js\n  1:7   error", "2:15  error    'foo'", "✖ 4 problems (3 errors, 1 warning)"]),
        ("ruff", ["F401 [*] `os` imported but unused\n --> calc.py:1:8", "help: Remove", "Found 1 error."]),
        ("ruff_concise", ["calc.py:1:8: F401", "Found 1 error."]),
        ("ruff_format", ["File would be reformatted\n  --> test_unit.py:4:1", "1 file would be reformatted"]),
        ("mypy", ['calc.py:9: error: Incompatible return value type (got "float", expected "int")', "Found 2 errors"]),
        (
            "gcc",
            [
                "nope.h: No such file",
                "undeclared (first use in this function)\n    1 | int",
                "undefined reference to `other'",
            ],
        ),
        (
            "clang",
            ["from calc.c:1:\n./calc.h:3:12: error", "int length(strin s);", "calc.c:4:31", "2 errors generated"],
        ),
        ("clang_link", ['"_other", referenced from:', "linker command failed with exit code 1"]),
    ],
)
@pytest.mark.parametrize("buried", [False, True], ids=["alone", "in a long log"])
def test_the_first_failures_are_complete(name: str, told: list[str], *, buried: bool) -> None:
    lines = lines_of(name)
    noise = [f"Downloading part {number}" for number in range(5_000)] if buried else []
    text, more = excerpt([*noise, *lines, *(line.replace("part", "rest") for line in noise)], LIMIT)
    assert more == 0
    assert len(text) < LIMIT * 1.1
    for each in told:
        assert each in text
    assert "Downloading part 2500" not in text
    assert any(is_signal(line) for line in lines)


def test_each_format_has_a_sample() -> None:
    def stem(name: str) -> str:
        return name.replace(" ", "_").split("_")[0]

    assert {stem(each.name) for each in FORMATS} == {stem(each.stem) for each in SAMPLES.iterdir()}


@pytest.mark.parametrize(
    ("name", "most", "left_out"),
    [("pytest", 900, 2), ("jest", 900, 1), ("cargo_build", 700, 1), ("unittest", 600, 2), ("vitest", 900, 2)],
)
def test_failures_that_find_no_room_are_counted_and_the_first_stays(name: str, most: int, left_out: int) -> None:
    text, more = excerpt(lines_of(name), most)
    assert more == left_out
    assert len(text) <= most * 1.2


def test_a_failure_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    block = [
        "________ test_x ________",
        *(f"x = {number}" for number in range(200)),
        "E   assert 0",
        "test_x.py:3: Error",
    ]
    text, more = excerpt(["==== FAILURES ====", *block, "==== short test summary info ===="], 600)
    assert more == 0
    assert "test_x ____" in text
    assert "E   assert 0\ntest_x.py:3: Error" in text
    assert "lines left out" in text
    assert len(text) < 700


def test_the_end_of_an_unknown_log_is_returned() -> None:
    text, more = excerpt([f"line {number}" for number in range(1_000)], 100)
    assert more == 0
    assert text.startswith("line 989\nline 990\n")
    assert text.endswith("line 999")
    assert len(text) <= 100
    assert excerpt([], 100) == ("", 0)


def test_a_failure_of_two_formats_counts_once() -> None:
    lines = [
        "src/a.py:3:1: error: Name 'x' is not defined  [name-defined]",
        "Found 1 error in 1 file (checked 1 source file)",
    ]
    text, more = excerpt(lines, LIMIT)
    assert (text, more) == ("\n".join(lines), 0)


def test_dropped_lines_are_counted_in_the_gap() -> None:
    lines = ["x", "[… 1,000 lines left out …]", "y", "z", "src/a.c:3:1: error: no"]
    text, _ = excerpt([*lines, *"abcde"], LIMIT)
    assert text.startswith("[… 1,003 lines left out …]\nsrc/a.c")


LOG = "2024-01-01T00:00:03.0000000Z ==== FAILURES ====\n2024-01-01T00:00:03.0000000Z ____ test_a ____\nE   assert 0\n"
NOW = [("2024-01-01T00:00:03Z", "2024-01-01T00:00:04Z")]


def packed(path: Path, **files: str) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return str(path)


@pytest.mark.parametrize("moments", [NOW, [], [("2030-01-01T00:00:00Z", "")]], ids=["its time", "no time", "another"])
def test_the_failure_is_found_despite_wrong_times(tmp_path: Path, moments: list[tuple[str, str]]) -> None:
    file = tmp_path / "log"
    file.write_text(LOG)
    assert digest(str(file), moments, 500) == ("==== FAILURES ====\n____ test_a ____\nE   assert 0", 0)


def test_the_jobs_own_file_is_read_from_a_zip_file(tmp_path: Path) -> None:
    path = packed(
        tmp_path / "zip",
        **{"test/1_Set up job.txt": "no\n", "0_testother.txt": "no\n", "1_test (3.11, ab).txt": LOG, "x.txt": "no\n"},
    )
    text, more = digest_of_zip(path, "test (3.11, a/b)", NOW, 500, 10_000)
    assert ("E   assert 0" in text, more) == (True, 0)
    with pytest.raises(ValueError, match="no log of this job"):
        digest_of_zip(path, "another", NOW, 500, 10_000)


def test_no_more_is_unpacked_than_may_be(tmp_path: Path) -> None:
    path = packed(tmp_path / "zip", **{"0_test.txt": "a\n" * 10_000_000 + LOG})
    assert Path(path).stat().st_size < 100_000
    text, more = digest_of_zip(path, "test", [], 500, 1_000_000)
    assert ("assert" in text, more) == (False, 0)
    assert len(text) <= 500


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"<html>no</html>" * 100])
def test_an_invalid_zip_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "zip"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read"):
        digest_of_zip(str(path), "test", [], 500, 1_000)


def test_a_zip_file_with_too_many_files_is_an_error(tmp_path: Path) -> None:
    path = packed(tmp_path / "zip", **{f"{number}_x.txt": "" for number in range(20_001)})
    with pytest.raises(ValueError, match="more than 20,000 files"):
        digest_of_zip(path, "x", [], 500, 1_000)


STEPS_LOG = """\
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
FAILED_LINES = [
    "Run tsc",
    "tsc",
    "fetching 100%",
    "src/a.ts(1,43): error TS2322: Type 'number' is not 'string'.",
    "a second line",
    "without a time",
    "Error: Process completed with exit code 2.",
]


def test_the_failed_step_is_found_by_times_or_marks() -> None:
    assert failing_lines([STEPS_LOG], [("2024-01-01T00:00:03Z", "2024-01-01T00:00:04Z")]) == FAILED_LINES
    assert failing_lines([STEPS_LOG])[: len(FAILED_LINES)] == FAILED_LINES
    assert failing_lines([STEPS_LOG], [("2030-01-01T00:00:03Z", "")]) == []


@given(st.lists(st.integers(0, len(STEPS_LOG)), max_size=8))
def test_a_log_may_be_cut_anywhere(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STEPS_LOG)]
    assert failing_lines(STEPS_LOG[a:b] for a, b in pairwise(bounds)) == failing_lines([STEPS_LOG])


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(log: bytes) -> None:
    assert all("\n" not in line for line in failing_lines([log]))


def noise(megabytes: int) -> Iterator[bytes]:
    chunk = b"2024-01-01T00:00:03.0000000Z Downloading https://host/some/file.whl (1.2 MB)\n" * 1_000
    for _ in range(megabytes * 1_000_000 // len(chunk)):
        yield chunk


def test_a_huge_log_is_reduced_to_its_ends_and_first_failure() -> None:
    def chunks() -> Iterator[bytes]:
        yield from noise(5)
        yield b"x" * 10_000_000  # a line without end
        yield b"\n==== FAILURES ====\n____ test_a ____\nE   assert 0\n"
        yield from noise(5)
        yield b"the end\n"

    lines = failing_lines(chunks())
    assert "E   assert 0" in lines
    assert lines[-1] == "the end"
    assert max(map(len, lines)) <= 4_000
    assert sum(map(len, lines)) < 3_500_000
    assert sum("lines left out" in line for line in lines) == 2


@pytest.mark.parametrize("mark", ["##[start-action display=x]", "##[debug]x", "##[add-matcher]x"])
def test_internal_lines_of_the_runner_are_dropped(mark: str) -> None:
    assert failing_lines([f"{mark}\nx\n".encode()]) == ["x"]
