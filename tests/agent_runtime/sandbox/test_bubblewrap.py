from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
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
    """A workspace that is a user's own repository."""
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
    done = run_inside("ls -A / /home /root /run /var; ls /etc | tr '\\n' ' '; cat /etc/passwd", tmp_path)
    assert "shadow" not in done.stdout
    assert str(tmp_path.parent.name) not in done.stdout
    assert done.stdout.count(":x:") == 3
    top = done.stdout.split("\n\n")[0].split()[1:]
    assert set(top) <= {
        "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr", "var",
        "workspace",
    }  # fmt: skip


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
