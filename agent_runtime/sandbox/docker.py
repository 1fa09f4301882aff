"""A container per job, by the command line of `docker` or `podman`; for machines where bubblewrap cannot work.

The container has no network, no capabilities, no engine's socket and nothing of the host but the workspace. Its user is
the caller, never root. It lives as long as somebody holds its standard input open: the end of the bot, however it
comes, is the end of the container. Leftovers of an engine are removed at the next start.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_runtime.core.errors import SandboxError
from agent_runtime.processes.identity import machine, started
from agent_runtime.processes.user_directories import home
from agent_runtime.sandbox import engine
from agent_runtime.sandbox.libraries import libraries_of
from agent_runtime.sandbox.protocol import WORKSPACE, ContainerSettings, Launch, SandboxSettings
from agent_runtime.sandbox.temporary import Temporary

READY = "codepilot: ready"
"""What a container's first program says when it is there."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOLD = ("sh", "-c", f'echo "{READY}"; exec cat >/dev/null')
"""Ends with its standard input, which is ours; everything in the container ends with it."""

_LOOK = """
read -r token <token && echo "token $token" && echo made >answer
while read -r name value; do echo "$name $value"; done </proc/self/status
if ( : >/outside ) 2>/dev/null; then echo "writable /"; fi
command -v cat stty >/dev/null && echo "programs there"
"""
_WANTED = {"CapEff:": "0000000000000000", "NoNewPrivs:": "1", "Seccomp:": "2", "programs": "there"}
"""What a program inside must find of itself (proc(5)); the engine's word alone is not believed."""

_ENGINE_SECONDS, _PROBE_SECONDS = 30.0, 120.0


class Docker:
    """Runs programs in containers of one image. See `Sandbox`.

    Attributes:
        limits: bounds of each container.
    """

    level = "docker"
    apart = True

    def __init__(self, settings: SandboxSettings, *, user: tuple[int, int] | None = None) -> None:
        """Take the settings; nothing is started yet.

        Args:
            settings: what to show and bound; `container` must be there.
            user: ids of the user and group inside; the caller's by default.

        Raises:
            SandboxError: no image is named, the caller is root, or this is Windows.
        """
        if settings.container is None:
            raise SandboxError(
                "sandbox: `docker` needs an image to run programs in; name it, preferably by digest "
                "(`docker_image` in an agent file, CODEPILOT_DOCKER_IMAGE for the bot, `container` of SandboxSettings)."
            )
        if sys.platform == "win32":
            raise SandboxError("sandbox: `docker` is for Linux and macOS. On Windows, run this in WSL.")
        caller = (os.geteuid(), os.getegid())
        if user is None and caller[0] == 0:
            raise SandboxError(
                "sandbox: `docker` does not run programs as root, and you are root. "
                "Run this as an ordinary user with access to the engine."
            )
        self._settings = settings
        self._container: ContainerSettings = settings.container
        self.limits = settings.limits
        self._user = user or caller
        self._known: tuple[engine.Engine, str] | None = None
        self._good = False
        self._scripts: Temporary | None = None
        self._enclosed: dict[Path, Path] = {}

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        first: bool = False,  # noqa: ARG002 - it always is, below the engine's own
    ) -> Launch:
        """How to start `argv` in a container of its own, in `/workspace`.

        Killing what this starts does not end the container before `argv` ends or reads the end of its input; what must
        end with us is started in a `hold`.

        Raises:
            SandboxError: the engine or the image is missing, or a directory does not exist.
        """
        return self._command([*self._run(new_name(), workspace, readable or {}), *engine.program(self._image, argv)])

    def hold(self, name: str, *, workspace: Path, readable: Mapping[str, Path]) -> Launch:
        """How to start a container to `execute` in; it says `READY`, and ends with its standard input.

        Raises:
            SandboxError: as for `launch`.
        """
        return self._command([*self._run(name, workspace, readable), *engine.program(self._image, _HOLD)])

    def execute(self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], tty: bool) -> Launch:
        """How to start a program in a container that is held, on a terminal of its own or not."""
        return self._command(engine.execute(name, argv, environment=environment, tty=tty))

    def process_of(self, name: str) -> int:
        """The id of the first process of a container that is held, as this machine counts.

        Raises:
            SandboxError: the engine does not say; the container ended, or runs on another machine.
        """
        done = _ask(self._command(["inspect", "--format", "{{.State.Pid}}", name]))
        if done.returncode != 0 or not done.stdout.strip().isdecimal() or int(done.stdout) == 0:
            raise SandboxError(f"The container {name} has ended, or has no process on this machine. {_said(done)}")
        return int(done.stdout)

    def remove(self, name: str) -> Launch:
        """How to end a container and everything in it at once; nothing happens when it is gone."""
        return self._command(["rm", "--force", "--volumes", name])

    def enclosed(self, program: Path) -> Path:
        """Write a program that starts `program` alone in a container, with the arguments and streams it is given.

        The file goes with this process.

        Raises:
            SandboxError: the engine or the image is missing, or `program` cannot be started here.
        """
        if (written := self._enclosed.get(program)) is not None and written.exists():
            return written
        known, _ = self._engine()
        job = engine.ContainerJob(name="", owner=owner(), user=self._user, workspace=None, readable={})
        command = self._command(engine.alone(job, self._container, known, program, sorted(libraries_of(program))))
        self._scripts = self._scripts or Temporary("codepilot-docker-")
        script = self._scripts.path / f"enclosed-{secrets.token_hex(4)}"
        variables = [f"{name}={value}" for name, value in command.env.items()]
        script.write_text(f'#!/bin/sh\nexec env -i {shlex.join([*variables, *command.argv])} "$@"\n', encoding="utf-8")
        script.chmod(0o700)
        self._enclosed[program] = script
        return script

    def seen_as(self, workspace: Path) -> str:  # noqa: ARG002 - the same for every workspace, on purpose
        """Always `/workspace`."""
        return WORKSPACE

    def probe(self) -> None:
        """Start a container with the full argument list, once, and look at it from inside; removes what is left over.

        Raises:
            SandboxError: it did not start, or is not closed; the text says how to fix it.
        """
        if self._good:
            return
        self._engine()
        # Containers whose owner is dead. What cannot be removed is left to the engine and the next start.
        listed = _ask(self._command(["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={engine.OWNER}"]))
        for identity in listed.stdout.split():
            label = f'{{{{index .Config.Labels "{engine.OWNER}"}}}}'
            shown = _ask(self._command(["inspect", "--format", label, identity]))
            if shown.returncode == 0 and is_dead(shown.stdout.strip()):
                _ask(self.remove(identity))
        with Temporary("codepilot-probe-") as directory:
            token = secrets.token_hex(8)
            (directory.path / "token").write_text(f"{token}\n")
            directory.path.chmod(0o755)
            launch = self.launch(["bash", "-c", _LOOK], workspace=directory.path)
            done = _ask(launch, seconds=_PROBE_SECONDS)
            if done.returncode != 0:
                raise SandboxError(
                    f"`{self._container.program}` could not start a container of {self._image} "
                    f"(exit code {done.returncode}): {_said(done)}"
                )
            written = (directory.path / "answer").exists()
        found = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line.strip())
        if found.get("token") != token or not written:
            raise SandboxError(
                f"A container of {self._image} cannot read and write the workspace as user {self._user[0]}. The engine "
                "must run on this machine, see the same files as the bot, and map no users (no userns-remap; podman "
                "instead of rootless Docker)."
            )
        wrong = [f"{name} {found.get(name)}" for name, value in _WANTED.items() if found.get(name, "").strip() != value]
        wrong += ["its root is writable"] if "writable" in found else []
        if wrong:
            raise SandboxError(
                f"A container of {self._image} is not isolated as required: {'; '.join(wrong)}. Restore the engine's "
                "default seccomp profile, and use an image with bash, cat and stty."
            )
        self._good = True

    @property
    def _image(self) -> str:
        return self._container.image

    def _run(self, name: str, workspace: Path, readable: Mapping[str, Path]) -> list[str]:
        self._settings.check(workspace)
        known, path = self._engine()
        job = engine.ContainerJob(
            name=name, owner=owner(), user=self._user, workspace=workspace.resolve(), readable=readable
        )
        return engine.run(self._settings, self._container, known, job, path)

    def _command(self, words: Sequence[str]) -> Launch:
        program = shutil.which(self._container.program)
        if program is None:
            raise SandboxError(
                f"sandbox: the program `{self._container.program}` is missing; install Docker or podman, "
                "or name the one that is there (the bot's setting CODEPILOT_DOCKER_PROGRAM)."
            )
        # Without a configuration of its own the command line passes no proxy, and no password in its address, inside.
        own = str(home("The container engine does not answer", kind=SandboxError))
        env = {"PATH": _PATH, "HOME": own, "DOCKER_CONFIG": "/nonexistent"}
        if (private := Path(f"/run/user/{os.getuid()}")).is_dir():
            env["XDG_RUNTIME_DIR"] = str(private)
        return Launch(argv=(program, *words), env=env)

    def _engine(self) -> tuple[engine.Engine, str]:
        """What the engine is, and the image's `PATH`; asked once.

        Raises:
            SandboxError: the engine does not answer or lacks a protection, or the image is not there.
        """
        if self._known is not None:
            return self._known
        program = self._container.program
        done = _ask(self._command(["info", "--format", "{{json .}}"]))
        if done.returncode != 0:
            raise SandboxError(f"`{program}` cannot reach its engine; start it, or use another sandbox. {_said(done)}")
        known = engine.engine_of(_parsed(done.stdout, program))
        if known.lacks:
            raise SandboxError(
                f"`{program}` would run containers without {', '.join(known.lacks)}. Turn this on in the engine "
                "(delegate the cgroup controllers memory, pids and cpu; use the default seccomp profile), or use "
                "another sandbox."
            )
        done = _ask(self._command(["image", "inspect", "--format", "{{json .Config.Env}}", self._image]))
        if done.returncode != 0:
            raise SandboxError(
                f"The image {self._image} is not on this machine, and images are never pulled automatically. "
                f"Fetch it: {program} pull {self._image}\n{_said(done)}"
            )
        variables = dict(str(each).partition("=")[::2] for each in _parsed(done.stdout, program) or ())
        self._known = known, variables.get("PATH") or _PATH
        return self._known


def owner() -> str:
    """This process, in a word that no other process ever has: boot, namespace of process ids, id, time of its start."""
    return ".".join([*machine().split(), str(os.getpid()), started(os.getpid()) or "0"])


def is_dead(label: str) -> bool:
    """Whether the process that a container was for is known to be gone."""
    boot, namespace, pid, since = (*label.split("."), "", "", "", "")[:4]
    here = machine().split()
    if not pid.isdecimal() or not here:
        return False
    return boot != here[0] or (namespace == here[1] and started(int(pid)) != since)


def new_name() -> str:
    """A name for a container."""
    return f"codepilot-{secrets.token_hex(8)}"


def _ask(launch: Launch, *, seconds: float = _ENGINE_SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            launch.argv,
            env=dict(launch.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(
            f"`{Path(launch.argv[0]).name} {launch.argv[1]}` did not end within {seconds:g} seconds; "
            "check the container engine."
        ) from None
    except OSError as error:
        raise SandboxError(f"`{launch.argv[0]}` cannot be started: {error.strerror}.") from error


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return f"It said: {done.stderr.strip() or 'nothing'}"


def _parsed(text: str, program: str) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return json.loads(text)
    except ValueError as error:
        raise SandboxError(
            f"`{program}` answered with something other than JSON: {text[:200]!r}; update it."
        ) from error
