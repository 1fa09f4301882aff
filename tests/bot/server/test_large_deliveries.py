"""Deliveries of megabytes, read in a worker process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.domain.access import Listening
from bot.server import webhook

HEADERS = {"Content-Type": "application/json", "X-GitHub-Event": "issue_comment", "X-GitHub-Delivery": "guid-1"}


async def test_a_delivery_that_a_busy_machine_cannot_read_in_time_is_not_refused_for_good(tmp_path: Path) -> None:
    path = tmp_path / "delivery"
    path.write_bytes(b'{"comment": [' + b"{}," * 200_000 + b"{}]}")
    # The webhook answers 503 to it, as to any other `OSError`, and has GitHub deliver it again later.
    with pytest.raises(TimeoutError):
        await webhook.read_delivery(path, HEADERS, Listening(), seconds=0.01)


def test_a_delivery_that_is_gone_before_it_is_swept_keeps_nothing_from_starting(tmp_path: Path) -> None:
    left = tmp_path / "delivery-left"
    left.touch()
    os.utime(left, (0, 0))
    (tmp_path / "delivery-gone").symlink_to("nowhere")  # listed, and not there when it is looked at
    webhook.sweep_deliveries(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["delivery-gone"]
