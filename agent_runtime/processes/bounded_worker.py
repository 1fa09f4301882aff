"""Program of a worker process: calls functions by name within limits. See `bounded`.

Started as a script, so that a worker only imports the modules of the functions it calls.
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
WALL_FACTOR = 4
"""Wall time of a call as a multiple of its processor time."""
MAX_JSON_BYTES = 4 * 1024**2
"""Bytes of a JSON result; decoding holds the host's GIL."""
MAX_PLAIN_BYTES = 32 * 1024**2
"""Bytes of a text or bytes result."""
_RETIRE_BYTES = 96 * 1024**2  # a worker that has grown to this gives its memory back by ending
_PR_SET_DUMPABLE = 4  # prctl(2), linux/prctl.h
_DATA, _RESIDENT = 5, 1  # fields of /proc/self/statm, proc(5)


def main() -> None:
    """Answer requests from standard input until it closes or a minute passes."""
    sys.modules["agent_runtime.processes.bounded_worker"] = sys.modules[
        __name__
    ]  # started as a script: see `is_worker`
    # What requests come by and answers go by; what a function prints goes nowhere.
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    _restrict()
    sys.path[:] = pickle.loads(_read_message(requests))  # noqa: S301 - from the process that started this one
    while select.select([requests], [], [], IDLE_SECONDS)[0] and (request := _read_message(requests)):
        kind, answer = _answer(requests, *pickle.loads(request))  # noqa: S301 - the same
        del request
        answers.write(kind + len(answer).to_bytes(8, "big") + answer)
        answers.flush()
        if _memory_bytes(_RESIDENT) > _RETIRE_BYTES:
            break
    # At once: were the pipes closed first, the host might write, fail, and take the death that follows for a bound's.
    os._exit(0)


def is_worker() -> bool:
    return __name__ == "__main__"


def _restrict() -> None:
    """Forbid file writes, core dumps, and ptrace by the user's processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the host's to answer
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - POSIX only

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_message(requests: BinaryIO) -> bytes:
    """Return the next message; empty once the host is gone."""
    head = _read_exactly(requests, 8)
    return _read_exactly(requests, int.from_bytes(head, "big")) if head else b""


def _read_exactly(requests: BinaryIO, size: int) -> bytes:
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
    try:
        module, _, attribute = name.partition(":")
        function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
        _set_limits(seconds, memory)
        _watch_pipe(requests, on=True)
        return _encode(function(*arguments))
    except MemoryError:
        return b"m", b""
    except BaseException as error:  # noqa: BLE001 - raised again by the host
        kind = type(error).__name__
        detail = getattr(error, "kind", "") if kind == "ToolError" else "".join(traceback.format_exception(error))
        return b"e", json.dumps([kind, str(error)[:10_000], str(detail)[-10_000:]]).encode()
    finally:
        _watch_pipe(requests, on=False)
        _lift_limits()


def _encode(result: object) -> tuple[bytes, bytes]:
    """Encode as plain data, which the host decodes without building objects."""
    if isinstance(result, bytes):
        kind, data, limit = b"b", result, MAX_PLAIN_BYTES
    elif isinstance(result, str):
        kind, data, limit = b"s", result.encode("utf-8", "surrogatepass"), MAX_PLAIN_BYTES
    else:
        kind, data, limit = b"j", json.dumps(result).encode(), MAX_JSON_BYTES
    return (kind, data) if len(data) <= limit else (b"r", str(limit).encode())


def _set_limits(seconds: float, memory: int) -> None:
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - POSIX only

    # Both signals kill, no matter which thread holds the interpreter. A busy machine takes no time from a call.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WALL_FACTOR * seconds)
    if used := _memory_bytes(_DATA):
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, resource.RLIM_INFINITY))


def _lift_limits() -> None:
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - POSIX only

    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _watch_pipe(requests: BinaryIO, *, on: bool) -> None:
    """Let the kernel kill this process (SIGIO) during a call once the host closes the pipe."""
    if sys.platform == "win32":
        return
    import fcntl  # noqa: PLC0415 - POSIX only

    with suppress(OSError):  # a kernel without it: the timer ends this process
        fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(requests, fcntl.F_GETFL)
        fcntl.fcntl(requests, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC)
    if on and select.select([requests], [], [], 0)[0]:  # it was closed before; there is no other request during a call
        os._exit(0)


def _memory_bytes(field: int) -> int:
    """Return a size of this process in bytes; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
