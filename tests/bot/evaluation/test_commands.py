"""`codepilot eval report` and `export`, on a suite and results on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from bot.__main__ import cli
from bot.evaluation.commands import evaluate
from bot.evaluation.results import EvalResult, ResultsError, open_results
from bot.evaluation.suite import SuiteHead, Task, read_suite, write_suite, write_task
from bot.server import process
from tests.bot.evaluation.samples import result
from tests.evaluation_suites import FARES, PYTEST, make_history
from tests.stage import acting

_PATCH = "diff --git a/parcel.py b/parcel.py\n--- a/parcel.py\n+++ b/parcel.py\n@@ -1 +1 @@\n-old\n+new é\n"


def _store(folder: Path, *results: EvalResult, patches: dict[str, str] | None = None) -> tuple[str, str]:
    suite, runs = folder / "suite", folder / "runs"
    write_suite(suite, SuiteHead(repository="mona/parcel"))
    for number in (1, 2):
        task = Task(id=f"pull-{number}", title=f"Title {number}", test_command="pytest")
        write_task(suite, task, issue=f"Text {number}", hidden=b"", reference=b"+the real change\n")
    with open_results(runs) as writer:
        for each in results:
            writer.append(each)
    for name, text in (patches or {}).items():
        (runs / "patches" / name).write_text(text, encoding="utf-8")
    return str(suite), str(runs)


def _invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["eval", *arguments])


def test_a_report_is_printed_and_written_as_a_page(tmp_path: Path) -> None:
    suite, runs = _store(
        tmp_path,
        result("pull-1", patch="pull-1.a.1.patch"),
        result("pull-2", patch="gone.patch", solved=False),
        patches={"pull-1.a.1.patch": _PATCH},
    )
    page = tmp_path / "report.html"
    done = _invoke("report", suite, "--results", runs, "--html", str(page))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("# Evaluation of `mona/parcel`\n\n2 tasks, 1 configuration, 2 runs.")
    assert done.output.endswith("|\n")
    html = page.read_text(encoding="utf-8")
    for text in ("+new é", "Text 2", "+the real change", "gone.patch is missing"):
        assert text in html


def test_a_report_as_json_is_only_json(tmp_path: Path) -> None:
    suite, runs = _store(tmp_path, result("pull-1"))
    done = _invoke("report", suite, "--results", runs, "--json")
    assert json.loads(done.output)["tasks"][1] == {"id": "pull-2", "title": "Title 2", "link": "", "outcomes": {}}


def test_a_run_that_was_repeated_after_an_error_counts_once(tmp_path: Path) -> None:
    suite, runs = _store(tmp_path, result("pull-1", status="error", solved=None), result("pull-1", solved=True))
    config = json.loads(_invoke("report", suite, "--results", runs, "--json").output)["configs"][0]
    assert (config["attempts"], config["errors"], config["missing"]) == (1, 0, ["pull-2"])


def test_predictions_have_the_fields_of_swe_bench(tmp_path: Path) -> None:
    _, runs = _store(
        tmp_path,
        result("pull-1", patch="pull-1.a.1.patch"),
        result("pull-1", attempt=2, patch="pull-1.a.1.patch"),
        result("pull-1", config="b"),
        result("pull-2", solved=False),
        result("pull-3", status="error", solved=None),
        patches={"pull-1.a.1.patch": _PATCH},
    )
    output = tmp_path / "predictions.jsonl"
    done = _invoke("export", "--results", runs, "--config", "a", "--output", str(output))
    assert done.exit_code == 0, done.output
    assert [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()] == [
        {"instance_id": "pull-1", "model_name_or_path": "a", "model_patch": _PATCH},
        {"instance_id": "pull-2", "model_name_or_path": "a", "model_patch": ""},
    ]
    printed = _invoke("export", "--results", runs, "--config", "a", "--attempt", "2").output
    assert json.loads(printed)["instance_id"] == "pull-1"


def test_an_error_names_the_argument_and_the_remedy(tmp_path: Path) -> None:
    suite, runs = _store(tmp_path, result("pull-1"), result("pull-1", config="cheap"))
    done = _invoke("export", "--results", runs, "--config", "chaep")
    assert done.exit_code == 2
    assert "Invalid value for --config: there is no 'chaep'; there is a, cheap" in done.output
    done = _invoke("export", "--results", runs, "--config", "cheap", "--attempt", "3")
    assert "Invalid value for --attempt: cheap has no attempt 3 in" in " ".join(done.output.split())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match="has no results; run the evaluation first: codepilot eval run SUITE"):
        CliRunner().invoke(
            cli, ["eval", "export", "--results", str(tmp_path / "empty"), "--config", "a"], catch_exceptions=False
        )
    with pytest.raises(ResultsError, match="has no results; run the evaluation first"):
        CliRunner().invoke(cli, ["eval", "report", suite, "--results", str(tmp_path / "empty")], catch_exceptions=False)
    assert "Directory 'nowhere' does not exist" in _invoke("report", "nowhere", "--results", runs).output


def test_a_patch_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    suite, runs = _store(tmp_path, result("pull-1", patch="link"))
    (tmp_path / "secret").write_text("the operator's secret", encoding="utf-8")
    (Path(runs) / "patches" / "link").symlink_to(tmp_path / "secret")
    page = tmp_path / "report.html"
    assert _invoke("report", suite, "--results", runs, "--html", str(page)).exit_code == 0
    assert "the operator's secret" not in page.read_text(encoding="utf-8").replace("&#39;", "'")
    with pytest.raises(ResultsError, match="is no plain file"):
        CliRunner().invoke(cli, ["eval", "export", "--results", runs, "--config", "a"], catch_exceptions=False)


def test_the_help_of_all_commands_loads_nothing_of_an_evaluation() -> None:
    code = "import sys, bot.__main__; print([name for name in sys.modules if name.startswith('bot.evaluation.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['bot.evaluation.commands']"
    assert "report" in evaluate.commands


@pytest.mark.long
def test_the_commands_lead_from_a_clone_to_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "close_memory", lambda: None)  # of the process that runs the tests
    monkeypatch.setenv("CODEPILOT_ALLOW_ROOT", "yes")
    clone, suite, runs = make_history(FARES, tmp_path / "clone").path, tmp_path / "suite", tmp_path / "runs"
    done = _invoke("mine", str(clone), "--output", str(suite), "--limit", "1", "--no-validate")
    assert done.exit_code == 0, done.output
    assert "New tasks: 1; known: 0; " in done.output
    assert f"`eval run` takes validated tasks only: codepilot eval validate {suite}" in done.output
    done = _invoke("mine", str(clone), "--output", str(suite), "--limit", "1", "--no-validate")
    assert "New tasks: 0; known: 1; " in done.output
    assert "validated tasks only" in done.output, "an earlier command may have been interrupted"
    done = _invoke("mine", str(clone), "--output", str(suite), "--limit", "1")
    assert done.exit_code == 0, done.output
    assert done.output.endswith("Valid tasks: 1; refused: 0.\n")
    change = FARES.changes[1]
    reply = acting(
        f'write_file("{change.source}")\nexecute("main", "{PYTEST}", check=True)', change.after, completion="Done."
    )
    (tmp_path / "replies.yaml").write_text(yaml.safe_dump([{"reply": reply}]))
    (tmp_path / "scripted.yaml").write_text("provider: scripted\nmodel: replies.yaml\nlevel: auto\n")
    command = ("run", str(suite), "--config", str(tmp_path / "scripted.yaml"), "--results", str(runs))
    (tmp_path / "replies.yaml").rename(tmp_path / "gone.yaml")
    done = _invoke(*command)
    assert done.exit_code == 1
    assert done.output.endswith("Runs that ended with an error: 1. The same command repeats them.\n")
    (tmp_path / "gone.yaml").rename(tmp_path / "replies.yaml")
    done = _invoke(*command)
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"codepilot eval report {suite} --results {runs}\n")
    [config] = json.loads(_invoke("report", str(suite), "--results", str(runs), "--json").output)["configs"]
    assert (config["name"], config["model"], config["always_solved"], config["claims"]) == (
        "scripted",
        "replies.yaml",
        1,
        1,
    )
    [task] = read_suite(suite).tasks
    prediction = json.loads(_invoke("export", "--results", str(runs), "--config", "scripted").output)
    assert prediction["instance_id"] == task.id
    assert "+def baby(price):" in prediction["model_patch"]


def test_instances_are_imported_into_a_suite(tmp_path: Path) -> None:
    origin = make_history(FARES, tmp_path / "clone")
    change, commit = FARES.changes[1], origin.git("rev-parse", "HEAD")
    patch, test_patch = (origin.git("diff", f"{commit}^", commit, "--", path) for path in (change.source, change.tests))
    instance = {
        "instance_id": "transit__fares-31",
        "repo": FARES.name,
        "base_commit": origin.git("rev-parse", f"{commit}^"),
        "problem_statement": f"{change.title}\n\n{change.issue}",
        "patch": patch,
        "test_patch": f"{test_patch}\n \n\n",
    }
    (tmp_path / "instances.jsonl").write_text(json.dumps(instance))
    suite = tmp_path / "suite"
    arguments = ("--repo", str(origin.path), "--output", str(suite), "--setup", "true", "--no-validate")
    done = _invoke("import", str(tmp_path / "instances.jsonl"), *arguments)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("New tasks: 1.\n")
    [task] = read_suite(suite).tasks
    assert (task.id, task.title, task.setup) == ("transit__fares-31", change.title, ("true",))
    stored = read_suite(suite)
    assert stored.read_reference(task) == f"{patch}\n".encode()  # as git needs it
    assert stored.read_hidden(task) == f"{test_patch}\n \n\n".encode(), "empty lines belong to the last hunk"
