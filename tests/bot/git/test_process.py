"""Programs of the host's are bounded."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from bot.git.process import ProcessBounds, run

SH = {"PATH": "/usr/bin:/bin"}


async def test_output_and_errors_and_the_exit_code_are_given() -> None:
    ended = await run(["sh", "-c", "cat; echo wrong >&2; exit 3"], env=SH, bounds=ProcessBounds(), stdin=b"hello")
    assert (ended.code, ended.output, ended.said, ended.cut) == (3, b"hello", "wrong\n", False)


async def test_input_and_output_can_be_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 1_000_000)
    ended = await run(["cat"], env=SH, bounds=ProcessBounds(), stdin=tmp_path / "in", stdout=tmp_path / "out")
    assert (ended.code, ended.output) == (0, b"")
    assert (tmp_path / "out").read_bytes() == b"x" * 1_000_000


async def test_processor_time_is_bounded() -> None:
    ended = await run(["sh", "-c", "while :; do :; done"], env=SH, bounds=ProcessBounds(seconds=15, cpu_seconds=1))
    assert ended.code == -signal.SIGXCPU


async def test_output_is_bounded() -> None:
    ended = await run(["yes"], env=SH, bounds=ProcessBounds(output_bytes=10_000))
    assert ended.cut
    assert len(ended.output) == 10_000


async def test_errors_are_bounded_and_the_last_ones_are_kept() -> None:
    command = "yes | head -c 2000000 >&2; echo end >&2"
    ended = await run(["sh", "-c", command], env=SH, bounds=ProcessBounds())
    assert len(ended.said) == 64 * 1024
    assert ended.said.endswith("end\n")


async def test_memory_is_bounded() -> None:
    ended = await run(
        ["/usr/bin/perl", "-e", '$x = "x" x 300_000_000'], env=SH, bounds=ProcessBounds(memory_bytes=100 << 20)
    )
    assert ended.code != 0
    assert "memory" in ended.said.lower()


async def test_the_size_of_files_is_bounded(tmp_path: Path) -> None:
    command = ["sh", "-c", f"yes > {tmp_path}/file"]
    ended = await run(command, env=SH, bounds=ProcessBounds(file_bytes=100 * 1024))
    assert ended.code != 0
    assert (tmp_path / "file").stat().st_size == 100 * 1024


async def test_time_is_bounded_and_nothing_is_left() -> None:
    ended = await run(["sh", "-c", "sleep 1000 & wait"], env=SH, bounds=ProcessBounds(seconds=0.2))
    assert ended.code is None
    assert "0.2 s" in ended.said


async def test_a_program_that_is_ended_while_it_is_given_its_input_leaves_no_error_in_the_log() -> None:
    said = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    for steps in range(1, 20):
        running = asyncio.create_task(run(["cat"], env=SH, bounds=ProcessBounds(), stdin=b"x" * 1_000))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
    await run(["true"], env=SH, bounds=ProcessBounds())
    assert said == []


async def test_time_is_bounded_for_a_program_that_writes_on_and_on() -> None:
    for milliseconds in range(20, 30):
        bounds = ProcessBounds(seconds=milliseconds / 1000, output_bytes=10 << 30)
        async with asyncio.timeout(20):
            ended = await run(["cat", "/dev/zero"], env=SH, bounds=bounds)
        assert ended.code is None


async def test_a_program_that_writes_on_and_on_is_not_waited_for() -> None:
    for _ in range(20):
        ended = await run(["head", "-c", "50M", "/dev/zero"], env=SH, bounds=ProcessBounds(output_bytes=10, seconds=20))
        assert ended.cut
        assert ended.code is not None
