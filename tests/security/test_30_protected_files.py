"""Threat 30: which files are published only when a person has approved that very change."""

from __future__ import annotations

import pytest

from bot.gate.protected import is_protected


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml",
        ".github/workflows/deep/er.yaml",
        ".GitHub/Workflows/CI.YML",
        ".github/actions/build/action.yml",
        ".github/actions/build/index.js",
        "action.yml",
        "tools/lint/action.yaml",
        "CODEOWNERS",
        ".github/CODEOWNERS",
        "docs/CODEOWNERS",
        "codeowners",
        ".github/codepilot.yml",
        ".github/Codepilot.yaml",
        "codepilot.yml",
        "package-lock.json",
        "web/yarn.lock",
        "poetry.lock",
        "uv.lock",
        "Cargo.lock",
        "go.sum",
        "Gemfile.lock",
        "bun.lockb",
        # A directory in a protected file's place changes that file, too.
        ".github/workflows",
        "CODEOWNERS/x",
    ],
)
def test_a_protected_file_is_known_wherever_and_however_it_is_written(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "path",
    ["src/app.py", ".github/ISSUE_TEMPLATE/bug.yml", "docs/workflows/x.yml", "action.py", "lock", "package.json"],
)
def test_an_ordinary_file_is_not(path: str) -> None:
    assert not is_protected(path)


def test_the_repository_adds_to_the_list_and_takes_nothing_out() -> None:
    globs = ("infra/**", "*.pem")
    assert is_protected("infra/prod/main.tf", globs)
    assert is_protected("deep/down/key.PEM", globs)
    assert is_protected(".github/workflows/ci.yml", globs)
    assert not is_protected("src/infra.py", globs)
