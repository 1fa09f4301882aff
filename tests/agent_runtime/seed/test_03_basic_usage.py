"""§3: `run` gives how it ended, whose text is the completion; with and without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import Agent, AsyncRuntime, Runtime, SettingsError, Status, UsageError
from tests.agent_runtime.seed.parts import Model, reply, write_agent_file


def test_without_an_event_loop(tmp_path: Path) -> None:
    with Runtime(str(write_agent_file(tmp_path, reply(done="The port was wrong.")))) as runtime:
        outcome = runtime.run("Fix the nginx config")
    assert f"{outcome}" == "The port was wrong."
    assert (outcome.status, outcome.summary) == (Status.FINISHED, "The port was wrong.")


async def test_inside_an_event_loop(tmp_path: Path) -> None:
    async with AsyncRuntime(write_agent_file(tmp_path, reply(done="The port was wrong."))) as runtime:
        outcome = await runtime.run("Fix the nginx config")
    assert outcome.summary == str(outcome) == "The port was wrong."


async def test_a_run_that_reaches_its_last_step_has_no_summary_but_a_reason(tmp_path: Path) -> None:
    path = write_agent_file(
        tmp_path, *[reply(f"print({number})") for number in range(3)], runtime={"work_dir": "workspace", "max_steps": 3}
    )
    async with AsyncRuntime(path) as runtime:
        outcome = await runtime.run("Never end")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.MAX_STEPS, None, 3)
    assert "3 steps" in str(outcome)


async def test_the_blocking_runtime_refuses_to_hold_up_an_event_loop(tmp_path: Path) -> None:
    runtime = Runtime(write_agent_file(tmp_path, reply(done="No.")), quiet=True)
    with pytest.raises(UsageError, match="use AsyncRuntime"):
        runtime.run("Do it")
    with pytest.raises(UsageError, match="use AsyncRuntime"):
        runtime.reset()


def test_an_agent_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml"):
        Runtime(tmp_path / "nowhere.yaml")


def test_with_nobody_registered_it_prints_what_the_agent_says_and_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Runtime(
        write_agent_file(tmp_path, reply('execute("main", "echo hello")', say="Greeting.", done="Greeted."))
    ) as r:
        r.run("Greet")
    out = capsys.readouterr().out
    assert "Greeting." in out
    assert "Running `echo hello`" in out
    assert "Greeted." in out
    assert "```" not in out


def test_it_prints_what_waits_and_what_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replies = reply("print(1 // 0)", done="Too early."), reply('execute("main", "echo hi")')
    with Runtime(write_agent_file(tmp_path, *replies, permissions=[{"ask": "execute"}])) as runtime:
        outcome = runtime.run("Greet")
    out = capsys.readouterr().out
    assert "does not count" in out
    assert outcome.pending is not None
    assert f"Waiting for approval of execute (request {outcome.pending.request_id})" in out
    assert "$ echo hi" in out


def test_nothing_that_the_agent_says_can_draw_over_the_call_that_somebody_is_to_approve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hides = reply('execute("main", "echo hi")', say="Caf\u00e9\u00a0\u2615 \x1b[8m\x1b]0;title\x07\u202edone.")
    with Runtime(write_agent_file(tmp_path, hides, permissions=[{"ask": "execute"}])) as runtime:
        runtime.run("Greet")
    out = capsys.readouterr().out
    assert "Caf\u00e9\u00a0\u2615 \\x1b[8m\\x1b]0;title\\x07\\u202edone." in out
    assert "$ echo hi" in out


def test_quiet_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Runtime(write_agent_file(tmp_path, reply("print(1 // 0)"), reply(done="Done.")), quiet=True) as runtime:
        runtime.run("Greet")
    assert capsys.readouterr().out == ""


def test_an_agent_in_code_does_as_well_as_a_file(described: Callable[..., tuple[Agent, Model]]) -> None:
    with Runtime(described(reply(done="Both work."))[0], quiet=True) as runtime:
        assert str(runtime.run("Try")) == "Both work."
