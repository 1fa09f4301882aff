"""Processes that are forked from one which has imported `codepilot`: that takes longer than most of their work.

They are like those that an interpreter starts: nothing runs yet in the one that they are forked from.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Self

from agent_runtime.run import toolbox
from tests import programs
from tests.source_files import ROOT

_PRELOADED = [
    "agent_runtime.agent.agent_file",
    "agent_runtime.run.run",
    "agent_runtime.sandbox.resident",
    "agent_runtime.terminals.terminal",
    "bot.__main__",
    "bot.demo.director",
    "bot.server.process",
    "bot.server.process",
    "bot.server.serve",
    "bot.server.process",
    "bot.settings.load",
    "dbos._sys_db_sqlite",
    "pydantic_monty",
    "tests.forked",
    "tree_sitter_bash",
]
_CLONE_NEWNET = 0x40000000
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(_PRELOADED)


class Forked:
    """A process that calls a function; what asyncio's have, too, means the same.

    Args:
        function: what it calls; of a module, not of a class or a function.
        args: what it calls that with.
        piped: whether its standard input and output are `stdin` and `stdout`, which are closed with the body of `with`.
    """

    def __init__(self, function: Callable[..., object], *args: object, piped: bool = False) -> None:
        ends: tuple[Connection, ...] = ()
        if piped:
            (read, told), (heard, write) = _CONTEXT.Pipe(duplex=False), _CONTEXT.Pipe(duplex=False)
            ends = (read, write)
            self.stdin = os.fdopen(os.dup(told.fileno()), "w", buffering=1, encoding="utf-8")
            self.stdout = os.fdopen(os.dup(heard.fileno()), encoding="utf-8")
            told.close()
            heard.close()
        self._process = _CONTEXT.Process(target=_call, args=(ends, [*programs.kept], function, *args), daemon=True)
        self._process.start()
        for end in ends:
            end.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it ended, and that was not told yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        return self.join()

    def join(self) -> int:
        """Wait as `wait` does, and let nothing else run."""
        self._process.join()
        assert self.returncode is not None
        return self.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it where it still runs."""
        self.kill()
        self.join()
        if hasattr(self, "stdin"):
            with suppress(BrokenPipeError):
                self.stdin.close()
            self.stdout.close()


def codepilot(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    stderr: Path,
    at: Path = ROOT,
    piped: bool = False,
    namespace: Path | None = None,
) -> Forked:
    """Start `codepilot`.

    Args:
        words: the command line, without `codepilot`.
        env: the whole environment.
        stderr: the file that takes its standard error.
        at: its working directory.
        piped: see `Forked`.
        namespace: the network namespace that it is in; None for this process's.
    """
    args = dict(env), stderr, at, _codepilot, tuple(words)
    return Forked(inside, namespace, _in, *args, piped=piped) if namespace else Forked(_in, *args, piped=piped)


def completed(
    words: Sequence[str], *, env: Mapping[str, str], at: Path, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Let `codepilot` come to its end in the directory `at`."""
    return returned(_codepilot, tuple(words), env=env, at=at, stdin=stdin)


def returned(
    function: Callable[..., object], *args: object, env: Mapping[str, str], at: Path, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Let a function of a module come to its end, with a whole environment, in the directory `at`."""
    with (
        NamedTemporaryFile(encoding="utf-8", mode="r") as errors,
        Forked(_in, dict(env), Path(errors.name), at, function, *args, piped=True) as process,
    ):
        process.stdin.write(stdin)
        process.stdin.close()
        said = process.stdout.read()
        return subprocess.CompletedProcess([function.__name__], process.join(), said, errors.read())


@contextmanager
def server() -> Iterator[None]:
    """End the process that they are forked from with the body, so that its time is counted."""
    try:
        yield
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there is no public way


def inside(namespace: Path, function: Callable[..., object], *args: object) -> None:
    """Call a function in a network namespace; for a process of one thread, which stays there."""
    with namespace.open("rb") as entry:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(entry.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    function(*args)


def _call(ends: tuple[Connection, ...], kept: list[Path], function: Callable[..., object], *args: object) -> None:
    gc.freeze()  # to visit an object is to copy it
    for folder in kept:
        setattr(toolbox, "describe_toolchain", programs.remembered(folder))  # noqa: B010 - it is not theirs to export
    for number, end in enumerate(ends):
        os.dup2(end.fileno(), number)
        end.close()
    if ends:
        # Those that are there know of what was there whether it can be sought in.
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    try:
        function(*args)
    finally:
        atexit._run_exitfuncs()  # which such processes leave out


def _in(env: dict[str, str], stderr: Path, at: Path, function: Callable[..., object], *args: object) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(at)
    target = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, sys.stderr.fileno())
    os.close(target)
    function(*args)


def _codepilot(words: tuple[str, ...]) -> None:
    sys.argv = ["codepilot", *words]

    from bot.__main__ import main  # noqa: PLC0415 - where it was imported already

    main()
