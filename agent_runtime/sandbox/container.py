"""A container per job, by the command line of `docker` or `podman`; for machines where bubblewrap cannot work.

The container has no network, no capabilities, no engine's socket and nothing of the host but the workspace. Its user is
the caller, never root. It lives as long as somebody holds its standard input open: the end of the bot, however it
comes, is the end of the container. Leftovers of an engine are removed at the next start.

`Docker` runs the engine. The functions below it make the engine's arguments, which `docker` and `podman` share:
https://docs.docker.com/reference/cli/docker/container/run/ and podman-run(1).
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_runtime.core.errors import SandboxError
from agent_runtime.processes.spawn import home, machine, start_time
from agent_runtime.sandbox.protocol import (
    HOME,
    WORKSPACE,
    ContainerSettings,
    FixedPath,
    Launch,
    SandboxLimits,
    SandboxSettings,
    Temporary,
    libraries_of,
)

READY = "codepilot: ready"
"""The first line of output of a container that is held."""

OWNER = "codepilot.owner"
"""The label that says which process a container is for."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_HOLD = ("sh", "-c", f'echo "{READY}"; exec cat >/dev/null')
"""Ends with its standard input, which is ours; everything in the container ends with it."""

_PROBE_SCRIPT = """
read -r token <token && echo "token $token" && echo made >answer
while read -r name value; do echo "$name $value"; done </proc/self/status
if ( : >/outside ) 2>/dev/null; then echo "writable /"; fi
command -v cat stty >/dev/null && echo "programs there"
"""

_WANTED = {"CapEff:": "0000000000000000", "NoNewPrivs:": "1", "Seccomp:": "2", "programs": "there"}
"""The facts that a program inside must find about itself (proc(5)); the engine's word alone is not believed."""

_ENGINE_SECONDS, _PROBE_SECONDS = 30.0, 120.0


class Docker:
    """Runs programs in containers of one image. See `Sandbox`.

    Attributes:
        limits: bounds of each container.
        git_writable: whether programs may make and change git repositories in the workspace.
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
        self.git_writable = settings.git_writable
        self._user = user or caller
        self._known: tuple[Engine, str] | None = None
        self._good = False
        self._scripts: Temporary | None = None
        self._enclosed: dict[Path, Path] = {}

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        fixed: Sequence[FixedPath] = (),
        first: bool = False,  # noqa: ARG002 - it always is, below the engine's own
    ) -> Launch:
        """Prepare to start `argv` in a container of its own, in `/workspace`.

        Killing what this starts does not end the container before `argv` ends or reads the end of its input; start a
        program that must end with us in a `hold`.

        Raises:
            SandboxError: the engine or the image is missing, or a directory does not exist.
        """
        return self._command([*self._run(new_name(), workspace, readable or {}, fixed), *program(self._image, argv)])

    def hold(
        self, name: str, *, workspace: Path, readable: Mapping[str, Path], fixed: Sequence[FixedPath] = ()
    ) -> Launch:
        """Prepare to start a container to `execute` in; it says `READY`, and ends with its standard input.

        Raises:
            SandboxError: as for `launch`.
        """
        return self._command([*self._run(name, workspace, readable, fixed), *program(self._image, _HOLD)])

    def execute(self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], tty: bool) -> Launch:
        """Prepare to start a program in a container that is held, on a terminal of its own or not."""
        return self._command(execute(name, argv, environment=environment, tty=tty))

    def process_of(self, name: str) -> int:
        """Return the id of the first process of a container that is held, as this machine counts.

        Raises:
            SandboxError: the engine does not say; the container ended, or runs on another machine.
        """
        done = _run_engine(self._command(["inspect", "--format", "{{.State.Pid}}", name]))
        if done.returncode != 0 or not done.stdout.strip().isdecimal() or int(done.stdout) == 0:
            raise SandboxError(
                f"The container {name} has ended, or has no process on this machine. {_error_output(done)}"
            )
        return int(done.stdout)

    def remove(self, name: str) -> Launch:
        """Prepare to end a container and everything in it at once; nothing happens when it is gone."""
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
        job = ContainerJob(name="", owner=owner(), user=self._user, workspace=None, readable={})
        command = self._command(enclosing_words(job, self._container, known, program, sorted(libraries_of(program))))
        self._scripts = self._scripts or Temporary("codepilot-docker-")
        script = self._scripts.path / f"enclosed-{secrets.token_hex(4)}"
        variables = [f"{name}={value}" for name, value in command.env.items()]
        script.write_text(f'#!/bin/sh\nexec env -i {shlex.join([*variables, *command.argv])} "$@"\n', encoding="utf-8")
        script.chmod(0o700)
        self._enclosed[program] = script
        return script

    def seen_as(self, workspace: Path) -> str:  # noqa: ARG002 - the same for every workspace, on purpose
        """Return `/workspace`, for every workspace."""
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
        listed = _run_engine(self._command(["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={OWNER}"]))
        for identity in listed.stdout.split():
            label = f'{{{{index .Config.Labels "{OWNER}"}}}}'
            shown = _run_engine(self._command(["inspect", "--format", label, identity]))
            if shown.returncode == 0 and is_dead(shown.stdout.strip()):
                _run_engine(self.remove(identity))
        with Temporary("codepilot-probe-") as directory:
            token = secrets.token_hex(8)
            (directory.path / "token").write_text(f"{token}\n")
            directory.path.chmod(0o755)
            launch = self.launch(["bash", "-c", _PROBE_SCRIPT], workspace=directory.path)
            done = _run_engine(launch, seconds=_PROBE_SECONDS)
            if done.returncode != 0:
                raise SandboxError(
                    f"`{self._container.program}` could not start a container of {self._image} "
                    f"(exit code {done.returncode}): {_error_output(done)}"
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

    def _run(self, name: str, workspace: Path, readable: Mapping[str, Path], fixed: Sequence[FixedPath]) -> list[str]:
        self._settings.check(workspace)
        known, path = self._engine()
        place = workspace.resolve()
        job = ContainerJob(
            name=name, owner=owner(), user=self._user, workspace=place, readable=readable, fixed=tuple(fixed)
        )
        return run_words(self._settings, self._container, known, job, path)

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

    def _engine(self) -> tuple[Engine, str]:
        """Return the engine and the image's `PATH`; asked once.

        Raises:
            SandboxError: the engine does not answer or lacks a protection, or the image is not there.
        """
        if self._known is not None:
            return self._known
        program = self._container.program
        done = _run_engine(self._command(["info", "--format", "{{json .}}"]))
        if done.returncode != 0:
            raise SandboxError(
                f"`{program}` cannot reach its engine; start it, or use another sandbox. {_error_output(done)}"
            )
        known = engine_of(_parse_json(done.stdout, program))
        if known.lacks:
            raise SandboxError(
                f"`{program}` would run containers without {', '.join(known.lacks)}. Turn this on in the engine "
                "(delegate the cgroup controllers memory, pids and cpu; use the default seccomp profile), or use "
                "another sandbox."
            )
        done = _run_engine(self._command(["image", "inspect", "--format", "{{json .Config.Env}}", self._image]))
        if done.returncode != 0:
            raise SandboxError(
                f"The image {self._image} is not on this machine, and images are never pulled automatically. "
                f"Fetch it: {program} pull {self._image}\n{_error_output(done)}"
            )
        variables = dict(str(each).partition("=")[::2] for each in _parse_json(done.stdout, program) or ())
        self._known = known, variables.get("PATH") or _PATH
        return self._known


def owner() -> str:
    """Return a word for this process that no other one ever has: boot, namespace of process ids, id, start time."""
    return ".".join([*machine().split(), str(os.getpid()), start_time(os.getpid()) or "0"])


def is_dead(label: str) -> bool:
    """Return whether the process that a container was for is known to be gone."""
    boot, namespace, pid, since = (*label.split("."), "", "", "", "")[:4]
    current = machine().split()
    if not pid.isdecimal() or not current:
        return False
    return boot != current[0] or (namespace == current[1] and start_time(int(pid)) != since)


def new_name() -> str:
    """Make a name for a container."""
    return f"codepilot-{secrets.token_hex(8)}"


def _run_engine(launch: Launch, *, seconds: float = _ENGINE_SECONDS) -> subprocess.CompletedProcess[str]:
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


def _error_output(done: subprocess.CompletedProcess[str]) -> str:
    return f"It said: {done.stderr.strip() or 'nothing'}"


def _parse_json(text: str, program: str) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return json.loads(text)
    except ValueError as error:
        raise SandboxError(
            f"`{program}` answered with something other than JSON: {text[:200]!r}; update it."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The properties of a container engine.

    Attributes:
        maps_users: whether it is podman of an ordinary user, who is root inside unless told otherwise.
        cpus: processors that it has.
        lacks: protections that it does not give its containers, in words.
    """

    maps_users: bool
    cpus: int
    lacks: tuple[str, ...]


def engine_of(info: Mapping[str, Any]) -> Engine:
    """Read the JSON of `docker info` or `podman info`."""
    if isinstance(host := info.get("host"), dict):
        security, controllers = host.get("security", {}), host.get("cgroupControllers") or ()
        given = {
            "a seccomp filter": bool(security.get("seccompEnabled")),
            "a bound on memory": "memory" in controllers,
            "a bound on processes": "pids" in controllers,
            "a bound on processors": "cpu" in controllers,
        }
        maps, cpus = bool(security.get("rootless")), int(host.get("cpus") or 1)
    else:
        options = [str(option) for option in info.get("SecurityOptions") or ()]
        filtered = [option for option in options if option.startswith("name=seccomp")]
        given = {
            "a seccomp filter": bool(filtered) and not any("unconfined" in option for option in filtered),
            "a bound on memory": bool(info.get("MemoryLimit")),
            "a bound on processes": bool(info.get("PidsLimit")),
            "a bound on processors": bool(info.get("CpuCfsQuota")),
        }
        maps, cpus = False, int(info.get("NCPU") or 1)
    return Engine(maps_users=maps, cpus=cpus, lacks=tuple(name for name, there in given.items() if not there))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerJob:
    """The purpose of one container.

    Attributes:
        name: its name, or empty for one that the engine thinks of.
        owner: the process that it is for, as its label says it.
        user: ids of its user and group.
        workspace: the directory of the host to show at `WORKSPACE`, or None.
        readable: more files and directories of the host to show read-only, by their path inside.
        fixed: paths in the workspace that stay in their place.
    """

    name: str
    owner: str
    user: tuple[int, int]
    workspace: Path | None
    readable: Mapping[str, Path]
    fixed: tuple[FixedPath, ...] = ()


_TMPFS = "rw,exec,nosuid,nodev,mode=1777"


def run_words(
    settings: SandboxSettings, container: ContainerSettings, engine: Engine, job: ContainerJob, path: str
) -> list[str]:
    """Return the words after the engine's name that make a container, up to the program.

    Args:
        settings: its mounts and limits.
        container: the image and the processors.
        engine: the engine.
        job: its purpose.
        path: the image's own `PATH`.
    """
    words = ["run", "--rm", "--interactive", "--init", "--pull", "never"]
    words += [*(("--name", job.name) if job.name else ()), "--label", f"{OWNER}={job.owner}"]
    words += ["--log-driver", "none", "--no-healthcheck", "--hostname", "sandbox"]
    words += ["--network", "none", "--ipc", "private", "--read-only", "--cap-drop", "ALL"]
    words += ["--security-opt", "no-new-privileges", "--user", f"{job.user[0]}:{job.user[1]}"]
    if engine.maps_users:
        words += ["--userns", "keep-id"]
    limits, cpus = settings.limits, min(container.cpus, engine.cpus)
    words += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]  # the same: no swap
    words += ["--pids-limit", str(limits.processes), "--cpus", f"{cpus:g}", "--oom-score-adj", "1000"]
    words += ["--ulimit", f"fsize={limits.file_bytes}:{limits.file_bytes}", "--ulimit", "core=0:0"]
    words += ["--ulimit", f"nofile={limits.open_files}:{limits.open_files}", "--shm-size", str(limits.tmp_bytes)]
    for mount_point in ("/tmp", HOME):  # noqa: S108 - a place inside
        words += ["--tmpfs", f"{mount_point}:{_TMPFS},size={limits.tmp_bytes}"]
    if job.workspace is not None:
        words += [*_mount(job.workspace, WORKSPACE, read_only=False), "--workdir", WORKSPACE]
        for name, place in settings.kept(job.workspace).items():
            words += _mount(place, f"{WORKSPACE}/{name}", read_only=True)
        for each in job.fixed:
            words += _mount(job.workspace / each.path, f"{WORKSPACE}/{each.path}", read_only=not each.writable)
    for place in settings.read_only:
        words += _mount(place, str(place), read_only=True)
    for inside, place in job.readable.items():
        words += _mount(place, inside, read_only=True)
    first = ":".join([*map(str, settings.path), path])
    fixed = {"PATH": first, "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8", "TERM": "dumb"}
    for name, value in {**fixed, **settings.environment}.items():
        words += ["--env", f"{name}={value}"]
    return words


def _mount(place: Path, inside: str, *, read_only: bool) -> list[str]:
    """A directory or file of the host; both names may hold anything, and the engine reads the words as CSV."""
    fields = ["type=bind", f"source={place}", f"target={inside}", *(["readonly"] if read_only else [])]
    return ["--mount", ",".join(_csv(field) for field in fields)]


def _csv(field: str) -> str:
    quoted = field.replace('"', '""')
    return f'"{quoted}"' if any(sign in field for sign in ',"\n\r') else field


_PROGRAM, _LIBRARIES = "/program", "/libraries"

_ALONE = SandboxLimits(memory_bytes=4 * 1024**3, processes=64, file_bytes=0, tmp_bytes=1024**2, open_files=64)

_ALONE_SECONDS = 3600


def enclosing_words(
    job: ContainerJob, container: ContainerSettings, engine: Engine, program_file: Path, libraries: Sequence[str]
) -> list[str]:
    """Return the words that start one program with nothing but its file and its libraries.

    The image lends its place only: the host's own loader starts the program, because the image may have an older one.

    Args:
        job: without a workspace and anything readable.
        container: the image.
        engine: the engine.
        program_file: the program.
        libraries: absolute paths of what it is loaded from, the loader among them.
    """
    argv, readable = loader_command(program_file, libraries)
    words = run_words(SandboxSettings(limits=_ALONE), container, engine, replace(job, readable=readable), "")
    return [*words, "--ulimit", f"cpu={_ALONE_SECONDS}:{_ALONE_SECONDS}", *program(container.image, argv)]


def loader_command(program_file: Path, libraries: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """Start a program of the host where only its file and its libraries are shown.

    Args:
        program_file: the program.
        libraries: absolute paths of what it is loaded from, the loader among them.

    Returns:
        The first words of its command, and what to show read-only, by the path inside.
    """
    shown = {f"{_LIBRARIES}/{Path(library).name}": Path(library) for library in libraries}
    loader = next((place for place in shown if Path(place).name.startswith("ld-")), None)
    argv = [loader, "--library-path", _LIBRARIES, _PROGRAM] if loader else [_PROGRAM]
    return argv, {_PROGRAM: program_file, **shown}


def program(image: str, argv: Sequence[str]) -> list[str]:
    """Return the words after `run` that name the program in place of the image's own."""
    return ["--entrypoint", argv[0], image, *argv[1:]]


# The engine takes these keys out of what is typed, so they must be ones that nobody types.
_DETACH = ("--detach-keys", "ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^")


def execute(name: str, argv: Sequence[str], *, environment: Mapping[str, str], tty: bool) -> list[str]:
    """Return the words that start a program in a running container."""
    words = ["exec", "--interactive", *(("--tty", *_DETACH) if tty else ())]
    for variable, value in environment.items():
        words += ["--env", f"{variable}={value}"]
    return [*words, name, *argv]
