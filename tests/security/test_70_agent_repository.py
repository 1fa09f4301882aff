"""Threat 70: the agent's own repository acts in the sandbox only, and the host never reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import CommandRunner, SandboxSettings, pick_sandbox
from bot.git.agent_repository import OBJECTS, Refs
from bot.git.mirror import Source
from bot.git.workspace import WorkspaceRef, Workspaces
from tests.origin import Origin, git
from tests.security.git_traps import PLANTS, Trap, git_file, git_link, hostile_config


def repository_links(at: Path, trap: Trap) -> None:
    git = at / ".git"
    git.mkdir(exist_ok=True)
    for name in ("objects/info", "refs/heads", "hooks"):
        (git / name).mkdir(parents=True, exist_ok=True)
    for name in ("alternates", "http-alternates"):
        (git / "objects/info" / name).write_text(f"{at.parent}/trusted/repo.git/objects\nhttp://127.0.0.1:1/x\n")
    (git / "refs/heads/linked").symlink_to(at.parent / "trusted/repo.git/HEAD")
    (git / "HEAD").write_text("ref: refs/heads/linked\n")
    (git / "commondir").write_text(str(at.parent / "trusted/repo.git"))
    (git / "config").write_text(hostile_config(trap))


@pytest.mark.parametrize("plant", [*PLANTS, repository_links], ids=lambda plant: plant.__name__)
async def test_nothing_planted_in_the_agents_repository_runs(
    plant: Callable[[Path, Trap], None], trap: Trap, origin: Origin, tmp_path: Path
) -> None:
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    refs = Refs(branch="main", base=source)
    workspaces = Workspaces(tmp_path / "state", shows_objects=False)
    async with workspaces.open("job", 1, source, refs=refs, keep=lambda: True) as tree:
        if plant in {git_file, git_link}:
            (tree.path / ".git").rename(tree.path / "was")
        plant(tree.path, trap)
        (tree.path / "a.txt").write_text("2\n")
        ref = WorkspaceRef(generation=tree.generation, repo_id=1, source=source)
    async with workspaces.reopen("job", ref, refs=refs) as tree:
        change = await tree.change()
        await tree.commit_in_repository(change)
        assert "trap" not in (tree.path / ".git/config").read_text()
        sha = await tree.commit(change, message="Fix it")
        await tree.push(sha, branch="fix", expected="", url=origin.url, token="")
    assert not trap.sprung
    assert {f.path: f.content for f in change.files}["a.txt"] == b"2\n"


async def test_a_sandbox_cannot_change_the_objects_that_it_is_shown(origin: Origin, tmp_path: Path) -> None:
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    mirror = tmp_path / "state/mirrors/1.git"
    async with Workspaces(tmp_path / "state").open("job", 1, source, refs=Refs(branch="main")) as tree:
        before = {path: path.stat().st_mtime_ns for path in (mirror / "objects").rglob("*")}
        sandbox = pick_sandbox("bubblewrap", SandboxSettings(git_writable=True)).showing(tree.readable)
        async with CommandRunner(sandbox, tree.path) as runner:
            for attempt in (
                f"touch {OBJECTS}/x",
                f"rm -f {OBJECTS}/pack/*",
                f"chmod -R u+w {OBJECTS}",
                f"ln {OBJECTS}/pack/*.pack mine",
                f"mount -o remount,rw {OBJECTS}",
            ):
                assert not (await runner.run(attempt, seconds=30)).ok, attempt
            assert (await runner.run("git log && git gc --prune=now --quiet && git fsck", seconds=30)).ok
            # Other parts of the host are no place to take objects from.
            script = f"echo {mirror}/objects >.git/objects/info/alternates; git log"
            assert not (await runner.run(script, seconds=30)).ok
        assert {path: path.stat().st_mtime_ns for path in (mirror / "objects").rglob("*")} == before
    assert git(mirror, "fsck", "--strict") == ""
