"""What GitHub and Docker read: workflows, the action, forms, the image."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from typing_extensions import override

from bot.action.outputs import OUTPUTS
from bot.settings.models import AGENT, INPUTS, RUNNER, Setting
from tests.act import PLACEHOLDER, filled_in
from tests.source_files import ROOT

_BIN = Path(sys.executable).parent
_WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_READY = sorted((ROOT / "docs" / "workflows").glob("*.yml"))
_OURS = ROOT / ".github" / "workflows" / "codepilot.yml"
# The line `uses:` of a workflow to copy, and in this repository.
_LINE = re.compile(rf"^      - uses: {PLACEHOLDER} # [^\n]+\n", re.MULTILINE)
_HERE = """\
      # Always the default branch's version of the action.
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
        with:
          ref: ${{ github.event.repository.default_branch }}
          persist-credentials: false
      - uses: ./ # zizmor: ignore[self-repository]
"""
_ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
_INPUTS = re.compile(r"^(inputs:\n)(?:  .*\n)+\n", re.MULTILINE)
_VARIABLES = re.compile(r"(      id: act\n      shell: bash\n      env:\n)(?:        .*\n)+")
_PINNED = re.compile(r"uses: (?:\./|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[0-9][\w.]*)")


def _run(*argv: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{argv[0]} found something:\n{done.stdout}{done.stderr}"


def test_zizmor_finds_no_weakness_in_workflows_and_action() -> None:
    _run(_BIN / "zizmor", "--offline", "--no-progress", "--quiet", "action.yml", ".github")


def test_actionlint_finds_no_mistake() -> None:
    _run(_BIN / "actionlint", "-shellcheck=", "-pyflakes=")


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-actions", "action.yml"),
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_a_file_that_github_reads_fits_its_schema(schema: str, pattern: str) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files, f"nothing matches {pattern}"
    _run(_BIN / "check-jsonschema", "--builtin-schema", schema, *files)


@pytest.mark.parametrize("path", [ROOT / "action.yml", *_WORKFLOWS, *_READY], ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it(path: Path) -> None:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if "uses: " in line]
    loose = [
        line for line in lines if not line.startswith("#") and not _PINNED.search(line) and PLACEHOLDER not in line
    ]
    assert not loose, f"{path.name}: write `uses: owner/name@FULL-COMMIT-SHA # vVERSION`: {loose}"


@pytest.mark.parametrize("path", [*_WORKFLOWS, *_READY], ids=lambda path: path.name)
def test_a_workflow_may_nothing_but_what_a_job_asks_for(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert "permissions" in job, f"{path.name}: say what the job {name} may do"
        assert "timeout-minutes" in job, f"{path.name}: bound the job {name}"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository into which all workflows to copy were copied, their line `uses:` filled in."""
    directory = tmp_path_factory.mktemp("ready")
    workflows = directory / ".github" / "workflows"
    workflows.mkdir(parents=True)
    for path in _READY:
        (workflows / path.name).write_text(filled_in(path.read_text(encoding="utf-8"), {}), encoding="utf-8")
    return directory


def test_no_checker_finds_a_mistake_in_a_workflow_to_copy(ready: Path) -> None:
    workflows = sorted((ready / ".github" / "workflows").iterdir())
    _run(_BIN / "actionlint", "-shellcheck=", "-pyflakes=", *workflows, cwd=ready)
    _run(_BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    _run(_BIN / "zizmor", "--offline", "--no-progress", "--quiet", "--persona", "pedantic", *workflows)


def test_github_refuses_a_workflow_whose_line_was_not_filled_in() -> None:
    for path in _READY:
        [line] = _LINE.findall(path.read_text(encoding="utf-8"))
        assert "@" not in line.partition("#")[0], "with an `@`, it would be somebody's repository"


@pytest.mark.parametrize("path", _READY, ids=lambda path: path.name)
def test_a_workflow_to_copy_runs_once_a_thread_and_gives_inputs_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    for job in workflow["jobs"].values():
        assert set(job["concurrency"]) == {"group", "cancel-in-progress"}
        [step] = [step for step in job["steps"] if step.get("uses") == PLACEHOLDER]
        assert set(step["with"]) <= set(_ACTION["inputs"])
        assert "anthropic-api-key" in step["with"]


def test_the_workflow_of_this_repository_is_the_one_to_copy() -> None:
    copied = (ROOT / "docs" / "workflows" / "comments.yml").read_text(encoding="utf-8")
    wanted = _LINE.sub(lambda _: _HERE, copied)
    assert wanted != copied
    if os.environ.get("UPDATE_DOCS"):
        _OURS.write_text(wanted, encoding="utf-8")
    assert _OURS.read_text(encoding="utf-8") == wanted, "run: UPDATE_DOCS=1 .venv/bin/pytest tests/test_workflows.py"


def test_one_job_of_the_ci_waits_for_all_others() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert set(jobs["ci-ok"]["needs"]) == set(jobs) - {"ci-ok"}


def test_the_actions_inputs_are_made_from_the_models_of_the_settings() -> None:
    settings = [each for each in (RUNNER["token"], *INPUTS.values(), *AGENT.values()) if each.input_name]
    path = ROOT / "action.yml"
    written = path.read_text(encoding="utf-8")
    fresh = _INPUTS.sub(lambda found: f"{found[1]}{''.join(map(_input, settings))}\n", written)
    variables = (f"        {each.name}: ${{{{ inputs.{each.input_name} }}}}\n" for each in settings)
    fresh = _VARIABLES.sub(lambda found: f"{found[1]}{''.join(variables)}", fresh)
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(fresh, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == fresh, "run: UPDATE_DOCS=1 .venv/bin/pytest tests/test_workflows.py"


def _input(setting: Setting) -> str:
    # A setting is called as the action's inputs are.
    meaning = re.sub(r"CODEPILOT_([A-Z_]+)", lambda found: found[1].lower().replace("_", "-"), setting.help_text)
    described = {"description": f"{meaning} Default: `{setting.default}`." if setting.default else meaning}
    line = yaml.safe_dump(described, allow_unicode=True, width=1000)
    default = f"    default: {setting.example}\n" if setting.example.startswith("${{") else ""
    return f"  {setting.input_name}:\n    {line}    required: false\n{default}"


def test_the_action_hands_every_output_on() -> None:
    assert tuple(_ACTION["outputs"]) == OUTPUTS
    for name, output in _ACTION["outputs"].items():
        assert output["value"] == f"${{{{ steps.act.outputs.{name} }}}}"


def test_nothing_that_a_caller_passes_is_written_into_a_script() -> None:
    scripts = [step["run"] for step in _ACTION["runs"]["steps"] if "run" in step]
    for path in [*_WORKFLOWS, *_READY]:
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        scripts += [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script], "pass it by `env:` and read it as a shell variable"


def test_the_image_runs_as_nobody_in_particular_and_answers_for_its_health() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    final = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]
    said = dict(line.split(" ", 1) for line in final if re.match(r"[A-Z]+ ", line))
    assert said["USER"] == "10001"
    assert said["ENTRYPOINT"] == '["tini", "--", "codepilot"]'
    assert said["CMD"] == '["serve"]'
    assert "HEALTHCHECK" in said
    assert "/healthz" in "".join(final)


def test_a_container_is_asked_for_its_health_where_it_answers_and_through_no_proxy() -> None:
    image = re.findall(r"^  CMD (.+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    compose = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text(encoding="utf-8"))["services"]
    with HTTPServer(("127.0.0.1", 0), _Health) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        port = str(server.server_port)
        told = {"CODEPILOT_METRICS_PORT": port, "CODEPILOT_PORT": "1", "http_proxy": "http://127.0.0.1:1"}
        for command in (json.loads(image[-1])[2], compose["receiver"]["healthcheck"]["test"][3].replace("8080", port)):
            for there, expected in ((True, 0), (False, 1)):
                server.RequestHandlerClass = _Health if there else BaseHTTPRequestHandler
                asked = subprocess.run([sys.executable, "-c", command], env=told, check=False, capture_output=True)
                assert asked.returncode == expected, asked.stderr.decode()
        server.shutdown()


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        return


def test_the_image_is_built_from_files_that_exist_and_are_let_in() -> None:
    let_in = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), f"the Dockerfile copies {source}, which does not exist"
                assert f"!{source}" in let_in, f".dockerignore keeps {source} out"
