"""Choose the sandbox; never a weaker one than was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import shlex
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent_runtime.core.errors import SandboxError, SettingsError
from agent_runtime.core.values import Connection, Network
from agent_runtime.processes.spawn import end as end_program
from agent_runtime.processes.spawn import home
from agent_runtime.sandbox.bubblewrap import Bubblewrap, find, namespaces, shared_files
from agent_runtime.sandbox.container import Docker
from agent_runtime.sandbox.protocol import Launch, Sandbox, SandboxLimits, SandboxSettings, libraries_of

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress


# ---- No sandbox: programs run as the user who started us, with a cleared environment. For users of the library
# only.


_WINDOWS = (
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "PATHEXT",
    "PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PSMODULEPATH", "SYSTEMDRIVE",
    "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""Variables without which programs of Windows do not run."""
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Local:
    """Protects nothing: the program can do whatever its user can. The bot refuses it; see `level`."""

    level = "none"
    apart = False

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> SandboxLimits:
        """Those of the settings; nothing keeps them here."""
        return self._settings.limits

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,  # noqa: ARG002 - everything can be read here, at its own path
        first: bool = False,  # noqa: ARG002 - there is no first process here
    ) -> Launch:
        """How to start `argv` in `workspace`, on the host itself; of the settings, only path and environment count.

        Raises:
            SandboxError: the workspace does not exist, or this user has no home directory.
        """
        if not workspace.is_dir():
            raise SandboxError(
                f"The workspace {workspace} is not a directory; create it before starting programs in it."
            )
        if sys.platform == "win32":
            # By expansion, because it knows Windows' own variables and gives nothing else of the environment.
            known = {name: os.path.expandvars(f"%{name}%") for name in (*_WINDOWS, "PATH")}
            kept = {name: value for name, value in known.items() if value != f"%{name}%"}
            path = os.pathsep.join([*map(str, self._settings.path), kept.get("PATH", "")])
            return Launch(argv=tuple(argv), env={**kept, **self._settings.environment, "PATH": path})
        path = ":".join([*map(str, self._settings.path), *_PATH])
        own = str(home("Programs cannot be started", kind=SandboxError))
        env = {"PATH": path, "HOME": own, "LANG": "C.UTF-8", "TERM": "dumb", **self._settings.environment}
        return Launch(argv=("/bin/sh", "-c", 'cd -- "$0" && exec "$@"', str(workspace), *argv), env=env)

    def seen_as(self, workspace: Path) -> str:
        """Its own path."""
        return str(workspace)

    def probe(self) -> None:
        """Nothing to try: what starts programs here is the system itself."""


SandboxName = Literal["auto", "bubblewrap", "docker", "local"]


def pick(name: SandboxName, settings: SandboxSettings) -> Sandbox:
    """A sandbox that was tried and works. `auto` is bubblewrap, else `docker` if an image is named, never `local`.

    Raises:
        SettingsError: there is no sandbox of that name.
        SandboxError: it does not work on this machine; the text says how to fix it.
    """
    match name:
        case "auto":
            return _best(settings)
        case "bubblewrap":
            return _tried(_bubblewrap(settings))
        case "docker":
            return _tried(Docker(settings))
        case "local":
            return _tried(Local(settings))
        case _:
            raise SettingsError(f"sandbox: {name!r} is not known; use `auto`, `bubblewrap`, `docker` or `local`.")


def _best(settings: SandboxSettings) -> Sandbox:
    try:
        return _tried(_bubblewrap(settings))
    except SandboxError as refused:
        if settings.container is None:
            raise
        try:
            return _tried(Docker(settings))
        except SandboxError as also:
            raise SandboxError(f"No sandbox works here. `bubblewrap`: {refused}\n`docker`: {also}") from also


def _bubblewrap(settings: SandboxSettings) -> Sandbox:
    if sys.platform != "linux":
        raise SandboxError(
            "sandbox: bubblewrap is for Linux. Run this in a Linux container or in WSL; name an image for the sandbox "
            "`docker`; or select `local`, which isolates nothing: programs can do what you can."
        )
    return Bubblewrap(settings)


def _tried(sandbox: Sandbox) -> Sandbox:
    sandbox.probe()
    return sandbox


pick_sandbox = pick
"""Its name among all that is public."""


# ---- One program alone: a sandbox in which there is nothing but its file and the libraries that it loads.


_LIMITS = (f"--as={4 * 1024**3}", "--nproc=64", "--fsize=0", "--nofile=64", "--core=0")
"""As prlimit(1) takes them; address space in bytes. Set inside, where the processes are this sandbox's own."""
_INSIDE = "/program"


def enclosing(sandbox: Sandbox) -> Callable[[Path], Path] | None:
    """What writes such a program by the means of `sandbox`; None for one that protects nothing, or cannot here."""
    if isinstance(sandbox, Docker):
        return sandbox.enclosed if sys.platform == "linux" else None  # containers run programs of Linux
    return enclosed if sandbox.level == "bubblewrap" else None


def enclosed(program: Path) -> Path:
    """Write a program that starts `program` alone in a sandbox, with the arguments and standard streams it is given.

    What it starts dies with the thread that started it. The file goes with this process; for one program it is always
    the same.

    Raises:
        SandboxError: `program`, or one that the sandbox is made with, cannot be started here.
    """
    name = f"enclosed-{program.name}-{hashlib.sha256(bytes(program)).hexdigest()[:8]}"
    script = shared_files() / name
    if not script.exists():
        # Another thread may start it at any moment: it is whole from the first.
        half = script.with_name(f"{name}-{secrets.token_hex(4)}")
        half.write_text(f'#!{find("sh", "dash")}\nexec {shlex.join(_command(program))} "$@"{_opening_filter()}\n')
        half.chmod(0o700)
        half.replace(script)
    return script


def _command(program: Path) -> list[str]:
    limiter = find("prlimit", "util-linux")
    libraries = sorted(libraries_of(program) | libraries_of(Path(limiter)))
    options = [*namespaces(), "--new-session", "--clearenv", "--ro-bind", str(program), _INSIDE]
    for place in (limiter, *libraries):
        options += ["--ro-bind", place, place]
    # The loader's own table of libraries stays outside.
    directories = sorted({str(Path(library).parent) for library in libraries})
    options += ["--setenv", "LD_LIBRARY_PATH", ":".join(directories), "--remount-ro", "/", "--chdir", "/"]
    if _opening_filter():
        options += ["--seccomp", "9"]
    return [find("bwrap", "bubblewrap"), *options, "--", limiter, *_LIMITS, "--", _INSIDE]


def _opening_filter() -> str:
    """What to add to a shell's command so that bubblewrap finds the filter at descriptor 9."""
    place = shared_files() / "filter"
    return f" 9<{shlex.quote(str(place))}" if place.exists() else ""


# ---- The network of a sandbox: made only if it is allowed and the sandbox can enforce the list of hosts.


def way_out(
    sandbox: Sandbox, network: Network, *, told: Callable[[Connection], None], lost: Callable[[str], None]
) -> Egress | None:
    """The way out of a sandbox, or None when there is to be no network.

    Args:
        sandbox: where programs run.
        network: what they may reach.
        told: called with each connection once it is over or was refused.
        lost: called with the reason when the network goes away.

    Raises:
        SettingsError: the sandbox keeps nothing from the network.
    """
    if not network:
        return None
    if sandbox.level != "bubblewrap":
        raise SettingsError(
            f"network: a sandbox of the level {sandbox.level!r} cannot enforce a list of hosts. "
            "Use the sandbox `bubblewrap`, or remove the network."
        )
    from agent_runtime.sandbox.egress import Egress  # noqa: PLC0415 - few runs have a network

    return Egress(network, told=told, lost=lost)


# ---- Runs trusted programs one after the other in a sandbox that is started once.


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
_LAST_WORDS = 2_000
_RARE = b"\x1e"
"""What a nonce begins with; text seldom holds it."""


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
        self._ends: tuple[socket.socket, int] | None = None
        self._stop: weakref.finalize[..., Resident] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.busy = False
        self.errors = ""
        self.exit_code: int | None = None

    async def run(self, argv: Sequence[str]) -> AsyncGenerator[bytes]:
        """Run a program and give what it writes, in pieces; leaving the iteration early stops the sandbox.

        Raises:
            SandboxError: the sandbox cannot be started, or it ended.
        """
        self.busy, self.errors, self.exit_code = True, "", None
        output = -1
        try:
            connection, output = self._start()
            nonce = _RARE + secrets.token_hex(16).encode()
            words = [b"%s %d" % (nonce, len(argv)), *(word.encode(errors="surrogateescape") for word in argv)]
            loop = asyncio.get_running_loop()
            loop.add_reader(output, self._wake)
            with contextlib.suppress(ConnectionError):  # reading will tell
                await loop.sock_sendall(connection, b"".join(word + b"\0" for word in words))
            rest, end, last = b"", b"", b""
            while True:
                more = await self._receive(output)
                data = rest + more if rest else more
                last = more[-_LAST_WORDS:] if len(more) >= _LAST_WORDS else (last + more)[-_LAST_WORDS:]
                if not more:
                    said = last.decode(errors="replace").strip()
                    raise SandboxError(f"The sandbox of `{argv[0]}` ended. It said: {said or 'nothing'}")
                at = data.find(nonce)
                if at >= 0:
                    rest, end = data[:at], data[at + len(nonce) :]
                    break
                # The nonce may be cut in two; large pieces are copied only where it may be.
                held = data.rfind(_RARE, max(0, len(data) - len(nonce)))
                rest = data[held:] if held >= 0 else b""
                yield data[:held] if held >= 0 else data
            while not end.endswith(b"\0"):
                if not (more := await self._receive(output)):
                    raise SandboxError(f"The sandbox of `{argv[0]}` ended.")
                end += more
            yield rest
            code, _, errors = end.strip(b" \0").partition(b" ")
            self.exit_code, self.errors = int(code), errors.decode(errors="replace").strip()
        finally:
            self.busy = False
            if output >= 0:
                asyncio.get_running_loop().remove_reader(output)
            if self.exit_code is None:
                self.close()

    async def _receive(self, output: int) -> bytes:
        """What there is to read; nothing at the end."""
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
        """Stop what runs, and the sandbox; idempotent."""
        if self._stop is not None:
            self._stop()
        self._stop = self._ends = None

    def _start(self) -> tuple[socket.socket, int]:
        """Where requests go in, and where answers come out: a pipe, which for small pieces is faster than a socket."""
        if self._ends is not None:
            return self._ends
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
        except BaseException:  # whatever it was, nobody else knows of our two ends
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
        self._ends = (ours, output)
        self._stop = weakref.finalize(self, _kill, process, ours, output, os.getpid())
        return self._ends


def _kill(process: subprocess.Popen[bytes], connection: socket.socket, output: int, owner: int) -> None:
    connection.close()
    os.close(output)
    if os.getpid() == owner:  # and not a fork of it, which ends
        end_program(process)
        process.wait()
