"""Threat 42: who signs, what the message says and what came before is the host's; of the agent only the files count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localhub import LocalHub
from tests.origin import git
from tests.publishing_world import Outlet, an_outlet, sha_of


@pytest.fixture
async def outlet(hub: LocalHub, tmp_path: Path) -> AsyncIterator[Outlet]:
    async with an_outlet(hub, tmp_path / "state") as opened:
        yield opened


def _rewritten(workspace: Path) -> None:
    """A rewritten history with another author, a hook and a replaced commit."""
    git(workspace, "init", "--quiet", "--initial-branch", "topic")
    git(workspace, "config", "user.email", "torvalds@example.com")
    git(workspace, "config", "user.name", "Somebody Else")
    for message in ("First of mine", "Second of mine\n\nCo-authored-by: Somebody Else <torvalds@example.com>"):
        git(workspace, "add", "--all")
        git(workspace, "-c", "user.email=torvalds@example.com", "commit", "--quiet", "--allow-empty", "-m", message)
    (workspace / ".git" / "hooks" / "commit-msg").write_text("#!/bin/sh\necho hooked > $1\n")
    (workspace / ".git" / "hooks" / "commit-msg").chmod(0o755)


@pytest.mark.parametrize("mode", [0o644, 0o755], ids=["api", "push"])
@pytest.mark.parametrize("branch", [None, "topic"])
async def test_the_host_signs_and_writes_the_message(outlet: Outlet, mode: int, branch: str | None) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    (outlet.tree.path / "a.txt").chmod(mode)
    _rewritten(outlet.tree.path)
    delivered = await outlet.send(await outlet.publication(branch=branch))
    assert sha_of(delivered)
    made = git(outlet.repo.path, "log", "-1", "--format=%P|%an|%ae|%cn|%B", sha_of(delivered))
    parents, author, email, _, message = made.split("|")
    assert parents == outlet.base
    assert author == "codepilot[bot]"
    assert email.endswith("codepilot[bot]@users.noreply.github.com")
    assert message.splitlines()[0] == "Fix it [redacted]"
    assert "of mine" not in message
    assert "torvalds" not in git(outlet.repo.path, "log", "--format=full", sha_of(delivered))
    changed = git(outlet.repo.path, "diff-tree", "-r", "--name-only", "--no-commit-id", sha_of(delivered))
    assert changed == "a.txt"
