"""The stand-in's first program in a container: starts the container's own, and later what `exec` asks for.

It gets a listening socket by inheritance. Each request is one message: JSON, and the three standard streams.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import termios
import threading


def _answer(connection: socket.socket) -> None:
    with connection:
        data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        asked = json.loads(data)

        def take_terminal() -> None:
            if asked["tty"]:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        try:
            process = subprocess.Popen(
                asked["argv"],
                env={**os.environ, **asked["env"]},
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,
                preexec_fn=take_terminal,  # noqa: PLW1509 - a stand-in for tests
            )
        except OSError:
            connection.sendall(b"127")
            return
        finally:
            for stream in streams:
                os.close(stream)
        code = process.wait()
        connection.sendall(str(code if code >= 0 else 128 - code).encode())


def main() -> None:
    """Serve until the container's own program ends."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    own = subprocess.Popen(sys.argv[2:])

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    code = own.wait()
    os._exit(code if code >= 0 else 128 - code)


main()
