"""Threat 45: binary and executable files are pointed out; what is too large is a draft, or is not taken at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime import Outcome, Policy, Status
from bot.git.diff import MAX_FILE_BYTES
from bot.permissions.levels import Grant
from bot.publishing.checks import Verdict
from bot.publishing.markdown import Allowlist
from bot.publishing.plan import CommitTarget, plan_publication
from bot.publishing.render import render_status
from localhub import LocalHub
from tests.publishing_world import Outlet, an_outlet, pull_of
from tests.status_views import a_status_view


@pytest.fixture
async def outlet(hub: LocalHub, tmp_path: Path) -> AsyncIterator[Outlet]:
    async with an_outlet(hub, tmp_path / "state") as opened:
        yield opened


async def opened_draft(outlet: Outlet) -> tuple[bool, str, str]:
    """Publish the workspace; return whether the pull request is a draft, its body, and the comment."""
    job, change = outlet.job(), await outlet.tree.change()
    publication = plan_publication(
        job,
        Grant(policy=Policy(), publish="new_branch", bound_to_sha=outlet.base),
        Outcome(status=Status.FINISHED, summary="Did it."),
        change,
        CommitTarget(base_branch="main", server=outlet.hub.url),
        verdict=Verdict.VERIFIED,
    )
    delivered = await outlet.send(publication)
    assert pull_of(delivered)
    opened = outlet.hub.issue(outlet.repo, pull_of(delivered))
    assert opened.pull is not None
    allowed = Allowlist(login="mona", number=1, server=outlet.hub.url, repo="mona/calc")
    view = a_status_view(
        state="done", command="/codepilot fix", allowed=allowed, job_id="j1", marker="", seconds=1, files=change.files
    )
    return opened.pull.draft, opened.body or "", render_status(view)


async def test_a_small_change_is_ready_for_review(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    draft, body, _ = await opened_draft(outlet)
    assert not draft
    assert "Binary" not in body
    assert "executable" not in body


async def test_binary_and_executable_files_are_pointed_out(outlet: Outlet) -> None:
    (outlet.tree.path / "logo.png").write_bytes(b"\x89PNG\x00\xff")
    (outlet.tree.path / "a.txt").chmod(0o755)
    (outlet.tree.path / "link").symlink_to("a.txt")
    draft, body, comment = await opened_draft(outlet)
    assert not draft
    assert "Binary: `logo.png`." in body
    assert "Made executable: `a.txt`." in body
    [logo] = [line for line in comment.splitlines() if "`logo.png`" in line]
    [script] = [line for line in comment.splitlines() if "`a.txt`" in line]
    [link] = [line for line in comment.splitlines() if "`link`" in line]
    assert ("binary" in logo, "made executable" in script, "symbolic link" in link) == (True, True, True)


@pytest.mark.parametrize(
    "files",
    [
        {f"many/{n}.txt": b"1\n" for n in range(101)},
        {"long.txt": b"line\n" * 5_001},
        {"heavy.bin": bytes(6 * 1024 * 1024)},
    ],
    ids=["files", "lines", "bytes"],
)
async def test_a_change_over_the_limit_is_opened_as_a_draft(outlet: Outlet, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (outlet.tree.path / name).parent.mkdir(exist_ok=True)
        (outlet.tree.path / name).write_bytes(content)
    draft, body, _ = await opened_draft(outlet)
    assert draft
    assert "The change is large" in body


async def test_a_file_that_github_would_refuse_is_not_taken(outlet: Outlet) -> None:
    with (outlet.tree.path / "huge.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    (outlet.tree.path / "a.txt").write_text("fixed\n")
    draft, body, _ = await opened_draft(outlet)
    assert not draft
    assert "1 new file was left out, because a file may have 100 MiB at most: `huge.bin` (100 MiB)." in body
