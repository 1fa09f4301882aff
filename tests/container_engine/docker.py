"""A stand-in for `docker` where there is no engine: its containers are bubblewrap's, its images are directories' names.

It understands what `agent_runtime.sandbox.container` says, refuses every other option, and keeps a note of every call.
`$STAND_IN/info.json` is what it says of itself; `$STAND_IN/images/` has a file for each image.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

HOME = Path(sys.argv.pop(1))
FLAGS = {"--rm", "--interactive", "--init", "--no-healthcheck", "--read-only", "--tty", "--force", "--volumes"}
FLAGS |= {"--all", "--quiet", "--no-trunc"}
VALUES = {"--pull", "--name", "--label", "--log-driver", "--hostname", "--network", "--ipc", "--cap-drop", "--user"}
VALUES |= {"--security-opt", "--userns", "--memory", "--memory-swap", "--pids-limit", "--cpus", "--oom-score-adj"}
VALUES |= {"--ulimit", "--shm-size", "--tmpfs", "--mount", "--workdir", "--env", "--entrypoint", "--detach-keys"}
VALUES |= {"--filter", "--format"}


def parse(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options by name, and what follows them."""
    given: dict[str, list[str]] = {}
    while words and words[0].startswith("--"):
        name = words.pop(0)
        if name in FLAGS:
            given[name] = [""]
        elif name in VALUES:
            given.setdefault(name, []).append(words.pop(0))
        else:
            sys.exit(f"unknown flag: {name}")
    return given, words


def run(given: dict[str, list[str]], rest: list[str]) -> int:
    """Start a container, and stay until it ends."""
    from agent_runtime.sandbox.bubblewrap import Bubblewrap  # noqa: PLC0415 - takes longer than the other verbs
    from agent_runtime.sandbox.protocol import SandboxSettings  # noqa: PLC0415 - the same

    image, *args = rest
    if not (HOME / "images" / image).exists():
        sys.stderr.write(f"Unable to find image '{image}' locally" + "\n")
        return 125
    mounts = [dict(each.partition("=")[::2] for each in mount.split(",")) for mount in given["--mount"]]
    note = HOME / "containers" / given.get("--name", [secrets.token_hex(8)])[0]
    (note / "nothing").mkdir(parents=True)
    workspace = next((Path(mount["source"]) for mount in mounts if mount["target"] == "/workspace"), note / "nothing")
    readable = {mount["target"]: Path(mount["source"]) for mount in mounts if "readonly" in mount}
    python = Path(sys.base_prefix)
    shown = () if python.is_relative_to("/usr") else (python,)
    environment = dict(each.partition("=")[::2] for each in given["--env"])
    environment.pop("PATH", None)
    sandbox = Bubblewrap(SandboxSettings(read_only=shown, environment=environment))
    (note / "label").write_text(given["--label"][0].partition("=")[2])
    with socket.socket(socket.AF_UNIX) as listener:
        with near(note) as socket_path:
            listener.bind(socket_path)
        listener.listen()
        inside = ["/inside.py", str(listener.fileno()), given["--entrypoint"][0], *args]
        launch = sandbox.launch(
            [os.path.realpath(sys.executable), "-I", *inside],
            workspace=workspace,
            readable={**readable, "/inside.py": Path(__file__).with_name("inside.py")},
        )
        process = subprocess.Popen(launch.argv, env=dict(launch.env), pass_fds=[listener.fileno()])
    (note / "pid").write_text(str(process.pid))
    code = process.wait()
    remove(note.name)
    return code if code >= 0 else 137


def execute(given: dict[str, list[str]], rest: list[str]) -> int:
    """Start a program in a container, and pass its streams on."""
    name, *argv = rest
    with_tty = "--tty" in given
    master, slave = pty.openpty() if with_tty else (-1, -1)
    asked = {"argv": argv, "tty": with_tty, "env": dict(each.partition("=")[::2] for each in given.get("--env", []))}
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with near(HOME / "containers" / name) as socket_path:
                connection.connect(socket_path)
        except OSError:
            sys.stderr.write(f"Error response from daemon: No such container: {name}" + "\n")
            return 1
        socket.send_fds(connection, [json.dumps(asked).encode()], [slave] * 3 if with_tty else [0, 1, 2])
        if with_tty:
            os.close(slave)
            tty.setraw(0, termios.TCSANOW)
            pass_on(master, connection)
        return int(connection.recv(16) or b"137")


@contextlib.contextmanager
def near(note: Path) -> Iterator[str]:
    """The path of a container's socket, short enough for the 107 characters that a socket's may have."""
    directory = os.open(note, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{directory}/socket"
    finally:
        os.close(directory)


def pass_on(master: int, connection: socket.socket) -> None:
    """Bytes between our terminal and the container's, until the program ends."""
    while True:
        ready, _, _ = select.select([0, master, connection.fileno()], [], [])
        if 0 in ready:
            if not (typed := os.read(0, 1 << 16)):
                return
            os.write(master, typed)
        if master in ready:
            try:
                os.write(1, os.read(master, 1 << 16))
            except OSError:
                return
        elif connection.fileno() in ready:
            return


def inspect(note: Path, what: str) -> str:
    """The label of a container, or its first process: the one that bubblewrap starts in it."""
    if "State.Pid" not in what:
        return (note / "label").read_text()
    outer = (note / "pid").read_text()
    return Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]


def remove(name: str) -> int:
    """End a container."""
    note = HOME / "containers" / name
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((note / "pid").read_text()), signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(note)
    return 0


def main() -> int:
    """One call of the command line."""
    verb, *words = sys.argv[1:]
    with (HOME / "calls").open("a") as calls:
        calls.write(json.dumps([verb, *words]) + "\n")
    if [verb, *words[:1]] == ["image", "inspect"]:
        there = (HOME / "images" / words[-1]).exists()
        sys.stdout.write('["PATH=/usr/local/bin:/usr/bin:/bin"]' if there else "[]")
        return 0 if there else 1
    given, rest = parse(words)
    match verb:
        case "info":
            sys.stdout.write((HOME / "info.json").read_text() + "\n")
        case "ps":
            sys.stdout.write("\n".join(each.name for each in (HOME / "containers").iterdir()) + "\n")
        case "inspect":
            sys.stdout.write(inspect(HOME / "containers" / rest[0], given["--format"][0]) + "\n")
        case "run":
            return run(given, rest)
        case "exec":
            return execute(given, rest)
        case "rm":
            return remove(rest[0])
        case _:
            sys.exit(f"unknown command: {verb}")
    return 0


sys.exit(main())
