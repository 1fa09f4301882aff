"""The commands as programs: what goes where, and the exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from tests.forked import completed
from tests.source_files import ROOT

_SCRIPT = """\
- reply: |
    I write it and look.
    ```codepilot
    write_file("greeting.txt")
    execute("main", "cat greeting.txt", check=True)
    ```
    ```text filename=greeting.txt
    hello
    ```
    ```completion
    There is a greeting now.
    ```
- reply: |
    You asked for a greeting.
"""
_ASKING = """\
agent:
  name: A
  model: {provider: scripted, script: script.yaml}
  tools: [{name: execute, config: {require_permission: true}}]
"""
_TOUCH = """\
- reply: |
    ```codepilot
    execute("main", "touch made", check=True)
    ```
    ```completion
    Made.
    ```
"""
_QUESTION = """\
- reply: |
    ```codepilot
    print(ask_user("Which colour?"))
    ```
    ```completion
    Painted.
    ```
"""

# The program, and the signals that come while a command runs.
_SIGNALLED = """\
import signal, sys
from agent_runtime import ToolCalled
from bot.__main__ import main
from bot.cli.screen import ChatScreen

shown, signals = ChatScreen.on_event, sys.argv[1:]

def on_event(self, event):
    shown(self, event)
    if isinstance(event, ToolCalled):
        for name in signals:
            signal.raise_signal(signal.Signals[name])

ChatScreen.on_event = on_event
sys.argv = ["codepilot", "run", "--script", "script.yaml", "Talk"]
main()
"""


class Desk:
    """A directory to work in, a home for sessions, and an environment without keys."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(self.home), "TERM": "xterm"}

    def write(self, name: str, text: str) -> None:
        (self.work / name).write_text(text, encoding="utf-8")

    def codepilot(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return completed(arguments, env=self.env, at=self.work, stdin=stdin)

    def at_a_terminal(self, *arguments: str, columns: int = 120) -> pexpect.spawn[str]:
        return pexpect.spawn(
            sys.executable,
            ["-m", "bot", *arguments],
            cwd=str(self.work),
            env={name: value for name, value in self.env.items()},  # noqa: C416 - pexpect's types want a plain dict
            encoding="utf-8",
            timeout=30,
            dimensions=(40, columns),
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_pipe_gets_the_answer_and_nothing_else(desk: Desk) -> None:
    desk.write("script.yaml", _SCRIPT)
    done = desk.codepilot("run", "--script", "script.yaml", "-", stdin="Write a greeting\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "There is a greeting now.\n"
    assert "✓" in done.stderr
    assert "1 file changed: greeting.txt" in done.stderr
    assert "\x1b" not in done.stderr
    assert (desk.work / "greeting.txt").read_text(encoding="utf-8") == "hello\n"


@pytest.mark.parametrize("arguments", [["run", "-"], ["chat"]])
def test_a_task_in_another_encoding_is_done(desk: Desk, arguments: list[str]) -> None:
    desk.write("script.yaml", _SCRIPT)
    argv = [sys.executable, "-m", "bot", *arguments, "--script", "script.yaml"]
    strict = desk.env | {"PYTHONIOENCODING": "utf-8:strict"}  # as in most locales
    done = subprocess.run(
        argv, env=strict, cwd=desk.work, input=b"Write a greeting, caf\xe9\n", capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"There is a greeting now.\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["run"], "", "Say what to do"),
        (["run", "-"], " \n", "The standard input contains no task;"),
        (["run", "x"], "", "No model: set "),
        (["run", "x", "--provider", "nobody"], "", "There is no provider 'nobody'"),
        (["run", "x", "--agent", "wrong.yaml"], "", "wrong.yaml:1: `agnt`: unknown key. Did you mean 'agent'?"),
        (["run", "--session", "s", "--approve", "--deny"], "", "Use only one of"),
        (["run", "--session", "s", "--approve", "x"], "", "leave TASK out"),
        (["run", "--session", "s", "--note", "x"], "", "--note requires --deny."),
        (["run", "--session", "s", "--approve", "--script", "wrong.yaml"], "", "codepilot: "),
        (["run", "x", "--dir", "nowhere"], "", "nowhere"),
        (["run", " "], "", "TASK is empty"),
        (["run", "x", "--session", ""], "", "a session needs a name"),
        (["run", "x", "--budget", "nan"], "", "not an amount of money."),
    ],
)
def test_what_cannot_work_is_said_in_a_paragraph(desk: Desk, arguments: list[str], stdin: str, told: str) -> None:
    desk.write("wrong.yaml", "agnt: {}\n")
    done = desk.codepilot(*arguments, stdin=stdin)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_is_not_done_says_why(desk: Desk) -> None:
    desk.write("script.yaml", '- reply: |\n    ```codepilot\n    print("still")\n    ```\n')
    done = desk.codepilot("run", "--script", "script.yaml", "--max-steps", "1", "Try")
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "max steps · 1 step" in done.stderr


def test_a_run_that_waits_is_answered_by_another_process(desk: Desk) -> None:
    desk.write("script.yaml", _TOUCH)
    desk.write("agent.yaml", _ASKING)
    done = desk.codepilot("run", "--trust", "--session", "my job", "Make a file")
    assert done.returncode == 3, done.stderr
    assert "touch made" in done.stderr
    assert "codepilot run --session 'my job' --approve | --deny [--note WHY]\n" in done.stderr
    assert not (desk.work / "made").exists()
    assert "my job" in desk.codepilot("chat", "--list").stdout
    again = desk.codepilot("run", "--trust", "--session", "my job", "--approve")
    assert again.returncode == 0, again.stderr
    assert again.stdout == "Made.\n"
    assert (desk.work / "made").exists()
    assert "Nothing is waiting" in desk.codepilot("run", "--trust", "--session", "my job").stderr
    once_more = desk.codepilot("run", "--trust", "--session", "my job", "--approve")
    assert once_more.returncode == 2, once_more.stderr
    assert "Leave out --approve, --deny and --answer," in once_more.stderr


def test_a_task_that_was_not_begun_since_a_call_waits_is_said_not_to_have_been(desk: Desk) -> None:
    desk.write("script.yaml", _QUESTION)
    first = desk.codepilot("run", "--script", "script.yaml", "--session", "q", "Paint it")
    assert first.returncode == 3, first.stderr
    assert "The new task" not in first.stderr
    done = desk.codepilot("run", "--script", "script.yaml", "--session", "q", "Paint another")
    assert done.returncode == 3, done.stderr
    assert "The new task was not started:" in done.stderr
    assert "codepilot run --session q --answer TEXT\n" in done.stderr
    assert "--approve" not in done.stderr


def test_an_answer_approves_no_call_and_an_approval_answers_no_question(desk: Desk) -> None:
    desk.write("script.yaml", _TOUCH)
    desk.write("agent.yaml", _ASKING)
    assert desk.codepilot("run", "--trust", "--session", "s", "Make a file").returncode == 3
    done = desk.codepilot("run", "--trust", "--session", "s", "--answer", "no, leave it")
    assert done.returncode == 2, done.stderr
    assert "--answer does not approve: use --approve or --deny." in done.stderr
    assert not (desk.work / "made").exists()
    desk.write("script.yaml", _QUESTION)
    (desk.work / "agent.yaml").unlink()
    assert desk.codepilot("run", "--script", "script.yaml", "--session", "q", "Paint it").returncode == 3
    done = desk.codepilot("run", "--script", "script.yaml", "--session", "q", "--approve")
    assert done.returncode == 2, done.stderr
    assert "use --answer TEXT" in done.stderr


def test_a_chat_without_a_terminal_takes_a_task_a_line(desk: Desk) -> None:
    desk.write("script.yaml", _SCRIPT)
    done = desk.codepilot("chat", "--script", "script.yaml", stdin="Write a greeting\n\nWhat was it?\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "There is a greeting now.\nYou asked for a greeting.\n"


def test_a_recording_is_made_and_never_written_over(desk: Desk) -> None:
    desk.write("script.yaml", _SCRIPT)
    first, second = (desk.codepilot("run", "--script", "script.yaml", "--record", "tape", "Go") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert (desk.work / "tape").stat().st_mode & 0o777 == 0o600
    assert second.returncode == 2
    assert "already exists" in second.stderr


def test_no_sessions_are_said_to_be_none(desk: Desk) -> None:
    assert desk.codepilot("chat", "--list").stdout == "No saved sessions.\n"


@pytest.mark.slow
def test_a_chat_at_a_terminal(desk: Desk) -> None:
    desk.write("script.yaml", _SCRIPT)
    chat = desk.at_a_terminal("chat", "--script", "script.yaml", "--session", "s", "--permissions", "ask")
    try:
        chat.expect_exact("> ")
        chat.sendline("/help")
        chat.expect_exact("delete the conversation")
        chat.expect_exact("> ")
        chat.sendline("Write a greeting")
        chat.expect_exact("+hello")
        chat.expect_exact("Allow? ")
        chat.sendline("y")
        chat.expect_exact("cat greeting.txt")
        chat.expect_exact("Allow? ")
        chat.sendline("n not now")
        chat.expect_exact("not approved: not now")
        chat.expect_exact("> ")
        chat.sendline("/hepl")
        chat.expect_exact("There is no command /hepl")
        chat.expect_exact("> ")
        chat.sendline("/cost")
        chat.expect(r"[\d,]+ tokens")
        chat.expect_exact("> ")
        chat.sendline("reset")
        chat.expect_exact("Everything is forgotten.")
        chat.expect_exact("> ")
        chat.sendline("/quit")
        chat.expect(pexpect.EOF)
    finally:
        chat.close()
    assert chat.exitstatus == 0
    assert (desk.work / "greeting.txt").read_text(encoding="utf-8") == "hello\n"


def test_the_first_interrupt_at_the_prompt_does_not_leave_and_no_line_of_the_head_is_wrapped(desk: Desk) -> None:
    desk.write("script.yaml", _SCRIPT)
    chat = desk.at_a_terminal("chat", "--script", "script.yaml", "--session", "a-name-with-20-chars", columns=90)
    try:
        chat.expect_exact("> ")
        head = re.sub(r"\x1b\[[\d;?]*[a-z]", "", chat.before or "").strip()
        chat.send("half a task")
        chat.expect_exact("half a task")
        chat.sendintr()
        chat.expect_exact("> ")
        assert "again" not in (chat.before or ""), "only the line is cleared"
        for _ in range(2):
            chat.sendintr()
            chat.expect_exact("Press Ctrl+C again to leave.")
            chat.expect_exact("> ")
            chat.sendline("/cost")
            chat.expect_exact("0 tokens")
            chat.expect_exact("> ")
        chat.sendintr()
        chat.expect_exact("> ")
        chat.sendintr()
        chat.expect(pexpect.EOF)
    finally:
        chat.close()
    assert chat.exitstatus == 0
    # The path of the directory has a line of its own.
    assert max(len(line) for line in head.splitlines() if "/" not in line) <= 90
    assert head.splitlines()[0].startswith("Codepilot · ")


@pytest.mark.parametrize(("signals", "code"), [(["SIGINT", "SIGINT"], 130), (["SIGTERM"], 143)])
def test_a_second_interrupt_and_sigterm_leave_at_once(desk: Desk, signals: list[str], code: int) -> None:
    desk.write("script.yaml", _TOUCH.replace("touch made", "sleep 50"))
    desk.write("signalled.py", _SIGNALLED)
    done = subprocess.run(
        [sys.executable, "signalled.py", *signals],
        cwd=desk.work,
        env=desk.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr


@pytest.mark.slow
def test_a_call_that_was_left_open_is_offered_again(desk: Desk) -> None:
    desk.write("script.yaml", _TOUCH)
    desk.write("agent.yaml", _ASKING)
    first = desk.at_a_terminal("chat", "--trust", "--session", "s")
    try:
        first.expect_exact("> ")
        first.sendline("Make a file")
        first.expect_exact("Allow? ")
        first.sendeof()
        first.expect_exact("The run is waiting.")
        first.expect(pexpect.EOF)
    finally:
        first.close()
    assert first.exitstatus == 3
    second = desk.at_a_terminal("run", "--trust", "--session", "s")
    try:
        second.expect_exact("touch made")
        second.expect_exact("Allow? ")
        second.sendline("y")
        second.expect_exact("Made.")
        second.expect(pexpect.EOF)
    finally:
        second.close()
    assert second.exitstatus == 0
    assert (desk.work / "made").exists()
