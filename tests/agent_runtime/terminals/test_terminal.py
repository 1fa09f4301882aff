from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.sandbox.select import Local
from agent_runtime.terminals import command as command_module
from agent_runtime.terminals import terminal as shell_module
from agent_runtime.terminals.backends import Backend, create_backend
from agent_runtime.terminals.command import CommandReport
from agent_runtime.terminals.output import COMMAND_BYTES, Output, Spool
from agent_runtime.terminals.processes import ForegroundState, ProcessFamily
from agent_runtime.terminals.pty import Pty
from agent_runtime.terminals.terminal import Terminal
from tests.sandboxes import children, descriptors, parent_of, processes_with, seconds
from tests.waiting import eventually


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Backend]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    made = create_backend(Bubblewrap(SandboxSettings()), workspace)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def terminal(place: Backend, tmp_path: Path) -> AsyncIterator[Terminal]:
    made = Terminal("main", backend=place, spool=Spool(tmp_path / "logs"))
    yield made
    await made.close()


async def run(terminal: Terminal, command: str, timeout: float = 20) -> CommandReport:  # noqa: ASYNC109 - as there
    return await terminal.run(command, timeout=timeout)


async def run_until_output(terminal: Terminal, command: str) -> None:
    """Run a command until it has printed its first output."""
    report: CommandReport | None = await run(terminal, command, timeout=0.05)
    while report is None or "run_until_output" not in report.output:
        report = await terminal.read(timeout=0.05)


@pytest.mark.parametrize(
    ("command", "exit_code", "output"),
    [
        ("echo hi", 0, "hi\n"),
        ("false", 1, ""),
        ("", 0, ""),
        ("   \n\n", 0, ""),
        ("# only a comment", 0, ""),
        ("echo a # trailing comment", 0, "a\n"),
        ("echo a;", 0, "a\n"),
        ("echo a\necho b\n\necho c", 0, "a\nb\nc\n"),
        ("echo a \\\n  b", 0, "a b\n"),
        ("cat <<EOF\na\tb $((1 + 1))\nEOF", 0, "a\tb 2\n"),
        ("cat <<-'EOF' | tr a-z A-Z\n\t$x\nEOF\n", 0, "$X\n"),
        ("for i in 1 2; do\n  echo $i\ndone", 0, "1\n2\n"),
        ("f() { return 7; }; f", 7, ""),
        ("alias hi='echo aliased'\nhi", 0, "aliased\n"),
        ("shopt -s extglob\ncase aab in +(a)b) echo matched;; esac", 0, "matched\n"),
        ("echo a &&\\\n echo b; echo c;", 0, "a\nb\nc\n"),
        ("echo before; clear; echo after", 0, "before\nafter\n"),
        ("printf 'a\\tb\\n'", 0, "a\tb\n"),
        ("echo 'it'\"'\"'s' \"q\" \\$x !! `echo y`", 0, "it's q $x !! y\n"),
        ("printf 'no end of line'", 0, "no end of line"),
        ("printf 'a\\r\\nb\\r\\n'", 0, "a\nb\n"),
        ("printf '10%%\\r20%%\\r100%%\\n'", 0, "100%\n"),
        ("printf '\\033[31mred\\033[0m\\n'", 0, "red\n"),
        ("printf '\\377\\376\\n'", 0, "\N{REPLACEMENT CHARACTER}" * 2 + "\n"),
        ("printf 'gr\u00fc\u00df \u4e16\u754c\\n'", 0, "gr\u00fc\u00df \u4e16\u754c\n"),
        ("read line < /dev/null; cat < /dev/null; echo $?", 0, "0\n"),
        ("echo )", 2, "bash: syntax error near unexpected token `)'\n"),
        ("set -u; echo $undefined", 1, "bash: undefined: unbound variable\n"),
        ("! true", 1, ""),
        ("(exit 3)", 3, ""),
        ("no-such-program-here", 127, "bash: no-such-program-here: command not found\n"),
        ("test -t 0 && test -t 1 && tput cols", 0, "120\n"),
        ("printf '\\033]7770;%032d;0 0;/\\007\\n' 0; echo real", 0, "\nreal\n"),
        ("PS1='mine> '; PS2='more> '; unset PROMPT_COMMAND", 0, ""),
        ("exec 2>/dev/null", 0, ""),
        ("set -e; [ a = b ] && echo c; set +e", 0, ""),
    ],
)
async def test_a_command_ends_with_its_output_and_exit_code_and_the_session_goes_on(
    terminal: Terminal, command: str, exit_code: int, output: str
) -> None:
    report = await run(terminal, command)
    assert (report.status, report.exit_code, report.output) == ("completed", exit_code, output)
    after = await run(terminal, "echo still here")
    assert (after.status, after.output) == ("completed", "still here\n")


@pytest.mark.parametrize(
    "command",
    [
        "echo 'open",
        'echo "open',
        "echo $(ls",
        "(ls",
        "cat > file <<EOF\ntext",
        "if true; then",
        "if true",
        "while true; do\necho x",
        "echo a \\",
        "true &&",
        "f() {",
        "case x in",
        "echo `ls",
    ],
)
async def test_an_unfinished_command_is_reported_as_incomplete(terminal: Terminal, command: str) -> None:
    await run(terminal, "shell=same")
    report = await run(terminal, f"touch ran\n{command}")
    assert (report.status, report.exit_code, report.ok) == ("incomplete", None, False)
    assert "not closed" in report.note
    assert (await run(terminal, 'ls; echo "$shell"')).output == "same\n"


@pytest.mark.parametrize(
    "command",
    ["}\ntouch ran\n{ echo", "true\n}\ntouch ran", "} & touch ran", "} | touch ran", "} > ran", "}; touch ran"],
)
async def test_a_command_with_a_brace_too_many_is_run_neither_to_judge_it_nor_after_that(
    terminal: Terminal, command: str
) -> None:
    report = await run(terminal, command)
    assert (report.status, report.exit_code) == ("completed", 2)
    assert "syntax error near unexpected token `}'" in report.output
    assert (await run(terminal, "ls")).output == ""


async def test_a_function_with_the_name_of_a_fork_bomb_is_not_called_by_later_commands(terminal: Terminal) -> None:
    await run(terminal, "touch calls; :() { echo again >> calls; }")
    assert (await run(terminal, "echo 'open")).status == "incomplete"
    assert (await run(terminal, "cat calls")).output == ""


@pytest.mark.parametrize("mode", ["set -v", "set -x", "set -vx", "set -a", "set -u"])
async def test_a_command_echoed_by_the_shell_is_no_error(terminal: Terminal, mode: str) -> None:
    await run(terminal, mode)
    report = await run(terminal, "echo 'unexpected end of file' | tr a-z A-Z; false")
    assert (report.status, report.exit_code) == ("completed", 1)
    assert "UNEXPECTED END OF FILE" in report.output
    report = await run(terminal, "touch ran\necho 'open")
    assert (report.status, report.exit_code) == ("incomplete", None)
    assert report.note.endswith("is not closed (unexpected EOF while looking for matching `'')")
    assert "ran" not in (await run(terminal, "ls")).output.split()
    variables = (await run(terminal, "env")).output.splitlines()  # among them what `set -v` repeats
    assert not any(each.startswith("__cp_text=") for each in variables)


@pytest.mark.parametrize("mode", ["BASH_ARGV0=other", "alias :='echo colon'", 'trap "echo \'open" DEBUG'])
async def test_a_command_is_parsed_independently_of_session_options(terminal: Terminal, mode: str) -> None:
    await run(terminal, f"shell=same; {mode}")
    report = await run(terminal, "touch ran\necho 'open")
    assert (report.status, report.exit_code) == ("incomplete", None)
    assert "debug trap" not in report.note
    report = await run(terminal, "ls; echo $shell")
    assert report.status == "completed"
    said = [line for line in report.output.splitlines() if "debug trap" not in line]
    assert said == ["same"]


async def test_a_shell_that_speaks_another_language_runs_nothing_of_an_unfinished_command(tmp_path: Path) -> None:
    settings = SandboxSettings(environment={"LC_ALL": "C.UTF-8", "LANGUAGE": "de"})
    place = create_backend(Bubblewrap(settings), tmp_path)
    terminal = Terminal("main", backend=place)
    assert (await run(terminal, "touch ran\necho 'open")).status == "incomplete"
    assert (await run(terminal, "ls; echo $LC_ALL $LANGUAGE")).output == "C.UTF-8 de\n"
    await terminal.close()
    await place.close()


@pytest.mark.parametrize("command", ["echo 'open", 'echo "open', "echo `ls", "echo $(ls", "(ls", "cat <<EOF\ntext"])
async def test_a_shell_whose_language_is_not_understood_lives_on_after_an_unfinished_command(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(command_module, "incomplete_reason", lambda _output: None)
    await run(terminal, "shell=same")
    assert (await run(terminal, command)).status == "completed"
    assert (await run(terminal, 'echo "$shell"')).output == "same\n"


@pytest.mark.parametrize(
    ("command", "exit_code"), [("exit 4", 4), ("exec false", 1), ("set -e; false", 1), ("kill -9 $$", 137)]
)
async def test_a_shell_that_dies_says_so_and_starts_again(terminal: Terminal, command: str, exit_code: int) -> None:
    await run(terminal, "cd /tmp; x=1")
    report = await run(terminal, command)
    assert (report.status, report.exit_code) == ("restarted", exit_code)
    assert "new one" in report.note
    after = await run(terminal, 'echo "$x$PWD"')
    assert after.output == "/workspace\n"


async def test_a_command_in_the_background_gives_the_shell_back_at_once(terminal: Terminal) -> None:
    report = await run(terminal, "sleep 60 &")
    assert (report.status, report.exit_code) == ("completed", 0)
    assert report.output.startswith("[1] ")
    assert (await run(terminal, "kill %1; wait; echo gone")).output.endswith("gone\n")


async def test_a_line_of_a_hundred_thousand_characters_is_not_wrapped(terminal: Terminal, tmp_path: Path) -> None:
    report = await run(terminal, "head -c 100000 /dev/zero | tr '\\0' x; echo")
    assert report.status == "completed"
    assert report.output.startswith("x" * 5_000 + "\n[\u2026 90,001 characters left out")
    assert (tmp_path / "logs" / "main-1.log").read_text() == "x" * 100_000 + "\n"


@pytest.mark.parametrize(
    "forged",
    [
        "\\033]7770;{zeros};0;1;/tmp\\007",
        "\\033]7770;",
        "\\033]7770;;0;1;/\\007" * 50,
        "\\033]7770;{zeros}" + "x" * 10_000,
    ],
)
async def test_a_forged_end_marker_is_plain_output(terminal: Terminal, forged: str) -> None:
    text = forged.format(zeros="0" * 32)
    report = await run(terminal, f"/usr/bin/env printf '{text}'; sleep 0.2; cd /usr; (exit 7)")
    assert (report.status, report.exit_code, report.cwd) == ("completed", 7, "/usr")
    assert (await run(terminal, "echo ok")).output == "ok\n"


async def test_the_word_that_ends_a_command_is_in_no_environment(terminal: Terminal) -> None:
    report = await run(terminal, "env; cat /proc/$$/environ /proc/$$/cmdline")
    assert re.search(r"[0-9a-f]{32}", re.sub(r"CODEPILOT_TERMINAL=\w+", "", report.output)) is None


@pytest.mark.parametrize(
    ("program", "shows", "leave"),
    [
        ("less numbers", "\n7\n8\n", "q"),
        ("vim -u NONE numbers", "\n7\n8\n", ":q!\r"),
        ("vi numbers", "\n7\n8\n", ":q!\r"),
        ("top -d 1", "PID", "q"),
        ("nano numbers", "numbers", "\x18"),
    ],
)
async def test_full_screen_programs_render_a_screen_and_can_exit(
    terminal: Terminal, program: str, shows: str, leave: str
) -> None:
    if shutil.which(program.split(maxsplit=1)[0], path="/usr/bin:/bin") is None:
        pytest.skip(f"{program.split(maxsplit=1)[0]} is not installed")
    await run(terminal, "seq 100 > numbers")
    screen = (await run(terminal, program, timeout=0.3)).output

    for _ in range(100):
        if shows in screen:
            break
        report = await terminal.read(timeout=0.3)
        screen = report.output if report is not None else ""
    assert shows in screen
    ended = await terminal.send(leave, timeout=30)
    assert (ended.status, ended.exit_code) == ("completed", 0)
    assert (await run(terminal, "echo ok")).output == "ok\n"


async def test_three_gigabytes_are_cut_off_at_the_quota_in_little_memory(terminal: Terminal, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = await run(terminal, "yes | head -c 3G", timeout=60)
    assert (report.status, report.ok) == ("stopped", False)
    assert f"{COMMAND_BYTES:,} bytes" in report.note
    assert 0.9 * COMMAND_BYTES < (tmp_path / "logs" / "main-1.log").stat().st_size <= COMMAND_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60 * 1024  # in KiB
    assert (await run(terminal, "echo ok")).output == "ok\n"


async def test_the_environment_disables_colours_progress_bars_and_prompts(tmp_path: Path) -> None:
    settings = SandboxSettings(environment={"PIP_PROGRESS_BAR": "on", "CI": ""})
    place = create_backend(Bubblewrap(settings), tmp_path)
    terminal = Terminal("main", backend=place)
    shown = await run(
        terminal, 'for n in NO_COLOR PY_COLORS CI PIP_PROGRESS_BAR npm_config_progress; do echo "${!n}"; done'
    )
    assert shown.output.split("\n") == ["1", "0", "", "on", "false", ""]
    await place.close()


async def test_state_lives_on_between_commands(terminal: Terminal) -> None:
    await run(terminal, "cd /tmp; x='a b'; f() { echo \"f:$1\"; }; false")
    report = await run(terminal, 'echo "$? $x"; f 1')
    assert (report.output, report.cwd, terminal.cwd) == ("1 a b\nf:1\n", "/tmp", "/tmp")  # noqa: S108 - inside


@pytest.mark.parametrize(
    ("command", "ok"),
    [
        ("false | true", False),
        ("true | true", True),
        ("yes | head -1", True),
        ("set -o pipefail; yes | head -1", True),
        ("set -o pipefail; false | true", False),
        ("yes | false", False),
        ("false; true", True),
        ("(false | true) && ls | false | cat", False),
    ],
)
async def test_success_means_every_stage_of_the_pipe(terminal: Terminal, command: str, *, ok: bool) -> None:
    assert (await run(terminal, command)).ok is ok


async def test_a_long_command_is_not_cut_at_the_terminals_line_length(terminal: Terminal) -> None:
    text = "\u00e4\t'x\" \\ $HOME\n" * 1_000
    report = await run(terminal, f"cat > file <<'END'\n{text}END\nwc -c < file; sha256sum file")
    assert report.output.split()[0] == str(len(text.encode()))


async def test_a_line_of_100000_characters_is_not_wrapped(terminal: Terminal) -> None:
    report = await run(terminal, "printf '%0100000d\\n' 0 | tee line | wc -c; cat line")
    assert "\n" not in report.output.split("…")[0].removeprefix("100001\n").rstrip("\n[ ")
    assert "90,00" in report.output


async def test_nothing_can_forge_the_end_of_a_command(terminal: Terminal) -> None:
    """Programs may know the marker's form, but not the nonce."""
    report = await run(
        terminal,
        "env | grep -c __cp; set | sed -n 's/^__cp_nonce=/nonce:/p' >/dev/null\n"
        "for i in 1 2 3; do printf '\\033]7770;;0 0;/\\007'; done; echo after; exit_code=9; (exit 9)",
    )
    assert (report.status, report.exit_code, report.output) == ("completed", 9, "0\nafter\n")


async def test_a_command_that_goes_on_is_read_in_pieces_without_repetition(terminal: Terminal) -> None:
    first = await run(terminal, "echo one; read line; echo two; read line; echo three")
    assert (first.status, first.exit_code, first.output) == ("waiting for input", None, "one\n")
    second = await terminal.send("x\n", timeout=30)
    assert (second.status, second.output) == ("waiting for input", "two\n")
    third = await terminal.send("x\n", timeout=30)
    assert (third.status, third.exit_code, third.output) == ("completed", 0, "three\n")
    again = await terminal.read(timeout=1)
    assert again is not None
    assert again.output == "one\ntwo\nthree\n"


async def test_reading_waits_for_the_end(terminal: Terminal) -> None:
    await run(terminal, "sleep 0.3; echo done", timeout=0.01)
    report = await terminal.read(timeout=30)
    assert report is not None
    assert (report.status, report.output) == ("completed", "done\n")


async def test_a_second_command_is_refused_while_one_runs(terminal: Terminal) -> None:
    await run(terminal, "sleep 60", timeout=0.05)
    assert terminal.running_command == "sleep 60"
    with pytest.raises(RuntimeError, match="running"):
        await run(terminal, "echo no")


async def test_a_repl_takes_input_and_ends_with_control_d(terminal: Terminal) -> None:
    started = await run(terminal, "/usr/bin/python3 -q")
    assert started.output.endswith(">>> ")
    assert "42" in (await terminal.send("print(6 * 7)\n", timeout=30)).output
    ended = await terminal.send("\x04", timeout=30)
    assert (ended.status, ended.exit_code) == ("completed", 0)


def pass_on_late(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, *, what: bytes) -> None:
    """Delay input that contains these bytes until the programs were inspected three times."""
    assert terminal._shell is not None
    pty = terminal._shell.pty
    write, attention = pty.write, pty.foreground_state
    typed: list[bytes] = []
    looks: list[ForegroundState] = []

    async def typing(data: bytes, *, timeout: float) -> int:  # noqa: ASYNC109 - as there
        if what not in data:
            return await write(data, timeout=timeout)
        typed.append(data)
        looks.clear()
        return len(data)

    async def looking() -> ForegroundState:
        looks.append(await attention())
        if len(looks) == 3:
            await write(typed.pop(), timeout=30)
        return looks[-1]

    monkeypatch.setattr(pty, "write", typing)
    monkeypatch.setattr(pty, "foreground_state", looking)


async def test_a_program_with_unread_input_does_not_count_as_waiting(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(terminal, "/usr/bin/python3 -q")
    pass_on_late(terminal, monkeypatch, what=b"print")
    assert "42" in (await terminal.send("print(6 * 7)\n", timeout=30)).output


async def test_a_shell_that_has_not_read_its_command_does_not_wait_for_input(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(terminal, "true")
    pass_on_late(terminal, monkeypatch, what=b"__cp_begin")
    report = await run(terminal, "echo done")
    assert (report.status, report.output) == ("completed", "done\n")


async def test_a_shell_killed_before_identification_is_reported_as_ended(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet = Pty.identify_leader

    def too_late(pty: Pty) -> None:
        os.kill(os.tcgetpgrp(pty.fd), signal.SIGKILL)
        while os.tcgetpgrp(pty.fd):  # pytest's own limit ends this
            pass
        meet(pty)

    monkeypatch.setattr(Pty, "identify_leader", too_late)
    report = await run(terminal, "echo never")
    assert (report.status, report.output) == ("restarted", "")
    monkeypatch.undo()
    assert (await run(terminal, "echo again")).output == "again\n"


async def test_a_hidden_prompt_takes_its_answer(terminal: Terminal) -> None:
    asked = await run(terminal, "read -s -p 'Password: ' word; echo; echo \"${#word} characters\"")
    assert (asked.status, asked.output) == ("waiting for input", "Password: ")
    assert (await terminal.send("secret\n", timeout=30)).output == "\n6 characters\n"


async def test_control_c_and_control_z_give_the_shell_back(terminal: Terminal) -> None:
    await run_until_output(terminal, "sh -c 'echo run_until_output; exec sleep 60'")
    assert (await terminal.send("\x03", timeout=30)).exit_code == 130
    await run_until_output(terminal, "sh -c 'echo run_until_output; exec sleep 60'")
    stopped = await terminal.send("\x1a", timeout=30)
    assert (stopped.status, stopped.exit_code) == ("completed", 148)
    assert "Stopped" in stopped.output
    assert (await run(terminal, "kill %1; echo ok")).output.endswith("ok\n")


@pytest.mark.parametrize(
    ("command", "survives"),
    [
        ("x=1; sh -c 'echo run_until_output; exec sleep 60'", True),
        ("x=1; sh -c 'echo run_until_output; exec cat'", True),
        ("x=1; bash -c 'trap \"\" INT; echo run_until_output; while :; do sleep 0.1; done'", True),
        ("x=1; trap '' INT; echo run_until_output; while :; do :; done", False),
    ],
)
async def test_an_interrupt_ends_a_program_that_ignores_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: str, *, survives: bool
) -> None:
    monkeypatch.setattr(shell_module, "_GRACE_SECONDS", 0.3)
    await run_until_output(terminal, command)
    await terminal.interrupt("told to stop")
    report = await terminal.read(timeout=30)
    assert report is not None
    assert (report.status, report.ok) == ("stopped", False)
    assert "told to stop" in report.note
    assert (await run(terminal, "echo $x")).output == ("1\n" if survives else "\n")


@pytest.mark.parametrize("beforehand", ["", "trap '' INT; "])
@pytest.mark.parametrize("alone", [True, False])
async def test_unread_input_of_a_killed_program_is_discarded(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beforehand: str, *, alone: bool
) -> None:
    monkeypatch.setattr(shell_module, "_GRACE_SECONDS", 0.3)
    used = Terminal("alone", backend=create_backend(Local(SandboxSettings()), tmp_path)) if alone else terminal
    await run_until_output(
        used, f'x=1; bash -c "{beforehand}stty raw -echo; echo run_until_output; while :; do sleep 0.1; done"'
    )
    await used.interrupt("told to stop")
    after = await run(used, "echo $x")
    assert (after.status, after.output) == ("completed", "1\n")
    await used.close()


async def test_background_output_comes_with_the_next_look(terminal: Terminal) -> None:
    await run(terminal, "(sleep 0.2; echo late > /dev/tty; touch done) &")
    done = "test -e done"
    report = await run(terminal, f"until {done}; do sleep 0.05; done", timeout=10)
    assert "late" in report.output + report.note


async def test_a_full_screen_program_is_rendered_as_a_screen(terminal: Terminal) -> None:
    await run(terminal, "seq 1000 > numbers")
    report = await run(
        terminal, "printf '\\033[?1049h\\033[2J\\033[5;3Hhello'; read x; printf '\\033[?1049l'", timeout=30
    )
    assert report.output == "[full-screen program; its screen:]\n\n\n\n\n  hello"
    assert (await terminal.send("\n", timeout=30)).status == "completed"


async def test_output_over_the_quota_stops_the_command_and_the_session_goes_on(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Small(Output):
        def __init__(self, *, spool: Spool | None = None, name: str = "") -> None:
            super().__init__(spool=spool, name=name, quota=200_000)

    monkeypatch.setattr(shell_module, "Output", Small)
    report = await run(terminal, "yes", timeout=30)
    assert (report.status, report.ok) == ("stopped", False)
    assert "200,000" in report.note
    assert (tmp_path / "logs" / "main-1.log").stat().st_size <= 200_000
    assert (await run(terminal, "echo ok")).output == "ok\n"


async def test_a_large_output_is_whole_in_its_log(terminal: Terminal, tmp_path: Path) -> None:
    report = await run(terminal, "seq 200000")
    assert report.output.startswith("1\n2\n")
    assert report.output.endswith("199999\n200000\n")
    assert len(report.output) < 10_300
    log = tmp_path / "logs" / "main-1.log"
    assert str(log) in report.output
    assert log.read_text() == "".join(f"{n}\n" for n in range(1, 200_001))


@pytest.mark.parametrize("command", ["head -c 300000 /dev/urandom", "yes $'a\\b\\r\\033[31m' | head -c 300000"])
async def test_binary_and_coloured_floods_end_as_any_command(terminal: Terminal, command: str) -> None:
    report = await run(terminal, command)
    assert (report.status, report.exit_code) == ("completed", 0)
    assert (await run(terminal, "echo ok")).output == "ok\n"


async def test_an_input_line_that_the_terminal_would_cut_is_refused(terminal: Terminal) -> None:
    await run(terminal, "cat", timeout=0.1)
    with pytest.raises(ValueError, match="4,095"):
        await terminal.send("x" * 5_000 + "\n", timeout=1)
    assert (await terminal.send("x" * 4_000 + "\n", timeout=2)).output == "x" * 4_000 + "\n"


async def test_a_shell_that_another_terminal_kills_says_so(terminal: Terminal, place: Backend) -> None:
    await run(terminal, "cat", timeout=0.1)
    other = Terminal("other", backend=place)
    await run(other, f"kill -9 {terminal.pid}")
    await other.close()
    report = await terminal.read(timeout=30)
    assert report is not None
    assert (report.status, report.exit_code) == ("restarted", 137)


async def test_input_after_the_shell_was_killed_from_outside_does_not_break(terminal: Terminal) -> None:
    tag = seconds(60660)
    await run(terminal, f"sleep {tag}", timeout=0.1)
    [sleep] = await eventually(lambda: processes_with(tag))
    os.kill(parent_of(sleep), 9)
    report = await terminal.send("x\n", timeout=30)
    assert (report.status, report.exit_code) == ("restarted", 137)
    assert (await run(terminal, "echo ok")).output == "ok\n"


async def test_a_shell_that_does_not_answer_is_killed_and_the_report_says_so(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = seconds(60661)
    await run(terminal, f"sleep {tag} &")
    [sleep] = await eventually(lambda: processes_with(tag))
    os.kill(parent_of(sleep), signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(shell_module, "_ANSWER_SECONDS", 0.3)
        report = await run(terminal, "echo hi")
    assert (report.status, report.exit_code) == ("restarted", 137)
    assert report.note.startswith("the shell did not answer for 0.3 s and was killed; the shell itself ended;")
    assert (await run(terminal, "echo ok")).output == "ok\n"


async def test_cancelling_leaves_a_usable_terminal(terminal: Terminal) -> None:
    task = asyncio.create_task(run(terminal, "echo started; sleep 60"))
    await eventually(lambda: terminal.running_command)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await terminal.interrupt("cancelled")
    assert (await run(terminal, "echo ok")).output == "ok\n"


def test_a_terminal_lives_on_from_one_event_loop_to_the_next(tmp_path: Path) -> None:
    place = create_backend(Bubblewrap(SandboxSettings()), tmp_path)
    terminal = Terminal("main", backend=place)
    asyncio.run(run(terminal, "x=kept"))
    assert asyncio.run(run(terminal, "echo $x")).output == "kept\n"
    asyncio.run(terminal.close())
    asyncio.run(place.close())


def test_the_end_of_a_shell_that_one_event_loop_did_not_finish_is_finished_in_the_next(tmp_path: Path) -> None:
    place = create_backend(Bubblewrap(SandboxSettings()), tmp_path)
    terminal = Terminal("main", backend=place)

    async def start_and_leave() -> None:
        assert (await run(terminal, "sleep 60", timeout=0.05)).status == "running"
        shell = terminal._shell
        assert shell is not None
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(shell.pty, "finish", lambda *, ended: asyncio.sleep(3600, ended))
            os.kill(shell.pty.leader, signal.SIGKILL)
            await eventually(lambda: shell._reap_task is not None)

    async def continue_session() -> None:
        report = await terminal.read(timeout=20)
        assert report is not None
        assert (report.status, report.exit_code) == ("restarted", 137)
        assert (await run(terminal, "echo again")).output == "again\n"
        await terminal.close()
        await place.close()

    asyncio.run(start_and_leave())
    asyncio.run(continue_session())


async def test_a_cancelled_close_does_not_stop_the_reaping(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(terminal, "true")
    shell = terminal._shell
    assert shell is not None
    finish, gate = shell.pty.finish, asyncio.Event()

    async def slowly(*, ended: bool) -> None:
        await gate.wait()
        await finish(ended=ended)

    monkeypatch.setattr(shell.pty, "finish", slowly)
    os.kill(shell.pty.leader, signal.SIGKILL)
    await eventually(lambda: shell._reap_task is not None)
    waiting = asyncio.create_task(run(terminal, "echo again"))
    for _ in range(10):
        await asyncio.sleep(0)
    waiting.cancel()
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
    gate.set()
    assert (await run(terminal, "echo again")).output == "again\n"


async def test_a_shell_that_ends_is_no_longer_read_when_its_terminal_is_closed(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop that still watches a closed descriptor misses events of the next one with its number."""
    await run(terminal, "true")
    shell = terminal._shell
    assert shell is not None
    finish, close, finished, gate = shell.pty.finish, shell.pty.close, asyncio.Event(), asyncio.Event()
    still_read: list[int] = []

    async def slowly(*, ended: bool) -> None:
        await finish(ended=ended)
        finished.set()
        await gate.wait()

    def closed() -> None:
        loop = asyncio.get_running_loop()
        still_read.extend(each for each in (shell.pty.fd, shell.pty.end_fd) if each >= 0 and loop.remove_reader(each))
        close()

    monkeypatch.setattr(shell.pty, "finish", slowly)
    monkeypatch.setattr(shell.pty, "close", closed)
    os.kill(shell.pty.leader, signal.SIGKILL)
    await finished.wait()
    again = asyncio.create_task(run(terminal, "echo again"))
    gate.set()  # the terminal is closed in the very turn in which the command begins to read from it
    assert (await again).output == "again\n"
    assert still_read == []


async def test_a_terminal_whose_closing_was_cancelled_is_closed_the_next_time(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag, begun_to_kill, kill = seconds(80901), asyncio.Event(), ProcessFamily.kill

    async def never(_family: ProcessFamily, *, within: float) -> bool:
        begun_to_kill.set()
        await asyncio.sleep(within + 3600)
        return True

    await run(terminal, f"setsid sleep {tag} &")
    monkeypatch.setattr(ProcessFamily, "kill", never)
    closing = asyncio.create_task(terminal.close())
    await begun_to_kill.wait()
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    monkeypatch.setattr(ProcessFamily, "kill", kill)
    await terminal.close()
    await eventually(lambda: not processes_with(tag))


async def test_a_shell_that_cannot_start_is_an_error_of_the_sandbox(tmp_path: Path) -> None:
    sandbox = Local(SandboxSettings(environment={"PATH": "/nonexistent"}))
    terminal = Terminal("main", backend=create_backend(sandbox, tmp_path))
    with pytest.raises(SandboxError, match="bash"):
        await run(terminal, "true")


async def test_it_works_without_a_sandbox_too(tmp_path: Path) -> None:
    terminal = Terminal("main", backend=create_backend(Local(SandboxSettings()), tmp_path))
    assert (await run(terminal, "pwd")).output == f"{tmp_path}\n"
    await terminal.close()


async def test_twenty_terminals_leave_no_descriptor_and_no_zombie(tmp_path: Path) -> None:
    sandbox = Bubblewrap(SandboxSettings())
    before, had = descriptors(), children()
    for _ in range(20):
        place = create_backend(sandbox, tmp_path)
        terminal = Terminal("main", backend=place)
        assert (await run(terminal, "echo hi")).output == "hi\n"
        await terminal.close()
        await place.close()
    # Fewer than half of a terminal's would be: other parts of the process come and go.
    await eventually(lambda: descriptors() < before + 10)
    await eventually(lambda: children() <= had)
