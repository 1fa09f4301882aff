"""A machine that fails in mid-run: the run ends with a status of its own, what was done is kept, and it is said."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import Ended, Network, Observed, Replied, SandboxLimits, Status
from agent_runtime.sandbox import bubblewrap
from agent_runtime.sandbox.bubblewrap import which
from agent_runtime.sandbox.egress import Tunnel
from agent_runtime.sandbox.protocol import PrivateDirectory
from bot.domain.job import JobState
from localhub import LocalHub
from tests import stage as stage_module
from tests.stage import COMPLETION, FIX, FIXED_CALC, End, Stage, acting, staged

_WRITE = 'write_file("calc.py")\n'
_FILL = "head -c 60M /dev/zero >big; sleep 20"
_ASK = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT a.example:443 HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[[SandboxLimits], None]:
    """Gives the bot of the next stage other limits of its sandboxes."""

    def limit(limits: SandboxLimits) -> None:
        usual = stage_module.agent_settings
        monkeypatch.setattr(
            stage_module, "agent_settings", lambda *a, **k: replace(usual(*a, **k), sandbox_limits=limits)
        )

    return limit


def _status(stage: Stage) -> Status:
    [ended] = [each.outcome for each in stage.events if isinstance(each, Ended)]
    return ended.status


def _is_kept(stage: Stage, end: End) -> None:
    """The work so far stands on a branch of its own, and nowhere else."""
    [(branch, sha)] = stage.bot_branches().items()
    assert f"The work so far is on the branch `{branch}`" in end.status
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    assert stage.pulls() == []


async def test_a_sandbox_binary_that_vanishes(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limited: Callable[[SandboxLimits], None]
) -> None:
    program = tmp_path / "bwrap"
    # It is there for the first sandbox with a terminal, and gone for the next.
    program.write_text(f'#!/bin/sh\ncase "$*" in *" keeper "*) rm -f "$0";; esac\nexec {shutil.which("bwrap")} "$@"\n')
    program.chmod(0o755)
    # The interpreter's launcher names the program, too, and would outlive this test.
    directory = PrivateDirectory("codepilot-sandbox-")
    monkeypatch.setattr(bubblewrap, "_shared_directory", lambda: directory)
    monkeypatch.setattr(
        bubblewrap, "which", lambda name, package: which(str(program) if name == "bwrap" else name, package)
    )
    limited(SandboxLimits(processes=40))
    bomb = acting(
        _WRITE + 'execute("main", "for i in {1..60}; do sleep 60 & done; wait", timeout=30)\nexecute("main", "true")',
        FIXED_CALC,
        fence="python",
    )
    async with staged(hub, tmp_path, [bomb, FIX]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert not program.exists()
        assert _status(stage) is Status.SANDBOX_FAILED
        assert end.state is JobState.FAILED
        assert "bwrap` is missing; install it with" in end.status
        _is_kept(stage, end)


@pytest.mark.slow
async def test_a_workspace_that_fills_the_disk(
    hub: LocalHub, tmp_path: Path, limited: Callable[[SandboxLimits], None]
) -> None:
    limited(SandboxLimits(disk_bytes=20 << 20))
    fill = acting(f'execute("main", {_FILL!r}, timeout=30)\nexecute("main", "rm -f big")')
    first = acting(_WRITE, FIXED_CALC, fence="python")
    async with staged(hub, tmp_path, [first, fill, fill, fill, fill]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert _status(stage) is Status.SANDBOX_FAILED
        assert end.state is JobState.FAILED
        assert "ended 3 times because its programs exceeded its limits (disk 20 MiB)" in end.status
        _is_kept(stage, end)


async def test_a_disk_that_was_filled_once_costs_the_model_a_sandbox_and_no_more(
    hub: LocalHub, tmp_path: Path, limited: Callable[[SandboxLimits], None]
) -> None:
    limited(SandboxLimits(disk_bytes=20 << 20))
    fill = acting(f'execute("main", {_FILL!r}, timeout=30)\nexecute("main", "rm -f big")')
    async with staged(hub, tmp_path, [fill, FIX]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        told = [each.text for each in stage.events if isinstance(each, Observed)]
        assert "limit: disk 20 MiB; all programs of all terminals were killed" in told[0]
    assert end.state is JobState.DONE, end
    assert COMPLETION in end.status


async def test_a_proxy_that_dies(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(_: Tunnel) -> None:
        raise MemoryError("there is none left")

    monkeypatch.setattr(Tunnel, "serve", die)
    fetch = acting(f'write_file("calc.py")\nexecute("main", {_ASK!r})', FIXED_CALC, fence="python")
    async with staged(hub, tmp_path, [fetch, FIX], network=Network.of("a.example")) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert _status(stage) is Status.NETWORK_LOST
        assert end.state is JobState.FAILED
        assert "lost its network: the proxy broke: MemoryError('there is none left')" in end.status
        _is_kept(stage, end)
        assert sum(isinstance(each, Replied) for each in stage.events) == 1
