"""Starting git."""

from __future__ import annotations

import pytest

from bot.git.errors import GitError, GitMissingError
from bot.git.process import Git, ProcessBounds


async def test_a_machine_without_git_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.git.process._program", lambda: "/nowhere/git")
    with pytest.raises(GitMissingError):
        await Git().run("version")


@pytest.mark.parametrize(
    ("bounds", "broken"),
    [
        (ProcessBounds(output_bytes=3), "git version was stopped: it wrote more than 3 bytes."),
        (ProcessBounds(seconds=0.0), "git version was stopped: it took more than 0 s."),
    ],
)
async def test_which_bound_a_command_broke_is_told_with_a_remedy(bounds: ProcessBounds, broken: str) -> None:
    with pytest.raises(GitError) as told:
        await Git(bounds=bounds).run("version")
    assert str(told.value).startswith(broken)
    assert "fewer or smaller files" in told.value.remedy
    assert told.value.exit_code is None


async def test_a_command_that_fails_is_named_and_not_the_options_before_it() -> None:
    with pytest.raises(GitError, match="git ls-tree ended with exit code 128: "):
        await Git().run("--literal-pathspecs", "ls-tree", "nowhere")
