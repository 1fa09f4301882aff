"""How the failed jobs of a workflow run are quoted."""

from __future__ import annotations

from dataclasses import replace

from bot.ci_logs.failures import FailedJob, FailedRun, Remark, Step
from bot.domain.commands import Fix
from bot.prompt.brief import BUDGET, FailingCheck, Material, change_quotes, job_quotes
from tests.bot.prompt.test_brief import everything
from tests.builders import a_job, task_for

STEPS = (
    Step(number=1, name="Set up job", conclusion="success"),
    Step(
        number=2,
        name="Run actions/setup-python@v6",
        conclusion="success",
        uses="actions/setup-python@v6",
        inputs={"python-version": "3.11"},
    ),
    Step(number=3, name="Install", conclusion="success", run="pip install -e .\npip list\n"),
    Step(number=4, name="Tests", conclusion="failure", run="pytest -q\n", shell="bash", working_directory="src"),  # noqa: S604 - a value
)
JOB = FailedJob(
    id=1,
    name="test (3.11)",
    conclusion="failure",
    steps=STEPS,
    runs_on=("ubuntu-latest",),
    environment={"TOKEN": "${{ secrets.TOKEN }}"},
    services={"db": "postgres:16"},
    container="python:3.11",
    excerpt="E   assert 0\n\u202etest_a.py:3: AssertionError",
    more=3,
    annotations=(Remark(path="src/test_a.py", line=3, message="assert 0"),),
)
RUN = FailedRun(id=9, name="CI", url="https://github.com/o/r/actions/runs/9", head_sha="a" * 40, jobs=(JOB,))

TOLD = """\
Failed step 4: Tests (failure)
shell: bash
working-directory: src
run:
    pytest -q

Other steps of the job:
- uses actions/setup-python@v6 (python-version: 3.11)
- run: pip install -e . …
Environment:
    TOKEN=${{ secrets.TOKEN }}
Services:
    db=postgres:16
Container: python:3.11
Runner: ubuntu-latest

From the log (3 more failures are left out):
E   assert 0
[U+202E]test_a.py:3: AssertionError

Annotations:
src/test_a.py:3: assert 0"""


def test_a_failed_job_is_quoted_with_all_that_is_needed_to_run_it_again() -> None:
    [quote] = job_quotes(RUN)
    assert quote.source == "failed job test (3.11) of workflow CI: failure"
    assert quote.text == TOLD
    [quote] = job_quotes(replace(RUN, head_sha="c" * 40, is_current=False))
    assert quote.source == "failed job test (3.11) of workflow CI: failure, on commit cccccccccc, which is not HEAD"


def test_a_job_without_a_log_says_why_and_one_that_never_began_says_little() -> None:
    bare = FailedJob(id=2, name="lint", conclusion="startup_failure", no_log="GitHub has no log of this job.")
    [quote] = job_quotes(replace(RUN, jobs=(bare,)))
    assert quote.text == "No log: GitHub has no log of this job."
    [quote] = job_quotes(replace(RUN, jobs=(replace(bare, no_log=""),)))
    assert quote.text == "The log is empty."


def test_what_changed_since_the_last_green_run_is_quoted_where_it_is_known() -> None:
    assert change_quotes(RUN) == []
    [quote] = change_quotes(replace(RUN, green_sha="b" * 40, changes="+x\n"))
    assert quote.source == "the diff since commit bbbbbbbbbb, on which this workflow last succeeded"
    assert quote.text == "+x"


def test_the_first_failed_job_stays_whatever_else_there_is() -> None:
    jobs = tuple(replace(JOB, id=n, name=f"job {n}", excerpt=f"first {n}\n" + "word " * 1_100) for n in range(5))
    material = replace(everything(400), failed=replace(RUN, jobs=jobs, unread=2, changes="+x\n" * 9_000))
    task = task_for(a_job(kind="pull", command=Fix(goal=""), body="word " * 4_000), material=material)
    assert sum(len(each.text) for each in task.quotes) <= BUDGET
    [first] = [each for each in task.quotes if each.source.startswith("failed job job 0")]
    assert "pytest -q" in first.text
    assert "first 0\n" in first.text
    assert "further failing checks: " in task.quotes[-1].text


def test_the_check_of_a_failed_job_is_not_told_twice() -> None:
    checks = tuple(FailingCheck(name=name, conclusion="failure", summary="Red.") for name in (JOB.name, "other"))
    task = task_for(a_job(kind="pull", command=Fix(goal="")), material=Material(checks=checks, failed=RUN))
    told = [each.source for each in task.quotes if "fail" in each.source]
    assert told == ["failed job test (3.11) of workflow CI: failure", "failing check other: failure"]
