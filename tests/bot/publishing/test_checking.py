"""Which commands' exit codes prove something, and which earlier runs they make void."""

from __future__ import annotations

import pytest

from bot.publishing.checks import Checking, checking


def read(command: str, *, declared: bool = True) -> Checking:
    found = checking(command, declared=declared)
    assert found is not None, command
    return found


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q",
        ".venv/bin/python -m pytest tests",
        "python3.12 -m unittest discover",
        "uv run python -m pytest",
        "FOO=1 timeout 60 pytest -x",
        "cd a; pytest",
        "(cd a && pytest -q 2>&1)",
        "pytest && echo fine",
        "npm test",
        "npm run lint:ts",
        "make",
        "make -j4 check",
        "./gradlew integrationTest",
        "cargo test --workspace",
        "go vet ./...",
        "ruff format --check .",
        "npx prettier -c src",
        "python manage.py test shop",
        "pytest # all of it",
        "flake8 src",
        "cat > test_a.py <<'EOF'\nit's \"open\nEOF\npytest test_a.py",
        "cat <<-A > a && pytest\n\t1\n\tA",
        "python3 -m nose2",
        "env CI=1 pytest",
        "pip3 check",
    ],
)
def test_tools_that_test_build_or_lint_are_checks_whether_or_not_they_are_declared(command: str) -> None:
    assert read(command, declared=False).known


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import calc; assert calc.add(1, 1) == 2'",
        "python - <<'EOF'\nassert 1; x = 2\nEOF",
        "./run-tests.sh",
    ],
)
def test_other_programs_are_ad_hoc_checks_where_they_had_to_succeed(command: str) -> None:
    assert not read(command).known
    assert checking(command, declared=False) is None


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "A=1",
        "A=1 && B=2",
        "cat a | grep b",
        "grep -q fixed calc.py",
        "! grep -q bug calc.py",
        "true",
        "git diff --check",
        "pip install -e .",
        "python -m pip install pytest",
        "npm ci",
        "npm install testing-library",
        "make clean",
        "sed -i s/a/b/ calc.py",
        "autopep8 -i calc.py",
        "pip3 install -e .",
        "ruff format .",
        "pytest --version",
        "pytest --collect-only",
        "pytest || true",
        "pytest <<EOF\n1\nEOF\ntrue",
        "pytest; true",
        "pytest\necho done",
        "pytest &",
        "pytest 'a",
        "",
    ],
)
def test_what_looks_prepares_or_hides_the_exit_code_is_no_check(command: str) -> None:
    assert checking(command, declared=True) is None


def test_a_pipe_speaks_for_its_first_stage_only_where_every_stage_had_to_succeed() -> None:
    assert checking("pytest | tail -5", declared=False) is None
    assert read("pytest | tail -5").known


@pytest.mark.parametrize(
    ("later", "earlier", "covers"),
    [
        ("python3 -m pytest -q", ".venv/bin/pytest -x --tb=short", True),
        ("pytest", "pytest tests/test_a.py -k add", True),
        ("pytest tests/test_a.py", "pytest", False),
        ("mypy src", "mypy --strict src", False),
        ("make", "make lint", False),
        ("npm run test", "npm run lint", False),
        ("cd a && pytest", "cd b && pytest", False),
        ("python -c 'assert 1'", "python -c 'assert 0'", False),
        ("python -c  'assert 1'", "python -c 'assert 1'", True),
        ("ruff check . && mypy .", "mypy .", False),
    ],
)
def test_a_run_covers_the_same_check_and_a_narrower_one(later: str, earlier: str, covers: bool) -> None:  # noqa: FBT001 - a case of the table
    assert read(later).covers(read(earlier)) is covers
