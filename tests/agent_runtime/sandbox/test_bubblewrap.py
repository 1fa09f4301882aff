from __future__ import annotations

import asyncio
import os
import platform
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox import bubblewrap
from agent_runtime.sandbox.bubblewrap import Bubblewrap, Machine, explain, inspect_machine, install_command
from agent_runtime.sandbox.protocol import SandboxLimits, SandboxSettings
from tests.sandboxes import run_inside


def test_the_probe_starts_a_program_and_remembers_success() -> None:
    sandbox = Bubblewrap(SandboxSettings())
    sandbox.probe()
    sandbox.probe()
    assert sandbox.level == "bubblewrap"


def test_a_missing_program_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match=r"install.* bubblewrap"):
        Bubblewrap(SandboxSettings()).probe()


def test_the_workspace_is_writable_under_a_fixed_name(tmp_path: Path) -> None:
    done = run_inside("pwd; echo made > here; id -un", tmp_path)
    assert done.stdout == "/workspace\nagent\n"
    assert (tmp_path / "here").read_text() == "made\n"
    assert (tmp_path / "here").stat().st_uid == os.getuid()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a git repository as the workspace."""
    (tmp_path / "a.txt").write_text("one\n")
    identity = ["-c", "user.name=Mona", "-c", "user.email=mona@example.com"]
    for words in (["init", "--quiet"], ["add", "a.txt"], [*identity, "commit", "--quiet", "--message", "First"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


@pytest.mark.parametrize(
    "attempt",
    [
        "echo 'touch /tmp/out' > .git/hooks/pre-commit",
        "git config core.fsmonitor /workspace/evil",
        "echo /workspace/other > .git/commondir",
        "mv .git .old && mkdir .git",
        "rm -rf .git",
        "ln -sfn /workspace/other .git",
        "chmod -R u+w .git && touch .git/x",
    ],
)
def test_the_repository_of_a_workspace_cannot_be_changed(repository: Path, attempt: str) -> None:
    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()}

    before = state()
    run_inside(attempt, repository)
    assert state() == before
    assert (repository / ".git").is_dir()
    assert not (repository / ".git").is_symlink()
    done = run_inside("echo two >> a.txt && git status --short && git diff --stat && git log --oneline", repository)
    assert done.returncode == 0, done.stderr
    assert "M a.txt" in done.stdout


def test_a_repository_can_be_changed_where_that_is_wanted(repository: Path) -> None:
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m Second && git log --format=%s -1"
    assert "Read-only file system" in run_inside(commit, repository).stderr
    assert run_inside(commit, repository, SandboxSettings(git_writable=True)).stdout == "Second\n"


@pytest.mark.parametrize("place", ["/x", "/usr/x", "/etc/x", "/dev/x", "/var/x", "/proc/sys/kernel/core_pattern"])
def test_nothing_else_is_writable(tmp_path: Path, place: str) -> None:
    done = run_inside(f"echo x > {place}", tmp_path)
    assert done.returncode != 0, place


@pytest.mark.parametrize("place", ["/tmp/x", "/dev/shm/x", "/var/tmp/x", "$HOME/x"])  # noqa: S108 - inside
def test_temporary_places_are_writable_up_to_their_size(tmp_path: Path, place: str) -> None:
    settings = SandboxSettings(limits=SandboxLimits(tmp_bytes=1 << 20))
    assert run_inside(f"echo x > {place}", tmp_path, settings).returncode == 0
    done = run_inside(f"head -c 2000000 /dev/zero > {place}", tmp_path, settings)
    assert "No space left" in done.stderr


def test_only_the_allowed_part_of_the_host_is_there(tmp_path: Path) -> None:
    command = "ls -A / /home /root /run /var; ls /etc | tr '\\n' ' '; cat /etc/passwd"
    done = run_inside(command, tmp_path, SandboxSettings(toolchains="none"))
    assert "shadow" not in done.stdout
    assert str(tmp_path.parent.name) not in done.stdout
    assert done.stdout.count(":x:") == 3
    top = done.stdout.split("\n\n")[0].split()[1:]
    assert set(top) <= {
        "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr", "var",
        "workspace",
    }  # fmt: skip


def test_a_directory_is_shown_at_another_path_to_one_sandbox(tmp_path: Path) -> None:
    for name in ("work", "store"):
        (tmp_path / name).mkdir()
    (tmp_path / "store/object").write_text("one\n")
    plain = Bubblewrap(SandboxSettings())
    for sandbox, output in ((plain, "1\n"), (plain.showing({"/run/place": tmp_path / "store"}), "one\n0\n")):
        script = "cat /run/place/object; echo $?; echo x > /run/place/object"
        launch = sandbox.launch(["sh", "-c", script], workspace=tmp_path / "work")
        done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=False)
        assert done.stdout == output
        assert done.returncode != 0
    assert (tmp_path / "store/object").read_text() == "one\n"


def test_a_read_only_directory_is_shown_at_its_own_path(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.mkdir()
    (tool / "hello").write_text("#!/bin/sh\necho hello\n")
    (tool / "hello").chmod(0o755)
    workspace = tmp_path / "work"
    workspace.mkdir()
    settings = SandboxSettings(read_only=(tool,), path=(tool,), environment={"COLOUR": "blue"})
    done = run_inside(f"hello; echo $COLOUR; echo x > {tool}/x", workspace, settings)
    assert done.stdout == "hello\nblue\n"
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize("directory", [Path("/"), Path("relative"), Path("/nonexistent")])
def test_an_impossible_read_only_directory_is_refused_by_name(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(SandboxError, match="read_only"):
        Bubblewrap(SandboxSettings(read_only=(directory,))).launch(["true"], workspace=tmp_path)


def test_a_missing_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="not a directory"):
        Bubblewrap(SandboxSettings()).launch(["true"], workspace=tmp_path / "none")


def test_the_environment_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cr3t")
    names = {line.partition("=")[0] for line in run_inside("env", tmp_path).stdout.splitlines()}
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "PWD", "SHLVL", "_", "OLDPWD"}


def test_there_are_no_capabilities_and_no_new_namespaces(tmp_path: Path) -> None:
    done = run_inside("grep Cap /proc/self/status; unshare --user true; unshare --mount true", tmp_path)
    assert {line.split()[1] for line in done.stdout.splitlines()} == {"0" * 16}
    assert done.stderr.count("Operation not permitted") == 2


def test_programs_stand_back_behind_those_outside(tmp_path: Path) -> None:
    assert run_inside("nice", tmp_path).stdout == f"{min(19, os.nice(0) + 10)}\n"


def test_rlimits_hold(tmp_path: Path) -> None:
    limits = SandboxLimits(memory_bytes=1 << 30, file_bytes=1 << 20, open_files=64, processes=50)
    settings = SandboxSettings(limits=limits)
    done = run_inside("ulimit -d; ulimit -f; ulimit -n; ulimit -u; ulimit -c", tmp_path, settings)
    assert done.stdout.split() == ["1048576", "1024", "64", "50", "0"]
    assert run_inside("head -c 2000000 /dev/zero > big", tmp_path, settings).returncode != 0
    assert (tmp_path / "big").stat().st_size == 1 << 20
    allocate = "/usr/bin/python3 -c 'bytearray(3 << 30)'"
    assert "MemoryError" in run_inside(allocate, tmp_path, settings).stderr
    assert run_inside("cat /proc/self/oom_score_adj", tmp_path).stdout == "1000\n"


_RESERVES = {
    "node": "const kept = []; while (kept.length < 4) kept.push(new WebAssembly.Memory({initial: 1, maximum: 65536}));"
    "console.log(kept.length)",
    "python3": "from mmap import *; print(mmap(-1, 64 << 30, MAP_PRIVATE | MAP_ANONYMOUS, PROT_READ)[0])",
}
_HOGS = {
    "node": "const kept = []; for (;;) kept.push(Buffer.alloc(1 << 26, 1))",
    "python3": "kept = [bytearray(1 << 26) for _ in range(64)]",
}


@pytest.mark.parametrize("program", _RESERVES)
def test_memory_that_is_only_set_aside_is_free_and_memory_that_is_used_is_bounded(tmp_path: Path, program: str) -> None:
    if shutil.which(program, path="/usr/bin") is None:
        pytest.skip(f"{program} is not among the system's programs")
    option = "-e" if program == "node" else "-c"
    done = run_inside(f"{program} {option} '{_RESERVES[program]}'", tmp_path)
    assert (done.returncode, done.stdout.strip().isdigit()) == (0, True), done.stderr
    bounded = SandboxSettings(limits=SandboxLimits(memory_bytes=1 << 30))
    assert run_inside(f"{program} {option} '{_HOGS[program]}'; echo ended $?", tmp_path, bounded).stdout != "ended 0\n"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_an_ordinary_user_gets_the_same_sandbox_and_a_bound_on_processes(tmp_path: Path) -> None:
    # For root the kernel does not count processes, so this must be seen from an ordinary user.
    program = (
        "import subprocess, sys, tempfile; from pathlib import Path; sys.path[:0] = sys.argv[1:]\n"
        "from agent_runtime.sandbox.bubblewrap import Bubblewrap\n"
        "from agent_runtime.sandbox.protocol import SandboxLimits, SandboxSettings\n"
        "sandbox = Bubblewrap(SandboxSettings(limits=SandboxLimits(processes=20)))\n"
        "with tempfile.TemporaryDirectory() as directory:\n"
        "    fork = 'import os, time\\nfor count in range(60): os.fork() or time.sleep(60)'\n"
        "    script = f'touch made; echo started; exec /usr/bin/python3 -c \"{fork}\"'\n"
        "    launch = sandbox.launch(['bash', '-c', script], workspace=Path(directory))\n"
        "    done = subprocess.run(launch.argv, env=launch.env, capture_output=True, text=True, timeout=30)\n"
        "    print(done.stdout, done.stderr, Path(directory, 'made').exists())\n"
    )
    python = shutil.which("python3", path="/usr/bin:/bin")
    user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
    root = Path(__file__).parents[3]
    if python is None or subprocess.run([*user, "ls", str(root)], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Python of the system, or the source cannot be read by other users")
    packages = [path for path in sys.path if "site-packages" in path]
    done = subprocess.run(
        [*user, python, "-c", program, str(root), *packages], capture_output=True, text=True, timeout=60, check=False
    )
    assert "started" in done.stdout, done.stderr
    assert "Resource temporarily unavailable" in done.stdout
    assert "True" in done.stdout


async def test_it_starts_from_a_running_event_loop(tmp_path: Path) -> None:
    launch = Bubblewrap(SandboxSettings()).launch(["echo", "hi"], workspace=tmp_path)
    process = await asyncio.create_subprocess_exec(
        *launch.argv, env=dict(launch.env), stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    assert (await process.communicate())[0] == b"hi\n"


_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_X86, _ARM = 0xC000003E, 0xC00000B7


def verdict(machine: str, arch: int, number: int, *args: int) -> int:
    """Evaluate the filter like the kernel."""
    code = bubblewrap.seccomp_filter(machine)
    assert code is not None
    steps = list(struct.iter_unpack("=HBBI", code))
    data = struct.pack("=iIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    value, position = 0, 0
    while True:
        operation, skip_true, skip_false, operand = steps[position]
        position += 1
        if operation == _RETURN:
            return int(operand)
        if operation == _LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
            continue
        holds = {_EQUAL: value == operand, _AT_LEAST: value >= operand, _ANY_BIT: bool(value & operand)}[operation]
        position += skip_true if holds else skip_false


@pytest.mark.parametrize(("machine", "arch", "column"), [("x86_64", _X86, 0), ("aarch64", _ARM, 1)])
@pytest.mark.parametrize("name", bubblewrap.DENIED_CALLS)
def test_every_call_in_the_table_is_refused(machine: str, arch: int, column: int, name: str) -> None:
    assert verdict(machine, arch, bubblewrap.DENIED_CALLS[name][column]) == _EPERM


@pytest.mark.parametrize(
    ("machine", "arch", "ioctl", "clone", "socket"), [("x86_64", _X86, 16, 56, 41), ("aarch64", _ARM, 29, 220, 198)]
)
def test_arguments_decide_about_ioctl_clone_and_socket(
    machine: str, arch: int, ioctl: int, clone: int, socket: int
) -> None:
    assert verdict(machine, arch, ioctl, 0, 0x5412) == _EPERM
    assert verdict(machine, arch, ioctl, 0, 0x541C) == _EPERM
    assert verdict(machine, arch, ioctl, 0, 0x5413) == _ALLOW
    assert verdict(machine, arch, clone, 0x10000011) == _EPERM
    assert verdict(machine, arch, clone, 0x00000011) == _ALLOW
    assert verdict(machine, arch, socket, 40) != _ALLOW
    assert [verdict(machine, arch, socket, family) for family in bubblewrap.SOCKET_FAMILIES] == [_ALLOW] * 4
    assert verdict(machine, arch, 435) == 0x00050026


def test_other_calls_pass_and_other_architectures_do_not() -> None:
    assert verdict("x86_64", _X86, 0) == _ALLOW
    assert verdict("x86_64", 0x40000003, 0) == _KILL
    assert verdict("x86_64", _X86, 0x40000000 | 1) == _EPERM
    assert bubblewrap.seccomp_filter("riscv64") is None


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="no filter for this machine")
def test_the_kernel_refuses_each_call_of_the_table(tmp_path: Path) -> None:
    column = 0 if platform.machine() == "x86_64" else 1
    numbers = {name: numbers[column] for name, numbers in bubblewrap.DENIED_CALLS.items()}
    script = (
        "import ctypes, fcntl, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {numbers!r}.items():\n"
        "    answer = libc.syscall(number, -1, -1, -1, -1, -1, -1)\n"
        "    print(name, answer, ctypes.get_errno())\n"
        "try: socket.socket(40, socket.SOCK_STREAM)\n"
        "except OSError as error: print('vsock', error.errno)\n"
    )
    (tmp_path / "try.py").write_text(script)
    done = run_inside("/usr/bin/python3 try.py; grep Seccomp: /proc/self/status", tmp_path)
    lines = done.stdout.splitlines()
    assert lines[: len(numbers)] == [f"{name} -1 1" for name in numbers], done.stderr
    assert lines[len(numbers) :] == ["vsock 97", "Seccomp:\t2"]


REFUSED = "bwrap: setting up uid map: Permission denied"
NO_NAMESPACE = "bwrap: No permissions to create new namespace, likely because the kernel does not allow them"
EXCEEDED = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"

USER = Machine(systems=("ubuntu", "debian"), apparmor_restricts=0, userns_clone=1, max_user_namespaces=30_000)
UBUNTU = replace(USER, apparmor_restricts=1)
OLD_DEBIAN = replace(USER, userns_clone=0)
NONE_LEFT = replace(USER, max_user_namespaces=0)
INSIDE = replace(USER, is_container=True)

PROFILE, SWITCH = "profile bwrap /usr/bin/bwrap flags=(unconfined)", "apparmor_restrict_unprivileged_userns=0"
CLONE, MOST, DOCKER = "userns_clone=1", "user.max_user_namespaces=10000", "--security-opt seccomp=unconfined"
ALL = (PROFILE, SWITCH, CLONE, MOST, DOCKER, "0.8", "unshare --user")


@pytest.mark.parametrize(
    ("said", "machine", "wanted"),
    [
        (REFUSED, UBUNTU, (PROFILE, SWITCH)),
        (NO_NAMESPACE, OLD_DEBIAN, (CLONE,)),
        (EXCEEDED, NONE_LEFT, (MOST,)),
        (EXCEEDED, replace(NONE_LEFT, is_root=True), (MOST,)),
        (NO_NAMESPACE, replace(NONE_LEFT, apparmor_restricts=1), (MOST, PROFILE, SWITCH)),
        ("bwrap: Creating new namespace failed: Operation not permitted", replace(INSIDE, is_root=True), (DOCKER,)),
        (REFUSED, replace(INSIDE, apparmor_restricts=1), (DOCKER,)),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", INSIDE, (DOCKER,)),
        ("bwrap: Unknown option --disable-userns", USER, ("0.8",)),
        (REFUSED, USER, ("unshare --user",)),
        (REFUSED, Machine(), ("unshare --user",)),
        ("", USER, ()),
        ("bwrap: Can't find source path /x: No such file or directory", UBUNTU, ()),
    ],
)
def test_the_remedy_is_the_one_for_this_machine(said: str, machine: Machine, wanted: tuple[str, ...]) -> None:
    text = explain(said, 1, machine)
    assert (said or "it said nothing") in text
    assert [remedy for remedy in ALL if remedy in text] == sorted(wanted, key=ALL.index)


def test_the_profile_is_for_the_bubblewrap_that_is_there() -> None:
    assert "profile bwrap /opt/bin/bwrap flags" in explain(REFUSED, 1, replace(UBUNTU, program="/opt/bin/bwrap"))


def test_the_commands_of_a_remedy_can_be_pasted_into_a_shell() -> None:
    for machine in (UBUNTU, OLD_DEBIAN, NONE_LEFT):
        remedy = explain(REFUSED, 1, machine).partition("\n\n")[2]
        stand_in = 'sudo() { if [ "$1" = tee ]; then cat >/dev/null; fi; }\n'
        commands = "".join(part for part in remedy.split("\n\n") if "sudo" in part).replace("this does as well:", ":")
        commands = "\n".join(line for line in commands.splitlines() if not line.startswith("On a machine"))
        done = subprocess.run(["sh", "-euc", stand_in + commands], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (commands, done.stderr)


@pytest.mark.parametrize(
    ("systems", "command"),
    [
        (("ubuntu", "debian"), "sudo apt-get install --yes bubblewrap"),
        (("rocky", "rhel", "centos", "fedora"), "sudo dnf install --assumeyes bubblewrap"),
        (("alpine",), "sudo apk add bubblewrap"),
        (("opensuse-tumbleweed", "opensuse", "suse"), "sudo zypper install --no-confirm bubblewrap"),
        (("arch",), "sudo pacman --sync --noconfirm bubblewrap"),
        ((), "sudo apt-get install --yes bubblewrap"),
    ],
)
def test_a_missing_program_is_installed_with_the_systems_own_command(systems: tuple[str, ...], command: str) -> None:
    assert install_command("bubblewrap", systems) == command


def test_this_machine_can_be_looked_at() -> None:
    assert isinstance(inspect_machine(), Machine)
