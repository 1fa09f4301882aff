"""What failed before the change, and what running it once more proves."""

from __future__ import annotations

import pytest

from bot.publishing.checks import Check, Edits, Rerun, is_other, reproduced

EDITS = Edits(first=10.0, last=20.0)


def check(command: str, exit_code: int | None = 1, *, ended: float = 5.0) -> Check:
    return Check(command=command, exit_code=exit_code, seconds=1.0, ended=ended)


def shown(*checks: Check, commands: tuple[str, ...] = (), edits: Edits | None = EDITS) -> str:
    found = reproduced(checks, edits, commands)
    return found.command if found else ""


def test_the_last_check_that_failed_before_the_first_change_showed_the_failure() -> None:
    assert shown(check("ruff check ."), check("pytest -q"), check("pytest", ended=15.0)) == "pytest -q"
    assert shown(check("pytest -q"), edits=None) == "pytest -q"


@pytest.mark.parametrize(
    "one",
    [
        check("pytest -q", 0),
        check("pytest -q", None),
        check("pytest -q", 127),
        check("pytest -q", ended=10.0),
        check("pytest -q", ended=25.0),
    ],
    ids=["passed", "did not end", "not found", "at the change", "after it"],
)
def test_what_did_not_fail_before_the_change_shows_nothing(one: Check) -> None:
    assert shown(one) == ""


def test_the_tool_of_the_workflows_own_step_is_meant_before_others() -> None:
    script = "pip install -e .\n\n# all of them\npython -m pytest -q --cov\n"
    assert shown(check("pytest tests/test_a.py"), check("ruff check ."), commands=(script,)) == "pytest tests/test_a.py"
    assert shown(check("ruff check ."), commands=(script,)) == "ruff check ."


def test_proof_by_a_command_of_no_failed_step_says_so() -> None:
    assert not is_other(check("pytest tests/test_a.py"), ("python -m pytest -q",))
    assert not is_other(check("sh a.sh"), ("sh check.sh",))
    assert is_other(check("python3 -c 'open(\"x\")'"), ("python -m pytest -q",))
    sentence = Rerun(command="ls x", before=1, after=0, other=True).sentence
    assert sentence.endswith("No failed step runs this command; make sure that it checks the same thing.")


@pytest.mark.parametrize(
    ("step", "command", "other"),
    [
        ("mypy src", "mypy src", False),
        ("mypy src tests", "mypy --strict src/a.py", False),
        ("mypy src", "mypy", False),
        ("mypy src", "mypy made_up", True),
        ("mypy src", "mypy src_of_mine", True),
        ("mypy src", "pytest", True),
        ("mypy src", "test -s notes", True),
        ("pytest", "pytest tests/test_a.py::test_b", False),
        ("pytest ./tests/test_a.py", "pytest tests/test_a.py::test_b -q", False),
        ("ruff check --select F .", "ruff check --select F401 src", False),
        ("eslint 'src/**/*.ts'", "eslint src/a.ts", False),
        ("eslint 'src/**/*.ts'", "eslint mine/a.ts", True),
        ("pytest $FILES", "pytest tests", False),
        ("sh check.sh", "sh mine.sh", False),
    ],
)
def test_a_proof_is_of_what_the_failed_steps_run_or_of_a_part_of_it(step: str, command: str, *, other: bool) -> None:
    assert is_other(check(command), (f"pip install .\n{step}\n",)) is other


@pytest.mark.parametrize(
    ("rerun", "proven", "said"),
    [
        (Rerun(), False, "The failure was not reproduced"),
        (
            Rerun(command="pytest", before=1, after=0),
            True,
            "**Proof:** `pytest` ended with exit code 1 before the change and with exit code 0 after it",
        ),
        (
            Rerun(command="pytest", before=1, after=1),
            False,
            "with exit code 1 after it, run again by the bot in a fresh sandbox.",
        ),
        (
            Rerun(command="pytest", before=1, after=None, seconds=600),
            False,
            "did not finish within 10 min 0 s after it",
        ),
        (Rerun(command="pytest", before=1, after=1, passed_there=True), False, "It passed in the agent's terminal"),
        (Rerun(command="pytest", before=1, after=127), False, "install it in `setup`."),
    ],
)
def test_what_it_proves_is_one_sentence(rerun: Rerun, *, proven: bool, said: str) -> None:
    assert rerun.proven is proven
    assert said in rerun.sentence
