"""Runs trusted programs one after the other in a sandbox that is started once.

A fresh sandbox costs about 10 ms, which is as long as a search of a thousand files. A few lines of bash stay in this
one and start what they are told. No code of the agent ever runs in it; what it protects from are links and directories
that the agent's code swaps while a program reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import subprocess
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from agent_runtime.errors import SandboxError
from agent_runtime.sandbox.protocol import Sandbox

_SCRIPT = r"""
while IFS=' ' read -r -d '' nonce count most; do
  mapfile -t -d '' -n "$count" words
  if [[ $most ]]; then
    "${words[@]}" </dev/null 2>/tmp/errors | head -c "$most"
  else
    "${words[@]}" </dev/null 2>/tmp/errors
  fi
  code=${PIPESTATUS[0]} said=
  if [[ -s /tmp/errors ]]; then said=$(</tmp/errors); fi
  printf '%s %s %s\0' "$nonce" "$code" "${said:0:4000}"
done
"""
_CHUNK = 1 << 16
_LAST_WORDS = 2_000


class Resident:
    """Starts with the first program, and again after one was stopped. Use it from the main thread.

    Attributes:
        errors: what the last program wrote to standard error, its first 4,000 characters.
        exit_code: of the last program; None when it was stopped.
    """

    def __init__(self, sandbox: Sandbox, workspace: Path, readable: Mapping[str, Path]) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._readable = readable
        self._socket: socket.socket | None = None
        self._end: weakref.finalize[..., Resident] | None = None
        self.busy = False
        self.errors = ""
        self.exit_code: int | None = None

    async def run(self, argv: Sequence[str], *, most: int | None = None) -> AsyncGenerator[bytes]:
        """Run a program and give what it writes, in pieces; leaving the iteration early stops the sandbox.

        Args:
            argv: the program and its arguments.
            most: bytes of output after which it is stopped; None for all of it.

        Raises:
            SandboxError: the sandbox cannot be started, or it ended.
        """
        self.busy, self.errors, self.exit_code = True, "", None
        try:
            connection = self._start()
            nonce = secrets.token_hex(16).encode()
            head = f"{nonce.decode()} {len(argv)} {'' if most is None else most}"
            words = [head.encode(), *(word.encode(errors="surrogateescape") for word in argv)]
            loop = asyncio.get_running_loop()
            with contextlib.suppress(ConnectionError):  # reading will tell
                await loop.sock_sendall(connection, b"".join(word + b"\0" for word in words))
            rest, end, last = b"", b"", b""
            while True:
                data = rest + await _receive(loop, connection)
                if len(data) == len(rest):
                    said = (last + rest).decode(errors="replace").strip()
                    raise SandboxError(f"The sandbox of `{argv[0]}` ended. It said: {said or 'nothing'}")
                at = data.find(nonce)
                if at >= 0:
                    rest, end = data[:at], data[at + len(nonce) :]
                    break
                # The nonce may be cut in two.
                rest = data[-len(nonce) :]
                last = (last + data[: -len(nonce)])[-_LAST_WORDS:]
                yield data[: -len(nonce)]
            while not end.endswith(b"\0"):
                if not (more := await _receive(loop, connection)):
                    raise SandboxError(f"The sandbox of `{argv[0]}` ended.")
                end += more
            yield rest
            code, _, errors = end.strip(b" \0").partition(b" ")
            self.exit_code, self.errors = int(code), errors.decode(errors="replace").strip()
        finally:
            self.busy = False
            if self.exit_code is None:
                self.close()

    def close(self) -> None:
        """Stop what runs, and the sandbox; idempotent."""
        if self._end is not None:
            self._end()
        self._end = self._socket = None

    def _start(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        argv = ("bash", "--noprofile", "--norc", "-c", _SCRIPT)
        launch = self._sandbox.launch(argv, workspace=self._workspace, readable=self._readable)
        ours, theirs = socket.socketpair()
        with theirs:
            standard = theirs.fileno()
            process = subprocess.Popen(
                launch.argv,
                env=dict(launch.env),
                stdin=standard,
                stdout=standard,
                stderr=standard,
                start_new_session=True,
            )
        ours.settimeout(0)
        self._socket = ours
        self._end = weakref.finalize(self, _kill, process, ours)
        return ours


async def _receive(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    try:
        return await loop.sock_recv(connection, _CHUNK)
    except ConnectionError:
        return b""


def _kill(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    process.kill()
    process.wait()
