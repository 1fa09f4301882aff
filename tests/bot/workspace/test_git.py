"""Starting git."""

from __future__ import annotations

import pytest

from bot.workspace.errors import GitMissingError
from bot.workspace.git import Git


async def test_a_machine_without_git_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.workspace.git._program", lambda: "/nowhere/git")
    with pytest.raises(GitMissingError, match="`git` cannot be started on the machine"):
        await Git().run("version")
