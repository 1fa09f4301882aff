from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.tools.search import SearchTools
from agent_runtime.workspace.files import Scratch, Workspace, closing
from tests.block_files import BlockFiles
from tests.sandboxes import opened_in

TMP = Scratch.prefix


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    made = Scratch()
    yield made
    made.clear()


@pytest.fixture
def workspace(tmp_path: Path, scratch: Scratch) -> Iterator[Workspace]:
    (tmp_path / "work").mkdir()
    with Workspace(tmp_path / "work", agent_path="/workspace", scratch=scratch) as opened:
        yield opened


def root_of(tmp_path: Path, name: str) -> Path:
    """Create a stand-in for a sandbox's root directory."""
    (tmp_path / name / "tmp").mkdir(parents=True)
    return tmp_path / name


def attach(scratch: Scratch, root: Path, alive: Callable[[], bool] = lambda: True) -> None:
    with closing(os.open(root, os.O_PATH | os.O_DIRECTORY)) as descriptor:
        scratch.attach(descriptor, alive)


def test_files_written_before_a_sandbox_are_in_the_first_only(
    workspace: Workspace, scratch: Scratch, tmp_path: Path
) -> None:
    name = f"{TMP}/{tmp_path.name}-{os.getpid()}/run.sh"
    workspace.write_bytes(name, b"echo 1\n", mode=0o755)
    assert workspace.read_bytes(name, 100) == b"echo 1\n"
    assert not Path(name).exists()
    first, second = root_of(tmp_path, "first"), root_of(tmp_path, "second")
    attach(scratch, first)
    assert Path(f"{first}{name}").read_bytes() == b"echo 1\n"
    assert Path(f"{first}{name}").stat().st_mode & 0o777 == 0o755
    assert workspace.list_directory(TMP) == [f"{Path(name).parent.name}/"]
    scratch.detach()
    assert not workspace.exists(name)
    attach(scratch, second)
    assert [*(second / "tmp").iterdir()] == []
    workspace.write_bytes(f"{TMP}/b", b"2")
    workspace.delete(f"{TMP}/b")
    assert workspace.stamp(f"{TMP}/b") is None


def test_a_sandbox_that_has_died_is_not_written_to(workspace: Workspace, scratch: Scratch, tmp_path: Path) -> None:
    alive = [True]
    dead, following = root_of(tmp_path, "dead"), root_of(tmp_path, "following")
    attach(scratch, dead, lambda: alive[0])
    workspace.write_bytes(f"{TMP}/a", b"1")
    before = workspace.stamp(f"{TMP}/a")
    alive.clear()
    alive.append(False)
    assert before is not None
    assert workspace.stamp(f"{TMP}/a") is None
    workspace.write_bytes(f"{TMP}/a", b"2")
    scratch.detach()
    attach(scratch, following)
    assert (dead / "tmp" / "a").read_bytes() == b"1"
    assert (following / "tmp" / "a").read_bytes() == b"2"


def test_a_full_disk_is_reported_for_scratch_files(
    workspace: Workspace, scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ToolError, match="before a command has run: No such file"):
        workspace.write_bytes(f"{TMP}/a", b"1")
    attach(scratch, root_of(tmp_path, "root"))
    workspace.write_bytes(f"{TMP}/a", b"1")


def test_descriptors_of_ended_sandboxes_are_closed(scratch: Scratch, tmp_path: Path) -> None:
    open_before = opened_in(tmp_path)
    for number in range(5):
        attach(scratch, root_of(tmp_path, str(number)))
        scratch.detach()
    assert opened_in(tmp_path) == open_before


@pytest.mark.parametrize(
    "path",
    [
        f"{TMP}/absolute",
        f"{TMP}/climbing",
        f"{TMP}/../etc/passwd",
        f"{TMP}/.git/config",
        f"{TMP}/../workspace/a",
        f"{TMP}/fifo",
    ],
)
def test_nothing_in_it_leads_elsewhere(workspace: Workspace, scratch: Scratch, tmp_path: Path, path: str) -> None:
    root = root_of(tmp_path, "root")
    (tmp_path / "secret").write_text("secret")
    (root / "tmp" / "absolute").symlink_to(tmp_path / "secret")
    (root / "tmp" / "climbing").symlink_to("../../secret")
    os.mkfifo(root / "tmp" / "fifo")
    attach(scratch, root)
    with pytest.raises(ToolError):
        workspace.read_bytes(path, 100)
    with pytest.raises(ToolError):
        workspace.write_bytes(path, b"x")
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_directory_replaced_by_a_link_reveals_no_outside_file(
    workspace: Workspace, scratch: Scratch, tmp_path: Path
) -> None:
    root = root_of(tmp_path, "root")
    attach(scratch, root)
    for place, name in ((root / "tmp", f"{TMP}/d/secret"), (tmp_path / "work", "d/secret")):
        workspace.write_bytes(name, b"1")
        assert workspace.stamp(name) is not None
        (place / "d").rename(place / "moved")
        (place / "d").symlink_to("moved")
        assert workspace.stamp(name) is not None
        (tmp_path / "secret").write_text("on the machine")
        (place / "d").unlink()
        (place / "d").symlink_to(tmp_path)
        assert workspace.stamp(name) is None


def test_the_machines_own_tmp_is_rejected_as_a_sandboxs(scratch: Scratch) -> None:
    with pytest.raises(OSError, match="the machine's own"):
        attach(scratch, Path("/proc/self/root"))


def test_a_link_in_its_place_is_not_followed(workspace: Workspace, scratch: Scratch, tmp_path: Path) -> None:
    for name in ("image", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "image" / "tmp").symlink_to(tmp_path / "elsewhere")
    workspace.write_bytes(f"{TMP}/a", b"1")
    with pytest.raises(OSError, match="directory"):
        attach(scratch, tmp_path / "image")
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_files_that_do_not_fit_a_sandbox_do_not_prevent_its_start(
    workspace: Workspace, scratch: Scratch, tmp_path: Path
) -> None:
    root = root_of(tmp_path, "root")
    (root / "tmp" / "toolchain").write_text("a file of the sandbox")
    for name in ("a", "toolchain/b", "z"):
        workspace.write_bytes(f"{TMP}/{name}", b"1")
    attach(scratch, root)
    assert workspace.list_directory(TMP) == ["a", "toolchain", "z"]
    assert workspace.stamp(f"{TMP}/toolchain/b") is None


async def test_tools_that_work_elsewhere_refuse_it(workspace: Workspace) -> None:
    tools = BlockFiles(workspace)
    assert "2 lines" in tools.take("1\n2\n").write(f"{TMP}/a").text
    assert "+1 -1" in tools.take("2\n", "3\n").write(f"{TMP}/a", mode="replace").text
    with pytest.raises(ToolError, match="only small files are changed here"):
        tools.take("x" * 300_000).write(f"{TMP}/a")
    with pytest.raises(ToolError, match="only into the workspace; use ls"):
        await tools.list_files(path=TMP)
    with pytest.raises(ToolError, match="only into the workspace; use grep"):
        await SearchTools(workspace).find("x", scope="file", target=f"{TMP}/a")


def test_a_workspace_that_lies_in_the_machines_tmp_is_the_workspace(tmp_path: Path, scratch: Scratch) -> None:
    with Workspace(tmp_path, scratch=scratch) as workspace:
        scratch.prefix = str(tmp_path.parent)  # as /tmp is for a workspace in it
        assert workspace.resolve(f"{tmp_path}/a") == "a"
        assert not workspace.is_temporary(f"{tmp_path}/a")
        assert workspace.is_temporary(f"{tmp_path.parent}/a")


def test_without_a_sandbox_there_is_no_scratch_directory(tmp_path: Path) -> None:
    with (
        Workspace(tmp_path, agent_path="/workspace") as workspace,
        pytest.raises(ToolError, match="outside the workspace"),
    ):
        workspace.write_bytes(f"{TMP}/x.py", b"x")
