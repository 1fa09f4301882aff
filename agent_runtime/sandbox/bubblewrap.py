"""The default sandbox: bubblewrap, with an allow-list of what it shows of the host.

Inside there are the system's programs, fresh `/proc`, `/dev`, `/tmp` and home, and the workspace at `/workspace`. The
rest of the host's files, its processes, network and environment do not exist there. The workspace's own path is not
used inside, so that prompts and outputs of two jobs on the same commit are the same to the byte.
"""

from __future__ import annotations

import functools
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox import seccomp
from agent_runtime.sandbox.machine import find, this_machine
from agent_runtime.sandbox.protocol import HOME, TMPFS, WORKSPACE, Launch, SandboxLimits, SandboxSettings
from agent_runtime.sandbox.remedies import explain
from agent_runtime.sandbox.temporary import Temporary

_USER = 1000
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_NICE = 10
"""How much programs inside stand back behind those outside; see sched(7)."""

_ETC = (
    "alternatives", "ca-certificates.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic",
    "mime.types", "os-release", "perl", "pki/tls/certs", "protocols", "python3", "python3.11", "python3.12",
    "python3.13", "python3.14", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
"""What of /etc programs need to run and nobody needs to hide."""

_GUARD = "CAP_WAKE_ALARM"
"""A capability that is good for nothing in a user namespace (timerfd_create(2) asks for it in the first one). But the
kernel lets no process at the memory or descriptors of one that has a capability which it lacks (ptrace(2))."""
WITHOUT_GUARD = ("setpriv", "--inh-caps=-all", "--ambient-caps=-all")
"""What the first process of a sandbox puts before the programs that it starts."""

_READ_ONLY_PROC = ("acpi", "bus", "driver", "fs", "irq", "scsi", "sys", "tty")
_EMPTY_PROC = ("kcore", "keys", "kmsg", "latency_stats", "mtrr", "sched_debug", "sysrq-trigger", "timer_list")
"""Root outside stays the owner of these files inside, and the owner may write the kernel's settings."""

_FILES = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{_USER}:{_USER}:agent:{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "group": f"root:x:0:\nagent:x:{_USER}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
}
"""Our own versions of files in /etc that would reveal the host."""

# `sh` opens the filter for bubblewrap, because a `Launch` is argv and environment only: each start needs a file
# offset of its own, and any starter of programs will do then.
_OPEN_FILTER = 'exec "$@" 9<"$0"'


_STARTED: set[tuple[str, ...]] = set()
"""What was started as a probe, without the workspace."""


class Bubblewrap:
    """Runs programs in new user, process, network, IPC, host name and cgroup namespaces, without capabilities.

    Everything inside dies with the thread that started it; start programs from the main thread.
    """

    level = "bubblewrap"
    apart = True

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> SandboxLimits:
        """Those of the settings."""
        return self._settings.limits

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        first: bool = False,
    ) -> Launch:
        """How to start `argv` inside, in `/workspace`, which is `workspace` and the only thing writable besides tmpfs.

        Args:
            argv: the program and its arguments.
            workspace: the directory of the host to work in.
            readable: more files and directories of the host that may be read, by their absolute path inside.
            first: make it the first process inside, which must start what it starts through `WITHOUT_GUARD` and reap
                orphans: then nothing inside can read its memory, take its descriptors, stop or kill it.

        Raises:
            SandboxError: a program is missing, or a directory of the settings or the workspace does not exist.
        """
        self._settings.check(workspace)
        files = shared_files()
        filtered = (files / "filter").exists()
        options = [*namespaces(), *self._mounts(files), "--bind", str(workspace.resolve()), WORKSPACE]
        # A mount point can be neither renamed nor replaced.
        for name, place in self._settings.kept(workspace.resolve()).items():
            options += ["--ro-bind", str(place), f"{WORKSPACE}/{name}"]
        for inside, place in (readable or {}).items():
            options += ["--ro-bind", str(place), inside]
        options += ["--remount-ro", "/", "--chdir", WORKSPACE]
        if first:
            options += ["--as-pid-1", "--cap-add", _GUARD]
        command = [find("bwrap", "bubblewrap"), *options]
        if first:
            find(WITHOUT_GUARD[0], "util-linux")
        if filtered:
            shell = find("sh", "dash")
            command = [shell, "-c", _OPEN_FILTER, str(files / "filter"), *command, "--seccomp", "9"]
        return Launch(
            argv=(*command, "--", *_limited(self._settings.limits), *argv),
            env=_environment(self._settings),
        )

    def seen_as(self, workspace: Path) -> str:  # noqa: ARG002 - the same for every workspace, on purpose
        """Always `/workspace`."""
        return WORKSPACE

    def probe(self) -> None:
        """Start `true` with the full argument list, once a process; success is remembered, failure is tried again.

        Raises:
            SandboxError: it did not start; the text says how to fix it.
        """
        with Temporary("codepilot-probe-") as workspace:
            launch = self.launch(["true"], workspace=workspace.path, first=True)
            place = str(workspace.path.resolve())
            started = tuple(word for word in launch.argv if word != place)
            if started in _STARTED:
                return
            try:
                done = subprocess.run(
                    launch.argv,
                    env=dict(launch.env),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=30,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise SandboxError(
                    "bubblewrap did not start `true` within 30 seconds; the machine is overloaded."
                ) from None
        if done.returncode != 0:
            raise SandboxError(explain(done.stderr.decode(errors="replace"), done.returncode, this_machine()))
        _STARTED.add(started)

    def _mounts(self, files: Path) -> list[str]:
        size = str(self._settings.limits.tmp_bytes)
        options = ["--proc", "/proc"]
        for name in _READ_ONLY_PROC:
            if (place := Path("/proc", name)).exists():
                options += ["--ro-bind", str(place), str(place)]
        for name in _EMPTY_PROC:
            if (place := Path("/proc", name)).exists():
                options += ["--ro-bind", "/dev/null", str(place)]
        options += ["--dev", "/dev", *_system()]
        for mount_point in TMPFS:
            options += ["--perms", "1777", "--size", size, "--tmpfs", mount_point]
        options += ["--remount-ro", "/dev", "--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108 - the same
        for name in _FILES:
            options += ["--ro-bind", str(files / name), f"/etc/{name}"]
        for directory in self._settings.read_only:
            options += ["--ro-bind", str(directory), str(directory)]
        return options


def shared_files() -> Path:
    """The directory with our files for /etc, and `filter` if there is one for this machine; all sandboxes share it."""
    directory = _directory().path
    directory.mkdir(mode=0o700, exist_ok=True)
    wanted = {name: text.encode() for name, text in _FILES.items()}
    program = seccomp.program(platform.machine())
    if program is not None:
        wanted["filter"] = program
    for name, data in wanted.items():
        # A cleaner of temporary files may have been here since the last start.
        if not (directory / name).exists():
            (directory / name).write_bytes(data)
    return directory


@functools.cache
def _directory() -> Temporary:
    return Temporary("codepilot-sandbox-")


def namespaces() -> list[str]:
    """What cuts a program off from the host, as options of bubblewrap."""
    # No --new-session: it takes the terminal away, and Ctrl+C with it; the filter refuses typing into it instead.
    options = ["--unshare-user", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"]
    options += ["--uid", str(_USER), "--gid", str(_USER)]
    return [*options, "--disable-userns"] if _can_disable_namespaces() else options


def _system() -> list[str]:
    """The system's programs and libraries, as the host has them laid out, and the harmless part of /etc."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        place = Path("/", name)
        if place.is_symlink():
            options += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            options += ["--ro-bind", str(place), str(place)]
    for name in _ETC:
        if (place := Path("/etc", name)).exists():
            options += ["--ro-bind", str(place), str(place)]
    return options


def _limited(limits: SandboxLimits) -> list[str]:
    """Rlimits are set inside: there the number of processes counts this sandbox's own (Linux 5.14 and newer).

    Memory is bounded by what a process may write to (`RLIMIT_DATA`), not by its address space (`RLIMIT_AS`): Node sets
    10 GiB of addresses aside for each WebAssembly memory, Go and Java do the like, and use none of it. Should the
    machine still run out of memory, the kernel takes it from the sandbox first (`oom_score_adj` in proc(5)); and
    when processors are short, the bot comes first.
    """
    return [
        find("nice", "coreutils"),
        f"--adjustment={_NICE}",
        find("choom", "util-linux"),
        "--adjust=1000",
        "--",
        find("prlimit", "util-linux"),
        f"--data={limits.memory_bytes}",
        f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        "--core=0",
        "--",
    ]


def _environment(settings: SandboxSettings) -> Mapping[str, str]:
    path = ":".join([*map(str, settings.path), *_PATH])
    fixed = {"PATH": path, "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8", "TERM": "dumb"}
    return {**fixed, **settings.environment}


@functools.cache
def _can_disable_namespaces() -> bool:
    """Whether this bubblewrap is 0.8 or newer; without the option the filter alone refuses new user namespaces."""
    shown = subprocess.run([find("bwrap", "bubblewrap"), "--help"], capture_output=True, timeout=10, check=False)
    return b"--disable-userns" in shown.stdout + shown.stderr
