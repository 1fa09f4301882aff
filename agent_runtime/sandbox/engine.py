"""Arguments for a container engine, and the meaning of its output. Pure.

The words are those that `docker` and `podman` share: https://docs.docker.com/reference/cli/docker/container/run/ and
podman-run(1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_runtime.sandbox.protocol import HOME, WORKSPACE, ContainerSettings, SandboxLimits, SandboxSettings

OWNER = "codepilot.owner"
"""The label that says which process a container is for."""

_PROGRAM, _LIBRARIES = "/program", "/libraries"
_ALONE = SandboxLimits(memory_bytes=4 * 1024**3, processes=64, file_bytes=0, tmp_bytes=1024**2, open_files=64)
_ALONE_SECONDS = 3600

# The engine takes these keys out of what is typed, so they must be ones that nobody types.
_DETACH = ("--detach-keys", "ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^")
_TMPFS = "rw,exec,nosuid,nodev,mode=1777"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What an engine says of itself.

    Attributes:
        maps_users: whether it is podman of an ordinary user, who is root inside unless told otherwise.
        cpus: processors that it has.
        lacks: protections that it does not give its containers, in words.
    """

    maps_users: bool
    cpus: int
    lacks: tuple[str, ...]


def engine_of(info: Mapping[str, Any]) -> Engine:
    """Read what `docker info` or `podman info` says, as JSON."""
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
    """What one container is for.

    Attributes:
        name: its name, or empty for one that the engine thinks of.
        owner: the process that it is for, as its label says it.
        user: ids of its user and group.
        workspace: the directory of the host to show at `WORKSPACE`, or None.
        readable: more files and directories of the host to show read-only, by their path inside.
    """

    name: str
    owner: str
    user: tuple[int, int]
    workspace: Path | None
    readable: Mapping[str, Path]


def run(
    settings: SandboxSettings, container: ContainerSettings, engine: Engine, job: ContainerJob, path: str
) -> list[str]:
    """The words after the engine's name that make a container, up to the program.

    Args:
        settings: what it shows and bounds.
        container: the image and the processors.
        engine: who makes it.
        job: what it is for.
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
    for place in settings.read_only:
        words += _mount(place, str(place), read_only=True)
    for inside, place in job.readable.items():
        words += _mount(place, inside, read_only=True)
    first = ":".join([*map(str, settings.path), path])
    fixed = {"PATH": first, "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8", "TERM": "dumb"}
    for name, value in {**fixed, **settings.environment}.items():
        words += ["--env", f"{name}={value}"]
    return words


def alone(
    job: ContainerJob, container: ContainerSettings, engine: Engine, program_file: Path, libraries: Sequence[str]
) -> list[str]:
    """The words after the engine's name that start one program with nothing but its file and its libraries.

    The image lends its place only: the host's own loader starts the program, because the image may have an older one.

    Args:
        job: without a workspace and anything readable.
        container: the image.
        engine: who makes it.
        program_file: the program.
        libraries: absolute paths of what it is loaded from, the loader among them.
    """
    argv, readable = loading(program_file, libraries)
    words = run(SandboxSettings(limits=_ALONE), container, engine, replace(job, readable=readable), "")
    return [*words, "--ulimit", f"cpu={_ALONE_SECONDS}:{_ALONE_SECONDS}", *program(container.image, argv)]


def loading(program_file: Path, libraries: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
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
    """The words after `run` that name the program; whatever the image would start is not started."""
    return ["--entrypoint", argv[0], image, *argv[1:]]


def execute(name: str, argv: Sequence[str], *, environment: Mapping[str, str], tty: bool) -> list[str]:
    """The words that start a program in a running container."""
    words = ["exec", "--interactive", *(("--tty", *_DETACH) if tty else ())]
    for variable, value in environment.items():
        words += ["--env", f"{variable}={value}"]
    return [*words, name, *argv]


def _mount(place: Path, inside: str, *, read_only: bool) -> list[str]:
    """A directory or file of the host; both names may hold anything, and the engine reads the words as CSV."""
    fields = ["type=bind", f"source={place}", f"target={inside}", *(["readonly"] if read_only else [])]
    return ["--mount", ",".join(_csv(field) for field in fields)]


def _csv(field: str) -> str:
    quoted = field.replace('"', '""')
    return f'"{quoted}"' if any(sign in field for sign in ',"\n\r') else field
