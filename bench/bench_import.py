"""What `import agent_runtime` costs: time, memory, network."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from bench.measure import Figure

_CHILD = """
import json, re, socket, sys, time
def refuse(*_): raise SystemExit("the import opened a connection")
socket.socket.connect = refuse
begun = time.perf_counter()
import agent_runtime
seconds = time.perf_counter() - begun
resident = re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())
print(json.dumps([seconds, int(resident[1]) / 1024]))
"""


def measure() -> list[Figure]:
    """Import in fresh processes; the median of nine."""
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, check=True, text=True).stdout)
        for _ in range(9)
    ]
    seconds = statistics.median(run[0] for run in runs)
    megabytes = statistics.median(run[1] for run in runs)
    return [
        Figure(what="`import agent_runtime`", value=seconds * 1000, unit="ms", bound=250),
        Figure(what="memory after it (resident, whole process)", value=megabytes, unit="MB", bound=40),
    ]
