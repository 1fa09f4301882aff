"""The first failures in logs.

The samples were printed by the tools themselves; but those of go, gradle, clang, and of Maven's Surefire and javac were
written after what these document.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.ci_logs.excerpts import TOOLS, excerpt, is_signal
from bot.ci_logs.log import failing_lines

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
def test_the_first_failures_are_told_whole(name: str, told: list[str], *, buried: bool) -> None:
    lines = lines_of(name)
    noise = [f"Downloading part {number}" for number in range(5_000)] if buried else []
    text, more = excerpt([*noise, *lines, *(line.replace("part", "rest") for line in noise)], LIMIT)
    assert more == 0
    assert len(text) < LIMIT * 1.1
    for each in told:
        assert each in text
    assert "Downloading part 2500" not in text
    assert any(is_signal(line) for line in lines)


def test_there_is_a_sample_of_every_tool() -> None:
    def stem(name: str) -> str:
        return name.replace(" ", "_").split("_")[0]

    assert {stem(each.name) for each in TOOLS} == {stem(each.stem) for each in SAMPLES.iterdir()}


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


def test_of_what_no_known_tool_wrote_the_end_is_told() -> None:
    text, more = excerpt([f"line {number}" for number in range(1_000)], 100)
    assert more == 0
    assert text.startswith("line 989\nline 990\n")
    assert text.endswith("line 999")
    assert len(text) <= 100
    assert excerpt([], 100) == ("", 0)


def test_what_two_tools_know_is_one_failure() -> None:
    lines = [
        "src/a.py:3:1: error: Name 'x' is not defined  [name-defined]",
        "Found 1 error in 1 file (checked 1 source file)",
    ]
    text, more = excerpt(lines, LIMIT)
    assert (text, more) == ("\n".join(lines), 0)


def test_lines_that_were_never_kept_are_counted_with_the_others() -> None:
    lines = ["x", "[… 1,000 lines left out …]", "y", "z", "src/a.c:3:1: error: no"]
    text, _ = excerpt([*lines, *"abcde"], LIMIT)
    assert text.startswith("[… 1,003 lines left out …]\nsrc/a.c")
