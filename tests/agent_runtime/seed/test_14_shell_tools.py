"""§14: terminals that live on: commands that end, that go on, that ask, that are interrupted or killed."""

from __future__ import annotations

from collections.abc import Callable

from agent_runtime import AsyncRuntime, Shrunk, Status
from tests.agent_runtime.seed.parts import Model, reply

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_a_command_that_ends_is_completed_and_has_its_exit_code_and_directory(start: Start) -> None:
    runtime, model = start(reply('execute("main", "mkdir -p sub && cd sub && false", 30)'), reply(done="Seen."))
    await runtime.run("Run it")
    assert "[terminal:main:cmd1] $ mkdir -p sub && cd sub && false" in model.read[1]
    assert "status: completed" in model.read[1]
    assert "exit_code: 1" in model.read[1]
    assert "cwd: /workspace/sub" in model.read[1]


async def test_a_command_that_waits_for_input_says_so_and_is_answered(start: Start) -> None:
    runtime, model = start(
        reply('execute("main", "echo begun; read line; echo ended with $line", 30)'),
        reply('send_input("main", "yes\\n", 5)'),
        reply(done="Ended."),
    )
    await runtime.run("Run it")
    assert "status: waiting for input" in model.read[1]
    assert "begun" in model.read[1]
    assert "ended with yes" in model.read[2]
    assert "status: completed" in model.read[2]


async def test_output_that_was_shown_is_not_shown_again_until_the_command_is_done(start: Start) -> None:
    runtime, model = start(
        reply('execute("main", "echo one; read a; echo two; read b; echo three", 0.3)'),
        reply('send_input("main", "\\n", 0.3)'),
        reply('send_input("main", "\\n", 5)'),
        reply('read_output("main", 1)'),
        reply(done="Read."),
    )
    await runtime.run("Run it")
    assert ("one" in model.read[1], "two" in model.read[1].replace("echo two", "")) == (True, False)
    output = model.read[2].splitlines()
    assert "two" in output
    assert "one" not in output
    assert {"one", "two", "three"} <= {*model.read[4].splitlines()}


async def test_ctrl_c_ends_the_command_and_the_terminal_lives_on(start: Start) -> None:
    runtime, model = start(
        reply('execute("server", "WORD=kept; sleep 60", 0.2, new_terminal=True)'),
        reply('send_input("server", "\\x03", 5)'),
        reply('execute("server", "echo word $WORD")'),
        reply(done="Ended."),
    )
    await runtime.run("Serve")
    assert "status: running" in model.read[1]
    assert "status: completed" in model.read[2]
    assert "exit_code: 130" in model.read[2]
    assert "word kept\n" in model.read[3]


async def test_ctrl_d_ends_what_reads_its_input(start: Start) -> None:
    runtime, model = start(
        reply('execute("main", "cat; echo ended", 0.2)\nsend_input("main", "\\x04", 5)'), reply(done=".")
    )
    await runtime.run("Read")
    assert "ended\n" in model.read[1]


async def test_terminals_stand_beside_each_other_and_can_be_destroyed(start: Start) -> None:
    runtime, model = start(
        reply('execute("server", "sleep 600", 0.1, new_terminal=True)\nexecute("main", "echo beside")'),
        reply('terminate_terminal("server")'),
        reply('execute("server", "echo gone")'),
        reply(done="Seen."),
    )
    outcome = await runtime.run("Serve")
    assert "beside\n" in model.read[1]
    assert "server: running `sleep 600`" in model.requests[1].status
    assert "main: idle" in model.requests[1].status
    assert "server" not in model.requests[2].status
    assert "there is no terminal 'server'" in model.read[3]
    assert outcome.status is Status.FINISHED


async def test_pid_state_and_directory_of_each_terminal_ride_with_every_request(start: Start) -> None:
    runtime, model = start(reply('execute("main", "cd /tmp")'), reply(done="Seen."))
    await runtime.run("Go")
    assert "cwd /tmp" in model.requests[1].status
    assert "pid " in model.requests[1].status
    assert not any("pid " in message.text for message in model.requests[1].messages)


async def test_a_full_reading_takes_the_earlier_ones_out_of_the_conversation(start: Start) -> None:
    """Once the whole output is shown, what was shown of it before gives way where that is worth the cache."""
    lines = "for n in $(seq 1 900); do echo early line $n; done"
    runtime, model = start(
        reply(f'execute("main", "{lines}; read a; echo the end", 0.5)'),
        reply('send_input("main", "\\n", 5)'),
        reply('read_output("main", 1)', done="All read."),
        *[reply(done=f"Turn {number}.") for number in range(3)],
    )
    await runtime.run("Run it")
    for number in range(3):
        await runtime.run(f"Turn {number}")
    told = "\n".join(message.text for message in model.requests[-1].messages)
    assert any(isinstance(event, Shrunk) for event in runtime.session.events)
    assert told.count("early line 20\n") == 1
    assert "[Results left out here" in told
    assert "the end" in told
