"""A workflow that asks for a result in JSON, and what it can do with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.action.step import take_step
from bot.domain.errors import InputsError
from bot.domain.job import JobState
from bot.settings.load import load_action, survey_action
from localhub import LocalHub
from tests.stage import FILES
from tests.workflow_runs import Workflows

SCHEMA = json.dumps({"type": "object", "properties": {"kind": {"enum": ["bug", "question"]}}, "required": ["kind"]})
PATH = ".github/triage.schema.json"


def completion(text: str) -> str:
    return f"```completion\n{text}\n```\n"


@pytest.fixture
def workflows(hub: LocalHub, tmp_path: Path) -> Workflows:
    made = Workflows.of(hub, tmp_path, {**FILES, PATH: SCHEMA, "list.json": "[1]", "odd.json": '{"type": "obj"}'})
    issue = hub.open_issue(made.repo, author="mona", title="It crashes")
    hub.comment(made.repo, issue.number, author="mona", body="/codepilot ask what is this?")
    return made


@pytest.mark.parametrize("schema", [SCHEMA, PATH])
async def test_a_workflow_branches_on_the_result(workflows: Workflows, schema: str) -> None:
    script = (completion("Not sure."), completion('{"kind": "bug"}'))
    run = await workflows.run("issue_comment", script, CODEPILOT_OUTPUT_SCHEMA=schema)
    assert run.ended is JobState.DONE
    result = run.values["structured-output"]
    assert result == '{"kind":"bug"}'
    labels = {
        "bug": "needs-fix",
        "question": "needs-answer",
    }
    assert labels[json.loads(result)["kind"]] == "needs-fix"
    assert '```json\n{"kind": "bug"}\n```' in run.summary


async def test_a_result_that_never_fits_fails_the_step_with_the_reason(workflows: Workflows) -> None:
    run = await workflows.run("issue_comment", [completion('{"kind": "bag"}')] * 3, CODEPILOT_OUTPUT_SCHEMA=SCHEMA)
    assert run.ended is JobState.FAILED
    assert (run.values["conclusion"], run.values["structured-output"]) == ("failed", "")
    assert "3 completions did not fit the output schema" in run.summary
    assert "'bag' is not one of" in run.summary


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("missing.json", "is not in commit"),
        ("list.json", "is not a JSON object"),
        ("odd.json", "The output schema cannot be used"),
    ],
)
async def test_a_file_that_is_no_schema_is_told_before_the_model_is_asked(
    workflows: Workflows, path: str, told: str
) -> None:
    run = await workflows.run("issue_comment", (), CODEPILOT_OUTPUT_SCHEMA=path)
    assert run.ended is JobState.FAILED
    assert run.values["conclusion"] == "misconfigured"
    assert f"The input `output-schema` names `{path}`" in run.summary
    assert told in run.summary


@pytest.mark.parametrize("written", ["{", "../secret.json", "schema.yml", ".git/x.json", "/etc/x.json"])
def test_what_is_neither_a_schema_nor_a_path_in_the_repository_is_refused(written: str, tmp_path: Path) -> None:
    with pytest.raises(InputsError, match=r"The input `output-schema` (must be a JSON schema|is not valid JSON)"):
        load_action(environ(tmp_path, written))


async def test_a_schema_in_the_workflow_that_does_not_work_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survey = survey_action(environ(tmp_path, '{"$ref": "https://example.com/schema"}'))
    assert await take_step(survey) == 2
    assert "The input `output-schema` is not valid." in capsys.readouterr().out


def environ(tmp_path: Path, schema: str) -> dict[str, str]:
    return {
        "GITHUB_TOKEN": "ghs_token",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_EVENT_NAME": "issues",
        "GITHUB_REPOSITORY": "octo/calc",
        "GITHUB_RUN_ID": "41",
        "RUNNER_TEMP": str(tmp_path),
        "ANTHROPIC_API_KEY": "sk-ant-1234567",
        "CODEPILOT_ALLOW_ROOT": "yes",
        "CODEPILOT_OUTPUT_SCHEMA": schema,
    }
