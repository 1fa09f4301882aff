"""The program of a worker process: calls functions by their names, within the bounds of each call. See `bounded`.

It is started as a script, so that a worker loads the modules of the functions that it is asked for and no others.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

IDLE_SECONDS = 60.0
MOST_STRUCTURED = 4 * 1024**2
"""Bytes of a result in JSON: decoding it holds the host's interpreter."""
MOST_PLAIN = 32 * 1024**2
"""Bytes of a result that is one text or one piece of bytes."""
_RETIRE_BYTES = 96 * 1024**2  # a worker that has grown to this gives its memory back by ending
_PR_SET_DUMPABLE = 4  # prctl(2), linux/prctl.h
_DATA, _RESIDENT = 5, 1  # fields of /proc/self/statm, proc(5)


def main() -> None:
    """Answer requests from standard input until it ends, or none has come for a minute."""
    sys.modules["agent_runtime.processes.bounded_worker"] = sys.modules[
        __name__
    ]  # started as a script: see `is_worker`
    # What requests come by and answers go by; what a function prints goes nowhere.
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    _enclose()
    sys.path[:] = pickle.loads(_read(requests))  # noqa: S301 - from the process that started this one
    while select.select([requests], [], [], IDLE_SECONDS)[0] and (request := _read(requests)):
        kind, answer = _answer(requests, *pickle.loads(request))  # noqa: S301 - the same
        del request
        answers.write(kind + len(answer).to_bytes(8, "big") + answer)
        answers.flush()
        if _pages(_RESIDENT) > _RETIRE_BYTES:
            break
    # At once: were the pipes closed first, the host might write, fail, and take the death that follows for a bound's.
    os._exit(0)


def is_worker() -> bool:
    """Whether this process is a worker."""
    return __name__ == "__main__"


def _enclose() -> None:
    """Keep other processes of this user out, and write nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the host's to answer
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - POSIX only

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(requests: BinaryIO) -> bytes:
    """The next message; nothing when the host is gone."""
    head = _exactly(requests, 8)
    return _exactly(requests, int.from_bytes(head, "big")) if head else b""


def _exactly(requests: BinaryIO, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = requests.read(min(size - len(data), 1024**2))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def _answer(
    requests: BinaryIO, name: str, arguments: tuple[object, ...], seconds: float, memory: int
) -> tuple[bytes, bytes]:
    """The kind of an answer, and the answer."""
    try:
        module, _, attribute = name.partition(":")
        function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
        _bound(seconds, memory)
        _watch(requests, on=True)
        return _encoded(function(*arguments))
    except MemoryError:
        return b"m", b""
    except BaseException as error:  # noqa: BLE001 - raised again by the host
        kind = type(error).__name__
        detail = getattr(error, "kind", "") if kind == "ToolError" else "".join(traceback.format_exception(error))
        return b"e", json.dumps([kind, str(error)[:10_000], str(detail)[-10_000:]]).encode()
    finally:
        _watch(requests, on=False)
        _unbound()


def _encoded(result: object) -> tuple[bytes, bytes]:
    """Plain data only: the host decodes it without building objects of any class."""
    if isinstance(result, bytes):
        kind, data, most = b"b", result, MOST_PLAIN
    elif isinstance(result, str):
        kind, data, most = b"s", result.encode("utf-8", "surrogatepass"), MOST_PLAIN
    else:
        kind, data, most = b"j", json.dumps(result).encode(), MOST_STRUCTURED
    return (kind, data) if len(data) <= most else (b"r", str(most).encode())


def _bound(seconds: float, memory: int) -> None:
    """End this process when the time is over, and refuse it memory beyond what it has and `memory` more."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - POSIX only

    signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM kills, no matter which thread holds the interpreter
    if has := _pages(_DATA):
        resource.setrlimit(resource.RLIMIT_DATA, (has + memory, resource.RLIM_INFINITY))


def _unbound() -> None:
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - POSIX only

    signal.setitimer(signal.ITIMER_REAL, 0)
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _watch(requests: BinaryIO, *, on: bool) -> None:
    """While a call runs, let the kernel kill this process (SIGIO) when the host's end of the pipe is closed."""
    if sys.platform == "win32":
        return
    import fcntl  # noqa: PLC0415 - POSIX only

    with suppress(OSError):  # a kernel without it: the timer ends this process
        fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(requests, fcntl.F_GETFL)
        fcntl.fcntl(requests, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC)
    if on and select.select([requests], [], [], 0)[0]:  # it was closed before; there is no other request during a call
        os._exit(0)


def _pages(field: int) -> int:
    """A size of this process in bytes; 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
