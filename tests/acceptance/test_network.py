"""A job whose commands may reach something: what the log and the comment say of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent_runtime import Network, NetworkLimits
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import COMPLETION, FIXED_CALC, acting, staged

_ASK = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT b.example:443 HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
_FIX = acting(
    f'execute("main", {_ASK!r})\nwrite_file("calc.py")\nexecute("main", "sh check.sh", check=True)',
    FIXED_CALC,
    completion=COMPLETION,
    fence="python",
)


async def test_the_log_names_the_job_and_the_host_and_the_comment_what_could_be_reached(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with staged(hub, tmp_path, [_FIX], network=Network.of("a.example")) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    assert "bubblewrap, network: a.example" in end.status
    assert "network: b.example:443 refused, 0 bytes out, 0 in: b.example is not on" in caplog.text


async def test_a_network_that_goes_away_is_said_in_the_comment_and_the_work_is_kept(
    hub: LocalHub, tmp_path: Path
) -> None:
    network = Network(allowed=Network.of("a.example").allowed, limits=NetworkLimits(connections=1))
    async with staged(hub, tmp_path, [_FIX], network=network) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert len(stage.pulls()) == 1
    assert end.state is JobState.DONE, end
    assert "network: a.example, which was lost: 1 connections were made" in end.status
