"""Processes of `codepilot` that are forked from one which has imported it: that takes longer than most of their work.

They are like those that `codepilot` starts: nothing runs yet in the one that they are forked from.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

_PRELOADED = [
    "agent_runtime.sandbox.resident",
    "agent_runtime.terminals.terminal",
    "bot.__main__",
    "bot.apps.logs",
    "bot.apps.process",
    "bot.apps.server",
    "bot.apps.watchdog",
    "bot.settings.load",
    "dbos._sys_db_sqlite",
    "pydantic_monty",
    "tree_sitter_bash",
]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(_PRELOADED)


class Forked:
    """A process; what asyncio's have, too, means the same.

    Args:
        words: the command line, without `codepilot`.
        env: the whole environment.
        stderr: the file that takes its standard error.
    """

    def __init__(self, words: Sequence[str], *, env: Mapping[str, str], stderr: Path) -> None:
        self._process = _CONTEXT.Process(target=_run, args=(tuple(words), dict(env), str(stderr)), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
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
        assert self.returncode is not None
        return self.returncode


@contextmanager
def server() -> Iterator[None]:
    """End the process that they are forked from with the body, so that its time is counted."""
    try:
        yield
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there is no public way


def _run(words: tuple[str, ...], env: dict[str, str], stderr: str) -> None:
    gc.freeze()  # to visit an object is to copy it
    os.environ.clear()
    os.environ.update(env)
    target = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, sys.stderr.fileno())
    os.close(target)
    sys.argv = ["codepilot", *words]

    from bot.__main__ import main  # noqa: PLC0415 - where it was imported already

    main()
