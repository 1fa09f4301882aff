"""Cost of importing the library and the agent: processor time, memory, network."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from bench.measure import Figure, installed

_BOUNDS = {"import agent_runtime": (25, 15), "from agent_runtime import Agent, AsyncRuntime": (150, 30)}
"""Milliseconds of processor time, and MB of the whole process."""
_CHILD = """
import json, re, socket, sys, time
def refuse(*_): raise SystemExit("the import opened a connection")
socket.socket.connect = refuse
begun = time.process_time()
exec(sys.argv[1])
seconds = time.process_time() - begun
resident = re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())
print(json.dumps([seconds, int(resident[1]) / 1024]))
"""


def measure() -> list[Figure]:
    """Import in fresh processes; the median of nine."""
    figures: list[Figure] = []
    for statement, (most_ms, most_mb) in _BOUNDS.items():
        command = [sys.executable, "-c", _CHILD, statement]
        runs = [
            json.loads(subprocess.run(command, env=installed(), capture_output=True, check=True, text=True).stdout)
            for _ in range(9)
        ]
        seconds, megabytes = (statistics.median(run[place] for run in runs) for place in (0, 1))
        figures += [
            Figure(label=f"`{statement}`", value=seconds * 1000, unit="ms", bound=most_ms),
            Figure(label="memory after it (resident, whole process)", value=megabytes, unit="MB", bound=most_mb),
        ]
    return figures
