"""Reading a reply as it streams in, in the pieces of a few characters that providers send."""

from __future__ import annotations

import time

from agent_runtime.transports.blocks_parser import ReplyParser
from bench.measure import Figure

_CHUNK = 7
_MEGABYTE = 1_000_000


def measure() -> list[Figure]:
    """One megabyte of reply, and half of it: twice the text may take about twice the time."""
    half, whole = _seconds(_MEGABYTE // 2), _seconds(_MEGABYTE)
    return [
        Figure(label="1 MB of reply in chunks of 7 characters", value=whole, unit="s", bound=0.5),
        Figure(label="the same, as a multiple of half of it", value=whole / half, unit="x", bound=3),
    ]


def _seconds(size: int) -> float:
    lines = "".join(f"    value_{number} = compute({number})  # a line of code\n" for number in range(size // 45))
    prose = "Some words about what is to be done, and why.\n" * (size // 400)
    body = lines[: size - 2 * len(prose) - 200]
    reply = f'{prose}\n```codepilot\nwrite_file("a.py")\n```\n'
    reply += f"```python filename=a.py\n{body}\n```\n```completion\n{prose}```\n"
    parser = ReplyParser()
    begun = time.perf_counter()
    for start in range(0, len(reply), _CHUNK):
        parser.feed(reply[start : start + _CHUNK])
    done = parser.finish()
    taken = time.perf_counter() - begun
    if not done.payloads or len(done.payloads[0].text) < len(body) - 1:
        raise AssertionError("the reply was not read whole")
    return taken
