"""Threat 68: no repository below the top of a user's directory is made or changed, and git there runs nothing of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent_runtime import CommandRunner, SandboxSettings, pick_sandbox
from agent_runtime.core.errors import SandboxError, ToolError
from agent_runtime.core.text import is_git_directory
from agent_runtime.sandbox import repositories
from agent_runtime.sandbox.repositories import RepositoryGuard, parse_gitlinks
from agent_runtime.workspace.files import Workspace
from tests.waiting import eventually

_IDENTITY = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def git(place: Path, *words: str, check: bool = True) -> str:
    """Run the user's git."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **_IDENTITY}
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        check=check,
        timeout=60,
    )
    return done.stdout


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's state."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".codepilot"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's clone with a submodule `lib/sub` and one, `empty`, that is not populated."""
    place = tmp_path_factory.mktemp("template")
    upstream = place / "upstream"
    upstream.mkdir()
    git(upstream, "init", "--quiet")
    (upstream / "code.py").write_text("x = 1\n")
    (upstream / ".gitattributes").write_text("* filter=evil\n")
    git(upstream, "add", ".")
    git(upstream, "commit", "--quiet", "--message", "First")
    clone = place / "top"
    clone.mkdir()
    git(clone, "init", "--quiet")
    for name in ("lib/sub", "empty"):
        git(clone, "submodule", "--quiet", "add", str(upstream), name)
    (clone / "dir").mkdir()
    (clone / "dir/file.txt").write_text("one\n")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "First")
    git(clone, "submodule", "--quiet", "deinit", "--force", "empty")
    return clone


def shelves(state: Path) -> list[Path]:
    return list(state.glob("set-aside/*"))


def list_repositories(top: Path) -> set[Path]:
    return {place.parent for place in top.rglob(".git")}


def contents(top: Path) -> dict[Path, bytes]:
    """Return the files of all repositories."""
    return {
        path: path.read_bytes()
        for path in top.rglob("*")
        if ".git" in str(path) and path.is_file() and path.name != ".gitattributes"
    }


@pytest.fixture
def top(tmp_path: Path, template: Path, state: Path) -> Iterator[Path]:
    """A copy of the clone."""
    yield shutil.copytree(template, tmp_path / "top", symlinks=True)
    for shelf in shelves(state):
        shelf.chmod(0o700)  # pytest removes it


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program of the attacker; it leaves the file `sprung` beside it."""
    program = tmp_path / "trap.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    program.chmod(0o755)
    (tmp_path / "more").write_text(f"[core]\n\tfsmonitor = {program}\n")
    return program


def evil(trap: Path) -> str:
    """Return bash functions: `arm DIR` makes a repository's configuration run the trap, `repo DIR` makes one."""
    config = f"""[core]
    fsmonitor = {trap}
    hooksPath = {trap.parent}
    pager = {trap}
    editor = {trap}
    sshCommand = {trap}
[include]
    path = {trap.parent}/more
[filter "evil"]
    clean = {trap}
    smudge = {trap}
    process = {trap}
    required = true
[diff]
    external = {trap}
[alias]
    status = !{trap}
    st = !{trap} </dev/null
"""
    return f"""set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
arm() {{ cat >>"$1/config" <<'END'
{config}END
}}
repo() {{
  git init -q "$1"
  (cd "$1" && echo y >new.txt && git add new.txt && git commit -qm x && echo z >>new.txt)
  arm "$1/.git"
}}
work() {{ arm "$1"; printf '[core]\\n\\tbare = false\\n\\tworktree = .\\n' >>"$1/config"; }}
bare() {{ git init -q --bare "$1"; work "$1"; }}
set +e
"""


PLANTS = {
    "submodule file to directory": "rm lib/sub/.git; repo lib/sub",
    "submodule file elsewhere": "repo /workspace/store && mv store/.git store/hidden "
    "&& rm -f lib/sub/.git; echo 'gitdir: ../../store/hidden' >lib/sub/.git",
    "submodule moved away": "mv lib/sub lib/old; repo lib/sub",
    "parent of submodule moved away": "mv lib old; mkdir lib; repo lib/sub",
    "submodule not populated": "repo empty",
    "submodule not populated, replaced": "rmdir empty; repo empty",
    "link": "repo store; mv store/.git store/hidden; ln -s ../store/hidden dir/.git",
    "bare repository": "bare dir/x",
    "bare repository by hand": "mkdir -p d/objects d/refs; echo 'ref: refs/heads/main' >d/HEAD; work d",
    "bare repository with a common directory": "bare store; rm store/HEAD; mkdir d; "
    "echo 'ref: refs/heads/main' >d/HEAD; echo ../store >d/commondir",
    "other case": "repo dir/x; mv dir/x/.git dir/x/.GIT",
    "other spelling": 'repo dir/x; mv dir/x/.git dir/x/git~1; mkdir dir/y; cp -r dir/x/git~1 "dir/y/.git "',
    "gitdir of a worktree": "repo dir/x; git -C dir/x worktree add -q ../w",
    "new directory": "mkdir -p a/b/c; repo a/b/c",
    "renamed in place": "repo dir/x; mv dir/x/.git dir/x/x.git; mv dir/x/x.git dir/x/.git",
    "clone": "repo /tmp/r; git clone -q /tmp/r dir/x; arm dir/x/.git",
    "clone --bare": "repo /tmp/r; git clone -q --bare /tmp/r dir/x; work dir/x",
    "tar": "repo /tmp/r; tar -C /tmp -c r | tar -x -C dir",
    "mv": "repo /tmp/r; mv /tmp/r dir/x",
    "hard link": "repo store; mv store/.git store/hidden; echo 'gitdir: ../../store/hidden' >file; "
    "mkdir dir/x; ln file dir/x/.git",
    "not readable": "mkdir closed; repo closed/x; chmod 000 closed/x closed",
    "not writable": "mkdir closed; repo closed/x; chmod 555 closed/x/.git closed/x closed",
    "deep": "mkdir -p $(printf 'd/%.0s' {1..150}); cd $(printf 'd/%.0s' {1..150}); repo x",
    "too deep": "mkdir -p $(printf 'd/%.0s' {1..300}); cd $(printf 'd/%.0s' {1..300}); repo x",
    "name with a line break": "mkdir $'a\\nb'; repo $'a\\nb/c'",
    "name that is not UTF-8": "mkdir $'a\\xff'; repo $'a\\xff/c'",
}
SPRINGS_NOT = {"other case", "other spelling", "too deep", "not readable"}
"""Plants that git on this system does not discover; another file system, or the next `chmod`, would let it."""


def judge(top: Path) -> None:
    """Run the user's git at the top, and then in every directory, as an editor or a prompt does."""
    for words in (("status",), ("diff",), ("submodule", "status"), ("log", "--oneline"), ("add", "--dry-run", ".")):
        git(top, *words, check=False)
    for place, names, files in os.walk(os.fsencode(top)):
        if b".git" in names:
            names.remove(b".git")
        elif len(names) == 1 and not files:
            continue  # git finds the same repository as in the directory above
        for word in ("status", "st"):
            git(Path(os.fsdecode(place)), word, check=False)


async def run(top: Path, script: str, *, git_writable: bool = False) -> str:
    """Run a command in a sandbox of its own; return what the model reads of it."""
    sandbox = pick_sandbox("bubblewrap", SandboxSettings(git_writable=git_writable))
    async with CommandRunner(sandbox, top) as runner:
        end = await runner.run(script, seconds=60)
    return f"{end.output}\n{end.note}"


@pytest.mark.parametrize("plant", PLANTS)
async def test_git_runs_nothing_that_a_command_has_planted(top: Path, trap: Path, plant: str) -> None:
    await run(top, evil(trap) + PLANTS[plant])
    judge(top)
    assert not (trap.parent / "sprung").exists()
    assert git(top, "log", "--format=%s") == "First\n"
    assert git(top, "-C", "lib/sub", "log", "--format=%s") == "First\n"


@pytest.mark.parametrize("plant", sorted(set(PLANTS) - SPRINGS_NOT))
async def test_the_judge_notices_each_plant_where_repositories_may_be_made(top: Path, trap: Path, plant: str) -> None:
    await run(top, evil(trap) + PLANTS[plant], git_writable=True)
    judge(top)
    assert (trap.parent / "sprung").exists()


async def test_a_renamed_directory_is_reported_and_preserved(top: Path, trap: Path, state: Path) -> None:
    said = await run(top, evil(trap) + "repo dir/x; rm dir/file.txt")
    (shelf,) = shelves(state)
    assert f"Set aside: dir/x/.git (now {shelf})" in said
    assert "runtime.git_writable" in said
    assert shelf.stat().st_mode & 0o777 == 0
    shelf.chmod(0o700)
    assert (shelf / "entry/HEAD").exists()
    assert (top / "dir/x/new.txt").exists()
    assert git(top, "status", "--short") == " D dir/file.txt\n?? dir/x/\n"


@pytest.mark.parametrize(
    "plant",
    [name for name in PLANTS if "submodule" in name],
)
async def test_a_submodule_is_safe_while_the_command_still_runs(top: Path, trap: Path, plant: str) -> None:
    """No sweep can have been made: the mounts alone keep it."""
    sandbox = pick_sandbox("bubblewrap", SandboxSettings())
    async with CommandRunner(sandbox, top) as runner:
        fight = f"{PLANTS[plant]}; touch /workspace/ready; while true; do :; done"
        task = asyncio.create_task(runner.run(evil(trap) + fight, seconds=60))
        await eventually((top / "ready").exists)
        for _ in range(5):
            git(top, "status")
            git(top, "submodule", "status")
        assert not (trap.parent / "sprung").exists()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_repository_is_set_aside_while_a_long_command_runs(top: Path, trap: Path) -> None:
    sandbox = pick_sandbox("bubblewrap", SandboxSettings())
    async with CommandRunner(sandbox, top) as runner:
        fight = "repo dir/x; touch /workspace/ready; while true; do sleep 0.01; done"
        task = asyncio.create_task(runner.run(evil(trap) + fight, seconds=60))
        await eventually((top / "ready").exists)
        await eventually(lambda: not (top / "dir/x/.git").exists())
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_program_that_makes_repositories_until_the_end_leaves_none(top: Path, trap: Path) -> None:
    await run(top, evil(trap) + "(while true; do mkdir -p r; mkdir r/.git; mv r r$RANDOM; done) >&0 2>&0 & sleep 1")
    assert not list_repositories(top) - {top, top / "lib/sub"}


async def test_existing_repositories_are_read_only_and_their_files_are_not(top: Path) -> None:
    git(top, "init", "--quiet", "--bare", "fixtures/bare.git")
    git(top, "init", "--quiet", "nested")
    before = contents(top)
    said = await run(
        top,
        "set +e; for place in lib/sub/.git fixtures/bare.git/config nested/.git/config; do echo x >>$place; done;"
        "rm -rf lib nested fixtures; echo 2 >lib/sub/more.py; echo 2 >nested/more.py; git log --format=%s",
    )
    assert said.count("Read-only file system") >= 3
    assert "First" in said
    assert "Set aside" not in said
    assert contents(top) == before
    assert (top / "lib/sub/more.py").exists()
    assert (top / "nested/more.py").exists()


async def test_a_link_that_is_the_repository_is_put_back(top: Path, tmp_path: Path, trap: Path) -> None:
    (top / ".git").rename(tmp_path / "store")
    (top / ".git").symlink_to(tmp_path / "store")
    said = await run(top, evil(trap) + "rm .git; repo /workspace")
    assert "Set aside: .git" in said
    assert (top / ".git").readlink() == tmp_path / "store"
    judge(top)
    assert not (trap.parent / "sprung").exists()


_KILLED = """
import asyncio, sys
from pathlib import Path
from agent_runtime import CommandRunner, SandboxSettings, pick_sandbox
async def main():
    runner = CommandRunner(pick_sandbox("bubblewrap", SandboxSettings()), Path(sys.argv[1]))
    await runner.run("true", seconds=60)
    print("begun", flush=True)
    await runner.run("mkdir late; until mkdir late/.git; do :; done; sleep 60", seconds=60)
asyncio.run(main())
"""


async def test_leftovers_of_a_killed_process_are_renamed_at_the_next_start(
    top: Path,
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _KILLED, str(top), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    (top / "left").mkdir()
    git(top, "init", "--quiet", "left")
    assert "Set aside: left/.git" in await run(top, "true")
    assert git(top, "-C", "lib/sub", "log", "--format=%s") == "First\n"
    git(top, "init", "--quiet", "own")
    assert "Set aside" not in await run(top, "true")
    assert (top / "own/.git").exists()


@pytest.mark.parametrize("home", ["trap.sh", "top", "nowhere"], ids=["no directory", "in the workspace", "missing"])
async def test_a_repository_that_cannot_be_moved_to_the_state_is_disarmed_in_place(
    top: Path, trap: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(trap.with_name(home)))
    said = await run(top, evil(trap) + "repo dir/x; bare dir/y")
    assert "dir/x/.set-aside-" in said
    assert not (top / ".codepilot").exists()
    judge(top)
    assert not (trap.parent / "sprung").exists()


def test_too_many_repositories_are_refused(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "_MAX_MOUNTS", 2)
    with pytest.raises(SandboxError, match=r"git repositories below it.*git_writable"):
        RepositoryGuard(top, notify=print).begin()


@pytest.mark.parametrize("path", ["d/HEAD", "d/head", "d/config", "d/hooks/pre-commit", "d/a/b", "d/commondir"])
def test_file_tools_write_nothing_into_a_repository(tmp_path: Path, path: str) -> None:
    for name in ("objects", "refs") if "ead" in path.casefold() else ("HEAD", "objects", "refs"):
        (tmp_path / "d" / name).mkdir(parents=True)
    with Workspace(tmp_path) as files, pytest.raises(ToolError, match="repository"):
        files.write_bytes(path, b"x")
    with Workspace(tmp_path, git_writable=True) as files:
        files.write_bytes(path, b"x")


def test_file_tools_do_not_complete_a_repository(tmp_path: Path) -> None:
    with Workspace(tmp_path) as files:
        files.write_bytes("d/HEAD", b"ref: refs/heads/main\n")
        files.write_bytes("d/config", b"")
        files.write_bytes("d/refs/x", b"")
        for path in ("d/objects/x", "d/objects", "d/commondir", "d/Objects/x"):
            with pytest.raises(ToolError, match="repository"):
                files.write_bytes(path, b"x")
        with pytest.raises(ToolError, match="git directory"):
            files.write_bytes("a/.GIT/config", b"x")
    assert not is_git_directory(["HEAD", "objects"])


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_submodules_are_read_from_every_index(tmp_path: Path, version: str, kind: str) -> None:
    git(tmp_path, "init", "--quiet", f"--object-format={kind}")
    blob = git(tmp_path, "hash-object", "-w", "-t", "blob", "/dev/null").strip()
    names = [f"dir/{'n' * size}" for size in range(1, 260, 7)]
    for name in names:
        git(tmp_path, "update-index", "--add", "--cacheinfo", f"160000,{blob},{name}")
        git(tmp_path, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}.txt")
    git(tmp_path, "update-index", "--skip-worktree", f"{names[3]}.txt")
    git(tmp_path, "update-index", "--index-version", version)
    index = (tmp_path / ".git/index").read_bytes()
    assert sorted(parse_gitlinks(index, 20 if kind == "sha1" else 32)) == sorted(map(os.fsencode, names))
