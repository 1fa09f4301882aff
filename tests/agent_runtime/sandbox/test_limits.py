"""Exceeded limits and their messages."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from agent_runtime.sandbox.limits import (
    ResourceUsage,
    describe_breach,
    find_breach,
    fit_to_machine,
    format_bytes,
    format_seconds,
    measurement_breach,
)
from agent_runtime.sandbox.protocol import SandboxLimits

LIMITS = SandboxLimits(
    memory_bytes=2 << 30,
    processes=100,
    cpu_seconds=90,
    seconds=3600,
    disk_bytes=1 << 20,
    files=1_000,
    free_bytes=1 << 10,
)
OVER: dict[str, Any] = {
    "memory_bytes": (2 << 30, "memory 2 GiB"),
    "cpu_seconds": (90, "processor time 90 s"),
    "seconds": (3600, "time 1 h"),
    "disk_bytes": (1 << 20, "disk 1 MiB"),
    "files": (1_000, "files 1,000"),
}


@pytest.mark.parametrize("name", OVER)
def test_use_up_to_the_limit_is_allowed(name: str) -> None:
    most, said = OVER[name]
    assert find_breach(ResourceUsage(**{name: most}), LIMITS) is None
    found = find_breach(ResourceUsage(**{name: most + 1}), LIMITS)
    assert str(found) == said


def test_processes_end_a_little_earlier_because_the_kernel_counts_some_that_we_do_not_see() -> None:
    assert find_breach(ResourceUsage(processes=97), LIMITS) is None
    assert str(find_breach(ResourceUsage(processes=98), LIMITS)) == "processes 100"


def test_free_space_counts_when_it_is_known() -> None:
    assert find_breach(ResourceUsage(free_bytes=1 << 10), LIMITS) is None
    assert str(find_breach(ResourceUsage(free_bytes=1023), LIMITS)) == "free disk space of the machine 1 KiB"


def test_every_use_has_a_limit() -> None:
    assert {each.name for each in fields(ResourceUsage)} <= {each.name for each in fields(SandboxLimits)}


def test_a_breach_message_has_limit_consequence_and_advice() -> None:
    told = describe_breach("memory", LIMITS).message()
    assert told.startswith("limit: memory 2 GiB; all programs of all terminals were killed")
    assert "use fewer workers" in told
    assert measurement_breach("no such file").message().startswith("limit: measuring failed: no such file; ")


def test_memory_fits_the_machine() -> None:
    assert fit_to_machine(LIMITS, 1 << 30).memory_bytes == 3 << 28
    assert fit_to_machine(LIMITS, 64 << 30) == LIMITS


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 bytes"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (8 << 30, "8 GiB")]
)
def test_sizes_are_said_in_the_largest_unit(count: int, said: str) -> None:
    assert format_bytes(count) == said


@pytest.mark.parametrize(("count", "said"), [(0.5, "0.5 s"), (90, "90 s"), (120, "2 min"), (7200, "2 h")])
def test_times_are_said_in_the_largest_unit_that_divides_them(count: float, said: str) -> None:
    assert format_seconds(count) == said
