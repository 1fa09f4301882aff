"""Threat 30: protected files are published only when a person has approved that exact change."""

from __future__ import annotations

import pytest

from agent_runtime import Network
from bot.jobs.setup import setup_key
from bot.permissions.repo_config import RepoConfig, file_kinds
from bot.publishing.screening import is_protected


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
        ".github/dependabot.yml",
        ".github/FUNDING.yml",
        ".github/copilot-instructions.md",
        ".circleci/config.yml",
        ".gitlab-ci.yml",
        "Jenkinsfile",
        "build/JENKINSFILE",
        "azure-pipelines.yml",
        "bitbucket-pipelines.yml",
        ".drone.yml",
        ".travis.yml",
        ".buildkite/pipeline.yml",
        ".pre-commit-config.yaml",
        ".husky/pre-commit",
        ".devcontainer/devcontainer.json",
        "web/.devcontainer/Dockerfile",
        ".devcontainer.json",
        ".vscode/tasks.json",
        "AGENTS.md",
        "packages/a/agents.md",
        "CLAUDE.md",
        "deep/GEMINI.md",
        ".cursorrules",
        ".cursor/rules/x.mdc",
        ".claude/skills/deploy/run.sh",
        "skills/deploy/SKILL.md",
        ".github/ISSUE_TEMPLATE/AGENTS.md",
        ".gitattributes",
        "src/.GitAttributes",
        ".gitmodules",
        ".lfsconfig",
        ".npmrc",
        ".yarnrc.yml",
        ".yarn/releases/yarn-4.cjs",
        "pip.conf",
        ".pypirc",
        ".cargo/config.toml",
        "deno.lock",
        "packages.lock.json",
        "pubspec.lock",
        "gradle.lockfile",
        "app/buildscript-gradle.lockfile",
        "conda-lock.yml",
        "pylock.toml",
        "pylock.dev.toml",
        "npm-shrinkwrap.json",
        "agent.yaml",
        "agents/review.agent.yaml",
        ".aider.model.settings.yml",
        ".trae/rules/project_rules.md",
        "web/.kilocode/mcp.json",
        "CRUSH.md",
        "lefthook.toml",
        ".lintstagedrc.json",
        "husky.config.js",
        ".config/lefthook.yml",
        ".idea/runConfigurations/x.xml",
        ".run/x.run.xml",
        ".zed/tasks.json",
        ".dir-locals.el",
        ".nvim.lua",
        ".bsp/sbt.json",
        "x.code-workspace",
        ".helix/languages.toml",
        "mise.toml",
        "mise.local.toml",
        ".mise/config.toml",
        ".envrc.local",
        "flake.nix",
        ".tool-versions",
        "Vagrantfile",
        ".gitpod.Dockerfile",
        "devfile.yaml",
        ".replit",
        ".irbrc",
        ".Rprofile",
        ".gdbinit",
        ".pnpmfile.mjs",
        ".bazelrc",
        "ci.bazelrc",
        "tools/bazel",
        "gradlew",
        ".jvmopts",
        "Jenkinsfile.release",
        "ci/Jenkinsfile-nightly",
        ".zuul.yaml",
        "zuul.d/jobs.yaml",
        ".cirrus.star",
        ".travis.yaml",
        ".goreleaser.yml",
        ".goreleaser.windows.yaml",
        ".releaserc.json",
        ".readthedocs.yaml",
        "wrangler.jsonc",
        ".coderabbit.yaml",
        ".pr_agent.toml",
        "Dangerfile",
        ".renovaterc.json5",
        ".codecov.yml",
        # A directory in a protected file's place changes that file, too.
        ".github/workflows",
        "CODEOWNERS/x",
    ],
)
def test_a_protected_file_is_recognized_in_each_spelling(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "path",
    [
        "src/app.py",
        ".github/ISSUE_TEMPLATE/bug.yml",
        "docs/workflows/x.yml",
        "action.py",
        "lock",
        "package.json",
        "requirements.txt",
        ".gitignore",
        "docs/agents.html",
        "docs/lefthook.md",
        "Makefile",
        "Dockerfile",
        "compose.yaml",
        "eslint.config.js",
        "tests/conftest.py",
        "src/owners/list.py",
        "src/settings/run.py",
        ".editorconfig",
    ],
)
def test_an_ordinary_file_is_not(path: str) -> None:
    assert not is_protected(path)


def test_every_lock_file_that_a_setup_depends_on_is_protected() -> None:
    """Files that pin dependencies decide about installed code, so one table serves both."""
    config = RepoConfig(setup=("make deps",), cache=("deps",))

    def key(blob: str, path: str) -> str:
        return setup_key(config, {path: blob}, network=Network(), toolchain="x")

    locks = next(kind for kind in file_kinds() if kind.name == "Lock files")
    names = [glob.replace("*", "x") for glob in locks.globs]
    assert len(names) > 40
    assert [name for name in names if not is_protected(name) or key("1", name) == key("2", name)] == []


def test_the_repository_adds_to_the_list_and_takes_nothing_out() -> None:
    globs = ("infra/**", "*.pem")
    assert is_protected("infra/prod/main.tf", globs)
    assert is_protected("deep/down/key.PEM", globs)
    assert is_protected(".github/workflows/ci.yml", globs)
    assert not is_protected("src/infra.py", globs)
    assert is_protected(".github/ISSUE_TEMPLATE/bug.yml", (".github/**",))
