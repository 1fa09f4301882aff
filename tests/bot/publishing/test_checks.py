"""Commands recognized as checks, and the standing of earlier runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.publishing.checks import (
    Check,
    Edits,
    ParsedCheck,
    Rerun,
    Verdict,
    find_reproduction,
    is_unrelated,
    judge_checks,
    parse_check,
    verdict_of,
)
from bot.publishing.markdown import Allowlist
from bot.publishing.plan import commit_body, pull_body
from bot.publishing.render import checks_table, explain, headline, render_account, render_check, render_status
from bot.publishing.status_view import DeniedCall, Progress, StatusView
from tests.builders import a_job
from tests.changes import a_file
from tests.status_views import a_status_view


def read(command: str, *, declared: bool = True) -> ParsedCheck:
    found = parse_check(command, declared=declared)
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
    assert read(command, declared=False).is_tool


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import calc; assert calc.add(1, 1) == 2'",
        "python - <<'EOF'\nassert 1; x = 2\nEOF",
        "./run-tests.sh",
    ],
)
def test_declared_commands_of_unknown_programs_are_ad_hoc_checks(command: str) -> None:
    assert not read(command).is_tool
    assert parse_check(command, declared=False) is None


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
def test_inspection_setup_or_a_hidden_exit_code_is_no_check(command: str) -> None:
    assert parse_check(command, declared=True) is None


def test_a_pipe_is_a_check_only_if_declared() -> None:
    assert parse_check("pytest | tail -5", declared=False) is None
    assert read("pytest | tail -5").is_tool


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
    assert read(later).supersedes(read(earlier)) is covers


EDITS = Edits(first=10.0, last=20.0)


def check(command: str, exit_code: int | None = 1, *, ended: float = 5.0) -> Check:
    return Check(command=command, exit_code=exit_code, seconds=1.0, ended=ended)


def shown(*checks: Check, commands: tuple[str, ...] = (), edits: Edits | None = EDITS) -> str:
    found = find_reproduction(checks, edits, commands)
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
def test_a_check_that_passed_before_the_change_is_no_reproduction(one: Check) -> None:
    assert shown(one) == ""


def test_the_tool_of_the_failed_step_is_preferred() -> None:
    script = "pip install -e .\n\n# all of them\npython -m pytest -q --cov\n"
    assert shown(check("pytest tests/test_a.py"), check("ruff check ."), commands=(script,)) == "pytest tests/test_a.py"
    assert shown(check("ruff check ."), commands=(script,)) == "ruff check ."


def test_proof_by_a_command_of_no_failed_step_says_so() -> None:
    assert not is_unrelated(check("pytest tests/test_a.py"), ("python -m pytest -q",))
    assert not is_unrelated(check("sh a.sh"), ("sh check.sh",))
    assert is_unrelated(check("python3 -c 'open(\"x\")'"), ("python -m pytest -q",))
    sentence = Rerun(command="ls x", before=1, after=0, is_unrelated=True).sentence
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
def test_a_proof_must_run_a_part_of_the_failed_steps(step: str, command: str, *, other: bool) -> None:
    assert is_unrelated(check(command), (f"pip install .\n{step}\n",)) is other


@pytest.mark.parametrize(
    ("rerun", "proven", "sentence"),
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
def test_a_rerun_is_described_in_one_sentence(rerun: Rerun, *, proven: bool, sentence: str) -> None:
    assert rerun.is_proven is proven
    assert sentence in rerun.sentence


ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")
SETUP = "`pip install x` ended with exit code 1 after 1.0 s"

FAILED = "`pytest -q` ended with exit code 1."


def ran(command: str, exit_code: int | None, ended: float) -> Check:
    return Check(command=command, exit_code=exit_code, seconds=1, ended=ended)


def verdict(*checks: Check, first: float = 5, last: float = 5) -> Verdict:
    return verdict_of(judge_checks(checks, Edits(first=first, last=last)), changed=True)


def test_a_check_that_passed_after_the_last_change_verifies_it() -> None:
    assert verdict(ran("pytest", 0, 6)) is Verdict.VERIFIED
    assert verdict(ran("pytest", 1, 4), ran("pytest", 0, 6)) is Verdict.VERIFIED
    assert verdict(ran("pytest -q tests/a.py", 1, 5.5), ran("pytest", 0, 6)) is Verdict.VERIFIED


def test_a_check_with_withheld_files_in_place_verifies_nothing() -> None:
    passed, failed = (judge_checks([ran("pytest", code, 6)], Edits(first=5, last=5)) for code in (0, 1))
    assert verdict_of(passed, changed=True, partial=True) is Verdict.UNVERIFIED
    assert verdict_of(failed, changed=True, partial=True) is Verdict.RED
    setup = explain(Verdict.SETUP_FAILED, passed, changed=True, setup_failed=SETUP, partial=True)
    assert setup.endswith("No check ran on the published change, without the withheld files.")


def test_a_check_that_passed_before_the_last_change_proves_nothing() -> None:
    assert verdict(ran("pytest", 0, 4)) is Verdict.UNVERIFIED
    assert verdict(ran("pytest", 0, 6), last=7) is Verdict.UNVERIFIED
    assert verdict() is Verdict.UNVERIFIED


def test_a_failure_that_was_only_reproduced_does_not_count_against_the_change() -> None:
    assert verdict(ran("pytest tests/a.py -k add", 1, 4), ran("make test", 0, 6)) is Verdict.VERIFIED
    assert verdict(ran("pytest", 2, 4)) is Verdict.UNVERIFIED


def test_a_check_whose_last_run_failed_is_red() -> None:
    assert verdict(ran("pytest", 2, 6)) is Verdict.RED
    assert verdict(ran("pytest", 1, 6), ran("pytest tests/easy.py", 0, 7)) is Verdict.RED
    assert verdict(ran("pytest", 0, 6), ran("pytest", 1, 7)) is Verdict.RED
    assert verdict(ran("mypy --strict a", 1, 6), ran("pytest", 0, 8), last=7) is Verdict.RED


def test_failures_from_before_the_change_do_not_count_against_it_and_are_named() -> None:
    failures = tuple(f"tests/test_a.py::test_{number}" for number in range(7))
    [old] = checks = judge_checks([replace(ran("pytest -q", 1, 6), failed_before=failures)], Edits(first=5, last=5))
    assert verdict(old) is Verdict.VERIFIED
    assert verdict(old, ran("mypy", 1, 7)) is Verdict.RED
    assert verdict(old, ran("pytest -q", 1, 7)) is Verdict.RED
    assert headline(Verdict.VERIFIED, checks) == ("✅", "Done, no test fails that did not fail before")
    why = explain(Verdict.VERIFIED, checks, changed=True)
    assert why.startswith("Failed before the change, too: `tests/test_a.py::test_0`, ")
    assert why.endswith("`tests/test_a.py::test_4`, … (7 in all).")
    assert "| failed before, too |" in checks_table(checks)[-1]


def test_a_failed_script_before_the_last_change_does_not_count() -> None:
    tried, passed = ran("python -c 'assert 0'", 1, 6), ran("pytest", 0, 8)
    assert verdict(tried, passed, last=7) is Verdict.VERIFIED
    assert verdict(tried, passed) is Verdict.RED


def test_a_check_that_did_not_end_verifies_nothing() -> None:
    assert verdict(ran("pytest", None, 6)) is Verdict.UNVERIFIED
    assert verdict(ran("pytest", None, 6), ran("mypy", 0, 7)) is Verdict.UNVERIFIED
    assert verdict(ran("pytest", None, 6), ran("pytest", 0, 7)) is Verdict.VERIFIED


def test_setup_and_an_empty_change_go_before_the_checks() -> None:
    checks = judge_checks([ran("pytest", 0, 6)], None)
    assert verdict_of(checks, changed=False) is Verdict.UNCHANGED
    assert verdict_of(checks, changed=True, setup_failed=True) is Verdict.SETUP_FAILED


def test_thousands_of_different_checks_are_judged_in_no_time() -> None:
    checks = [ran(f"pytest -k t{number}", 0, 6) for number in range(6_000)]
    assert len(judge_checks(checks, Edits(first=5, last=5))) == 6_000


RUNS = {
    Verdict.VERIFIED: (ran("pytest -q", 1, 4), ran("pytest -q", 0, 6)),
    Verdict.UNVERIFIED: (ran("pytest -q", 0, 4),),
    Verdict.RED: (ran("pytest -q", 2, 6),),
    Verdict.UNCHANGED: (),
    Verdict.SETUP_FAILED: (ran("pytest -q", 1, 6),),
}


def a_view(verdict: Verdict, *checks: Check, **changes: object) -> StatusView:
    told: dict[str, Any] = {
        "state": "done",
        "command": "/codepilot fix",
        "allowed": ALLOWED,
        "job_id": "j1",
        "marker": "",
        "seconds": 34,
        "completion": "Fixed it!",
        "verdict": verdict,
        "setup_failed": SETUP if verdict is Verdict.SETUP_FAILED else "",
        "checks": checks or RUNS[verdict],
        "edits": Edits(first=5, last=5),
        "files": () if verdict is Verdict.UNCHANGED else (a_file(),),
    }
    return a_status_view(**{**told, **changes})


@pytest.mark.parametrize(
    ("verdict", "head", "why", "conclusion"),
    [
        (Verdict.VERIFIED, "✅ Done, checks passed", "", "success"),
        (Verdict.UNVERIFIED, "⚠️ Not verified", "No check ran after the change.", "neutral"),
        (Verdict.RED, "❌ Checks fail", "`pytest -q` ended with exit code 2.", "failure"),
        (Verdict.UNCHANGED, "⚪ Nothing changed", "The agent changed no files.", "neutral"),
        (
            Verdict.SETUP_FAILED,
            "⚠️ Setup failed",
            f"Before the agent started, {SETUP}. Dependencies installed by setup may be missing. {FAILED}",
            "failure",
        ),
    ],
)
def test_the_comment_and_the_check_run_begin_with_the_verdict(
    verdict: Verdict, head: str, why: str, conclusion: str
) -> None:
    view = a_view(verdict)
    status = render_status(view)
    reason = f"{why}\n\n" if why else ""
    claim = "" if verdict is Verdict.VERIFIED else "**What the agent says**\n\n"
    assert status.startswith(f"### {head} · `/codepilot fix` for @mona · 34 s\n\n{reason}{claim}Fixed it!\n")
    draft = render_check(view, job=a_job(kind="pull"), head_sha="a" * 40)
    assert (draft.title, draft.conclusion) == (f"{head.partition(' ')[2]}: /codepilot fix", conclusion)


def test_a_run_that_only_an_ad_hoc_check_vouches_for_says_so() -> None:
    status = render_status(a_view(Verdict.VERIFIED, ran("python -c 'assert add(1, 1) == 2'", 0, 6)))
    assert status.startswith("### ✅ Done, an ad-hoc check passed ·")
    assert "no known test, build or lint command ran after the last change." in status
    assert "| ✅ | `python -c 'assert add(1, 1) == 2'` | passed, ad hoc | 1 s |" in status


def test_a_command_that_the_bot_ran_again_is_named() -> None:
    again = replace(ran("sh check.sh", 0, 6), by_host=True)
    view = a_view(Verdict.VERIFIED, ran("sh check.sh", 1, 4), again)
    status = render_status(view)
    assert status.startswith("### ✅ Done, the failed command passes now ·")
    assert "After the change, the bot ran `sh check.sh` again and it passed." in status
    draft = render_check(view, job=a_job(kind="pull"), head_sha="a" * 40)
    assert (draft.title, draft.conclusion) == ("Done, the failed command passes now: /codepilot fix", "success")


def test_a_verified_but_withheld_change_is_not_titled_done() -> None:
    view = a_view(Verdict.VERIFIED, withheld="It changes `action.yml`.")
    assert render_status(view).startswith("### ⚠️ Not published; done, checks passed ·")
    assert render_check(view, job=a_job(), head_sha="a" * 40).conclusion == "neutral"


def test_the_table_shows_the_standing_of_each_run() -> None:
    checks = (
        ran("pytest tests/a.py", 1, 4),
        ran("make lint", 1, 4),
        ran("ruff check .", 0, 6),
        ran("pytest", 1, 8),
        ran("pytest", 0, 9),
        ran("mypy", None, 9),
    )
    assert checks_table(judge_checks(checks, Edits(first=5, last=7)))[2:] == [
        "| ▫️ | `pytest tests/a.py` | exit code 1, superseded by a later run | 1 s |",
        "| ▫️ | `make lint` | exit code 1, before the first change | 1 s |",
        "| ▫️ | `ruff check .` | passed, before the last change | 1 s |",
        "| ▫️ | `pytest` | exit code 1, superseded by a later run | 1 s |",
        "| ✅ | `pytest` | passed | 1 s |",
        "| ⏱️ | `mypy` | did not end | 1 s |",
    ]


def test_checks_that_count_take_precedence_in_the_table() -> None:
    checks = judge_checks([ran("pytest -q", 1, 6), *[ran("make test", 1, 7)] * 20], None)
    assert "| ❌ | `pytest -q` | exit code 1 | 1 s |" in checks_table(checks)
    assert checks_table(checks)[-1] == "| | 11 more, older or superseded | | |"


def test_no_command_leaves_its_cell() -> None:
    rows = checks_table([ran("pytest -k 'a|b' | tee \\| `x` @octocat", 1, 6)])
    view = a_view(Verdict.RED, ran("pytest -k 'a|b' | tee \\| `x` @octocat", 1, 6))
    assert rows[2] == "| ❌ | ``pytest -k 'a\\|b' \\| tee \\\\| `x` @octocat`` | exit code 1 | 1 s |"
    assert rows[2] in render_status(view)


def test_a_pull_request_says_the_same_before_the_agents_words() -> None:
    denied = DeniedCall(tool="execute", request="curl x", reason="network", setting="allow-commands", value="curl x")
    checks = (ran("pytest -q", 1, 4), ran("pytest -q", 2, 6))
    progress = Progress(checks=checks, edits=Edits(first=5, last=5), denied=(denied,))
    account = render_account(progress, Verdict.RED, partial=False)
    body = pull_body(a_job(), "Fixed it!", server="https://github.example", account=account, verdict=Verdict.RED)
    assert body.startswith(
        "**❌ Checks fail.** `pytest -q` ended with exit code 2.\n\n| | Check | Result | Time "
        "|\n|---|---|---|---|\n| ▫️ | `pytest -q` | exit code 1, superseded by a later run | 1 s |\n| ❌ | `pytest "
        "-q` | exit code 2 | 1 s |\n\n**Denied, because nobody can approve calls in this run**\n\n- `curl x`. "
    )
    assert "\n\n**What the agent says**\n\nFixed it!\n\nFixes #7\n\n" in body


def test_a_commits_message_says_it_in_the_hosts_words() -> None:
    message = commit_body(a_job(), verdict=Verdict.RED)
    assert message.startswith("Codepilot job j1, issue 7.\n\nThe agent's checks fail on this change.\n\n")
