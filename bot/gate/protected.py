"""Which files the bot publishes only after a person approved that very change. Pure."""

from __future__ import annotations

from functools import cache

from agent_runtime import Policy, Rule

BUILT_IN = (
    # What runs with more rights than the change itself.
    ".github/workflows/**",
    ".github/actions/**",
    "action.yml",
    "action.yaml",
    # Who must approve a change, and what the bot may do.
    "CODEOWNERS",
    ".github/codepilot.yml",
    ".github/codepilot.yaml",
    "codepilot.yml",
    # Which code of others is fetched and run.
    "bun.lock",
    "bun.lockb",
    "Cargo.lock",
    "composer.lock",
    "flake.lock",
    "Gemfile.lock",
    "go.sum",
    "mix.lock",
    "npm-shrinkwrap.json",
    "package-lock.json",
    "pdm.lock",
    "Pipfile.lock",
    "pnpm-lock.yaml",
    "poetry.lock",
    "uv.lock",
    "yarn.lock",
)
"""Globs as the library's rules take them, whatever the case: one without a slash is about names in any directory."""


def is_protected(path: str, globs: tuple[str, ...] = ()) -> bool:
    """Whether a file needs an approval of its own.

    Args:
        path: from the repository's root, `/` between the parts.
        globs: what the repository protects beside the built-in list. Nothing can be taken out of that.
    """
    return _rule(globs).withholds(_TOOL, path)


_TOOL = "write_file"


@cache
def _rule(globs: tuple[str, ...]) -> Policy:
    # A rule that asks is read generously: whatever the case, and with all that lies beneath.
    return Policy(rules=(Rule(decision="ask", tool=_TOOL, paths=(*BUILT_IN, *globs)),))
