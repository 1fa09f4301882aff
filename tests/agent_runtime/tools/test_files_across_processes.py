"""What the file tools know outlives their process: a run pauses in one and goes on in another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.tools.files import CHANGED_MEANWHILE
from agent_runtime.workspace.files import Workspace
from tests.block_files import BlockFiles

NUMBERS = "".join(f"{i}\n" for i in range(1, 11))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "a.txt").write_text(NUMBERS)
    with Workspace(tmp_path) as opened:
        yield opened


class Reply:
    """A reply whose step is taken in several processes."""

    def __init__(self, *payloads: str, control: str = "") -> None:
        self.texts, self.control = payloads, control

    def begin(self, files: BlockFiles) -> BlockFiles:
        return files.take(*self.texts, control=self.control)

    def go_on(self, workspace: Workspace, saved: str) -> BlockFiles:
        """The step in the next process."""
        state: dict[str, Any] = json.loads(saved)
        files = BlockFiles(workspace)
        files.restore(state["tracked"])
        files.go_on(state["step"], *self.texts, control=self.control)
        return files


def saved(files: BlockFiles) -> str:
    return json.dumps({"tracked": files.tracked(), "step": files.state()})


def refusal(files: BlockFiles, **args: Any) -> str:  # noqa: ANN401 - of a write
    return files.planned("write_file", args).refusal


def test_the_same_write_takes_the_same_payload_and_the_same_base(workspace: Workspace) -> None:
    reply = Reply("first\n", "FIVE\n", "last\n")
    files = BlockFiles(workspace)
    files.read_file("a.txt")
    reply.begin(files)
    files.write("new.txt")
    (workspace.root / "a.txt").write_text("0\n" + NUMBERS)  # line numbers refer to what was read
    files.read_file("a.txt")
    call: dict[str, Any] = {"path": "a.txt", "mode": "edit", "start_line": 6, "end_line": 6}
    assert refusal(files, **call) == ""
    again = reply.go_on(workspace, saved(files))
    assert refusal(again, **call) == ""
    again.write(**call)
    assert (workspace.root / "a.txt").read_text() == "0\n" + NUMBERS.replace("5\n", "FIVE\n")
    again.write("z.txt")
    assert (workspace.root / "z.txt").read_text() == "last\n"


def test_numbers_of_a_file_written_in_the_step_still_refer_to_the_step_before(workspace: Workspace) -> None:
    reply = Reply("1\n", "one\nuno\n", "TEN\n")
    files = BlockFiles(workspace)
    files.read_file("a.txt")
    reply.begin(files)
    files.write("a.txt", mode="replace")
    again = reply.go_on(workspace, saved(files))
    again.write("a.txt", mode="edit", start_line=10, end_line=10)
    assert (workspace.root / "a.txt").read_text() == "one\nuno\n" + NUMBERS[2:].replace("10\n", "TEN\n")


def test_the_limits_of_a_step_go_on_counting(workspace: Workspace) -> None:
    reply = Reply("x" * 600_000, "x\n", "x\n", "x" * 600_000)
    files = reply.begin(BlockFiles(workspace))
    files.write("0.txt")
    files.write("a.txt", mode="edit", start_line=1, end_line=1)
    again = reply.go_on(workspace, saved(files))
    with pytest.raises(ToolError, match=r"'a\.txt'"):
        again.write("a.txt", mode="edit", start_line=2, end_line=2)
    with pytest.raises(ToolError, match="1,200,000 characters"):
        again.write("1.txt")


def test_kept_contents_keep_their_numbers(workspace: Workspace) -> None:
    reply = Reply("old\n", "new\n", "x\n", "y\n")
    files = reply.begin(BlockFiles(workspace))
    with pytest.raises(ToolError, match="payload=1 "):
        files.write("none.txt", mode="replace")
    again = reply.go_on(workspace, saved(files))
    again.write("n.txt")
    (workspace.root / "none.txt").write_text("old\n")
    again.write("none.txt", mode="replace", payload=1)
    assert (workspace.root / "none.txt").read_text() == "new\n"
    with pytest.raises(ToolError, match="payload=2 "):
        again.write("a.txt", mode="edit", start_line=99, end_line=99)


def test_a_write_that_would_do_something_else_than_was_approved_is_refused(workspace: Workspace) -> None:
    reply = Reply("mine\n")
    files = reply.begin(BlockFiles(workspace))
    assert refusal(files, path="build.log") == ""
    state = saved(files)
    (workspace.root / "build.log").write_text("theirs\n")
    again = reply.go_on(workspace, state)
    told = again.planned("write_file", {"path": "build.log"})
    assert CHANGED_MEANWHILE in told.refusal
    with pytest.raises(ToolError, match=CHANGED_MEANWHILE):
        told.apply()
    assert (workspace.root / "build.log").read_text() == "theirs\n"
    unasked = reply.go_on(workspace, state)
    with pytest.raises(ToolError, match=CHANGED_MEANWHILE):
        unasked.write("build.log")


def test_external_changes_are_reported_and_line_numbers_are_refused_until_a_new_read(workspace: Workspace) -> None:
    root = workspace.root
    for name in ("b.txt", "c.txt", "d.txt"):
        (root / name).write_text(NUMBERS)
    files = BlockFiles(workspace)
    for name in ("a.txt", "b.txt", "c.txt"):
        files.read_file(name)
    with pytest.raises(ToolError):
        files.read_file("later.txt")
    assert set(files.tracked()) == {"a.txt", "b.txt", "c.txt", "later.txt"}
    reply = Reply("x\n", "x\n")
    reply.begin(files)
    state = saved(files)
    (root / "a.txt").write_text("changed\n" * 20)
    (root / "b.txt").unlink()
    (root / "later.txt").write_text("")
    (root / "d.txt").write_text("not known, not told")
    again = reply.go_on(workspace, state)
    with pytest.raises(ToolError, match=r"'a\.txt' changed"):
        again.write("a.txt", mode="edit", start_line=2, end_line=2)
    assert again.end() == ""
    told = again.report_external_changes()
    for line in ("Modified: a.txt", "Deleted: b.txt", "Created: later.txt"):
        assert f"\n{line} (" in f"\n{told}"
    assert "c.txt" not in told
    assert "d.txt" not in told
    assert again.report_external_changes() == ""
    again.read_file("a.txt")
    again.write("a.txt", mode="edit", start_line=2, end_line=2, payload=1)


def test_a_state_of_another_reply_is_refused(workspace: Workspace) -> None:
    files = Reply("x\n").begin(BlockFiles(workspace))
    files.write("n.txt")
    with pytest.raises(ValueError, match=r"1 payloads .* 0"):
        Reply().go_on(workspace, saved(files))


def test_a_reset_forgets_everything(workspace: Workspace) -> None:
    files = Reply("x\n").begin(BlockFiles(workspace))
    files.read_file("a.txt")
    with pytest.raises(ToolError):
        files.write("a.txt", mode="edit", start_line=99, end_line=99)
    files.forget()
    assert files.tracked() == {}
    (workspace.root / "a.txt").write_text("other\n")
    assert files.report_external_changes() == ""
    with pytest.raises(ToolError, match="nothing is kept"):
        files.write("a.txt", payload=1)
