from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.terminals import pty
from agent_runtime.terminals.backends import create_backend
from agent_runtime.terminals.processes import UNCLEAR, ForegroundState, foreground_state
from agent_runtime.terminals.terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a program waits for")

ASKS = "/usr/bin/python3 -c 'import {0}; {1}'".format
LOOKS_FOR_KEYS = ASKS(
    "os, termios",
    "mode = termios.tcgetattr(0); mode[3] &= ~termios.ICANON; mode[6][termios.VMIN] = 0; "
    "mode[6][termios.VTIME] = {}; termios.tcsetattr(0, 0, mode); list(iter(lambda: os.read(0, 1), 0))",
)
PROMPTS = {
    "the shell reads": "read -p 'Name: ' name",
    "a line editor": "/usr/bin/python3 -q",
    "an answer that is not shown": ASKS("getpass", "getpass.getpass()"),
    "a reader of a pipe": "cat | wc",
    "an endless poll": ASKS("select, sys", "p = select.poll(); p.register(0, 1); p.poll()"),
    "an endless epoll": ASKS("select, sys", "p = select.epoll(); p.register(0, select.EPOLLIN); p.poll()"),
    "an event loop with a timer": ASKS("select, sys", "p = select.epoll(); p.register(0, select.EPOLLIN); p.poll(60)"),
}
OTHERS = {
    "sleeps": "sleep 60",
    "computes": "while :; do :; done",
    "computes without a sound": "/usr/bin/python3 -c 'while True: pass'",
    "computes beside a reader in a pipe": "cat | /usr/bin/python3 -c 'while True: pass'",
    "works now and then beside a reader in a pipe": "cat | "
    + ASKS("time", "list(iter(lambda: time.sleep(.002) or sum(range(2000000)), 0))"),
    "waits for a child": ASKS("subprocess", 'subprocess.run(["sleep", "60"])'),
    "reads a pipe": "sleep 60 | cat",
    "reads a socket": ASKS("socket", "a, b = socket.socketpair(); a.recv(1)"),
    "serves": ASKS("socket", 's = socket.create_server(("127.0.0.1", 0)); s.accept()'),
    "serves, and listens to keys": ASKS(
        "select, socket",
        's = socket.create_server(("127.0.0.1", 0)); p = select.epoll(); p.register(0, 1); p.register(s, 1); p.poll()',
    ),
    "reads in a thread, and works": ASKS(
        "threading, time", "threading.Thread(target=input, daemon=True).start(); time.sleep(60)"
    ),
    "gives up after a time": "read -t 60 name",
    "reads, and has a child that works": "bash -c 'sleep 60 & read name'",
    "looks for keys ten times a second": LOOKS_FOR_KEYS.format(1),
    "looks for keys every 25 seconds": LOOKS_FOR_KEYS.format(250),
}


@pytest_asyncio.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    place = create_backend(Bubblewrap(SandboxSettings()), tmp_path)
    yield Terminal("main", backend=place)
    await place.close()


async def test_a_command_that_waits_for_input_is_detected_immediately(terminal: Terminal) -> None:
    told = {}
    for name, command in PROMPTS.items():
        told[name] = (await terminal.run(command, timeout=30)).status
        await terminal.interrupt("next")
    assert told == dict.fromkeys(PROMPTS, "waiting for input")


async def test_a_busy_command_does_not_count_as_waiting(terminal: Terminal) -> None:
    told = {}
    for name, command in OTHERS.items():
        told[name] = (await terminal.run(command, timeout=0.7)).status
        await terminal.interrupt("next")
    assert told == dict.fromkeys(OTHERS, "running")


async def test_input_is_answered_when_the_program_asks_again_however_long_it_works(terminal: Terminal) -> None:
    await terminal.run(
        ASKS("getpass, time", 'input("User: "); print("looking", flush=True); time.sleep(0.8); getpass.getpass()'),
        timeout=30,
    )
    asked = await terminal.send("me\n", timeout=30)
    assert (asked.status, asked.output) == ("waiting for input", "looking\nPassword: ")
    assert (await terminal.send("secret\n", timeout=30)).exit_code == 0


async def test_where_the_system_does_not_tell_a_quiet_moment_after_an_answer_is_enough(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pty, "foreground_state", lambda *_, **_options: UNCLEAR)
    asked = await terminal.run("read name; echo hi $name; read more", timeout=0.5)
    assert asked.status == "running"
    answered = await terminal.send("me\n", timeout=60)
    assert (answered.status, answered.output) == ("running", "hi me\n")


def test_inaccessible_processes_are_unclear() -> None:
    assert foreground_state(1 << 30, 1, has_timed_reads=False) == UNCLEAR
    assert ForegroundState(kind="unclear") == UNCLEAR
