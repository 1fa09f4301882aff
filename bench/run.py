"""Measure every speed claim and print the table; exits with 1 when a bound does not hold. Usage: make bench."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import (
    bench_accepting,
    bench_action_install,
    bench_answers,
    bench_baseline,
    bench_budget,
    bench_context,
    bench_crowd,
    bench_delegation,
    bench_delivery,
    bench_difference,
    bench_edits,
    bench_engine,
    bench_host,
    bench_idle,
    bench_import,
    bench_job_setup,
    bench_large_delivery,
    bench_limits,
    bench_loop,
    bench_reads,
    bench_red_ci,
    bench_reply,
    bench_sandbox,
    bench_search,
    bench_sessions,
    bench_snapshots,
    bench_terminals,
)
from bench.measure import table

if __name__ == "__main__":
    figures = [
        figure
        for part in (
            bench_import,
            bench_action_install,
            bench_loop,
            bench_context,
            bench_baseline,
            bench_reads,
            bench_delivery,
            bench_accepting,
            bench_large_delivery,
            bench_engine,
            bench_idle,
            bench_crowd,
            bench_budget,
            bench_job_setup,
            bench_snapshots,
            bench_delegation,
            bench_difference,
            bench_red_ci,
            bench_edits,
            bench_reply,
            bench_answers,
            bench_search,
            bench_sessions,
            bench_terminals,
            bench_sandbox,
            bench_limits,
            bench_host,
        )
        for figure in part.measure()
    ]
    print(f"CPython {platform.python_version()} on {platform.system()} {platform.machine()}\n")
    print(table(figures))
    sys.exit(0 if all(figure.holds for figure in figures) else 1)
