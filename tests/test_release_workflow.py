"""The release workflow, as far as it runs without GitHub: order, permissions, and scripts with a false `gh`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.source_files import ROOT

_JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
_GH = """\
#!/usr/bin/env bash
echo "$*" >> "$CALLS"
case "$*" in
  *matching-refs*) printf 'refs/tags/%s\\n' $TAGS ;;
  *check-runs*) echo "$CI" ;;
  *PATCH*) exit "$PATCHED" ;;
esac
"""


def script_of(job: str, step: str) -> str:
    [script] = [each["run"] for each in _JOBS[job]["steps"] if each.get("name") == step]
    return str(script)


def run(directory: Path, script: str, **variables: str) -> tuple[int, str, list[str]]:
    """Run a step's script as GitHub does; its exit code, its output, and the calls of `gh`."""
    programs = directory / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "gh").write_text(_GH, encoding="utf-8")
    (programs / "gh").chmod(0o755)
    calls = directory / "calls"
    calls.write_text("", encoding="utf-8")
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(calls), "RUNNER_TEMP": str(directory), **variables}
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=directory, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr, calls.read_text(encoding="utf-8").splitlines()


def test_nothing_is_published_before_a_maintainer_approves_what_was_built() -> None:
    assert {name: job.get("needs") for name, job in _JOBS.items()} == {
        "build": None,
        "pypi": "build",
        "image": "pypi",
        "github": "image",
    }
    assert _JOBS["pypi"]["environment"]["name"] == "pypi"
    writing = {
        name: {key for key, value in job["permissions"].items() if value == "write"} for name, job in _JOBS.items()
    }
    assert writing == {
        "build": set(),
        "pypi": {"attestations", "id-token"},
        "image": {"attestations", "id-token", "packages"},
        "github": {"contents"},
    }


def test_ci_builds_with_the_script_of_the_release() -> None:
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    [dry] = [step["run"] for step in ci["wheel"]["steps"] if step.get("name") == "Build"]
    assert dry == script_of("build", "Build")


@pytest.mark.parametrize(
    ("tags", "tag", "moves"),
    [
        ("v0.1.0", "v0.1.0", True),
        ("v0.1.0 v0.2.0 v0.10.0", "v0.10.0", True),
        ("v0.1.0 v0.2.0 v0.10.0 v0.2.1", "v0.2.1", False),
    ],
)
def test_the_major_tag_moves_to_the_newest_version_only(tmp_path: Path, tags: str, tag: str, *, moves: bool) -> None:
    sha = "a" * 40
    place = {"GITHUB_REPOSITORY": "acme/codepilot", "GITHUB_REF": f"refs/tags/{tag}", "GITHUB_REF_NAME": tag}
    for patched in ("0", "1"):  # the first release finds no tag to move, and makes it
        code, _, calls = run(
            tmp_path,
            script_of("github", "Move the action's major tag"),
            **place,
            GITHUB_SHA=sha,
            TAGS=tags,
            PATCHED=patched,
        )
        assert code == 0
        changes = [call for call in calls if "--method" in call]
        assert len(changes) == (1 + int(patched) if moves else 0)
        assert all(f"sha={sha}" in call for call in changes)


@pytest.mark.parametrize(
    ("ci", "date", "is_on_main", "refusal"),
    [
        ("success", "2027-01-31", True, ""),
        ("failure", "2027-01-31", True, "ci-ok has not passed"),
        ("", "2027-01-31", True, "ci-ok has not passed"),
        ("success", "not released", True, "write the date"),
        ("success", "2027-01-31", False, "v0.1.0 is not on main"),
    ],
)
def test_a_tag_is_released_only_if_main_has_it_ci_passed_and_its_changes_are_dated(
    tmp_path: Path, ci: str, date: str, refusal: str, *, is_on_main: bool
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "release-notes").write_bytes((ROOT / "scripts" / "release-notes").read_bytes())
    (tmp_path / "scripts" / "release-notes").chmod(0o755)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n', encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(f"## 0.1.0, {date}\n\n- One.\n", encoding="utf-8")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "git").write_text(f"#!/bin/sh\nexit {int(not is_on_main)}\n", encoding="utf-8")
    (tmp_path / "programs" / "git").chmod(0o755)
    code, printed, _ = run(
        tmp_path,
        script_of("build", "Check the tag, the changes and CI"),
        GITHUB_SHA="a" * 40,
        GITHUB_REF_NAME="v0.1.0",
        GITHUB_REPOSITORY="acme/codepilot",
        CI=ci,
    )
    assert (code == 0) is not bool(refusal)
    assert refusal in printed
    if not refusal:
        assert (tmp_path / "release" / "notes.md").read_text(encoding="utf-8") == "- One.\n"


def test_the_image_is_named_in_lower_case_by_its_version(tmp_path: Path) -> None:
    output = tmp_path / "output"
    code, _, _ = run(
        tmp_path,
        script_of("image", "Name the image"),
        GITHUB_REPOSITORY="Acme/Codepilot",
        GITHUB_REF_NAME="v0.1.0",
        GITHUB_OUTPUT=str(output),
    )
    assert code == 0
    assert dict(line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines()) == {
        "name": "ghcr.io/acme/codepilot",
        "tag": "ghcr.io/acme/codepilot:0.1.0",
    }
