"""Fork the workers of pytest-xdist from its controller, which imports the tests first: each would import them anew."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Self

import pytest
from _pytest.pathlib import ImportMode, import_path
from execnet import gateway_io
from execnet.gateway_base import ExecModel, Popen2IO
from execnet.gateway_io import Popen2IOMaster
from execnet.xspec import XSpec
from typing_extensions import override


def fork_workers(config: pytest.Config, specs: Sequence[XSpec]) -> None:
    """Fork a worker for each specification, and let execnet take it in place of a new interpreter."""
    try:
        for path in _test_files(config):
            import_path(path, mode=ImportMode.importlib, root=config.rootpath, consider_namespace_packages=False)
    except (Exception, pytest.skip.Exception):  # noqa: BLE001 - the workers import it themselves, and report it
        return
    gc.freeze()
    start_interpreter, workers = gateway_io.create_io, list[_Worker]()
    for _ in specs:
        workers.append(_Worker(workers))

    def create_io(spec: XSpec, execmodel: ExecModel) -> Popen2IOMaster:
        if not spec.popen or spec.python or not workers:  # the last: one that replaces a worker that crashed
            return start_interpreter(spec, execmodel)
        return workers.pop(0).opened(execmodel)

    gateway_io.create_io = create_io


def _test_files(config: pytest.Config) -> Iterator[Path]:
    for arg in config.args:
        path = Path(config.invocation_params.dir, arg.partition("::")[0])
        yield from [path] if path.is_file() else sorted(path.rglob("test_*.py"))


class _Worker(Popen2IOMaster):
    """The controller's end of a worker."""

    def __init__(self, earlier: Iterable[_Worker]) -> None:
        requests, self._to_worker = os.pipe()
        self._from_worker, replies = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            for worker in (self, *earlier):
                os.close(worker._to_worker)
                os.close(worker._from_worker)
            _serve(requests, replies)
        os.close(requests)
        os.close(replies)

    def opened(self, execmodel: ExecModel) -> Self:
        Popen2IO.__init__(self, os.fdopen(self._to_worker, "wb"), os.fdopen(self._from_worker, "rb"), execmodel)
        return self

    @override
    def wait(self) -> int | None:
        with suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return None

    @override
    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _serve(requests: int, replies: int) -> None:
    """Run the line that execnet sends first, as the interpreter does that it starts, and exit."""
    try:
        os.dup2(requests, 0)
        os.dup2(replies, 1)
        os.close(requests)
        os.close(replies)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        sys.argv, sys.modules["__main__"] = ["-c"], ModuleType("__main__")
        logging.root.handlers.clear()  # the controller's
        exec(eval(sys.stdin.readline()), {})  # noqa: S102, S307 - execnet's own line
    finally:
        os._exit(0)
