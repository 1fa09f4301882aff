"""A sandbox that stays up to run trusted programs one by one.

A fresh sandbox costs 10 ms. A bash loop inside starts the given programs, never code of the agent; the isolation
protects from links and directories swapped during a read.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import socket
import subprocess
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.processes.spawn import end
from agent_runtime.sandbox.protocol import Sandbox

_SCRIPT = r"""
while IFS=' ' read -r -d '' nonce count; do
  mapfile -t -d '' -n "$count" words
  "${words[@]}" </dev/null 2>/tmp/errors
  code=$? said=
  if [[ -s /tmp/errors ]]; then said=$(</tmp/errors); fi
  printf '%s %s %s\0' "$nonce" "$code" "${said:0:4000}"
done
"""

_CHUNK = 1 << 17

_PIPE = 1 << 20

_TAIL_BYTES = 2_000

_NONCE_MARK = b"\x1e"
"""Rare byte that starts a nonce."""


class Resident:
    """A sandbox that starts on demand. Use it from the main thread.

    Attributes:
        errors: standard error of the last program, at most 4,000 characters.
        exit_code: of the last program; None if stopped.
    """

    def __init__(self, sandbox: Sandbox, workspace: Path, readable: Mapping[str, Path]) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._readable = readable
        self._channels: tuple[socket.socket, int] | None = None
        self._stop: weakref.finalize[..., Resident] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.is_busy = False
        self.errors = ""
        self.exit_code: int | None = None

    async def run(self, argv: Sequence[str]) -> AsyncGenerator[bytes]:
        """Run a program and yield its output; leaving the iteration early stops the sandbox."""
        self.is_busy, self.errors, self.exit_code = True, "", None
        output = -1
        try:
            connection, output = self._start()
            nonce = _NONCE_MARK + secrets.token_hex(16).encode()
            words = [b"%s %d" % (nonce, len(argv)), *(word.encode(errors="surrogateescape") for word in argv)]
            loop = asyncio.get_running_loop()
            loop.add_reader(output, self._wake)
            with contextlib.suppress(ConnectionError):  # reading will tell
                await loop.sock_sendall(connection, b"".join(word + b"\0" for word in words))
            rest, tail, last = b"", b"", b""
            while True:
                more = await self._receive(output)
                data = rest + more if rest else more
                last = more[-_TAIL_BYTES:] if len(more) >= _TAIL_BYTES else (last + more)[-_TAIL_BYTES:]
                if not more:
                    output_text = last.decode(errors="replace").strip()
                    raise SandboxError(f"The sandbox of `{argv[0]}` ended. It said: {output_text or 'nothing'}")
                position = data.find(nonce)
                if position >= 0:
                    rest, tail = data[:position], data[position + len(nonce) :]
                    break
                # The nonce may be cut in two; large pieces are copied only where it may be.
                nonce_start = data.rfind(_NONCE_MARK, max(0, len(data) - len(nonce)))
                rest = data[nonce_start:] if nonce_start >= 0 else b""
                yield data[:nonce_start] if nonce_start >= 0 else data
            while not tail.endswith(b"\0"):
                if not (more := await self._receive(output)):
                    raise SandboxError(f"The sandbox of `{argv[0]}` ended.")
                tail += more
            yield rest
            code, _, errors = tail.strip(b" \0").partition(b" ")
            self.exit_code, self.errors = int(code), errors.decode(errors="replace").strip()
        finally:
            self.is_busy = False
            if output >= 0:
                asyncio.get_running_loop().remove_reader(output)
            if self.exit_code is None:
                self.close()

    async def _receive(self, output: int) -> bytes:
        while True:
            try:
                return os.read(output, _CHUNK)
            except BlockingIOError:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """Stop the sandbox; idempotent."""
        if self._stop is not None:
            self._stop()
        self._stop = self._channels = None

    def _start(self) -> tuple[socket.socket, int]:
        """Return the request socket and the answer pipe, which is faster than a socket for small data."""
        if self._channels is not None:
            return self._channels
        argv = ("bash", "--noprofile", "--norc", "-c", _SCRIPT)
        launch = self._sandbox.launch(argv, workspace=self._workspace, readable=self._readable)
        ours, theirs = socket.socketpair()
        output, theirs_out = os.pipe2(os.O_CLOEXEC)
        try:
            process = subprocess.Popen(
                launch.argv,
                env=dict(launch.env),
                stdin=theirs.fileno(),
                stdout=theirs_out,
                stderr=theirs_out,
                start_new_session=True,
            )
        except BaseException:  # any error: no other code knows of our two ends
            ours.close()
            os.close(output)
            raise
        finally:
            theirs.close()
            os.close(theirs_out)
        ours.settimeout(0)
        os.set_blocking(output, False)
        with contextlib.suppress(OSError):  # this user's pipes may hold no more together; see pipe(7)
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE)
        self._channels = (ours, output)
        self._stop = weakref.finalize(self, _kill, process, ours, output, os.getpid())
        return self._channels


def _kill(process: subprocess.Popen[bytes], connection: socket.socket, output: int, owner: int) -> None:
    connection.close()
    os.close(output)
    if os.getpid() == owner:  # and not a fork of it, which ends
        end(process)
        process.wait()
