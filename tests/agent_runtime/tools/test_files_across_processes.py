"""What the file tools know outlives their process: a run pauses in one and goes on in another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.payloads import Payloads
from agent_runtime.transports.blocks.reply import Payload
from agent_runtime.workspace.files import Workspace

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

    def payloads(self) -> Payloads:
        return Payloads(Payload(text=text, filename=None) for text in self.texts)

    def begin(self, files: FileTools) -> FileTools:
        files.begin_step(self.payloads(), self.control)
        return files

    def go_on(self, workspace: Workspace, saved: str) -> FileTools:
        """The step in the next process."""
        state: dict[str, Any] = json.loads(saved)
        files = FileTools(workspace)
        files.restore(state["tracked"])
        files.resume_step(self.payloads(), self.control, state["step"])
        return files


def saved(files: FileTools) -> str:
    return json.dumps({"tracked": files.tracked(), "step": files.step_state()})


def inspected(files: FileTools, **args: Any) -> str:  # noqa: ANN401 - of a write
    return files.inspect("write_file", args).refusal


def test_the_same_write_takes_the_same_payload_and_the_same_base(workspace: Workspace) -> None:
    reply = Reply("first\n", "FIVE\n", "last\n")
    files = FileTools(workspace)
    files.read_file("a.txt")
    reply.begin(files)
    files.write_file("new.txt")
    (workspace.root / "a.txt").write_text("0\n" + NUMBERS)  # line numbers refer to what was read
    files.read_file("a.txt")
    call: dict[str, Any] = {"path": "a.txt", "mode": "edit", "start_line": 6, "end_line": 6}
    assert inspected(files, **call) == ""
    again = reply.go_on(workspace, saved(files))
    assert inspected(again, **call) == ""
    again.write_file(**call)
    assert (workspace.root / "a.txt").read_text() == "0\n" + NUMBERS.replace("5\n", "FIVE\n")
    again.write_file("z.txt")
    assert (workspace.root / "z.txt").read_text() == "last\n"


def test_numbers_of_a_file_written_in_the_step_still_refer_to_the_step_before(workspace: Workspace) -> None:
    reply = Reply("1\n", "one\nuno\n", "TEN\n")
    files = FileTools(workspace)
    files.read_file("a.txt")
    reply.begin(files)
    files.write_file("a.txt", mode="replace")
    again = reply.go_on(workspace, saved(files))
    again.write_file("a.txt", mode="edit", start_line=10, end_line=10)
    assert (workspace.root / "a.txt").read_text() == "one\nuno\n" + NUMBERS[2:].replace("10\n", "TEN\n")


def test_the_limits_of_a_step_go_on_counting(workspace: Workspace) -> None:
    reply = Reply(*["x\n"] * 9)
    files = reply.begin(FileTools(workspace))
    for number in range(4):
        files.write_file(f"{number}.txt")
    files.write_file("a.txt", mode="edit", start_line=1, end_line=1)
    again = reply.go_on(workspace, saved(files))
    with pytest.raises(ToolError, match="has edited it by line numbers already"):
        again.write_file("a.txt", mode="edit", start_line=2, end_line=2)
    again.write_file("4.txt")
    with pytest.raises(ToolError, match="5 whole-file writes"):
        again.write_file("5.txt")


def test_kept_contents_keep_their_numbers(workspace: Workspace) -> None:
    reply = Reply("old\n", "new\n", "x\n", "y\n")
    files = reply.begin(FileTools(workspace))
    with pytest.raises(ToolError, match="payload=1 stands for it"):
        files.write_file("none.txt", mode="replace")
    again = reply.go_on(workspace, saved(files))
    again.write_file("n.txt")
    (workspace.root / "none.txt").write_text("old\n")
    again.write_file("none.txt", mode="replace", payload=1)
    assert (workspace.root / "none.txt").read_text() == "new\n"
    with pytest.raises(ToolError, match="payload=2 stands for it"):
        again.write_file("a.txt", mode="edit", start_line=99, end_line=99)


def test_a_write_that_would_do_something_else_than_was_approved_is_refused(workspace: Workspace) -> None:
    reply = Reply("mine\n")
    files = reply.begin(FileTools(workspace))
    assert inspected(files, path="build.log") == ""
    state = saved(files)
    (workspace.root / "build.log").write_text("theirs\n")
    again = reply.go_on(workspace, state)
    assert "no longer as they were" in inspected(again, path="build.log")
    with pytest.raises(ToolError, match="no longer as they were"):
        again.write_file("build.log")
    assert (workspace.root / "build.log").read_text() == "theirs\n"
    unasked = reply.go_on(workspace, state)
    with pytest.raises(ToolError, match="no longer as they were"):
        unasked.write_file("build.log")


def test_changes_meanwhile_are_told_and_line_numbers_are_refused_until_they_are_read(workspace: Workspace) -> None:
    root = workspace.root
    for name in ("b.txt", "c.txt", "d.txt"):
        (root / name).write_text(NUMBERS)
    files = FileTools(workspace)
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
    with pytest.raises(ToolError, match=r"'a\.txt' changed while the run was paused"):
        again.write_file("a.txt", mode="edit", start_line=2, end_line=2)
    assert again.end_step(ok=True) == ""
    told = again.changed_by_others()
    for line in ("Modified: a.txt", "Deleted: b.txt", "Created: later.txt"):
        assert f"{line} (changed while the run was paused; read it again)" in told
    assert "c.txt" not in told
    assert "d.txt" not in told
    assert again.changed_by_others() == ""
    again.read_file("a.txt")
    again.write_file("a.txt", mode="edit", start_line=2, end_line=2, payload=1)


def test_a_state_of_another_reply_is_refused(workspace: Workspace) -> None:
    files = Reply("x\n").begin(FileTools(workspace))
    files.write_file("n.txt")
    with pytest.raises(ValueError, match="1 payloads were taken, but the reply has 0"):
        Reply().go_on(workspace, saved(files))


def test_a_reset_forgets_everything(workspace: Workspace) -> None:
    files = Reply("x\n").begin(FileTools(workspace))
    files.read_file("a.txt")
    with pytest.raises(ToolError):
        files.write_file("a.txt", mode="edit", start_line=99, end_line=99)
    files.reset()
    assert files.tracked() == {}
    (workspace.root / "a.txt").write_text("other\n")
    assert files.changed_by_others() == ""
    with pytest.raises(ToolError, match="nothing is kept"):
        files.write_file("a.txt", payload=1)
