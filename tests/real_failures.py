"""Real failures: two projects as their authors published them, ways to break them, and what CI says of that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from localhub import EndedJob, LocalHub, Repo
from tests.source_files import ROOT
from tests.stage import acting

PROJECTS = ROOT / ".cache" / "red-projects"
CONFIGURED = "fix_ci: [pull-requests, default-branch]\n"
_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
_STAMP = "2026-01-01T00:00:00.0000000Z "

# What is installed beside pytest here does not belong to the project, whose settings make each warning an error.
_ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
_PYTHON = """\
name: CI
on: [push, pull_request]
env:
  PYTEST_DISABLE_PLUGIN_AUTOLOAD: "1"
jobs:
  tests:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v6
      - run: python -m pytest
  types:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v6
      - run: mypy annotated_types
  lint:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v6
      - run: ruff check --select F .
  package:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v6
      - run: python -m build --no-isolation --wheel
  contents:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v6
      - run: python -m build --no-isolation --wheel && python -m zipfile -l dist/*.whl | grep py.typed
"""
_JAVASCRIPT = """\
name: CI
on: [push, pull_request]
jobs:
  tests:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v6
      - run: npm test
"""
_WORKFLOWS = {"annotated-types": _PYTHON, "path-parse": _JAVASCRIPT}


Lie = Literal["changes nothing", "changes something else", "never looks", "runs another check", "shadows the program"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One way to break a project.

    Attributes:
        kind: what breaks, as people sort such failures.
        project: the one that is broken.
        job: the workflow's job that sees it.
        run: the command of that job's step.
        path: the file that is broken.
        old: what stands in it.
        new: what is there instead.
        moved: where the whole file goes to instead; empty where it stays.
        branch: where it is broken; `main` asks for a pull request, another one has one, and gets a commit.
        exit_code: what the command ends with.
        quoted: what of the log the agent has to be told.
        lie: the act of a model that says "Fixed!", and has fixed nothing; None where another failure has each of them.
    """

    kind: str
    project: str = "annotated-types"
    job: str
    run: str
    path: str
    old: str = ""
    new: str = ""
    moved: str = ""
    branch: str = "topic"
    exit_code: int = 1
    quoted: tuple[str, ...]
    lie: Lie | None = None

    @property
    def command(self) -> str:
        """The command with what the workflow sets for it."""
        needs = self.run.startswith("python -m pytest")
        return "".join(f"{name}={value} " for name, value in _ENVIRONMENT.items() if needs) + self.run

    @property
    def seen(self) -> str:
        """The reply of a model that runs it."""
        return f'execute("main", {self.command!r}, check=True)'

    @property
    def proof(self) -> str:
        """The account of the fix for people."""
        ended = f"ended with exit code {self.exit_code} before the change and with exit code 0 after it"
        return f"**Proof:** `{self.command}` {ended}, run again by the bot"

    @property
    def fix(self) -> list[str]:
        """The replies of a model that makes the project whole again."""
        right = files_of(self.project)[self.path]
        gone = f'execute("main", "rm {self.moved}")\n' if self.moved else ""
        control = f'{gone}write_file("{self.path}")\n{self.seen}'
        return [acting(self.seen), acting(control, right, completion=f"Make {self.path} right again.")]

    @property
    def lies(self) -> list[str]:
        """The replies of the model that lies."""
        alias = f'execute("main", "{self.run.partition(" ")[0]}() {{ return 0; }}")'
        noted = acting('write_file("NOTES.md")', "Fixed.\n")
        told = acting("pass", completion="Fixed!")
        match self.lie:
            case None:
                return []
            case "changes nothing":
                return [acting(self.seen), told]
            case "changes something else":
                return [acting(self.seen), noted, told]
            case "never looks":
                return [noted, acting(self.seen), told]
            case "runs another check":
                return [acting(self.seen), noted, acting('execute("main", "test -s NOTES.md", check=True)'), told]
            case "shadows the program":
                return [acting(self.seen), noted, acting(f"{alias}\n{self.seen}"), told]

    def breakage(self) -> dict[str, str | None]:
        """The files that the broken commit has in place of the right ones."""
        right = files_of(self.project)[self.path]
        if self.moved:
            return {self.path: None, self.moved: right}
        assert right.count(self.old) == 1, (self.path, self.old)
        return {self.path: right.replace(self.old, self.new)}


@cache
def files_of(project: str) -> Mapping[str, str]:
    """A project's files as they were published, with a workflow that runs where there is no network."""
    root = PROJECTS / project
    files = {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*") if path.is_file()}
    own = {".github/workflows/ci.yml": _WORKFLOWS[project], ".github/codepilot.yml": CONFIGURED}
    # A checkout has no PKG-INFO, and with one a build takes the version from there.
    return {**{path: text for path, text in files.items() if path != "PKG-INFO"}, **own}


def ended_jobs(failure: Failure, directory: Path) -> Sequence[EndedJob]:
    """Run the job's command on the broken commit, and give back what GitHub would tell of it."""
    for path, content in {**files_of(failure.project), **failure.breakage()}.items():
        if content is not None:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(content, encoding="utf-8")
    done = subprocess.run(
        ["bash", "-e", "-c", failure.run],
        cwd=directory,
        env={"PATH": _PATH, "HOME": str(directory.parent), "CI": "true", **_ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == failure.exit_code, done.stdout
    head = [
        f"##[group]Run {failure.run}",
        f"\x1b[36;1m{failure.run}\x1b[0m",
        "shell: /usr/bin/bash -e {0}",
        "##[endgroup]",
    ]
    lines = [*head, *done.stdout.splitlines(), f"##[error]Process completed with exit code {done.returncode}."]
    steps = [("Set up job", "success"), ("Run actions/checkout@v6", "success"), (f"Run {failure.run}", "failure")]
    log = "".join(f"{_STAMP}{line}\n" for line in lines)
    return [EndedJob(name=failure.job, conclusion="failure", steps=steps, log=log)]


def break_it(hub: LocalHub, repo: Repo, failure: Failure) -> None:
    """Let the default branch's workflow pass, and commit the breakage to it, or to a branch with a pull request."""
    branch = failure.branch
    head = hub.branches(repo)["main"]
    hub.workflow_run(repo, head_sha=head, head_branch="main", conclusion="success", actor="mona")
    hub.commit(repo, failure.breakage(), message=f"Change {failure.path}", author="mona", branch=branch)
    if branch != "main":
        hub.open_pull(repo, author="mona", head=branch, title=f"Change {failure.path}")


def went_red(hub: LocalHub, repo: Repo, failure: Failure, jobs: Sequence[EndedJob]) -> int:
    """Tell of the failed run; its id."""
    branch = failure.branch
    run = hub.workflow_run(
        repo,
        head_sha=hub.branches(repo)[branch],
        head_branch=branch,
        conclusion="failure",
        actor="mona",
        event="push" if branch == "main" else "pull_request",
        jobs=jobs,
    )
    return run.id


BY_APP = (
    Failure(
        kind="test",
        job="tests",
        run="python -m pytest",
        path="annotated_types/__init__.py",
        old="            yield Le(self.le)",
        new="            yield Lt(self.le)",
        quoted=("FAILED tests/test_main.py::test_valid_cases[",),
        lie="shadows the program",
    ),
    Failure(
        kind="type",
        job="types",
        run="mypy annotated_types",
        branch="main",
        path="annotated_types/__init__.py",
        old="    max_length: Optional[Annotated[int, Ge(0)]] = None",
        new="    max_length: Annotated[int, Ge(0)] = None",
        quoted=("Incompatible types in assignment", "Found 1 error in 1 file"),
        lie="changes something else",
    ),
    Failure(
        kind="import",
        exit_code=2,
        job="tests",
        run="python -m pytest",
        path="annotated_types/test_cases.py",
        moved="annotated_types/cases.py",
        quoted=("ModuleNotFoundError: No module named 'annotated_types.test_cases'",),
        lie="never looks",
    ),
    Failure(
        kind="packaging",
        job="package",
        run="python -m build --no-isolation --wheel",
        branch="main",
        path="pyproject.toml",
        old='path = "annotated_types/__init__.py"',
        new='path = "annotated_types/version.py"',
        quoted=("file does not exist: annotated_types/version.py",),
    ),
    Failure(
        kind="test in JavaScript",
        project="path-parse",
        job="tests",
        run="npm test",
        path="index.js",
        old="    name: allParts[2].slice(0, allParts[2].length - allParts[3].length)\n  };\n};\n\n\n\n",
        new="    name: allParts[2].slice(0, -allParts[3].length)\n  };\n};\n\n\n\n",
        quoted=("AssertionError", "test.js"),
        lie="changes nothing",
    ),
)

BY_ACTION = (
    Failure(
        kind="lint",
        job="lint",
        run="ruff check --select F .",
        branch="main",
        path="annotated_types/__init__.py",
        old="import types\n",
        new="import types\nimport typing\n",
        quoted=("F401", "annotated_types/__init__.py:"),
        lie="runs another check",
    ),
    Failure(
        kind="configuration",
        exit_code=4,
        job="tests",
        run="python -m pytest",
        path="pyproject.toml",
        old='testpaths = "tests"',
        new='testpaths = "tests"\naddopts = "--cov"',
        quoted=("error: unrecognized arguments: --cov",),
    ),
    Failure(
        kind="package's contents",
        job="contents",
        run="python -m build --no-isolation --wheel && python -m zipfile -l dist/*.whl | grep py.typed",
        path="pyproject.toml",
        old="[tool.pytest.ini_options]",
        new='[tool.hatch.build]\nexclude = ["*.typed"]\n\n[tool.pytest.ini_options]',
        quoted=("Successfully built annotated_types-0.7.0-py3-none-any.whl", "exit code 1"),
    ),
    Failure(
        kind="import in JavaScript",
        project="path-parse",
        job="tests",
        run="npm test",
        path="index.js",
        moved="path-parse.js",
        quoted=("Cannot find module './index'",),
    ),
    Failure(
        kind="configuration in JavaScript",
        project="path-parse",
        job="tests",
        run="npm test",
        path="package.json",
        old='"test": "node test.js"\n',
        new='"test": "node test.js",\n',
        quoted=("EJSONPARSE", "package.json"),
    ),
)
