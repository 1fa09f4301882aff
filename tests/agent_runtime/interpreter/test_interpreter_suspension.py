"""A control block suspended in a tool call resumes in another interpreter."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_monty import AsyncMonty

from agent_runtime.core.errors import ControlError, FormatError, LimitError, ResumeCode, ResumeError, Suspend, ToolError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.interpreter.source import InterpreterLimits, InterpreterState, Suspended
from tests.agent_runtime.one_leg import STUBS, leg
from tests.codes import coded
from tests.sandboxes import children
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
LIMITS = InterpreterLimits(
    seconds=0.5, memory_bytes=50_000_000, calls=10, printed_chars=1_000, recursion=100, snapshot_bytes=500_000
)
BURN = "import time\nstart = time.monotonic()\nwhile time.monotonic() - start < {seconds}:\n    pass\n"


async def legs(source: str, *, then: tuple[str, ...] = (), limits: InterpreterLimits | None = None) -> list[str]:
    """Return the output of a block that is suspended at all calls and resumed in new interpreters."""
    done = await leg({"source": source, "calls": 0, "then": then}, limits=limits)
    told: list[str] = done["told"]
    while done["state"]:
        state = json.loads(json.dumps(done["state"]))
        done = await leg({"state": state, "calls": 1, "then": then}, limits=limits)
        told += done["told"]
    return told


async def suspended(source: str, *, limits: InterpreterLimits | None = None) -> InterpreterState:
    done = await leg({"source": source, "calls": 0}, limits=limits)
    return InterpreterState.from_plain(done["state"])


def run_in_new_process(segment: dict[str, Any]) -> dict[str, Any]:
    """Run a segment in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent_runtime.one_leg"],
        cwd=ROOT,
        input=json.dumps(segment).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_block_moves_through_three_processes_and_its_definitions_persist() -> None:
    source = """
def both(name):
    ask(name)
    return [ask(f"{name} {i}") for i in range(2)]
kept = "kept"
print(both("a"))
"""
    then = ["print(kept)\nboth('b')", "x = ask('c')\nprint(x)"]
    first = run_in_new_process({"source": source, "calls": 1})
    second = run_in_new_process({"state": first["state"], "calls": 1})
    third = run_in_new_process({"state": second["state"], "calls": 5, "then": then})
    assert first["told"] == ["ask!('a')"]
    assert second["told"] == ["ask('a 0')"]
    assert third["told"] == [
        "ask('a 1')",
        "['answer to a 0', 'answer to a 1']\n",
        "kept\n",
        "ask!('b')",
        "ask('b 0')",
        "ask('b 1')",
        "ask('c')",
        "answer to c\n",
    ]
    assert third["state"] is None


CALL_POSITIONS: dict[str, tuple[str, list[str]]] = {
    "a loop": (
        """
for i in range(3):
    ask(str(i))
""",
        ["ask!('0')", "ask!('1')", "ask!('2')"],
    ),
    "a line half printed": (
        """
print('a', end='')
ask('q')
print('b')
""",
        ["a", "ask!('q')", "b\n"],
    ),
    "a try, whose except and finally are not for the suspension": (
        """
try:
    ask('q')
except BaseException:
    print('seen')
else:
    print('else')
finally:
    print('finally')
""",
        ["ask!('q')", "else\nfinally\n"],
    ),
    "an except": (
        """
try:
    1 / 0
except ZeroDivisionError as error:
    x = ask(str(error))
    print(x, error)
""",
        ["ask('division by zero')", "answer to division by zero division by zero\n"],
    ),
    "a finally on the way out": (
        """
try:
    try:
        raise ValueError('v')
    finally:
        ask('q')
except ValueError as error:
    print('kept', error)
""",
        ["ask!('q')", "kept v\n"],
    ),
    "a comprehension": (
        "print({k: ask(k) for k in 'ab' if k})",
        ["ask('a')", "ask('b')", "{'a': 'answer to a', 'b': 'answer to b'}\n"],
    ),
    "a tool under another name": (
        """
f = ask
print([g('x') for g in (f,)])
""",
        ["ask('x')", "['answer to x']\n"],
    ),
    "a closure": (
        """
def outer():
    n = 1
    def inner():
        nonlocal n
        n += len(ask('q'))
    inner()
    return n
print(outer())
""",
        ["ask('q')", "12\n"],
    ),
    "the depth of a recursion": (
        """
def deep(n):
    return ask('end') if n == 0 else deep(n - 1)
print(deep(50))
""",
        ["ask('end')", "answer to end\n"],
    ),
    "a constructor": (
        """
class Box:
    def __init__(self):
        self.text = ask('x')
box = Box()
print(box.text)
""",
        ["ask('x')", "answer to x\n"],
    ),
    "a coroutine": (
        """
import asyncio
async def one(x):
    return ask(x)
async def main():
    return await asyncio.gather(one('a'), one('b'))
print(await main())
""",
        ["ask('a')", "ask('b')", "['answer to a', 'answer to b']\n"],
    ),
    "the arguments of another call": (
        "ask(ask('a') + ask('b'))",
        ["ask('a')", "ask('b')", "ask!('answer to aanswer to b')"],
    ),
    "an assert, and an argument by name": (
        """
assert ask('q') == 'answer to q'
print(len(ask(question='ü')))
""",
        ["ask('q')", "ask('ü')", "11\n"],
    ),
}
"""Block and output by position of the call."""


@pytest.mark.parametrize("where", CALL_POSITIONS)
async def test_a_block_may_be_frozen_wherever_it_calls(where: str) -> None:
    source, told = CALL_POSITIONS[where]
    assert await legs(source) == told


async def test_a_denial_is_an_exception_that_the_block_may_catch() -> None:
    state = await suspended(
        "try:\n    ask('q')\nexcept PermissionError as error:\n    print('caught', error)\nask('r')"
    )
    seen: list[str] = []

    async def deny(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        raise ToolError(f"denied {args[0]}", kind="PermissionError")

    interpreter = Interpreter(tools=["ask"], stubs=STUBS)
    with pytest.raises(ControlError, match=r"line 5[\s\S]*PermissionError: denied r"):
        await interpreter.resume(state, call=deny, show=seen.append)
    await interpreter.run("print('alive')", call=deny, show=seen.append)
    await interpreter.close()
    assert seen == ["caught denied q\n", "alive\n"]


async def test_later_blocks_are_checked_with_tools_and_bound_names() -> None:
    done = await leg({"source": "def f(x):\n    return ask(x)\nask('a')", "calls": 0})
    for wrong in ("ask(1)", "nope('x')"):
        with pytest.raises(FormatError, match=r"does not (fit|have)"):
            await leg({"state": done["state"], "calls": 9, "then": [wrong]})
    later = await leg({"state": done["state"], "calls": 9, "then": ["f = f('b')\nprint(f)", "print(f[-1])"]})
    assert later["told"] == ["ask!('a')", "ask('b')", "answer to b\n", "b\n"]


async def test_a_state_can_be_resumed_twice() -> None:
    state = await suspended("xs = []\nxs.append(ask('a'))\nprint(xs)")
    for _ in range(2):
        assert (await leg({"state": state.to_plain(), "calls": 1}))["told"] == ["ask('a')", "['answer to a']\n"]


async def test_the_worker_ends_when_a_block_is_suspended() -> None:
    workers: set[str] = set()

    async def call(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        workers.update(children())
        raise Suspend

    before = children()
    with pytest.raises(Suspended):
        await Interpreter(tools=["ask"], stubs=STUBS).run("ask('q')", call=call, show=print)
    assert workers - before
    await eventually(lambda: not (workers - before) & children())


async def test_a_run_can_be_stopped_during_a_resumed_call() -> None:
    state = await suspended("ask('q')")
    begun = asyncio.Event()

    async def hang(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        begun.set()
        await asyncio.Event().wait()
        return None

    interpreter = Interpreter(tools=["ask"], stubs=STUBS)
    task = asyncio.create_task(interpreter.resume(state, call=hang, show=print))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    seen: list[str] = []
    await interpreter.run("print('alive')", call=hang, show=seen.append)
    await interpreter.close()
    assert seen == ["alive\n"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("ask('q')\nwhile True: pass", "time limit"),
        (BURN.format(seconds=0.3) + "ask('q')\n" + BURN.format(seconds=0.3), "time limit"),
        ("ask('q')\nx = 'a' * 10**8", "memory limit"),
        ("def f(): return f()\nask('q')\nf()", "RecursionError"),
        ("def f(n): return ask('q') and f(0) if n == 1 else f(n - 1)\nf(50)", "RecursionError"),
        ("while True: ask('q')", "more than 10 tool calls"),
        ("print('x' * 600)\nask('q')\nprint('x' * 600)", "printed more than 1,000 characters"),
        (
            "ask('q')\nwhile True:\n    try:\n        later\n    except NameError:\n        pass\nlater = 1",
            "unknown names",
        ),
    ],
)
async def test_a_block_has_one_set_of_limits_however_often_it_is_frozen(source: str, told: str) -> None:
    with pytest.raises(LimitError, match=told):
        await legs(source, limits=LIMITS)


async def test_usage_within_the_limits_over_all_segments_is_allowed() -> None:
    roomy = replace(LIMITS, seconds=5.0)
    source = f"{BURN.format(seconds=0.1)}for i in range(10): ask('q')\n{BURN.format(seconds=0.1)}print('y' * 900)"
    assert len(await legs(source, limits=roomy, then=("print('later')",))) == 12


@pytest.mark.parametrize("first", [True, False])
async def test_the_tighter_of_the_limits_before_and_after_holds(*, first: bool) -> None:
    loose = replace(LIMITS, seconds=30.0, memory_bytes=10**9, calls=100)
    before, after = (LIMITS, loose) if first else (loose, LIMITS)
    for bomb, told in (("while True: pass", "time limit"), ("x = 'a' * 10**8", "memory limit")):
        state = await suspended(f"ask('q')\n{bomb}", limits=before)
        with pytest.raises(LimitError, match=told):
            await leg({"state": state.to_plain(), "calls": 1}, limits=after)


@pytest.mark.parametrize("size", [1_000_000, 30_000_000])
async def test_variables_too_large_to_keep_end_the_block_and_say_so(size: int) -> None:
    interpreter = Interpreter(tools=["ask"], stubs=STUBS, limits=LIMITS)
    seen: list[str] = []

    async def call(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        raise Suspend

    with pytest.raises(LimitError, match=r"ask .* 500,000 bytes"):
        await interpreter.run(f"x = 'ab' * {size // 2}\nask('q')", call=call, show=seen.append)
    await interpreter.run("print('alive')", call=call, show=seen.append)
    await interpreter.close()
    assert seen == ["alive\n"]


async def test_a_state_of_another_version_is_refused_by_name() -> None:
    state = replace(await suspended("ask('q')"), version="0.9.9")
    with pytest.raises(ResumeError, match=r"0\.9\.9", check=coded(ResumeCode.VERSION)):
        await leg({"state": state.to_plain(), "calls": 1})


async def test_a_missing_tool_is_reported() -> None:
    state = await suspended("ask('q')")
    with pytest.raises(ResumeError, match="ask", check=coded(ResumeCode.TOOL_MISSING)):
        await resumed(Interpreter(tools=["tell"], stubs="def tell(x: str) -> None: ..."), state)


async def resumed(interpreter: Interpreter, state: InterpreterState) -> list[str]:
    seen: list[str] = []

    async def answer(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        seen.append(tool)
        return "answer"

    try:
        await interpreter.resume(state, call=answer, show=seen.append)
    finally:
        await interpreter.close()
    return seen


@pytest.mark.parametrize("damage", ["empty", "noise", "half", "idle"])
async def test_a_damaged_snapshot_is_refused_and_the_interpreter_still_works(damage: str) -> None:
    state = await suspended("ask('q')")
    bad = {
        "empty": b"",
        "noise": os.urandom(500),
        "half": state.snapshot[: len(state.snapshot) // 2],
        "idle": await idle_session(),
    }[damage]
    interpreter = Interpreter(tools=["ask"], stubs=STUBS)
    with pytest.raises(ResumeError, check=coded(ResumeCode.DAMAGED, ResumeCode.TOOL_MISSING)):
        await resumed(interpreter, replace(state, snapshot=bad))
    assert await resumed(interpreter, state) == ["ask"]


async def idle_session() -> bytes:
    async with AsyncMonty(max_processes=1) as pool, pool.checkout() as session:
        await session.feed_run("x = 1")
        return await session.dump()


async def test_a_flipped_bit_never_does_more_than_end_the_block() -> None:
    state = await suspended("x = [1, 'a', {'b': 2.5}]\nask('q')\nprint(x)", limits=LIMITS)
    chance = random.Random(57)  # noqa: S311 - reproducible damage, not a secret
    refused = 0
    for _ in range(60):
        damaged = bytearray(state.snapshot)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            await resumed(
                Interpreter(tools=["ask"], stubs=STUBS, limits=LIMITS), replace(state, snapshot=bytes(damaged))
            )
        except ResumeError:
            refused += 1
        except (ControlError, LimitError):
            pass
    assert refused > 10


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot": "no base64!"},
        {"snapshot": 7},
        {"blocks": "1"},
        {"calls": True},
        {"discarded": []},
        {"discarded": {"x": [[1]]}},
        {"bound": [1]},
        {"version": None},
    ],
)
async def test_a_state_of_the_wrong_shape_is_refused(change: dict[str, Plain]) -> None:
    good = (await suspended("ask('q')")).to_plain()
    with pytest.raises(ResumeError, check=coded(ResumeCode.DAMAGED)):
        InterpreterState.from_plain(good | change)
    for key in good:
        with pytest.raises(ResumeError, match=key):
            InterpreterState.from_plain({name: value for name, value in good.items() if name != key})


async def test_a_state_comes_back_from_json_as_it_was_and_is_small() -> None:
    state = await suspended("def f():\n    ask('a')\nx = {'k': [1, 2]}\nf()")
    assert InterpreterState.from_plain(json.loads(json.dumps(state.to_plain()))) == state
    assert len(json.dumps(state.to_plain())) < 16_000
