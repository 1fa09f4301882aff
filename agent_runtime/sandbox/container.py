"""Containers of `docker` or `podman`, for machines without bubblewrap.

A container has no network, no capabilities and no host files but the workspace, and runs as the caller, never as root.
It ends once its standard input closes, as when the bot dies. The next start removes leftovers.
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
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_runtime.core.errors import SandboxError
from agent_runtime.processes.spawn import home_dir, process_scope, start_time
from agent_runtime.sandbox.protocol import (
    HOME,
    WORKSPACE,
    ContainerSettings,
    FixedPath,
    Launch,
    PrivateDirectory,
    SandboxLimits,
    SandboxSettings,
    find_libraries,
)

READY = "codepilot: ready"
"""First output line of a held container."""

OWNER = "codepilot.owner"
"""Label with the process that owns a container."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_HOLD = ("sh", "-c", f'echo "{READY}"; exec cat >/dev/null')
"""Ends when our end of its standard input closes, and the container with it."""

_PROBE_SCRIPT = """
read -r token <token && echo "token $token" && echo made >answer
while read -r name value; do echo "$name $value"; done </proc/self/status
if ( : >/outside ) 2>/dev/null; then echo "writable /"; fi
command -v cat stty >/dev/null && echo "programs there"
"""

_FACTS = {"CapEff:": "0000000000000000", "NoNewPrivs:": "1", "Seccomp:": "2", "programs": "there"}
"""Facts that the probe must find inside (proc(5)), as engines may claim otherwise."""

_ENGINE_SECONDS, _PROBE_SECONDS = 30.0, 120.0


class Docker:
    """Runs programs in containers of one image."""

    level = "docker"
    is_isolated = True

    def __init__(self, settings: SandboxSettings, *, user: tuple[int, int] | None = None) -> None:
        """Store the settings; start nothing. `user` has ids inside, by default the caller's.

        Raises:
            SandboxError: no image, the caller is root, or Windows.
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
        self._engine_cache: tuple[Engine, str] | None = None
        self._is_probed = False
        self._scripts: PrivateDirectory | None = None
        self._enclosed_scripts: dict[Path, Path] = {}

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        fixed: Sequence[FixedPath] = (),
        first: bool = False,  # noqa: ARG002 - it always is, below the engine's own
    ) -> Launch:
        """Prepare to start `argv` in a new container.

        Killing this command does not end the container before `argv` ends or reads EOF; use `hold` for such programs.
        """
        return self._command(
            [*self._options(new_name(), workspace, readable or {}, fixed), *program_args(self._image, argv)]
        )

    def hold(
        self, name: str, *, workspace: Path, readable: Mapping[str, Path], fixed: Sequence[FixedPath] = ()
    ) -> Launch:
        """Prepare a container for `execute`; it prints `READY` and ends with its standard input."""
        return self._command([*self._options(name, workspace, readable, fixed), *program_args(self._image, _HOLD)])

    def execute(self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], tty: bool) -> Launch:
        return self._command(exec_args(name, argv, environment=environment, tty=tty))

    def process_id_of(self, name: str) -> int:
        """Return the host's process id of a held container.

        Raises:
            SandboxError: the container ended or runs on another machine.
        """
        result = _run_engine(self._command(["inspect", "--format", "{{.State.Pid}}", name]))
        if result.returncode != 0 or not result.stdout.strip().isdecimal() or int(result.stdout) == 0:
            raise SandboxError(
                f"The container {name} has ended, or has no process on this machine. {_error_output(result)}"
            )
        return int(result.stdout)

    def remove(self, name: str) -> Launch:
        return self._command(["rm", "--force", "--volumes", name])

    def write_enclosed(self, program: Path) -> Path:
        """Write a script that starts `program` alone in a container; it lasts as long as this process."""
        if (existing := self._enclosed_scripts.get(program)) is not None and existing.exists():
            return existing
        engine, _ = self._inspect_engine()
        job = ContainerJob(name="", owner=process_owner(), user=self._user, workspace=None, readable={})
        command = self._command(enclosing_args(job, self._container, engine, program, sorted(find_libraries(program))))
        self._scripts = self._scripts or PrivateDirectory("codepilot-docker-")
        script = self._scripts.path / f"enclosed-{secrets.token_hex(4)}"
        variables = [f"{name}={value}" for name, value in command.env.items()]
        script.write_text(f'#!/bin/sh\nexec env -i {shlex.join([*variables, *command.argv])} "$@"\n', encoding="utf-8")
        script.chmod(0o700)
        self._enclosed_scripts[program] = script
        return script

    def inner_path(self, workspace: Path) -> str:  # noqa: ARG002 - the same for every workspace, on purpose
        return WORKSPACE

    def showing(self, readable: Mapping[str, Path]) -> Docker:
        self._scripts = self._scripts or PrivateDirectory("codepilot-docker-")  # shared, like the engine's answers
        sandbox = copy(self)
        sandbox._settings = replace(self._settings, readable={**self._settings.readable, **readable})  # noqa: SLF001 - of the copy
        return sandbox

    def probe(self) -> None:
        """Remove leftovers, start a container once and verify its isolation from inside."""
        if self._is_probed:
            return
        self._inspect_engine()
        # Containers whose owner is dead. What cannot be removed is left to the engine and the next start.
        containers = _run_engine(self._command(["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={OWNER}"]))
        for identity in containers.stdout.split():
            label = f'{{{{index .Config.Labels "{OWNER}"}}}}'
            owner_label = _run_engine(self._command(["inspect", "--format", label, identity]))
            if owner_label.returncode == 0 and is_dead(owner_label.stdout.strip()):
                _run_engine(self.remove(identity))
        with PrivateDirectory("codepilot-probe-") as directory:
            token = secrets.token_hex(8)
            (directory.path / "token").write_text(f"{token}\n")
            directory.path.chmod(0o755)
            launch = self.launch(["bash", "-c", _PROBE_SCRIPT], workspace=directory.path)
            result = _run_engine(launch, seconds=_PROBE_SECONDS)
            if result.returncode != 0:
                raise SandboxError(
                    f"`{self._container.program}` could not start a container of {self._image} "
                    f"(exit code {result.returncode}): {_error_output(result)}"
                )
            has_written = (directory.path / "answer").exists()
        facts = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if " " in line.strip())
        if facts.get("token") != token or not has_written:
            raise SandboxError(
                f"A container of {self._image} cannot read and write the workspace as user {self._user[0]}. The engine "
                "must run on this machine, see the same files as the bot, and map no users (no userns-remap; podman "
                "instead of rootless Docker)."
            )
        flaws = [f"{name} {facts.get(name)}" for name, value in _FACTS.items() if facts.get(name, "").strip() != value]
        flaws += ["its root is writable"] if "writable" in facts else []
        if flaws:
            raise SandboxError(
                f"A container of {self._image} is not isolated as required: {'; '.join(flaws)}. Restore the "
                "engine's default seccomp profile, and use an image with bash, cat and stty."
            )
        self._is_probed = True

    @property
    def _image(self) -> str:
        return self._container.image

    def _options(
        self, name: str, workspace: Path, readable: Mapping[str, Path], fixed: Sequence[FixedPath]
    ) -> list[str]:
        self._settings.check(workspace)
        engine, path = self._inspect_engine()
        place = workspace.resolve()
        job = ContainerJob(
            name=name, owner=process_owner(), user=self._user, workspace=place, readable=readable, fixed=tuple(fixed)
        )
        return run_args(self._settings, self._container, engine, job, path)

    def _command(self, words: Sequence[str]) -> Launch:
        program = shutil.which(self._container.program)
        if program is None:
            raise SandboxError(
                f"sandbox: the program `{self._container.program}` is missing; install Docker or podman, "
                "or name the one that is there (the bot's setting CODEPILOT_DOCKER_PROGRAM)."
            )
        # Without a configuration of its own the command line passes no proxy, and no password in its address, inside.
        own = str(home_dir("The container engine does not answer", kind=SandboxError))
        env = {"PATH": _PATH, "HOME": own, "DOCKER_CONFIG": "/nonexistent"}
        if (private := Path(f"/run/user/{os.getuid()}")).is_dir():
            env["XDG_RUNTIME_DIR"] = str(private)
        return Launch(argv=(program, *words), env=env)

    def _inspect_engine(self) -> tuple[Engine, str]:
        """Return the engine and the image's `PATH`, cached."""
        if self._engine_cache is not None:
            return self._engine_cache
        program = self._container.program
        result = _run_engine(self._command(["info", "--format", "{{json .}}"]))
        if result.returncode != 0:
            raise SandboxError(
                f"`{program}` cannot reach its engine; start it, or use another sandbox. {_error_output(result)}"
            )
        engine = parse_engine(_parse_json(result.stdout, program))
        if engine.missing:
            raise SandboxError(
                f"`{program}` would run containers without {', '.join(engine.missing)}. Turn this on in "
                "the engine (delegate the cgroup controllers memory, pids and cpu; use the default seccomp profile), "
                "or use another sandbox."
            )
        result = _run_engine(self._command(["image", "inspect", "--format", "{{json .Config.Env}}", self._image]))
        if result.returncode != 0:
            raise SandboxError(
                f"The image {self._image} is not on this machine, and images are never pulled automatically. "
                f"Fetch it: {program} pull {self._image}\n{_error_output(result)}"
            )
        variables = dict(str(variable).partition("=")[::2] for variable in _parse_json(result.stdout, program) or ())
        self._engine_cache = engine, variables.get("PATH") or _PATH
        return self._engine_cache


def process_owner() -> str:
    """Return a unique id of this process: boot, PID namespace, PID, start time."""
    return ".".join([*process_scope().split(), str(os.getpid()), start_time(os.getpid()) or "0"])


def is_dead(label: str) -> bool:
    boot, namespace, pid, since = (*label.split("."), "", "", "", "")[:4]
    current = process_scope().split()
    if not pid.isdecimal() or not current:
        return False
    return boot != current[0] or (namespace == current[1] and start_time(int(pid)) != since)


def new_name() -> str:
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


def _error_output(result: subprocess.CompletedProcess[str]) -> str:
    return f"It said: {result.stderr.strip() or 'nothing'}"


def _parse_json(text: str, program: str) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return json.loads(text)
    except ValueError as error:
        raise SandboxError(
            f"`{program}` answered with something other than JSON: {text[:200]!r}; update it."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Properties of a container engine; `maps_users` for rootless podman, which maps the caller to root inside."""

    maps_users: bool
    cpus: int
    missing: tuple[str, ...]


def parse_engine(info: Mapping[str, Any]) -> Engine:
    if isinstance(host := info.get("host"), dict):
        security, controllers = host.get("security", {}), host.get("cgroupControllers") or ()
        protections = {
            "a seccomp filter": bool(security.get("seccompEnabled")),
            "a bound on memory": "memory" in controllers,
            "a bound on processes": "pids" in controllers,
            "a bound on processors": "cpu" in controllers,
        }
        maps, cpus = bool(security.get("rootless")), int(host.get("cpus") or 1)
    else:
        options = [str(option) for option in info.get("SecurityOptions") or ()]
        filtered = [option for option in options if option.startswith("name=seccomp")]
        protections = {
            "a seccomp filter": bool(filtered) and not any("unconfined" in option for option in filtered),
            "a bound on memory": bool(info.get("MemoryLimit")),
            "a bound on processes": bool(info.get("PidsLimit")),
            "a bound on processors": bool(info.get("CpuCfsQuota")),
        }
        maps, cpus = False, int(info.get("NCPU") or 1)
    return Engine(maps_users=maps, cpus=cpus, missing=tuple(name for name, on in protections.items() if not on))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerJob:
    name: str
    owner: str
    user: tuple[int, int]
    workspace: Path | None
    readable: Mapping[str, Path]
    fixed: tuple[FixedPath, ...] = ()


_TMPFS = "rw,exec,nosuid,nodev,mode=1777"


def run_args(
    settings: SandboxSettings, container: ContainerSettings, engine: Engine, job: ContainerJob, path: str
) -> list[str]:
    """Return the engine's arguments for a container, up to the program; `path` is the image's `PATH`."""
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
        for name, place in settings.read_only_paths(job.workspace).items():
            words += _mount(place, f"{WORKSPACE}/{name}", read_only=True)
        for mount in job.fixed:
            words += _mount(job.workspace / mount.path, f"{WORKSPACE}/{mount.path}", read_only=not mount.writable)
    for place in settings.read_only:
        words += _mount(place, str(place), read_only=True)
    for target, place in {**settings.readable, **job.readable}.items():
        words += _mount(place, target, read_only=True)
    search_path = ":".join([*map(str, settings.path), path])
    fixed = {"PATH": search_path, "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8", "TERM": "dumb"}
    for name, value in {**fixed, **settings.environment}.items():
        words += ["--env", f"{name}={value}"]
    return words


def _mount(place: Path, inside: str, *, read_only: bool) -> list[str]:
    """Return a bind mount; the engine parses the value as CSV."""
    fields = ["type=bind", f"source={place}", f"target={inside}", *(["readonly"] if read_only else [])]
    return ["--mount", ",".join(_csv(field) for field in fields)]


def _csv(field: str) -> str:
    quoted = field.replace('"', '""')
    return f'"{quoted}"' if any(sign in field for sign in ',"\n\r') else field


_PROGRAM, _LIBRARIES = "/program", "/libraries"

_ENCLOSED_LIMITS = SandboxLimits(memory_bytes=4 * 1024**3, processes=64, file_bytes=0, tmp_bytes=1024**2, open_files=64)

_CPU_SECONDS = 3600


def enclosing_args(
    job: ContainerJob, container: ContainerSettings, engine: Engine, program_file: Path, libraries: Sequence[str]
) -> list[str]:
    """Return the engine's arguments for one program with only its libraries.

    The host's loader starts it, as the image's may be older.
    """
    argv, readable = loader_command(program_file, libraries)
    words = run_args(SandboxSettings(limits=_ENCLOSED_LIMITS), container, engine, replace(job, readable=readable), "")
    return [*words, "--ulimit", f"cpu={_CPU_SECONDS}:{_CPU_SECONDS}", *program_args(container.image, argv)]


def loader_command(program_file: Path, libraries: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """Return the prefix that starts a host program by its own loader, and its read-only mounts."""
    mounts = {f"{_LIBRARIES}/{Path(library).name}": Path(library) for library in libraries}
    loader = next((place for place in mounts if Path(place).name.startswith("ld-")), None)
    argv = [loader, "--library-path", _LIBRARIES, _PROGRAM] if loader else [_PROGRAM]
    return argv, {_PROGRAM: program_file, **mounts}


def program_args(image: str, argv: Sequence[str]) -> list[str]:
    return ["--entrypoint", argv[0], image, *argv[1:]]


# The engine takes these keys out of what is typed, so they must be ones that nobody types.
_DETACH_KEYS = ("--detach-keys", "ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^")


def exec_args(name: str, argv: Sequence[str], *, environment: Mapping[str, str], tty: bool) -> list[str]:
    words = ["exec", "--interactive", *(("--tty", *_DETACH_KEYS) if tty else ())]
    for variable, value in environment.items():
        words += ["--env", f"{variable}={value}"]
    return [*words, name, *argv]
