"""The default sandbox: bubblewrap with an allow-list of host files.

The workspace is always at `/workspace`, so that prompts of equal jobs are identical. `enclosed` is a stricter sandbox
for one program without files.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
import secrets
import shlex
import shutil
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import (
    HOME,
    TMPFS,
    WORKSPACE,
    FixedPath,
    Launch,
    PrivateDirectory,
    SandboxLimits,
    SandboxSettings,
    find_libraries,
)
from agent_runtime.sandbox.toolchains import Toolchains, find_toolchains

_USER = 1000

_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_NICE = 10
"""Niceness of sandboxed programs; see sched(7)."""

_GUARD = "CAP_WAKE_ALARM"
"""A capability without use in a user namespace. Processes without it cannot ptrace(2) one that has it."""

WITHOUT_GUARD = ("setpriv", "--inh-caps=-all", "--ambient-caps=-all")
"""Prefix with which a sandbox's first process starts programs."""

# `sh` opens the filter for bubblewrap, because a `Launch` is argv and environment only: each start needs a file
# offset of its own, and any starter of programs will do then.
_OPEN_FILTER = 'exec "$@" 9<"$0"'

_PROBED: set[tuple[str, ...]] = set()
"""Commands of successful probes, without the workspace."""


class Bubblewrap:
    """Runs programs in new namespaces without capabilities.

    They die with the thread that started them: start programs from the main thread.
    """

    level = "bubblewrap"
    is_isolated = True

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._toolchains: dict[Path, Toolchains] = {}

    @property
    def limits(self) -> SandboxLimits:
        return self._settings.limits

    @property
    def git_writable(self) -> bool:
        return self._settings.git_writable

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        fixed: Sequence[FixedPath] = (),
        first: bool = False,
    ) -> Launch:
        """Prepare to start `argv` in `/workspace`; see `Sandbox.launch`.

        With `first`, start programs through `WITHOUT_GUARD` and reap orphans: no program can then read, signal or trace
        the first process.
        """
        self._settings.check(workspace)
        files = shared_files()
        filtered = (files / "filter").exists()
        options = [*isolation_options(), *self._mounts(files), "--bind", str(workspace.resolve()), WORKSPACE]
        # A mount point can be neither renamed nor replaced.
        for name, place in self._settings.read_only_paths(workspace.resolve()).items():
            options += ["--ro-bind", str(place), f"{WORKSPACE}/{name}"]
        for path in fixed:
            option = "--bind" if path.writable else "--ro-bind"
            options += [option, str(workspace.resolve() / path.path), f"{WORKSPACE}/{path.path}"]
        toolchains = self.find_toolchains(workspace)
        environment = workspace.resolve() / toolchains.environment
        if toolchains.environment and not environment.is_symlink():
            # Read-only, because its owner starts its programs, and no diff shows them.
            options += ["--ro-bind-try", str(environment), f"{WORKSPACE}/{toolchains.environment}"]
        for inside, place in toolchains.mounts.items():
            options += ["--ro-bind-try", str(place), inside]
        readable = {**self._settings.readable, **(readable or {})}
        for inside, place in readable.items():
            options += ["--ro-bind", str(place), inside]
        for inside, target in toolchains.links_beside(readable):
            options += ["--symlink", target, inside]
        options += ["--remount-ro", "/", "--chdir", WORKSPACE]
        if first:
            options += ["--as-pid-1", "--cap-add", _GUARD]
        command = [which("bwrap", "bubblewrap"), *options]
        if first:
            which(WITHOUT_GUARD[0], "util-linux")
        if filtered:
            shell = which("sh", "dash")
            command = [shell, "-c", _OPEN_FILTER, str(files / "filter"), *command, "--seccomp", "9"]
        return Launch(
            argv=(*command, "--", *_limit_command(self._settings.limits), *argv),
            env=_environment(self._settings, toolchains),
        )

    def find_toolchains(self, workspace: Path) -> Toolchains:
        # Of the first start: programs could replace an environment of their own by a link while it is mounted. They
        # cannot replace a mount point.
        if workspace not in self._toolchains:
            self._toolchains[workspace] = find_toolchains(self._settings.toolchains, workspace)
        return self._toolchains[workspace]

    def inner_path(self, workspace: Path) -> str:  # noqa: ARG002 - the same for every workspace, on purpose
        return WORKSPACE

    def showing(self, readable: Mapping[str, Path]) -> Bubblewrap:
        sandbox = Bubblewrap(replace(self._settings, readable={**self._settings.readable, **readable}))
        sandbox._toolchains = self._toolchains
        return sandbox

    def probe(self) -> None:
        """Start `true` with the full argument list, until it succeeded once."""
        with PrivateDirectory("codepilot-probe-") as workspace:
            launch = self.launch(["true"], workspace=workspace.path, first=True)
            place = str(workspace.path.resolve())
            command = tuple(word for word in launch.argv if word != place)
            if command in _PROBED:
                return
            try:
                result = subprocess.run(
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
        if result.returncode != 0:
            raise SandboxError(explain(result.stderr.decode(errors="replace"), result.returncode, inspect_machine()))
        _PROBED.add(command)

    def _mounts(self, files: Path) -> list[str]:
        size = str(self._settings.limits.tmp_bytes)
        options = ["--proc", "/proc"]
        for name in _READ_ONLY_PROC:
            if (place := Path("/proc", name)).exists():
                options += ["--ro-bind", str(place), str(place)]
        for name in _EMPTY_PROC:
            if (place := Path("/proc", name)).exists():
                options += ["--ro-bind", "/dev/null", str(place)]
        options += ["--dev", "/dev", *_system_mounts()]
        for mount_point in TMPFS:
            options += ["--perms", "1777", "--size", size, "--tmpfs", mount_point]
        options += ["--remount-ro", "/dev", "--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108 - the same
        for name in _FILES:
            options += ["--ro-bind", str(files / name), f"/etc/{name}"]
        for directory in self._settings.read_only:
            options += ["--ro-bind", str(directory), str(directory)]
        return options


_READ_ONLY_PROC = ("acpi", "bus", "driver", "fs", "irq", "scsi", "sys", "tty")

_EMPTY_PROC = ("kcore", "keys", "kmsg", "latency_stats", "mtrr", "sched_debug", "sysrq-trigger", "timer_list")
"""Files that the host's root would own inside, and could write kernel settings to."""

_FILES = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{_USER}:{_USER}:agent:{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "group": f"root:x:0:\nagent:x:{_USER}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
}
"""Replacements for files in /etc that reveal the host."""


def shared_files() -> Path:
    directory = _shared_directory().path
    directory.mkdir(mode=0o700, exist_ok=True)
    contents = {name: text.encode() for name, text in _FILES.items()}
    program = seccomp_filter(platform.machine())
    if program is not None:
        contents["filter"] = program
    for name, data in contents.items():
        # A cleaner of temporary files may have been here since the last start.
        if not (directory / name).exists():
            (directory / name).write_bytes(data)
    return directory


@functools.cache
def _shared_directory() -> PrivateDirectory:
    return PrivateDirectory("codepilot-sandbox-")


def isolation_options() -> list[str]:
    # No --new-session: it takes the terminal away, and Ctrl+C with it; the filter refuses typing into it instead.
    options = ["--unshare-user", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"]
    options += ["--uid", str(_USER), "--gid", str(_USER)]
    return [*options, "--disable-userns"] if _can_disable_namespaces() else options


@functools.cache
def _can_disable_namespaces() -> bool:
    """Whether bubblewrap is 0.8 or newer; else the filter alone refuses user namespaces."""
    result = subprocess.run([which("bwrap", "bubblewrap"), "--help"], capture_output=True, timeout=10, check=False)
    return b"--disable-userns" in result.stdout + result.stderr


_ETC = (
    "alternatives", "ca-certificates.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic",
    "mime.types", "os-release", "perl", "pki/tls/certs", "protocols", "python3", "python3.11", "python3.12",
    "python3.13", "python3.14", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
"""Harmless parts of /etc that programs need."""


def _system_mounts() -> list[str]:
    """Return the options for system programs, libraries and harmless files in /etc."""
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


def _limit_command(limits: SandboxLimits) -> list[str]:
    """Return the command prefix that limits a process.

    Run inside, where RLIMIT_NPROC counts the sandbox's own processes (Linux 5.14). RLIMIT_DATA, not RLIMIT_AS: Node
    reserves 10 GiB of address space for each WebAssembly memory.
    """
    return [
        which("nice", "coreutils"),
        f"--adjustment={_NICE}",
        which("choom", "util-linux"),
        "--adjust=1000",
        "--",
        which("prlimit", "util-linux"),
        f"--data={limits.memory_bytes}",
        f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        "--core=0",
        "--",
    ]


def _environment(settings: SandboxSettings, toolchains: Toolchains) -> Mapping[str, str]:
    path = ":".join([*map(str, (*settings.path, *toolchains.path)), *_PATH])
    fixed = {"PATH": path, "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8", "TERM": "dumb"}
    return {**fixed, **toolchains.variables(WORKSPACE), **settings.environment}


_ENCLOSED_LIMITS = (f"--as={4 * 1024**3}", "--nproc=64", "--fsize=0", "--nofile=64", "--core=0")
"""For prlimit(1), inside; address space in bytes."""

_ENCLOSED_PROGRAM = "/program"


def write_enclosed(program: Path) -> Path:
    """Write a script that starts `program` in a sandbox with only its libraries and standard streams.

    The program dies with the thread that started it, the script with this process.
    """
    name = f"enclosed-{program.name}-{hashlib.sha256(bytes(program)).hexdigest()[:8]}"
    script = shared_files() / name
    if not script.exists():
        # Another thread may start it at any moment: it is whole from the first.
        half = script.with_name(f"{name}-{secrets.token_hex(4)}")
        half.write_text(f'#!{which("sh", "dash")}\nexec {shlex.join(_enclosing_command(program))} "$@"{_filter_fd()}\n')
        half.chmod(0o700)
        half.replace(script)
    return script


def _enclosing_command(program: Path) -> list[str]:
    limiter = which("prlimit", "util-linux")
    libraries = sorted(find_libraries(program) | find_libraries(Path(limiter)))
    options = [*isolation_options(), "--new-session", "--clearenv", "--ro-bind", str(program), _ENCLOSED_PROGRAM]
    for place in (limiter, *libraries):
        options += ["--ro-bind", place, place]
    # The loader's own table of libraries stays outside.
    directories = sorted({str(Path(library).parent) for library in libraries})
    options += ["--setenv", "LD_LIBRARY_PATH", ":".join(directories), "--remount-ro", "/", "--chdir", "/"]
    if _filter_fd():
        options += ["--seccomp", "9"]
    return [which("bwrap", "bubblewrap"), *options, "--", limiter, *_ENCLOSED_LIMITS, "--", _ENCLOSED_PROGRAM]


def _filter_fd() -> str:
    place = shared_files() / "filter"
    return f" 9<{shlex.quote(str(place))}" if place.exists() else ""


DENIED_CALLS: dict[str, tuple[int, int]] = {
    # name: (number on x86-64, number on arm64)
    "ptrace": (101, 117),  # reads another process's memory; debuggers are the price
    "syslog": (103, 116),
    "pivot_root": (155, 41),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),  # keyrings are not divided by namespaces
    "unshare": (272, 97),  # new namespaces are the usual way to the kernel's bugs
    "perf_event_open": (298, 241),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),  # opens files outside the mounted tree
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "finit_module": (313, 273),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),  # its operations pass by this filter
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),  # takes another process's descriptors
    "mount_setattr": (442, 442),
}
"""System calls refused with EPERM."""

SOCKET_FAMILIES: tuple[int, ...] = (1, 2, 10, 16)
"""Allowed socket families: unix, IPv4, IPv6, netlink. Others, e.g. vsock, ignore network namespaces."""

MAX_SEGMENT_BYTES = 64 * 1024
"""Bytes of a System V shared memory segment, which no process or file accounts for; up to 4,096 exist (shmget(2)).
Databases use a small one as a lock.
"""

_NEW_USER_NAMESPACE = 0x10000000

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into a terminal as if its user did

_X32 = 0x40000000  # x86-64 only: a second numbering of the same calls

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Architecture:
    """Audit number of an architecture, its column in `DENIED_CALLS`, and further call numbers."""

    audit_arch: int
    column: int
    ioctl: int
    clone: int
    socket: int
    shmget: int
    clone3: int = 435


_ARCHITECTURES = {
    "x86_64": _Architecture(audit_arch=0xC000003E, column=0, ioctl=16, clone=56, socket=41, shmget=29),
    "aarch64": _Architecture(audit_arch=0xC00000B7, column=1, ioctl=29, clone=220, socket=198, shmget=194),
}


def seccomp_filter(machine: str) -> bytes | None:
    """Return the classic BPF filter of seccomp(2) for a `platform.machine()`, or None.

    Offsets in `struct seccomp_data`: call number 0, architecture 4, low half of argument n at 16 + 8 n.
    """
    arch = _ARCHITECTURES.get(machine)
    if arch is None:
        return None
    refuse = _return(_REFUSE | errno.EPERM)
    code = [_op(_LOAD, 4), _op(_EQUAL, arch.audit_arch, skip_true=1), _return(_KILL), _op(_LOAD, 0)]
    if machine == "x86_64":
        code += [_op(_AT_LEAST, _X32, skip_false=1), refuse]
    for numbers in DENIED_CALLS.values():
        code += [_op(_EQUAL, numbers[arch.column], skip_false=1), refuse]
    # clone3 takes its flags by pointer, out of a filter's sight; ENOSYS makes libraries fall back to clone.
    code += [_op(_EQUAL, arch.clone3, skip_false=1), _return(_REFUSE | errno.ENOSYS)]
    code += [_op(_EQUAL, arch.clone, skip_false=4), _op(_LOAD, 16)]
    code += [_op(_ANY_BIT, _NEW_USER_NAMESPACE, skip_false=1), refuse, _return(_ALLOW)]
    # Its size is 64 bits wide: the high half at 28, the low one at 24.
    code += [_op(_EQUAL, arch.shmget, skip_false=6), _op(_LOAD, 28), _op(_EQUAL, 0, skip_false=2), _op(_LOAD, 24)]
    code += [_op(_AT_LEAST, MAX_SEGMENT_BYTES + 1, skip_false=1), _return(_REFUSE | errno.EINVAL), _return(_ALLOW)]
    code += [_op(_EQUAL, arch.ioctl, skip_false=5), _op(_LOAD, 24)]
    code += [_op(_EQUAL, _TIOCSTI, skip_true=1), _op(_EQUAL, _TIOCLINUX, skip_false=1), refuse, _return(_ALLOW)]
    code += [_op(_EQUAL, arch.socket, skip_false=2 + len(SOCKET_FAMILIES)), _op(_LOAD, 16)]
    code += [_op(_EQUAL, family, skip_true=len(SOCKET_FAMILIES) - n) for n, family in enumerate(SOCKET_FAMILIES)]
    code += [_return(_REFUSE | errno.EAFNOSUPPORT), _return(_ALLOW)]
    return b"".join(code)


def _op(code: int, operand: int, *, skip_true: int = 0, skip_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_true, skip_false, operand)


def _return(verdict: int) -> bytes:
    return _op(_RETURN, verdict)


def which(program: str, package: str) -> str:
    """Return the absolute path of a program; the error has the command that installs its package."""
    place = shutil.which(program)
    if place is None:
        raise SandboxError(
            f"The program `{program}` is missing; install it with: {install_command(package, _system_ids())}"
        )
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts about a machine that explain failures; None for missing kernel settings."""

    systems: tuple[str, ...] = ()
    program: str = "/usr/bin/bwrap"
    apparmor_restricts: int | None = None
    userns_clone: int | None = None
    max_user_namespaces: int | None = None
    is_container: bool = False
    is_root: bool = False


def inspect_machine() -> Machine:
    return Machine(
        systems=_system_ids(),
        program=shutil.which("bwrap") or "/usr/bin/bwrap",
        apparmor_restricts=_read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        userns_clone=_read_number("/proc/sys/kernel/unprivileged_userns_clone"),
        max_user_namespaces=_read_number("/proc/sys/user/max_user_namespaces"),
        is_container=any(Path(mark).exists() for mark in _CONTAINER_MARKERS),
        is_root=os.geteuid() == 0,
    )


_CONTAINER_MARKERS = ("/.dockerenv", "/run/.containerenv")  # Docker's and podman's marks


@functools.cache
def _system_ids() -> tuple[str, ...]:
    try:
        release = platform.freedesktop_os_release()
    except OSError:  # there is no such file
        return ()
    return (release.get("ID", ""), *release.get("ID_LIKE", "").split())


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # another kernel
        return None


def explain(stderr: str, code: int, machine: Machine) -> str:
    """Explain bubblewrap's failure, with a remedy."""
    failure = f"bubblewrap could not start a sandbox (exit code {code}): {stderr.strip() or 'it said nothing'}"
    if _TOO_OLD.lower() in stderr.lower():
        command = install_command("bubblewrap", machine.systems)
        return f"{failure}\nIt is too old; version 0.8 or newer is needed: {command}"
    if any(sign in stderr.lower() for sign in _NO_PROC):
        return f"{failure}\n{_CONTAINER}"
    if any(sign in stderr.lower() for sign in _NO_NAMESPACES):
        # Everything that is known to keep user namespaces from us; each must be fixed.
        remedies = []
        if machine.max_user_namespaces == 0:
            remedies.append(_NAMESPACES_LIMITED)
        if machine.userns_clone == 0 and not machine.is_root:
            remedies.append(_NAMESPACES_ROOT_ONLY)
        if machine.apparmor_restricts and not machine.is_root and not machine.is_container:
            remedies.append(_APPARMOR.format(program=machine.program))
        if machine.is_container:
            remedies.append(_CONTAINER)
        return "\n".join([failure, *(remedies or [_UNKNOWN])])
    return failure


def install_command(package: str, systems: Iterable[str]) -> str:
    command = next((_PACKAGE_MANAGERS[name] for name in systems if name in _PACKAGE_MANAGERS), None)
    return f"{command or _PACKAGE_MANAGERS['debian']} {package}"


_PACKAGE_MANAGERS = {
    # the `ID` or `ID_LIKE` of os-release(5) → what installs a package there
    "debian": "sudo apt-get install --yes",
    "ubuntu": "sudo apt-get install --yes",
    "fedora": "sudo dnf install --assumeyes",
    "rhel": "sudo dnf install --assumeyes",
    "suse": "sudo zypper install --no-confirm",
    "arch": "sudo pacman --sync --noconfirm",
    "alpine": "sudo apk add",
}

_TOO_OLD = "Unknown option"

_NO_PROC = ("mount proc", "mounting proc")

_NO_NAMESPACES = ("uid map", "no permissions to create", "rtm_newaddr", "creating new namespace", "no space left")

_APPARMOR = """\
AppArmor prevents programs without a profile from creating user namespaces (Ubuntu does so from 23.10 on). Give \
bubblewrap one:

sudo tee /etc/apparmor.d/bwrap >/dev/null <<'END'
abi <abi/4.0>,
include <tunables/global>
profile bwrap {program} flags=(unconfined) {{
  userns,
}}
END
sudo apparmor_parser --replace /etc/apparmor.d/bwrap

On a machine that is discarded after the job, this does as well:
sudo sysctl --write kernel.apparmor_restrict_unprivileged_userns=0"""

_NAMESPACES_ROOT_ONLY = """\
The kernel allows only root to create user namespaces. Allow them for all users, now and after a reboot:

sudo sysctl --write kernel.unprivileged_userns_clone=1
echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-user-namespaces.conf"""

_NAMESPACES_LIMITED = """\
The kernel allows no user namespaces. Allow them, now and after a reboot:

sudo sysctl --write user.max_user_namespaces=10000
echo user.max_user_namespaces=10000 | sudo tee /etc/sysctl.d/60-user-namespaces.conf"""

_CONTAINER = """\
This is a container whose engine prevents programs from creating namespaces. Start it with these additional options:

--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined

(podman takes `--security-opt unmask=ALL` for the last.) bubblewrap applies stricter rules to the agent's programs."""

_UNKNOWN = """\
The kernel refuses user namespaces and does not say why. Run this as the user who runs the bot:

unshare --user --map-root-user true; sysctl kernel.unprivileged_userns_clone user.max_user_namespaces"""
