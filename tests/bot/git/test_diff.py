"""The difference that a pull request is, from the mirror."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.git.errors import CloneError
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.origin import Origin


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit({"a.txt": "1\n", "b.txt": "b\n"})
    origin.git("checkout", "--quiet", "-b", "topic")
    return origin


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "state")


async def _diff(workspaces: Workspaces, origin: Origin, limit: int = 10_000) -> str:
    base, head = (
        Source(url=origin.url, token="", ref=f"refs/heads/{branch}", sha=origin.head(branch))
        for branch in ("main", "topic")
    )
    return await workspaces.diff(1, base, head, limit)


async def test_it_is_what_the_branch_changed_and_not_what_the_base_did_meanwhile(
    workspaces: Workspaces, origin: Origin
) -> None:
    origin.commit({"a.txt": "2\n", "data.bin": b"\0\1"})
    origin.git("checkout", "--quiet", "main")
    origin.commit({"b.txt": "changed on main\n"})
    shown = await _diff(workspaces, origin)
    assert "-1\n+2\n" in shown
    assert "Binary files /dev/null and b/data.bin differ" in shown
    assert "b.txt" not in shown


async def test_a_long_one_is_cut_at_a_line_with_a_note(workspaces: Workspaces, origin: Origin) -> None:
    origin.commit({"long.txt": "".join(f"löng line {number}\n" for number in range(200_000))})
    shown = await _diff(workspaces, origin, limit=5000)
    cut, _, note = shown.removesuffix("\n").rpartition("\n")
    assert note == "[The rest of the diff was omitted: at most 5,000 characters are shown.]"
    assert 4900 < len(cut) <= 5000
    assert cut.splitlines()[-1].startswith("+löng line ")


@pytest.mark.parametrize("over", [0, 1])
async def test_one_that_just_fits_is_whole(workspaces: Workspaces, origin: Origin, over: int) -> None:
    origin.commit({"a.txt": "2\n"})
    whole = await _diff(workspaces, origin)
    shown = await _diff(workspaces, origin, limit=len(whole) - over)
    assert (shown == whole) == (not over)


async def test_branches_without_a_common_commit_differ_in_everything(workspaces: Workspaces, origin: Origin) -> None:
    origin.git("checkout", "--quiet", "--orphan", "other")
    origin.git("branch", "-D", "topic")
    origin.git("checkout", "--quiet", "-b", "topic")
    origin.commit({"a.txt": "alone\n"})
    assert "-1\n+alone\n" in await _diff(workspaces, origin)


async def test_no_change_is_no_diff(workspaces: Workspaces, origin: Origin) -> None:
    assert await _diff(workspaces, origin) == ""


async def test_a_branch_that_cannot_be_fetched_is_said(workspaces: Workspaces, origin: Origin) -> None:
    here = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    gone = Source(url=origin.url, token="", ref="refs/heads/gone", sha="1" * 40)
    with pytest.raises(CloneError, match="gone"):
        await workspaces.diff(1, here, gone, 100)
