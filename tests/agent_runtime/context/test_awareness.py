from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_runtime.context.first_message import step_status

NOW = datetime(2026, 2, 21, 16, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("step", "max_steps", "expected"),
    [
        (3, 30, "[Agentic step 3 / 30] 2026-02-21 16:30 UTC"),
        (9, 30, "[Agentic step 9 / 30] 2026-02-21 16:30 UTC"),
        (10, 30, "[Agentic step 10 / 30 - 33% agentic steps consumed!] 2026-02-21 16:30 UTC"),
        (12, 30, "[Agentic step 12 / 30 - 40% agentic steps consumed!] 2026-02-21 16:30 UTC"),
        (22, 30, "[Agentic step 22 / 30 - 73% agentic steps consumed!] 2026-02-21 16:30 UTC"),
        (23, 30, "[Agentic step 23 / 30 - 76% agentic steps consumed. Approaching step limit!] 2026-02-21 16:30 UTC"),
        (24, 30, "[Agentic step 24 / 30 - 80% agentic steps consumed. Approaching step limit!] 2026-02-21 16:30 UTC"),
        (26, 30, "[Agentic step 26 / 30 - 86% agentic steps consumed. Approaching step limit!] 2026-02-21 16:30 UTC"),
        (27, 30, "[Agentic step 27 / 30 - 90% agentic steps consumed! Hard Limit Near!] 2026-02-21 16:30 UTC"),
        (28, 30, "[Agentic step 28 / 30 - 93% agentic steps consumed! Hard Limit Near!] 2026-02-21 16:30 UTC"),
        (1, 1, "[Agentic step 1 / 1 - 100% agentic steps consumed! Hard Limit Near!] 2026-02-21 16:30 UTC"),
    ],
)
def test_the_closer_the_limit_the_plainer(step: int, max_steps: int, expected: str) -> None:
    assert step_status(step, max_steps, NOW) == expected
