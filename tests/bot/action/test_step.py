"""A workflow's step that cannot begin: what is told in the log, in the summary and in the thread, and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from github import Auth, GithubIntegration

from bot.action.outputs import Conclusion, exit_code
from bot.action.step import take_step
from bot.domain.errors import InputsError, OutsideActionsError
from bot.domain.job import JobState
from bot.settings.load import load_action, survey_action
from localhub import Issue, LocalHub, Permissions, Repo
from tests.source_files import ROOT
from tests.stage import FILES, FIX, acting, build
from tests.waiting import eventually
from tests.workflow_runs import Workflows

KEY_LINE = "anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A repository whose workflow runs the Action on a comment."""

    hub: LocalHub
    repo: Repo
    issue: Issue
    environ: dict[str, str]
    payloads: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, hub: LocalHub, directory: Path) -> Place:
        _, repo = build(hub)
        runner = hub.add_user("github-actions[bot]", kind="Bot")
        hub.add_collaborator(repo, runner.login, "write")
        environ = {
            "GITHUB_TOKEN": runner.token,
            "GITHUB_EVENT_PATH": str(directory / "event.json"),
            "GITHUB_EVENT_NAME": "issue_comment",
            "GITHUB_REPOSITORY": repo.full_name,
            "GITHUB_RUN_ID": "41",
            "GITHUB_API_URL": hub.api_url,
            "GITHUB_SERVER_URL": hub.url,
            "GITHUB_OUTPUT": str(directory / "outputs"),
            "GITHUB_STEP_SUMMARY": str(directory / "summary"),
            "RUNNER_TEMP": str(directory),
            "CODEPILOT_ALLOW_ROOT": "yes",
        }
        issue = hub.open_issue(repo, author="mona", title="Adding is off by one")
        made = cls(hub=hub, repo=repo, issue=issue, environ=environ)
        hub.observe(on_delivery=made.payloads.__setitem__)
        return made

    def comment(self, body: str = "/codepilot fix", author: str = "mona") -> None:
        self.hub.comment(self.repo, self.issue.number, author=author, body=body)
        self.event(self.payloads["issue_comment"])

    def event(self, payload: Mapping[str, Any], name: str = "issue_comment") -> None:
        self.write_event(json.dumps(payload))
        self.environ["GITHUB_EVENT_NAME"] = name

    def write_event(self, content: str) -> None:
        Path(self.environ["GITHUB_EVENT_PATH"]).write_text(content)

    async def run(self, **variables: str) -> int:
        return await take_step(survey_action(self.environ | variables), asyncio.Event())

    @property
    def summary(self) -> str:
        path = Path(self.environ["GITHUB_STEP_SUMMARY"])
        return path.read_text() if path.exists() else ""

    @property
    def outputs(self) -> str:
        path = Path(self.environ["GITHUB_OUTPUT"])
        return path.read_text() if path.exists() else ""

    def answers(self) -> list[str]:
        return [each.body for each in self.hub.comments(self.repo, self.issue.number)][1:]


@pytest.fixture
def place(hub: LocalHub, tmp_path: Path) -> Place:
    return Place.of(hub, tmp_path)


async def test_a_missing_key_is_told_in_the_log_the_summary_and_the_thread_with_the_line_to_write(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.comment()
    assert await place.run() == 2
    masked, error = capsys.readouterr().out.splitlines()
    assert masked == f"::add-mask::{place.environ['GITHUB_TOKEN']}"
    assert error.startswith("::error title=Codepilot cannot start::The input `anthropic-api-key` is empty.")
    assert "| Conclusion | `misconfigured` |" in place.summary
    (answer,) = place.answers()
    for told in (error.replace("%0A", "\n"), place.summary, answer):
        assert KEY_LINE in told
        assert "Settings → Secrets and variables → Actions" in told
        assert "ANTHROPIC_API_KEY is not set" not in told
        assert "CODEPILOT_" not in told
    assert "misconfigured" in place.outputs
    assert "/actions/runs/41" in answer


async def test_who_may_not_command_is_told_nothing_in_the_thread(place: Place) -> None:
    place.hub.add_user("eve")
    place.comment(author="eve")
    assert await place.run() == 2
    assert KEY_LINE in place.summary
    assert place.answers() == []


async def test_talk_that_asks_for_nothing_gets_no_answer(place: Place) -> None:
    place.comment("What a nice project.")
    assert await place.run() == 2
    assert place.answers() == []


async def test_a_second_attempt_of_the_same_run_does_not_say_it_again(place: Place) -> None:
    place.comment()
    assert await place.run(GITHUB_RUN_ATTEMPT="2") == 2
    assert KEY_LINE in place.summary
    assert place.answers() == []


@pytest.mark.parametrize(
    ("event", "sender", "told"),
    [
        ("pull_request", "mona", "GitHub passes no secrets to a workflow that a pull request from a fork starts."),
        ("pull_request_review", "mona", "from a fork"),
        ("pull_request_target", "mona", "If that line is already there, the secret is missing"),
        ("issue_comment", "dependabot[bot]", "Secrets and variables → Dependabot"),
    ],
)
async def test_why_a_secret_is_empty_is_told(place: Place, event: str, sender: str, told: str) -> None:
    place.comment()
    payload = dict(place.payloads["issue_comment"])
    sides = {"head": {"repo": {"id": 7}}, "base": {"repo": {"id": 8}}}
    place.event(payload | {"pull_request": sides, "sender": {"login": sender, "id": 1}}, event)
    assert await place.run() == 2
    assert told in place.summary


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"CODEPILOT_PROVIDER": "antropic"}, ["must be one of anthropic, openai", "provider: anthropic"]),
        ({"CODEPILOT_PROVIDER": "scripted"}, ["`model` is empty. For the provider `scripted` it is the path"]),
        ({"OPENAI_API_KEY": "sk-1234567890"}, ["There is a key for `openai`", "provider: openai"]),
        ({"CODEPILOT_PROVIDER": "openai", "ANTHROPIC_API_KEY": "sk-ant-12345"}, ["openai-api-key: ${{ secrets.OPEN"]),
        (
            {
                "CODEPILOT_PROVIDER": "openai",
                "OPENAI_API_KEY": "sk-12345678",
                "CODEPILOT_BASE_URL": "https://m.example",
            },
            [
                "`api-key` is not set, and openai-api-key is not sent to https://m.example,",
                "api-key: ${{ secrets.CODEPILOT_API_KEY }}",
            ],
        ),
        ({"CODEPILOT_MAX_STEPS": "many"}, ["`max-steps` must be a whole number", "max-steps: 30", KEY_LINE]),
        ({"GITHUB_TOKEN": "", "ANTHROPIC_API_KEY": "sk-ant-12345"}, ["github-token: ${{ github.token }}"]),
        ({"CODEPILOT_MAX_STEP": "3"}, ["CODEPILOT_MAX_STEP is not a setting of this version"]),
    ],
)
async def test_what_else_a_newcomer_gets_wrong_is_told_in_words_of_the_workflow(
    place: Place, variables: dict[str, str], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place.comment()
    assert await place.run(**variables) == 2
    log = capsys.readouterr().out
    for each in told:
        assert each in place.summary
        assert each in log
    assert "sk-ant-12345" not in place.summary
    assert "sk-ant-12345" not in re.sub("::add-mask::.*", "", log)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no repository"),
    ],
)
async def test_an_event_file_that_is_none_is_told_in_one_sentence(
    place: Place, content: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        place.write_event(content)
    assert await place.run(ANTHROPIC_API_KEY="sk-ant-12345") == 2
    _mask, _mask, error = capsys.readouterr().out.splitlines()
    assert error.startswith("::error title=Codepilot cannot start::")
    assert told in error
    assert told in place.summary
    assert place.hub.branches(place.repo).keys() == {"main"}


async def test_a_runner_that_works_as_root_is_told_the_input(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    place.comment()
    assert await place.run(ANTHROPIC_API_KEY="sk-ant-12345", CODEPILOT_ALLOW_ROOT="no") == 2
    assert "allow-root: 'yes'" in place.summary
    assert "`allow-root`" in place.answers()[0]


async def test_a_thread_that_cannot_be_written_to_is_a_warning(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.comment()
    place.hub.faults.add("POST", "*/comments", "403", times=9)
    assert await place.run() == 2
    assert "::warning title=Codepilot cannot start::The thread was not informed." in capsys.readouterr().out
    assert KEY_LINE in place.summary


async def test_a_run_is_readable_in_the_log_and_whole_in_the_summary(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.yaml").write_text(json.dumps([{"reply": FIX}]))
    place.comment()
    scripted = {"CODEPILOT_PROVIDER": "scripted", "CODEPILOT_MODEL": str(tmp_path / "script.yaml")}
    assert await place.run(**scripted, CODEPILOT_LEVEL="auto") == 0
    log, summary = capsys.readouterr().out, place.summary
    assert "::group::Step 1: Working." in log
    assert "▸ Running `sh check.sh`" in log
    assert log.count("::group::") == log.count("::endgroup::") == 1
    for told in (
        "<details><summary>The change</summary>",
        "-    return a + b + 1\n+    return a + b\n",
        "| Conclusion |",
        "| Tokens |",
        "| Cost | $",
        "#issuecomment-",
        "`sh check.sh` | passed, ad hoc",
    ):
        assert told in summary
    assert "conclusion<<" in place.outputs


async def test_a_cancelled_run_of_a_workflow_keeps_its_work_and_reports_its_end(place: Place, tmp_path: Path) -> None:
    script = [{"reply": acting('execute("main", "touch begun; sleep 600")')}]
    (tmp_path / "script.yaml").write_text(json.dumps(script))
    place.comment()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", "act"),
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "CODEPILOT_PROVIDER": "scripted",
            "CODEPILOT_MODEL": str(tmp_path / "script.yaml"),
            "CODEPILOT_LEVEL": "auto",
            "CODEPILOT_DATA_DIR": str(tmp_path / "data"),
            **place.environ,
        },
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        await eventually(lambda: list(tmp_path.glob("data/workspaces/jobs/*/files/begun")), within=30)
        process.send_signal(signal.SIGINT)  # as GitHub's runner does first
        async with asyncio.timeout(30):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == exit_code(Conclusion.CANCELLED)
    assert b"Traceback" not in errors
    [kept] = place.hub.branches(place.repo).keys() - {"main"}
    assert kept.endswith("-wip")
    assert "cancelled" in place.outputs
    status = place.hub.comments(place.repo, place.issue.number)[-1].body
    assert "### ⏹️ Stopped" in status
    assert "The workflow run was cancelled." in status


@pytest.mark.parametrize(
    ("granted", "lacking"),
    [
        ({"contents": "write", "pull_requests": "write"}, "permissions: { issues: write }"),
        ({"contents": "read", "issues": "write", "pull_requests": "write"}, "contents: write"),
    ],
)
async def test_a_permission_that_the_token_lacks_is_named_with_the_yaml(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], granted: Permissions, lacking: str
) -> None:
    app = place.hub.add_app("actions", permissions={"metadata": "read", **granted})
    installation = place.hub.install(app, place.repo, by="mona")
    (tmp_path / "script.yaml").write_text(json.dumps([{"reply": FIX}]))
    place.comment()
    integration = GithubIntegration(auth=Auth.AppAuth(app.id, app.private_key_pem), base_url=place.hub.api_url)
    token = (await asyncio.to_thread(integration.get_access_token, installation)).token
    integration.close()
    scripted = {"CODEPILOT_PROVIDER": "scripted", "CODEPILOT_MODEL": str(tmp_path / "script.yaml")}
    assert await place.run(**scripted, CODEPILOT_LEVEL="auto", GITHUB_TOKEN=token) == 2
    log = capsys.readouterr().out
    assert "::error title=Codepilot%3A misconfigured::" in log
    assert lacking in log
    assert lacking in place.summary
    assert "the App" not in place.summary
    assert "misconfigured" in place.outputs
    assert {branch for branch in place.hub.branches(place.repo) if branch != "main"} == set()


def test_outside_a_workflow_one_sentence_says_so() -> None:
    with pytest.raises(
        OutsideActionsError, match=r"not a step of a GitHub Actions workflow: GITHUB_EVENT_PATH, .* `codepilot run`"
    ):
        survey_action({"ANTHROPIC_API_KEY": "sk-ant-1", "GITHUB_TOKEN": "x"})


def test_the_step_imports_nothing_that_only_a_service_needs() -> None:
    """It is installed without these; the tests have them."""
    program = """
import sys
from bot import __main__
from bot.action import step
from bot.settings import load
heavy = {"alembic", "dbos", "obstore", "opentelemetry.sdk", "prometheus_client", "psycopg", "sqlalchemy"}
print(*sorted(heavy & sys.modules.keys()))
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


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
    assert "- `kind`: bug" in run.summary
    assert not any('"kind"' in comment.body for comment in workflows.hub.comments(workflows.repo, 1))


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
    assert await take_step(survey, asyncio.Event()) == 2
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
