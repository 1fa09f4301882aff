from __future__ import annotations

import pytest

from agent_runtime.context.transcript import MemorySettings
from agent_runtime.core.errors import SettingsError


def test_the_defaults_are_those_of_the_documentation() -> None:
    memory = MemorySettings()
    assert (memory.max_context_tokens, memory.global_summary_threshold, memory.global_summary_max_tokens) == (
        120_000,
        0.9,
        500,
    )
    assert memory.threshold_tokens == 108_000


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_context_tokens": 100}, "max_context_tokens is 100"),
        ({"global_summary_threshold": 0.0}, "global_summary_threshold is 0.0"),
        ({"global_summary_threshold": 90}, "global_summary_threshold is 90"),
        ({"global_summary_max_tokens": 0}, "global_summary_max_tokens is 0"),
        ({"max_context_tokens": 8_000, "global_summary_max_tokens": 4_000}, "use 50 to 2000"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, int], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        MemorySettings(**settings)
