"""A process whose worker is at work for ever; it prints that worker's process id. usage: python -m ..."""

from __future__ import annotations

import sys
from threading import Thread

from agent_runtime.processes.bounded import call_bounded
from tests.agent_runtime.bounded_work import backtrack, identity

if __name__ == "__main__":
    sys.stdout.write(f"{call_bounded(identity)}\n")
    sys.stdout.flush()
    if sys.argv[1] == "busy":
        Thread(target=call_bounded, args=(backtrack, "a" * 60), kwargs={"seconds": 100}, daemon=True).start()
    sys.stdin.read()
