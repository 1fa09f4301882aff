"""What works on a stranger's files outside the sandbox does not hold up the bot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from agent_runtime import BoundExceededError, Image, ImageError, ToolError, ToolResult, run_bounded
from agent_runtime.terminals.output import Screen
from agent_runtime.terminals.processes import ProcessFamily
from agent_runtime.workspace.edits import Versions
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.search import Hits
from agent_runtime.workspace.state import Manifest, Watch
from tests.agent_runtime import bounded_work as work
from tests.agent_runtime.image_files import jpeg
from tests.block_files import BlockFiles, call

ON_THE_LOOP = 1
"""Functions that run on the event loop, in one turn."""

FEW = 20


async def turns_during(work: Awaitable[object]) -> int:
    """Return the number of event loop turns during an await."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository whose matcher backtracks practically forever."""
    (tmp_path / ".gitignore").write_text("*a" * 13 + "*b\n")
    (tmp_path / ("a" * 200)).touch()
    return tmp_path


async def test_the_loop_turns_while_files_are_listed(hostile: Path) -> None:
    with Workspace(hostile) as workspace:
        assert await turns_during(BlockFiles(workspace).list_files()) > ON_THE_LOOP
        assert await turns_during(BlockFiles(workspace).list_files("*a" * 13 + "*b")) > ON_THE_LOOP


async def test_the_loop_turns_while_files_are_noted_for_a_pause(hostile: Path) -> None:
    with Workspace(hostile) as workspace:
        assert await turns_during(Manifest.scan_bounded(workspace)) > ON_THE_LOOP


async def test_the_loop_turns_while_processes_of_a_terminal_are_looked_for() -> None:
    family = ProcessFamily(mark="none", session=0, namespace=None)
    assert await turns_during(family.kill(within=1)) > ON_THE_LOOP


async def test_a_worker_is_killed_when_its_time_is_over() -> None:
    async with asyncio.timeout(20):
        with pytest.raises(BoundExceededError, match="seconds"):
            await run_bounded(work.backtrack, "a" * 60, seconds=0.2)


async def test_a_worker_gets_no_more_memory_than_it_may_have() -> None:
    with pytest.raises(BoundExceededError, match="memory"):
        await run_bounded(work.hoard, 100 * 1024**2, memory=50 * 1024**2)


def file_tools(root: Path, content: str) -> BlockFiles:
    (root / "big").write_text(content)
    return BlockFiles(Workspace(root))


async def called(tools: BlockFiles, *payloads: str, **arguments: object) -> ToolResult:
    """A call of `write_file` by control code."""
    tools.take(*payloads)
    return await call(tools.registry.get("write_file"), arguments)


async def test_the_loop_turns_while_old_text_is_looked_for(tmp_path: Path) -> None:
    tools = file_tools(tmp_path, "".join(f"{number % 1000},abcdefgh\n" for number in range(100_000)))
    tools.take("nowhere,abcdefgh\n", "x\n")
    write = tools.registry.get("write_file")
    planning = asyncio.create_task(write.plan({"path": "big", "mode": "replace"}))
    assert await turns_during(planning) > ON_THE_LOOP
    assert "the nearest lines are" in (await planning).refusal


async def test_the_loop_turns_while_a_large_file_is_read(tmp_path: Path) -> None:
    tools = file_tools(tmp_path, "".join(f"line {number}\n" for number in range(100_000)))
    read = tools.registry.get("read_file")
    reading = asyncio.create_task(read.apply(await read.plan({"path": "big", "start_line": 99_999})))
    assert await turns_during(reading) > ON_THE_LOOP
    assert (await reading).value == "line 99998\nline 99999\n"


async def test_a_write_of_a_large_file_does_what_it_does_to_a_small_one(tmp_path: Path) -> None:
    tools = file_tools(tmp_path, "".join(f"line {number}\r\n" for number in range(50_000)))
    read = await call(tools.registry.get("read_file"), {"path": "big", "start_line": 49_999})
    assert read.text.startswith("[read_file] 'big' (lines 49999\u201350000 of 50000, version ")
    assert read.value == "line 49998\nline 49999\n"
    wrote = await called(tools, "one\ntwo\n", path="big", mode="edit", start_line=2, end_line=3)
    assert "2 + … 2 lines as sent, to 3" in wrote.text
    data = (tmp_path / "big").read_bytes()
    assert data.startswith(b"line 0\r\none\r\ntwo\r\nline 3\r\n")
    (tmp_path / "big").write_bytes(b"new\r\n" + data)
    moved = await called(tools, "three\n", path="big", mode="edit", start_line=3, end_line=3)
    assert "your line 3 now is line 4" in moved.text
    (tmp_path / "big").write_bytes(data.replace(b"line 7\r\n", b"seven\r\n"))
    with pytest.raises(ToolError, match="changed since you read it"):
        await called(tools, "x\n", path="big", mode="edit", start_line=9, end_line=9)


async def test_stored_reads_are_bounded(tmp_path: Path) -> None:
    """Lists of two-letter lines take thirty times the memory of the text."""
    seen = Versions()
    for number in range(100):
        seen.record_read(f"f{number}", "v1", f"{number}\n" * 500_000)
    assert seen.stored_bytes < 40_000_000
    assert seen.base_lines("f99", "v1")
    with pytest.raises(ToolError, match="forgotten: much was read since"):
        seen.base_lines("f0", "v1")
    watch = Watch(Workspace(tmp_path))
    for number in range(100):
        watch.record_content(f"f{number}", "v1", "ab\n" * 300_000)
    assert watch.stored_chars < 20_000_000


async def test_a_file_of_very_many_lines_is_read_within_the_bound_of_memory(tmp_path: Path) -> None:
    tools = file_tools(tmp_path, "ab\n" * 3_300_000)
    read = await call(tools.registry.get("read_file"), {"path": "big", "start_line": 1, "end_line": 1})
    assert read.value == "ab\n"
    with pytest.raises(ToolError, match="bytes of memory"):
        await called(tools, "x\n", path="big", mode="edit", start_line=2, end_line=2)


def test_of_a_long_line_that_matches_only_what_is_shown_is_kept() -> None:
    hits = Hits(limit=1000)
    for number in range(20):
        hits.feed(b"f%d\x001:" % number + b"x" * 1_000_000 + b"\n\n")
    assert sum(len(line.text) for line in hits.first_hits()) < 20_000
    assert hits.stored_bytes < 20_000


@pytest.mark.parametrize("mark", ["\u0301", "\x1b[1;2H\u0301", "\x1b[2;1H\u0301"])
def test_marks_above_one_letter_of_a_full_screen_are_few(mark: str) -> None:
    screen = Screen()
    screen.feed(f"\x1b[?1049he\x1b[1;120He{mark * 1000}".encode())
    assert 0 < len((screen.full_screen or "").replace(" ", "")) < FEW


def test_a_picture_is_only_looked_at_as_what_it_begins_like() -> None:
    """To find the size of some other kind takes minutes, where there are a few million digits in its place."""
    with pytest.raises(ImageError, match="not a PNG, JPEG, GIF or WebP"):
        Image.of("x", b"P5#.....WEBP\n1 1\n")


def test_the_size_of_a_picture_is_looked_for_in_its_head_alone() -> None:
    comment = b"\xff\xfe\xff\xff" + bytes(65_533)
    whole = jpeg()
    assert Image.of("x", whole[:2] + 10 * comment + whole[2:]).media_type == "image/jpeg"
    with pytest.raises(ImageError, match="does not contain the size"):
        Image.of("x", whole[:2] + 20 * comment + whole[2:])
