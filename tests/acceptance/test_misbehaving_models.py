"""Whole jobs with models that break the reply format in every way: they are told, and recover or the job ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from agent_runtime.interpreter.source import InterpreterLimits
from agent_runtime.providers.protocol import StopReason
from agent_runtime.providers.scripted import ScriptedReply
from agent_runtime.transports import transport
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import BUG, COMPLETION, FIX, FIXED_CALC, WEBHOOK_SECRET, acting, staged
from tests.waiting import eventually

TOKEN = "ghs_" + "Zx9" * 12
WRITE = 'write_file("calc.py")'


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdeed:
    """A reply that cannot be executed, or fails when it is.

    Attributes:
        name: of the test.
        reply: the reply.
        told: what the model must read next.
        stop: why the reply ended.
    """

    name: str
    reply: str
    told: str
    stop: StopReason = "stop"


MISDEEDS = (
    Misdeed(name="empty", reply="", told="Format error 1 of 3 in a row: empty. Nothing was run."),
    Misdeed(name="blank", reply=" \n\n", told="in a row: empty."),
    Misdeed(name="words only", reply="I would change `add`.", told="in a row: empty."),
    Misdeed(name="two control blocks", reply=acting("print(1)") + acting("print(2)"), told="multiple_control"),
    Misdeed(
        name="completion first",
        reply=f"```completion\nDone.\n```\n{acting(WRITE, BUG)}",
        told="completion_first",
    ),
    Misdeed(
        name="truncated",
        reply=f"```codepilot\n{WRITE}\n```\n```python\ndef add(a",
        stop="length",
        told="in a row: truncated.",
    ),
    Misdeed(name="payload missing", reply=acting(WRITE, completion="Done."), told="payload_count"),
    Misdeed(name="payload too many", reply=acting(WRITE, BUG, BUG), told="payload_count"),
    Misdeed(
        name="filename mismatch", reply=acting(WRITE, BUG, fence="python filename=other.py"), told="filename_mismatch"
    ),
    Misdeed(
        name="ambiguous",
        reply=f"```codepilot\n{WRITE}\n```\n```python\nx = 1\n```completion\nDone.\n```\n",
        told="in a row: ambiguous.",
    ),
    Misdeed(name="syntax error", reply=acting("for in calc:", completion="Done."), told="control_syntax"),
    Misdeed(name="unknown tool", reply=acting('delete_file("calc.py")', completion="Done."), told="delete_file"),
    Misdeed(
        name="uncaught exception",
        reply=acting('raise ValueError("so it is")', completion="Done."),
        told="ValueError: so it is",
    ),
    Misdeed(
        name="completion above a failing check",
        reply=acting('execute("main", "sh check.sh", check=True)', completion="Done."),
        told="1 failed",
    ),
    Misdeed(
        name="memory bomb", reply=acting("x = [0] * (2 * 10**8)\nprint(len(x))", completion="Done."), told="memory"
    ),
    Misdeed(
        name="print flood",
        reply=acting('for i in range(100000):\n    print("x" * 100)', completion="Done."),
        told="printed more than",
    ),
    Misdeed(
        name="tool-call flood",
        reply=acting('for i in range(100000):\n    read_file("calc.py")', completion="Done."),
        told="200 tool calls",
    ),
    Misdeed(name="deep recursion", reply=acting("def f():\n    return f()\nf()", completion="Done."), told="ecursion"),
)
FORMATS = next(number for number, misdeed in enumerate(MISDEEDS) if misdeed.name == "uncaught exception")
"""How many of them are errors of format; they come first."""


async def test_a_model_that_is_told_its_mistakes_still_fixes_the_bug(hub: LocalHub, tmp_path: Path) -> None:
    formats, failures = MISDEEDS[:FORMATS], MISDEEDS[FORMATS:]
    # The third error of format in a row would end the run.
    misdeeds = [*formats[:2]]
    for number, failure in enumerate(failures, start=1):
        misdeeds += [failure, *formats[2 * number : 2 * number + 2]]
    assert len(misdeeds) == len(MISDEEDS)
    replies = [
        ScriptedReply(text=misdeed.reply, stop=misdeed.stop, expect=(last.told,) if last else ())
        for last, misdeed in zip([None, *misdeeds], misdeeds, strict=False)
    ]
    right = ScriptedReply(text=FIX, expect=(misdeeds[-1].told,))
    async with staged(hub, tmp_path, [*replies, right]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end.status
        assert COMPLETION in end.status
        assert f"{len(MISDEEDS) + 1} steps" in end.status
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert stage.nothing_left()


async def test_an_endless_loop_is_stopped_while_the_service_answers(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "InterpreterLimits", partial(InterpreterLimits, seconds=1.0))
    endless = ScriptedReply(text=acting("while True:\n    pass", completion="Done."))
    async with staged(hub, tmp_path, [endless, ScriptedReply(text=FIX, expect=("time limit exceeded",))]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await eventually(lambda: [event for event in stage.events if type(event).__name__ == "Replied"])
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as client,
            client.get(f"{stage.address}/healthz") as answer,
        ):
            assert answer.status == 200
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end.status
        assert len(stage.pulls()) == 1


async def test_a_model_that_never_behaves_ends_in_a_comment_that_says_so(hub: LocalHub, tmp_path: Path) -> None:
    replies = ["I would change `add`.", acting(WRITE, BUG, BUG), ""]
    async with staged(hub, tmp_path, replies) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED
        [status] = stage.bot_comments(issue.number)
        assert "Failed" in status
        assert "Your reply" not in status, "the model's error texts are not for the user"
        assert "neither acted nor ended the task" in status
        assert "**How to fix it:** Try again" in status
        assert "3 steps" in status
        assert stage.nothing_published()
        assert stage.nothing_left()


async def test_a_secret_in_the_completion_is_redacted_wherever_it_goes(hub: LocalHub, tmp_path: Path) -> None:
    said = f"Fixed with {WEBHOOK_SECRET} and {TOKEN}."
    async with staged(hub, tmp_path, [acting(WRITE, FIXED_CALC, completion=said)]) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE
        [pull] = stage.pulls()
        [sha] = stage.bot_branches().values()
        for text in (end.status, pull.body or "", pull.title, stage.git("log", "-1", "--format=%B", sha)):
            assert WEBHOOK_SECRET not in text
            assert TOKEN not in text
        assert "[redacted]" in end.status
