"""The detection of changes against programs that write until they are killed, with a plain comparison as the judge."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_runtime import CommandRunner, Sandbox, SandboxSettings, pick_sandbox
from bot.git import baseline
from bot.git.baseline import Baseline, save_baseline
from bot.git.filesystem import ScannedFile
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from tests.origin import Origin
from tests.waiting import eventually

FILES = 400
WRITER = """
import mmap, os, random, sys
seed, ready = int(sys.argv[1]), sys.argv[2]
chance = random.Random(seed)
names = sorted(name for name in os.listdir("src") if name.endswith(".txt"))
os.chdir("src")
def in_place(name):  # the same size, and the time of before
    before = os.stat(name)
    with open(name, "r+b") as file:
        file.write(b"%04d" % chance.randrange(10_000))
    os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns))
def replaced(name):
    with open(f"{name}.{seed}", "wb") as file:
        file.write(b"%04d\\n" % chance.randrange(10_000))
    os.utime(f"{name}.{seed}", ns=(1, 1))
    os.replace(f"{name}.{seed}", name)
def swapped(name):
    other = chance.choice(names)
    try:
        os.rename(name, f"{seed}.swap")
        os.rename(other, name)
        os.rename(f"{seed}.swap", other)
    except FileNotFoundError:
        pass
def mapped(name):
    with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for _ in range(3):
            memory[:4] = b"%04d" % chance.randrange(10_000)
def linked(name):
    try:
        os.link(name, f"{seed}-{chance.randrange(50)}.link")
    except FileExistsError:
        pass
def removed(name):
    os.unlink(name)
def executable(name):
    os.chmod(name, chance.choice([0o644, 0o755]))
def truncated(name):
    with open(name, "wb") as file:
        file.write(b"x" * chance.randrange(3))
acts = [in_place, in_place, replaced, swapped, mapped, linked, removed, executable, truncated]
count = 0
while True:
    try:
        chance.choice(acts)(chance.choice(names))
    except (FileNotFoundError, IndexError, ValueError):
        pass
    count += 1
    if count == 40:
        open(f"../{ready}.ready", "w").close()
"""


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return pick_sandbox("auto", SandboxSettings())


def contents(root: Path) -> dict[str, tuple[bytes, bool]]:
    """Read every file: its bytes, and whether it is executable."""
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


async def require_complete(tree: Tree, before: Mapping[str, tuple[bytes, bool]]) -> None:
    """Check that a change is the difference between two readings, and that nothing was written since it was read."""
    change = await tree.change()
    after = contents(tree.path)
    expected = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    assert {file.path for file in change.files} == expected
    for file in change.files:
        assert (file.content, file.new_mode == "100755") == after.get(file.path, (None, False))


@pytest.mark.parametrize("seed", range(6))
async def test_no_change_is_lost_whenever_writers_are_killed(
    origin: Origin, tmp_path: Path, sandbox: Sandbox, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - when programs are killed is no secret
    sha = origin.commit({f"src/{number:03}.txt": f"{number:04}\n" for number in range(FILES)})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        before = contents(tree.path)
        writers = chance.randint(1, 6)
        # In the background of a command, as set-up and the agent may start them; they end with the sandbox.
        lines = [f"cat > ../tmp/w.py <<'END'\n{WRITER}\nEND"]
        lines += [f"(setsid python3 ../tmp/w.py {seed * 10 + n} {n} >/dev/null 2>&1 &)" for n in range(writers)]
        async with CommandRunner(sandbox, tree.path) as runner:
            end = await runner.run("\n".join(lines), seconds=60)
            assert end.ok, end.output
            wanted = chance.randint(1, writers)
            await eventually(lambda: len(list(tree.path.glob("*.ready"))) >= wanted)
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
        await require_complete(tree, before)


async def test_writes_right_after_the_checkout_are_seen(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({f"src/{number:03}.txt": f"{number:04}\n" for number in range(FILES)})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        before = contents(tree.path)
        for path in sorted((tree.path / "src").iterdir()):
            with path.open("r+b") as file:
                file.write(b"9999")
        await require_complete(tree, before)
        assert len((await tree.change()).files) == FILES
        await tree.reset_baseline(())
        for path in sorted((tree.path / "src").iterdir()):
            with path.open("r+b") as file:
                file.write(b"8888")
        await require_complete(tree, before)


def test_a_baseline_is_ready_when_the_clock_of_the_file_system_has_moved_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = [1_000, 1_000, 1_000, 2_000]
    monkeypatch.setattr(baseline, "touch_file", lambda _path: ticks.pop(0))
    entries = {
        b"a": ScannedFile("100644", (1, 5, 900, 1_000, 0o644)),
        b"b": ScannedFile("100644", (2, 5, 0, 10, 0o644)),
    }
    save_baseline(tmp_path, Baseline(modes={}, entries=entries))
    assert ticks == []


def test_a_file_system_whose_clock_stands_still_delays_no_job_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "_MAX_TICK_SECONDS", 0.0)
    entries = {b"a": ScannedFile("100644", (1, 5, 0, 2**62, 0o644))}
    save_baseline(tmp_path, Baseline(modes={}, entries=entries))
    assert (tmp_path / "given.json").exists()
