from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import SandboxLimits
from agent_runtime.terminals.backends import Backend, backend
from agent_runtime.terminals.terminal import Terminal
from tests.containers import IMAGE, StandIn
from tests.source_files import ROOT
from tests.waiting import eventually


@pytest.fixture
def engine(tmp_path: Path) -> StandIn:
    return StandIn.at(tmp_path / "engine")


@pytest.fixture
async def place(engine: StandIn, tmp_path: Path) -> AsyncIterator[Backend]:
    (tmp_path / "work").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "1.log").write_text("logged\n")
    made = backend(engine.sandbox(), tmp_path / "work", {"/logs": tmp_path / "logs"})
    yield made
    await made.close()


@pytest.mark.slow
async def test_terminals_live_in_one_container_that_goes_with_them(engine: StandIn, place: Backend) -> None:
    one, two = Terminal("one", backend=place), Terminal("two", backend=place)
    first = await one.run("export A=b; pwd; cat /logs/1.log; echo x >/tmp/shared; (exit 4)", timeout=20)
    assert (first.output, first.exit_code) == ("/workspace\nlogged\n", 4)
    assert (await one.run("echo $A; tty >&2 </dev/tty", timeout=20)).output.startswith("b\n")
    assert (await two.run("cat /tmp/shared", timeout=20)).output == "x\n"
    assert len(engine.containers) == 1
    await place.close()
    assert engine.containers == []
    again = await one.run("echo again", timeout=20)
    assert (again.output, again.status, again.exit_code) == ("again\n", "completed", 0), again


@pytest.mark.slow
async def test_a_command_is_broken_off_by_ever_stronger_means(place: Backend) -> None:
    terminal = Terminal("main", backend=place)
    for stubborn in ("sleep 100", "sh -c 'trap \"\" INT; stty raw echo; sleep 100'"):
        assert (await terminal.run(stubborn, timeout=0.5)).status == "running"
        await terminal.interrupt("enough")
        report = await terminal.read(timeout=5)
        assert report is not None
        assert report.status == "stopped"
        assert (await terminal.run("echo well", timeout=10)).output == "well\n"


@pytest.mark.slow
async def test_what_a_terminal_started_ends_with_it_and_others_live_on(place: Backend) -> None:
    one, two = Terminal("one", backend=place), Terminal("two", backend=place)
    await one.run("setsid sleep 9001 & sleep 9002 & env -i sleep 9003 &", timeout=20)
    await two.run("sleep 9004 &", timeout=20)
    await one.close()
    shown = await two.run("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -x '900[0-9]'", timeout=20)
    assert shown.output == "9004\n"


@pytest.mark.slow
async def test_a_container_that_was_ended_from_inside_is_made_anew(engine: StandIn, place: Backend) -> None:
    terminal = Terminal("main", backend=place)
    first = await terminal.run("pkill cat", timeout=20)
    assert first.status in {"restarted", "completed"}
    await eventually(lambda: not engine.containers and terminal.pid is None)
    assert (await terminal.run("echo new", timeout=20)).output == "new\n"


@pytest.mark.slow
async def test_a_limit_that_the_engine_does_not_keep_ends_the_container_and_is_named(
    engine: StandIn, tmp_path: Path
) -> None:
    settings = replace(engine.settings, limits=SandboxLimits(files=50))
    place = backend(engine.sandbox(settings), tmp_path)
    terminal = Terminal("main", backend=place)
    try:
        report = await terminal.run("for n in {1..500}; do : >file-$n; done; sleep 100", timeout=30)
        assert report.status == "killed"
        assert "files" in report.note
        assert (await terminal.run("echo new", timeout=20)).output == "new\n"
    finally:
        await place.close()
    assert engine.containers == []


async def test_an_image_that_is_gone_is_said(engine: StandIn, place: Backend) -> None:
    (engine.home / "images" / IMAGE).unlink()
    with pytest.raises(SandboxError, match=f"docker pull {IMAGE}"):
        await place.open()


@pytest.mark.slow
async def test_the_container_ends_with_whoever_holds_it(engine: StandIn, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "from tests.containers import StandIn; from agent_runtime.terminals.backends import backend\n"
        "from agent_runtime.terminals.terminal import Terminal\n"
        "here = Path(sys.argv[1])\n"
        "engine = StandIn(home=here / 'engine', program=here / 'engine' / 'docker')\n"
        "async def main():\n"
        "    terminal = Terminal('main', backend=backend(engine.sandbox(), here))\n"
        "    await terminal.run('setsid sleep 1000 & sleep 1001 &', timeout=20)\n"
        "    print('up', flush=True); await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [sys.executable, "-c", program, str(tmp_path), str(ROOT), *sys.path], stdout=subprocess.PIPE
    ) as bot:
        assert bot.stdout is not None
        assert bot.stdout.readline() == b"up\n"
        assert len(engine.containers) == 1
        bot.kill()
    await eventually(lambda: not engine.containers)
