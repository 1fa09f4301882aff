"""Deliveries of megabytes, read in a worker process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.apps import large_deliveries
from bot.domain.listening import Listening

HEADERS = {"Content-Type": "application/json", "X-GitHub-Event": "issue_comment", "X-GitHub-Delivery": "guid-1"}


async def test_a_delivery_that_a_busy_machine_cannot_read_in_time_is_not_refused_for_good(tmp_path: Path) -> None:
    path = tmp_path / "delivery"
    path.write_bytes(b'{"comment": [' + b"{}," * 200_000 + b"{}]}")
    # The webhook answers 503 to it, as to any other `OSError`, and has GitHub deliver it again later.
    with pytest.raises(TimeoutError):
        await large_deliveries.read(path, HEADERS, Listening(), seconds=0.01)
