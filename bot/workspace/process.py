"""Run a program of the host's on strangers' bytes: bounded in time, processor time, memory, output and files."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

_MIB = 1024 * 1024
_MOST_SAID = 64 * 1024
_PIECE = 256 * 1024
# The limits are there before the program is, so that whatever it starts has them, too. One that cannot be set, because
# the bot itself runs with a lower one, is in force already.
_LIMITED = 'for each in "-S -t $1" "-d $2" "-f $3" "-c 0"; do ulimit $each 2>/dev/null || :; done; shift 3; exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBounds:
    """What one command may take; each of its processes, where it starts several.

    Attributes:
        seconds: until it is killed.
        cpu_seconds: of processor time; None for as much as the machine has in `seconds`.
        memory_bytes: of data; files that it maps do not count.
        output_bytes: that it may write to its standard output.
        file_bytes: of one file that it writes; None for no bound.
    """

    seconds: float = 600.0
    cpu_seconds: int | None = None
    memory_bytes: int = 2048 * _MIB
    output_bytes: int = 128 * _MIB
    file_bytes: int | None = None

    def limits(self) -> tuple[str, str, str]:
        """Processor time, memory and file size in the words of the shell's `ulimit`."""
        cpu = self.cpu_seconds if self.cpu_seconds is not None else int(self.seconds + 1) * (os.cpu_count() or 1)
        file = "unlimited" if self.file_bytes is None else str(self.file_bytes // 512)
        return str(cpu), str(self.memory_bytes // 1024), file


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How a program ended.

    Attributes:
        code: its exit code, negative for a signal; None when it was killed after its time.
        output: what it wrote to its standard output, at most as much as was allowed.
        cut: whether there was more.
        said: the end of what it wrote to its standard error.
    """

    code: int | None
    output: bytes
    cut: bool
    said: str


async def run(
    argv: Sequence[str | bytes],
    *,
    env: Mapping[str, str],
    bounds: ProcessBounds,
    stdin: bytes | Path = b"",
    stdout: Path | None = None,
    cwd: Path = Path("/"),
) -> ProcessResult:
    """Run a program in a session of its own; nothing of it is left when this returns.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        bounds: what it may take.
        stdin: what it reads, or the file with it.
        stdout: the file that gets its output; None to be given it.
        cwd: where it starts.
    """
    with ExitStack() as files:
        given = files.enter_context(stdin.open("rb")) if isinstance(stdin, Path) else asyncio.subprocess.PIPE
        kept = files.enter_context(stdout.open("wb")) if stdout else asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _LIMITED, "sh", *bounds.limits(), *argv),
            stdin=given,
            stdout=kept,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(bounds.seconds):
            output, said, _ = await asyncio.gather(
                _output(process, bounds.output_bytes), _end_of(process.stderr), _feed(process.stdin, stdin)
            )
            code: int | None = await process.wait()
    except TimeoutError:
        code, output, said = None, b"", f"it took more than {bounds.seconds:g} s"
    finally:
        # End the program and what it started if they still run (a time limit, a cancelled job).
        if process.returncode is None:
            _kill(process)
        # What is left in a pipe has to be read: as long as reading stands still, `process.wait` never returns.
        for pipe in (process.stdout, process.stderr):
            await _end_of(pipe)
        await process.wait()
    cut = len(output) > bounds.output_bytes
    return ProcessResult(code=code, output=output[: bounds.output_bytes], cut=cut, said=said)


async def _output(process: asyncio.subprocess.Process, limit: int) -> bytes:
    """At most one byte more than `limit`; a program that writes more is killed."""
    if process.stdout is None:
        return b""
    try:
        output = await process.stdout.readexactly(limit + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    _kill(process)
    await _end_of(process.stdout)  # as above
    return output


async def _end_of(stream: asyncio.StreamReader | None) -> str:
    said = b""
    while stream is not None and (piece := await stream.read(_PIECE)):
        said = (said + piece)[-_MOST_SAID:]
    return said.decode(errors="replace")


async def _feed(stream: asyncio.StreamWriter | None, data: bytes | Path) -> None:
    if stream is None or isinstance(data, Path):
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it read no more than it wanted
        stream.write(data)
        await stream.drain()
    stream.close()  # not waited for: where that is cancelled, asyncio logs an error of its own


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it ended in this very moment
        os.killpg(process.pid, signal.SIGKILL)
