"""Threat 28: no file tool leads out of the workspace, into git's files or into something that is no file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.tools.search import SearchTools
from agent_runtime.workspace import files
from agent_runtime.workspace.files import Workspace

SECRET = b"the host's secret"

# Exchanges a directory and a link to the outside, atomically and as fast as it can, until its input ends.
SWAPPER = """
import ctypes, select, sys
libc = ctypes.CDLL(None, use_errno=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(500):
        if libc.renameat2(-100, b"dir", -100, b"link", 2):
            sys.exit(1)
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "file.txt").write_bytes(SECRET)
    return path


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    path = tmp_path / "work"
    (path / "dir").mkdir(parents=True)
    (path / "dir" / "file.txt").write_bytes(b"inside")
    return path


@pytest.fixture(params=["openat2", "walking"])
def workspace(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """Both implementations of safe opening: the kernel's, and the fallback."""
    if request.param == "walking":
        monkeypatch.setattr(files, "choose_opener", lambda _: files.open_by_walking)
    with Workspace(root) as opened:
        yield opened


def refused(workspace: Workspace, path: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason) as read:
        workspace.read_bytes(path, 1000)
    with pytest.raises(ToolError, match=reason) as written:
        workspace.write_bytes(path, b"overwritten")
    assert {read.value.kind, written.value.kind} <= {"PermissionError", "ValueError", "NotADirectoryError"}


@pytest.mark.parametrize("path", ["../outside/file.txt", "dir/../../outside/file.txt", "..", "dir/../.."])
def test_dots_do_not_climb_out(workspace: Workspace, outside: Path, path: str) -> None:
    refused(workspace, path, "leads out of the workspace")
    assert (outside / "file.txt").read_bytes() == SECRET


def test_absolute_paths_elsewhere_are_refused(workspace: Workspace, outside: Path) -> None:
    refused(workspace, str(outside / "file.txt"), "outside the workspace")
    refused(workspace, f"{workspace.root}-other/file.txt", "outside the workspace")
    refused(workspace, f"{workspace.root}/../outside/file.txt", "leads out of the workspace")


@pytest.mark.parametrize("target", ["../outside", "dir/../../outside", "{outside}", "/"])
def test_a_link_that_leads_out_is_refused(workspace: Workspace, root: Path, outside: Path, target: str) -> None:
    (root / "link").symlink_to(target.format(outside=outside))
    refused(workspace, "link/file.txt", "leads out of the workspace")
    assert (outside / "file.txt").read_bytes() == SECRET
    assert list(outside.iterdir()) == [outside / "file.txt"]


def test_a_link_to_a_file_outside_is_refused(workspace: Workspace, root: Path, outside: Path) -> None:
    (root / "link").symlink_to("../outside/file.txt")
    refused(workspace, "link", "leads out of the workspace")
    assert (outside / "file.txt").read_bytes() == SECRET


@pytest.mark.parametrize("target", ["/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/self/fd/0", "/dev/null"])
def test_links_into_proc_and_dev_are_refused(workspace: Workspace, root: Path, target: str) -> None:
    (root / "link").symlink_to(target)
    refused(workspace, "link", "leads out of the workspace")


def test_links_that_loop_are_refused(workspace: Workspace, root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    refused(workspace, "a", "links that loop")


GIT_NAMES = [
    ".git/config",
    ".GIT/config",
    ".Git",
    "dir/.git/hooks/pre-commit",
    "git~1/config",
    "GIT~2/config",
    ".git./config",
    ".git /config",
    ".git. . /config",
    ".git::$INDEX_ALLOCATION/config",
    ".g\u200cit/config",
    ".git\u200d/config",
    "dir\\.git\\config",
]


@pytest.mark.parametrize("path", GIT_NAMES)
def test_git_is_refused_in_every_spelling(workspace: Workspace, root: Path, path: str) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "config").write_bytes(b"[core]")
    refused(workspace, path, "git directory")
    assert (root / ".git" / "config").read_bytes() == b"[core]"
    assert sorted(each.name for each in root.iterdir()) == [".git", "dir"]


def test_git_is_refused_behind_a_link(workspace: Workspace, root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "config").write_bytes(b"[core]")
    (root / "innocent").symlink_to(".git")
    (root / "harmless.txt").symlink_to(".git/config")
    refused(workspace, "innocent/config", "git directory")
    refused(workspace, "harmless.txt", "git directory")


@pytest.mark.parametrize("path", [".gitignore", ".github/workflows/ci.yml", "git", "a.git/x", ".gitattributes"])
def test_names_that_only_resemble_git_are_fine(workspace: Workspace, path: str) -> None:
    workspace.write_bytes(path, b"fine")
    assert workspace.read_bytes(path, 10) == b"fine"


def test_a_fifo_is_refused_and_does_not_hang(workspace: Workspace, root: Path) -> None:
    os.mkfifo(root / "fifo")
    refused(workspace, "fifo", "not a regular file")


def test_a_socket_is_refused(workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        refused(workspace, "socket", "not a regular file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device node")
def test_a_device_is_refused(workspace: Workspace, root: Path) -> None:
    try:
        os.mknod(root / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("device nodes may not be made here")
    refused(workspace, "zero", "not a regular file|permission denied")


@pytest.mark.parametrize("path", ["", "a\0b", "a\nb", "\x1b[2J", "\ud800"])
def test_names_that_are_no_printable_text_are_refused(workspace: Workspace, path: str) -> None:
    refused(workspace, path, "path")


def test_links_that_stay_inside_are_followed(workspace: Workspace, root: Path) -> None:
    (root / "dir" / "up").symlink_to("../dir/file.txt")
    (root / "short").symlink_to("dir")
    assert workspace.read_bytes("short/up", 100) == b"inside"
    workspace.write_bytes("short/up", b"written through")
    assert (root / "dir" / "file.txt").read_bytes() == b"written through"
    assert (root / "dir" / "up").is_symlink()
    assert workspace.resolve("short/up") == "dir/file.txt"


def test_a_link_that_is_swapped_in_after_the_name_was_resolved_is_not_followed(
    workspace: Workspace, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped_at_once(
        root_descriptor: int, parts: tuple[str, ...], opener: files.Opener, *, beneath: bool
    ) -> tuple[str, ...]:
        name = resolve(root_descriptor, parts, opener, beneath=beneath)
        if not (root / "dir").is_symlink():
            (root / "dir").rename(root / "old")
            (root / "dir").symlink_to(outside)
        return name

    resolve = files.resolve_links
    for attempt in (lambda: workspace.read_bytes("dir/file.txt", 100), lambda: workspace.write_bytes("dir/x", b"")):
        with monkeypatch.context() as patched:
            patched.setattr(files, "resolve_links", swapped_at_once)
            with pytest.raises(ToolError, match=r"links|not a directory"):
                attempt()
        (root / "dir").unlink()
        (root / "old").rename(root / "dir")
    assert list(outside.iterdir()) == [outside / "file.txt"]


@contextlib.contextmanager
def swapping(root: Path, outside: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps exchanging `dir` and a link to the outside."""
    (root / "link").symlink_to(outside)
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER], cwd=root, stdin=subprocess.PIPE)
    try:
        yield swapper
    finally:
        swapper.communicate(b"stop")


def until_an_unguarded_reader_loses(root: Path) -> None:
    deadline = time.monotonic() + 30
    while (root / "dir" / "file.txt").read_bytes() != SECRET:
        assert time.monotonic() < deadline, "the race must be one that an unguarded reader loses"


def test_twenty_thousand_racing_accesses_stay_inside(workspace: Workspace, root: Path, outside: Path) -> None:
    deadline = time.monotonic() + 60
    read = written = turn = 0
    with swapping(root, outside) as swapper:
        until_an_unguarded_reader_loses(root)
        while turn < 20_000 or (min(read, written) < 20 and time.monotonic() < deadline):
            turn += 1
            try:
                if turn % 20:
                    assert workspace.read_bytes("dir/file.txt", 1000) in {b"inside", b"ours"}
                    read += 1
                else:
                    workspace.write_bytes("dir/file.txt", b"ours")
                    written += 1
            except ToolError:
                continue
        until_an_unguarded_reader_loses(root)
        assert swapper.poll() is None, "the swapper must have run to the end"
    assert min(read, written) >= 20, "accesses must get through between the swaps"
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"file.txt": SECRET}


@pytest.mark.parametrize("opener", [files.open_by_kernel, files.open_by_walking])
def test_a_name_does_not_end_at_a_null_byte(root: Path, opener: files.Opener) -> None:
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    with files.closing(descriptor):
        with pytest.raises(ValueError, match="null"):
            files.resolve_links(descriptor, ("dir\0", "file.txt"), opener)
        with pytest.raises(ValueError, match="null"):
            os.close(opener(descriptor, ("dir", "file.txt\0.md"), os.O_RDONLY))


def test_the_kernel_is_asked_where_it_can_be(root: Path) -> None:
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    with files.closing(descriptor):
        try:
            os.close(files.open_by_kernel(descriptor, (), os.O_PATH))
        except OSError:
            pytest.skip("openat2 is not to be had here")
        assert files.choose_opener(descriptor) is files.open_by_kernel


def test_without_the_system_call_the_walk_takes_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def syscall(self, *_: object) -> int:
            ctypes.set_errno(38)  # ENOSYS
            return -1

    monkeypatch.setattr(files, "_libc", Refusing)
    with Workspace(root) as workspace:
        assert workspace.read_bytes("dir/file.txt", 100) == b"inside"


async def test_find_follows_no_link_and_looks_into_no_git_directory(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "file.txt")
    for name in (".git", ".GIT"):
        (root / name).mkdir()
        (root / name / "config").write_bytes(SECRET)
    with Workspace(root) as workspace:
        search = SearchTools(workspace)
        assert (await search.find("secret")).value == []
        for include in ("**/config", "con*", "*"):
            assert (await search.find("secret", include=include)).value == []
        for include in (".git/**", ".git/config", "link/*"):
            with pytest.raises(ToolError, match=r"git directory|leads out"):
                await search.find("secret", include=include)


@pytest.mark.parametrize("target", ["../outside/file.txt", "link/file.txt", ".git/config", "/etc/passwd", "fifo"])
async def test_find_refuses_targets_outside_in_git_or_irregular(root: Path, outside: Path, target: str) -> None:
    (root / "link").symlink_to(outside)
    os.mkfifo(root / "fifo")
    with Workspace(root) as workspace:
        with pytest.raises(ToolError):
            await SearchTools(workspace).find(".", scope="file", target=target)
        with pytest.raises(ToolError):
            await SearchTools(workspace).find(".", target=target)


async def test_nothing_that_find_is_given_becomes_an_option(root: Path, outside: Path) -> None:
    (root / "--pre=evil").write_text("plain\n")
    (root / "-f").write_text("plain\n")
    with Workspace(root) as workspace:
        search = SearchTools(workspace)
        assert (await search.find("--files")).value == []
        assert (await search.find("-f/etc/passwd")).value == []
        assert len(await matches(search, scope="file", target="--pre=evil")) == 1
        assert len(await matches(search, scope="files", target=["-f", "--pre=evil"])) == 2
        assert await matches(search, include="--pre=sh") == []
        assert len(await matches(search, include="-*")) == 2
        for include in ("../outside/*", "!*.py", "/../outside/**", "", "a\nb"):
            with pytest.raises(ToolError, match="include="):
                await search.find("secret", include=include)


async def matches(search: SearchTools, **arguments: object) -> list[object]:
    value = (await search.find("plain", **arguments)).value  # type: ignore[arg-type]
    assert isinstance(value, list)
    return list(value)


async def test_ripgrep_is_started_with_no_environment_and_no_config(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "ripgreprc"
    config.write_text("--pre\nsh\n--no-ignore\n--follow\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    (root / ".gitignore").write_text("ignored.txt\n")
    (root / "ignored.txt").write_text("inside\n")
    with Workspace(root) as workspace:
        assert (await SearchTools(workspace).find("inside")).value == [
            {"file": "dir/file.txt", "line": 1, "text": "inside"}
        ]
