"""The default sandbox: bubblewrap, with an allow-list of what it shows of the host.

Inside there are the system's programs, fresh `/proc`, `/dev`, `/tmp` and home, and the workspace at `/workspace`. The
rest of the host's files, its processes, network and environment do not exist there. The workspace's own path is not
used inside, so that prompts and outputs of two jobs on the same commit are the same to the byte.

`enclosed` is a stricter sandbox for one program that computes and speaks over its standard streams only. A filter of
system calls (`seccomp_filter`) is the same for both. `explain` suggests fixes for a machine on which bubblewrap fails.
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
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import (
    HOME,
    TMPFS,
    WORKSPACE,
    FixedPath,
    Launch,
    SandboxLimits,
    SandboxSettings,
    Temporary,
    libraries_of,
)

_USER = 1000

_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_NICE = 10
"""How much programs inside stand back behind those outside; see sched(7)."""

_GUARD = "CAP_WAKE_ALARM"
"""A capability that is good for nothing in a user namespace (timerfd_create(2) asks for it in the first one). But the
kernel lets no process at the memory or descriptors of one that has a capability which it lacks (ptrace(2))."""

WITHOUT_GUARD = ("setpriv", "--inh-caps=-all", "--ambient-caps=-all")
"""The words that the first process of a sandbox puts before the programs that it starts."""

# `sh` opens the filter for bubblewrap, because a `Launch` is argv and environment only: each start needs a file
# offset of its own, and any starter of programs will do then.
_OPEN_FILTER = 'exec "$@" 9<"$0"'

_STARTED: set[tuple[str, ...]] = set()
"""The commands of successful probes, without the workspace."""


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
        """The limits of the settings."""
        return self._settings.limits

    @property
    def git_writable(self) -> bool:
        """Whether the settings say so."""
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
        """Prepare to start `argv` in `/workspace`, which is `workspace` and the only thing writable besides tmpfs.

        Args:
            argv: the program and its arguments.
            workspace: the directory of the host to work in.
            readable: more files and directories of the host that may be read, by their absolute path inside.
            fixed: paths in the workspace that stay in their place.
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
        for each in fixed:
            option = "--bind" if each.writable else "--ro-bind"
            options += [option, str(workspace.resolve() / each.path), f"{WORKSPACE}/{each.path}"]
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
        """Return `/workspace`, for every workspace."""
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


def shared_files() -> Path:
    """The directory with our files for /etc, and `filter` if there is one for this machine; all sandboxes share it."""
    directory = _directory().path
    directory.mkdir(mode=0o700, exist_ok=True)
    wanted = {name: text.encode() for name, text in _FILES.items()}
    program = seccomp_filter(platform.machine())
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
    """Return the options of bubblewrap that separate a program from the host."""
    # No --new-session: it takes the terminal away, and Ctrl+C with it; the filter refuses typing into it instead.
    options = ["--unshare-user", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"]
    options += ["--uid", str(_USER), "--gid", str(_USER)]
    return [*options, "--disable-userns"] if _can_disable_namespaces() else options


@functools.cache
def _can_disable_namespaces() -> bool:
    """Whether this bubblewrap is 0.8 or newer; without the option the filter alone refuses new user namespaces."""
    shown = subprocess.run([find("bwrap", "bubblewrap"), "--help"], capture_output=True, timeout=10, check=False)
    return b"--disable-userns" in shown.stdout + shown.stderr


_ETC = (
    "alternatives", "ca-certificates.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic",
    "mime.types", "os-release", "perl", "pki/tls/certs", "protocols", "python3", "python3.11", "python3.12",
    "python3.13", "python3.14", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
"""The parts of /etc that programs need to run and that reveal nothing."""


def _system() -> list[str]:
    """Return the options that show the system's programs and libraries and the harmless part of /etc."""
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
    """Return the words that set the limits of a process, from inside.

    There the number of processes counts this sandbox's own (Linux 5.14 and newer).

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


_ENCLOSED_LIMITS = (f"--as={4 * 1024**3}", "--nproc=64", "--fsize=0", "--nofile=64", "--core=0")
"""As prlimit(1) takes them; address space in bytes. Set inside, where the processes are this sandbox's own."""

_ENCLOSED_PROGRAM = "/program"


def enclosed(program: Path) -> Path:
    """Write a program that starts `program` alone in a sandbox, with the arguments and standard streams it is given.

    Nothing else is in that sandbox but the files of its libraries: an empty, read-only root without `/proc`, `/dev`,
    `/tmp` or home, and no network, environment, capabilities or other processes.

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
        half.write_text(
            f'#!{find("sh", "dash")}\nexec {shlex.join(_enclosing_command(program))} "$@"{_opening_filter()}\n'
        )
        half.chmod(0o700)
        half.replace(script)
    return script


def _enclosing_command(program: Path) -> list[str]:
    limiter = find("prlimit", "util-linux")
    libraries = sorted(libraries_of(program) | libraries_of(Path(limiter)))
    options = [*namespaces(), "--new-session", "--clearenv", "--ro-bind", str(program), _ENCLOSED_PROGRAM]
    for place in (limiter, *libraries):
        options += ["--ro-bind", place, place]
    # The loader's own table of libraries stays outside.
    directories = sorted({str(Path(library).parent) for library in libraries})
    options += ["--setenv", "LD_LIBRARY_PATH", ":".join(directories), "--remount-ro", "/", "--chdir", "/"]
    if _opening_filter():
        options += ["--seccomp", "9"]
    return [find("bwrap", "bubblewrap"), *options, "--", limiter, *_ENCLOSED_LIMITS, "--", _ENCLOSED_PROGRAM]


def _opening_filter() -> str:
    """Return the redirection for a shell's command by which bubblewrap finds the filter at descriptor 9."""
    place = shared_files() / "filter"
    return f" 9<{shlex.quote(str(place))}" if place.exists() else ""


DENIED: dict[str, tuple[int, int]] = {
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
"""Refused with EPERM, whatever the arguments."""

FAMILIES: tuple[int, ...] = (1, 2, 10, 16)
"""Socket families allowed: unix, IPv4, IPv6, netlink. Others, such as vsock, are not divided by network namespaces."""

LARGEST_SEGMENT = 64 * 1024
"""Bytes of a System V shared memory segment: they need no process and no file, so nothing outside sees what they take.
There can be 4,096 of them (shmget(2)). Databases want a small one for a lock."""

_NEW_USER_NAMESPACE = 0x10000000

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into a terminal as if its user did

_X32 = 0x40000000  # x86-64 only: a second numbering of the same calls

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Architecture:
    """An architecture: the kernel's name for it, its column in `DENIED`, and the numbers of five more calls."""

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
    """Return the filter for a machine as `platform.machine()` names it; None for one that is not in the table.

    The filter is classic BPF as `seccomp(2)` takes it: an array of `struct sock_filter` in the machine's byte order,
    over `struct seccomp_data` (the number at offset 0, the architecture at 4, the low half of argument n at 16 + 8 n).
    """
    known = _ARCHITECTURES.get(machine)
    if known is None:
        return None
    refuse = _return(_REFUSE | errno.EPERM)
    code = [_op(_LOAD, 4), _op(_EQUAL, known.audit_arch, skip_true=1), _return(_KILL), _op(_LOAD, 0)]
    if machine == "x86_64":
        code += [_op(_AT_LEAST, _X32, skip_false=1), refuse]
    for numbers in DENIED.values():
        code += [_op(_EQUAL, numbers[known.column], skip_false=1), refuse]
    # clone3 takes its flags by pointer, out of a filter's sight; ENOSYS makes libraries fall back to clone.
    code += [_op(_EQUAL, known.clone3, skip_false=1), _return(_REFUSE | errno.ENOSYS)]
    code += [_op(_EQUAL, known.clone, skip_false=4), _op(_LOAD, 16)]
    code += [_op(_ANY_BIT, _NEW_USER_NAMESPACE, skip_false=1), refuse, _return(_ALLOW)]
    # Its size is 64 bits wide: the high half at 28, the low one at 24.
    code += [_op(_EQUAL, known.shmget, skip_false=6), _op(_LOAD, 28), _op(_EQUAL, 0, skip_false=2), _op(_LOAD, 24)]
    code += [_op(_AT_LEAST, LARGEST_SEGMENT + 1, skip_false=1), _return(_REFUSE | errno.EINVAL), _return(_ALLOW)]
    code += [_op(_EQUAL, known.ioctl, skip_false=5), _op(_LOAD, 24)]
    code += [_op(_EQUAL, _TIOCSTI, skip_true=1), _op(_EQUAL, _TIOCLINUX, skip_false=1), refuse, _return(_ALLOW)]
    code += [_op(_EQUAL, known.socket, skip_false=2 + len(FAMILIES)), _op(_LOAD, 16)]
    code += [_op(_EQUAL, family, skip_true=len(FAMILIES) - index) for index, family in enumerate(FAMILIES)]
    code += [_return(_REFUSE | errno.EAFNOSUPPORT), _return(_ALLOW)]
    return b"".join(code)


def _op(code: int, operand: int, *, skip_true: int = 0, skip_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_true, skip_false, operand)


def _return(verdict: int) -> bytes:
    return _op(_RETURN, verdict)


def find(program: str, package: str) -> str:
    """Return the absolute path of a program.

    Raises:
        SandboxError: it is missing; the text has the command that installs its package.
    """
    place = shutil.which(program)
    if place is None:
        raise SandboxError(
            f"The program `{program}` is missing; install it with: {install_command(package, _systems())}"
        )
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts about a machine that explain a failure. The kernel's settings are None where it does not have them.

    Attributes:
        systems: `ID` and the words of `ID_LIKE` in its os-release(5).
        program: where bubblewrap is.
        apparmor_restricts: `kernel.apparmor_restrict_unprivileged_userns`.
        userns_clone: `kernel.unprivileged_userns_clone`, which Debian's older kernels have.
        max_user_namespaces: `user.max_user_namespaces`.
        container: whether it is a container.
        root: whether we are root, whom the first two do not stop.
    """

    systems: tuple[str, ...] = ()
    program: str = "/usr/bin/bwrap"
    apparmor_restricts: int | None = None
    userns_clone: int | None = None
    max_user_namespaces: int | None = None
    container: bool = False
    root: bool = False


def this_machine() -> Machine:
    """Read the facts about this machine; an unreadable one is left out."""
    return Machine(
        systems=_systems(),
        program=shutil.which("bwrap") or "/usr/bin/bwrap",
        apparmor_restricts=_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        userns_clone=_number("/proc/sys/kernel/unprivileged_userns_clone"),
        max_user_namespaces=_number("/proc/sys/user/max_user_namespaces"),
        container=any(Path(mark).exists() for mark in _CONTAINERS),
        root=os.geteuid() == 0,
    )


_CONTAINERS = ("/.dockerenv", "/run/.containerenv")  # Docker's and podman's marks


@functools.cache
def _systems() -> tuple[str, ...]:
    try:
        release = platform.freedesktop_os_release()
    except OSError:  # there is no such file
        return ()
    return (release.get("ID", ""), *release.get("ID_LIKE", "").split())


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # another kernel
        return None


def explain(said: str, code: int, machine: Machine) -> str:
    """Explain why bubblewrap could not start a program, and how to fix it.

    Args:
        said: its standard error.
        code: its exit code.
        machine: the machine.
    """
    happened = f"bubblewrap could not start a sandbox (exit code {code}): {said.strip() or 'it said nothing'}"
    if _TOO_OLD.lower() in said.lower():
        command = install_command("bubblewrap", machine.systems)
        return f"{happened}\nIt is too old; version 0.8 or newer is needed: {command}"
    if any(sign in said.lower() for sign in _NO_PROC):
        return f"{happened}\n{_CONTAINER}"
    if any(sign in said.lower() for sign in _NO_NAMESPACES):
        # Everything that is known to keep user namespaces from us; each must be fixed.
        found = []
        if machine.max_user_namespaces == 0:
            found.append(_MOST)
        if machine.userns_clone == 0 and not machine.root:
            found.append(_CLONE)
        if machine.apparmor_restricts and not machine.root and not machine.container:
            found.append(_APPARMOR.format(program=machine.program))
        if machine.container:
            found.append(_CONTAINER)
        return "\n".join([happened, *(found or [_UNKNOWN])])
    return happened


def install_command(package: str, systems: Iterable[str]) -> str:
    """Return the command that installs a package."""
    known = next((_PACKAGE_MANAGERS[name] for name in systems if name in _PACKAGE_MANAGERS), None)
    return f"{known or _PACKAGE_MANAGERS['debian']} {package}"


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

_CLONE = """\
The kernel allows only root to create user namespaces. Allow them for all users, now and after a reboot:

sudo sysctl --write kernel.unprivileged_userns_clone=1
echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-user-namespaces.conf"""

_MOST = """\
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
