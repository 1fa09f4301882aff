"""56. Loops, bombs and floods end at a limit, and the event loop stays awake meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest

from agent_runtime.core.errors import ControlError, FormatError, LimitError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.interpreter.source import InterpreterLimits

STUBS = "from typing import Any\ndef anything(*values: Any) -> Any: ..."
LIMITS = InterpreterLimits(seconds=0.5, memory_bytes=64 * 1024**2, calls=50, printed_chars=10_000)
LONGEST_SLEEP = 3.0
"""Seconds that the event loop may block on a busy machine; the attacks are endless."""

BOMBS: dict[str, str] = {
    "endless loop": "while True: pass",
    "endless loop that catches": "while True:\n    try:\n        1 / 0\n    except Exception:\n        pass",
    "sum without end": "sum(range(10**15))",
    "memory by a text": "x = 'a' * 10**10",
    "a text over the limit": "x = 'a' * 100_000_000",
    "memory by doubling": "x = 'a'\nwhile True: x += x",
    "memory by a list": "x = []\nwhile True: x.append('x' * 1000)",
    "memory by a range": "x = list(range(10**12))",
    "memory by a product": "import itertools\nx = list(itertools.product(range(1000), repeat=6))",
    "memory by a width": "x = f'{1:>10000000000}'",
    "memory by padding": "x = 'a'.ljust(10**11)",
    "memory by join": "x = ('a' * 10**6).join(['b'] * 10**6)",
    "memory by replace": "x = ('a' * 10**6).replace('a', 'b' * 10**6)",
    "huge power": "x = 7 ** 10**9",
    "squares": "x = 7\nwhile True: x = x * x",
    "factorial": "import math\nx = math.factorial(10**9)",
    "recursion": "def f(): return f()\nf()",
    "recursion over the limit": "def f(n):\n    if n: f(n - 1)\nf(600)",
    "mutual recursion": "def f(): return g()\ndef g(): return f()\nf()",
    "recursion that branches": "def f(n):\n    try:\n        f(n + 1)\n    finally:\n        f(n + 1)\nf(0)",
    "a list in itself, printed": "a = [1]\nfor _ in range(40): a = [a, a]\nprint(a)",
    "a list in itself, compared": "a, b = [1], [1]\nfor _ in range(60): a, b = [a, a], [b, b]\nprint(a == b)",
    "a list in itself, as json": "import json\na = [1]\nfor _ in range(40): a = [a, a]\njson.dumps(a)",
    "print flood": "while True: print('x' * 100)",
    "one huge print": "print('x' * 50_000_000)",
    "flood of empty prints": "while True: print()",
    "call flood": "while True: anything(1)",
    "call flood that catches": "while True:\n    try:\n        anything({1})\n    except TypeError:\n        pass",
    "flood of unknown names": ("while True:\n    try:\n        later\n    except NameError:\n        pass\nlater = 1"),
    "flood of refused system calls": (
        "import os\nwhile True:\n    try:\n        os.listdir('/')\n    except OSError:\n        pass"
    ),
    "expression with a million matches": "import re\nwhile True: re.sub('', 'x' * 1000, 'a' * 10_000)",
    "hashes without end": "import hashlib\nwhile True: hashlib.sha256(b'a' * 10**6)",
}
"""Endless or memory-hungry blocks; each must end in a `LimitError`."""

ENDING: dict[str, str] = {
    "an expression that backtracks": "import re\nre.match(r'(a+)+$', 'a' * 5000 + 'b')",
    "an expression that backtracks by reference": "import re\nre.match(r'(.*)\\1(.*)\\2x$', 'ab' * 20000)",
    "an expression that nests": "import re\nre.compile('(' * 5000 + ')' * 5000)",
    "text of a huge number": "str(10 ** 300_000)",
    "json that nests": "import json\njson.loads('[' * 100_000)",
    "a list in itself, as an argument": "a = [1]\nfor _ in range(30): a = [a, a]\nanything(a)",
    "a text many times, as an argument": "s = 'x' * 10_000_000\nanything([s] * 100)",
    "a huge message": "raise ValueError('x' * 10_000_000)",
    "source that nests": "x = " + "[" * 10_000 + "]" * 10_000,
    "sleep": "import time\ntime.sleep(10_000)",
    "asynchronous sleep": "import asyncio\nawait asyncio.sleep(10_000)",
}
"""Blocks that end by themselves, without blocking."""


@asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """Beat while the block runs, and return the times."""
    beats = [time.monotonic()]

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.02)
            beats.append(time.monotonic())

    task = asyncio.create_task(beat())
    try:
        yield beats
    finally:
        beats.append(time.monotonic())
        task.cancel()


class Desk:
    """A tool that only counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.shown = 0

    async def call(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        self.calls += 1
        return None

    def show(self, text: str) -> None:
        self.shown += len(text)


@pytest.fixture
async def interpreter() -> AsyncIterator[Interpreter]:
    interpreter = Interpreter(tools=["anything"], stubs=STUBS, limits=LIMITS)
    yield interpreter
    await interpreter.close()


async def run(interpreter: Interpreter, source: str) -> Desk:
    desk = Desk()
    async with heartbeat() as beats:
        try:
            async with asyncio.timeout(60):
                await interpreter.run(source, call=desk.call, show=desk.show)
        finally:  # also when it raises, as bombs do
            beats.append(time.monotonic())
            assert max(later - earlier for earlier, later in pairwise(beats)) < LONGEST_SLEEP
            assert desk.calls <= LIMITS.calls
            assert desk.shown <= LIMITS.printed_chars
    return desk


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_ends_at_a_limit_and_the_next_block_works(interpreter: Interpreter, name: str) -> None:
    with pytest.raises(LimitError):
        await run(interpreter, BOMBS[name])
    assert (await run(interpreter, "print('alive')")).shown == len("alive\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("endless loop", "time limit exceeded"),
        ("print flood", "printed more than 10,000 characters"),
        ("call flood", "more than 50 tool calls"),
        ("flood of unknown names", "unknown names over and over"),
    ],
)
async def test_the_limit_that_it_went_over_is_told(interpreter: Interpreter, name: str, told: str) -> None:
    with pytest.raises(LimitError, match=told):
        await run(interpreter, BOMBS[name])


@pytest.mark.parametrize("name", ENDING)
async def test_a_seemingly_endless_block_ends(interpreter: Interpreter, name: str) -> None:
    with suppress(ControlError, FormatError, LimitError):
        await run(interpreter, ENDING[name])
    assert (await run(interpreter, "print('alive')")).shown == len("alive\n")
